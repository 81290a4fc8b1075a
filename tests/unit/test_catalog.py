"""Which recording is shown first, and which one is found when asked for."""

from __future__ import annotations

import dataclasses

import pytest

from tensorboard_plugin_plumber.events import catalog
from tensorboard_plugin_plumber.events.catalog import NotFound
from tensorboard_plugin_plumber.schema.recording import Recording
from tests.support.records import START_S, Training


def recording(run: str, host: str, training: Training | None = None, samples: int = 4) -> Recording:
    training = training or Training()
    return Recording(
        run, host, training.graph(), tuple(training.sample(sequence) for sequence in range(samples))
    )


def test_the_newest_run_its_slowest_host_and_its_training_are_preselected() -> None:
    # GIVEN an old run, and a newer one on two hosts, one of them slower
    both = ("train", "validation")
    recordings = [
        recording("old", "a-0"),
        recording("new", "a-0", Training(start_s=START_S + 50, rate=10, labels=both)),
        recording("new", "b-1", Training(start_s=START_S + 40, rate=7, labels=both)),
    ]
    # WHEN they are listed
    listed = catalog.catalog(recordings, now_s=START_S + 1000)
    # THEN
    assert [entry.run for entry in listed.runs] == ["new", "old"]
    assert [entry.host for entry in listed.runs[0].hosts] == ["a-0", "b-1"]
    assert (listed.run, listed.host, listed.pipeline) == ("new", "b-1", "train-0123abcd")
    assert listed.runs[0].hosts[1].rate == pytest.approx(7)
    assert [entry.label for entry in listed.runs[0].hosts[0].pipelines] == ["train", "validation"]


def test_nothing_recorded_is_an_empty_list() -> None:
    listed = catalog.catalog([], now_s=START_S)
    assert not listed.runs
    assert not listed.HasField("run")


def test_an_untrained_pipeline_is_not_preselected() -> None:
    # GIVEN a training that has only validated so far
    training = Training(labels=("train", "validation"))
    only_validated = recording("run", "a-0", training)
    for sample in only_validated.samples:
        del sample.pipelines[0]
    # THEN
    assert catalog.main_pipeline(only_validated).label == "validation"


def test_asking_by_name() -> None:
    recordings = [recording("one", "a-0"), recording("one", "b-0"), recording("two", "c-0")]
    assert catalog.choose(recordings, run="one", host="b-0").host == "b-0"
    assert catalog.choose(recordings, run="two").host == "c-0"
    assert catalog.choose(recordings, host="c-0").run == "two"
    assert catalog.choose_pipeline(recordings[0], "train").id == "train-0123abcd"
    assert catalog.choose_pipeline(recordings[0], "train-0123abcd").label == "train"


def test_what_is_not_there_is_said_with_what_is() -> None:
    recordings = [recording("one", "a-0"), recording("two", "c-0")]
    with pytest.raises(NotFound, match=r"There is no run 'x': there are 'one', 'two'\."):
        catalog.choose(recordings, run="x")
    with pytest.raises(NotFound, match=r"Run 'one' has no host 'c-0': it has 'a-0'\."):
        catalog.choose(recordings, run="one", host="c-0")
    with pytest.raises(NotFound, match=r"No run has a host 'x': there are 'a-0', 'c-0'\."):
        catalog.choose(recordings, host="x")
    with pytest.raises(
        NotFound, match=r"no pipeline 'x' in run 'one': there are 'train' \(id 'train-0123abcd'\)"
    ):
        catalog.choose_pipeline(recordings[0], "x")


def test_live_is_what_was_not_closed_and_is_not_silent() -> None:
    running = recording("run", "a-0")
    last_s = running.samples[-1].wall_time_s
    assert catalog.is_live(running, now_s=last_s + 10)
    assert not catalog.is_live(running, now_s=last_s + 31)
    closed = dataclasses.replace(running, samples=(*running.samples, Training().sample(4, final=True)))
    assert not catalog.is_live(closed, now_s=last_s + 2)
    # Late in a long run samples are far apart.
    slow = recording("run", "a-0", Training(interval_s=60))
    assert catalog.is_live(slow, now_s=slow.samples[-1].wall_time_s + 200)
