"""Pipelines of which a part runs where nothing can be counted: behind a device, or on the workers of a service."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.events import reader
from tests.support.operators.case import Bench

Dataset = tf.data.Dataset
ROOT = Path(__file__).parents[2]
WORK_S = 0.015
BEHIND_A_DEVICE = "runs in an iterator that TensorFlow hides behind the device: it is shown as written"
ON_WORKERS = "runs on the workers of a tf.data service: it is shown as written, and nothing is counted there."
# What nobody here could know.
CLAIM = "The pipeline could give"


def slow(x: tf.Tensor) -> tf.Tensor:
    """Takes its time, where nobody can see it."""

    def work(value: Any) -> Any:
        time.sleep(WORK_S)
        return value

    return tf.ensure_shape(tf.numpy_function(work, [x], tf.int64), ())


def source() -> tf.data.Dataset:
    return Dataset.range(160).map(slow).batch(2)


def copied(_: Bench) -> tf.data.Dataset:
    return source().apply(tf.data.experimental.copy_to_device("/cpu:0"))


def copied_then_mapped(_: Bench) -> tf.data.Dataset:
    return copied(_).map(lambda x: x * 1)


def ahead_of_the_copy(_: Bench) -> tf.data.Dataset:
    return source().prefetch(8).apply(tf.data.experimental.copy_to_device("/cpu:0"))


def prefetched(_: Bench) -> tf.data.Dataset:
    return source().apply(tf.data.experimental.prefetch_to_device("/cpu:0"))


def distributed(bench: Bench) -> tf.data.Dataset:
    service = tf.data.experimental.service.distribute("parallel_epochs", bench.service)
    return source().apply(service).map(lambda x: x * 1)


def registered(bench: Bench) -> tf.data.Dataset:
    service = tf.data.experimental.service
    dataset = source()
    identifier = service.register_dataset(bench.service, dataset)
    return service.from_dataset_id("parallel_epochs", bench.service, identifier, dataset.element_spec)


@dataclass(frozen=True)
class Way:
    """A pipeline, the types of its rows from the last one down, how many of them run here, and what is said."""

    make: Callable[[Bench], tf.data.Dataset]
    rows: tuple[str, ...]
    here: int
    note: str


BELOW = ("Batch", "Map", "Range")
WAYS = [
    Way(copied, ("CopyToDevice", *BELOW), 1, BEHIND_A_DEVICE),
    Way(copied_then_mapped, ("Map", "CopyToDevice", *BELOW), 2, BEHIND_A_DEVICE),
    Way(prefetched, ("PrefetchToDevice", *BELOW), 1, BEHIND_A_DEVICE),
    Way(distributed, ("Map", "DataService", *BELOW), 2, ON_WORKERS),
    Way(
        registered,
        ("DataService",),
        1,
        "What the tf.data service computes for DataService is not known here.",
    ),
]


def report(log_dir: Path, *options: str) -> str:
    """What `plumber report` prints, in one line."""
    ended = subprocess.run(
        [sys.executable, "-m", "tensorboard_plugin_plumber.cli", "report", str(log_dir), *options],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "Traceback" not in ended.stderr
    return " ".join(ended.stdout.split())


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.make.__name__)
def test_a_loop_over_it_runs_and_the_report_says_what_is_not_seen(way: Way, tmp_path: Path) -> None:
    # GIVEN a loop that does nothing, on a pipeline that does its work elsewhere
    bench = Bench(tmp_path)
    dataset = way.make(bench)

    # WHEN it is recorded
    with plumber.trace(tmp_path / "log", consumer="synchronous"):
        elements = [one.numpy() for one in dataset]

    # THEN it got what it would have got
    np.testing.assert_array_equal(np.sort(np.concatenate(elements)), np.arange(160))
    # AND there is a row for each operator as written; only what runs here has counters
    (recording,) = reader.read(tmp_path / "log")
    (pipeline,) = recording.graph.pipelines
    rows = [one for one in pipeline.operators if not one.injected]
    assert tuple(one.type for one in rows) == way.rows
    assert [one.HasField("running") for one in rows] == [at < way.here for at in range(len(rows))]
    assert all(Path(one.source.path).name == Path(__file__).name for one in rows)
    assert any(way.note in note for note in pipeline.notes)
    assert recording.samples[-1].pipelines[0].steps == 80
    # AND the report says so, blames nothing that it cannot see, and promises nothing
    answer = json.loads(report(tmp_path / "log", "--json"))
    unseen = {one.id for one in rows[way.here :]}
    assert answer["verdict"]["input_bound"]
    assert not unseen & {answer["bottleneck"].get("operator"), *answer["bottleneck"].get("operators", [])}
    assert all(one.get("max_rate") is None for one in answer["operators"] if one["id"] in unseen)
    assert not unseen & {change.get("operator") for change in answer["plan"].get("changes", [])}
    text = report(tmp_path / "log")
    assert way.note in text
    assert CLAIM not in text


@pytest.mark.parametrize("make", [ahead_of_the_copy, distributed])
def test_how_much_faster_it_could_be_is_not_claimed(
    make: Callable[[Bench], tf.data.Dataset], tmp_path: Path
) -> None:
    # GIVEN a loop that is slower than the work elsewhere, which runs ahead of it
    bench = Bench(tmp_path)
    with plumber.trace(tmp_path / "log", consumer="synchronous"):
        for _ in make(bench).take(60):
            time.sleep(4 * WORK_S)

    # THEN nothing is concluded from how quickly its elements were there
    text = report(tmp_path / "log")
    assert CLAIM not in text
    said = "What the pipeline could give is not known: what feeds" in text
    assert said == ("not-input-bound" in text)  # a crowded machine may make it wait
