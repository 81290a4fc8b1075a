"""What is recorded of programs and iterators that end within moments."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture.following import Requests
from tensorboard_plugin_plumber.capture.recorder import Recorder
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


class Kept:
    """A sink that keeps the samples."""

    def __init__(self) -> None:
        self.samples: list[m.SampleRecord] = []

    def write_graph(self, record: m.GraphRecord) -> None:
        """Not looked at here."""

    def write_sample(self, record: m.SampleRecord) -> None:
        """Keeps it."""
        self.samples.append(record)

    def close(self) -> None:
        """Nothing to close."""


def sample_times(*, last: Sequence[bool], final: bool) -> list[float]:
    """When samples were taken, of a recorder that is told which is the last one."""
    kept = Kept()
    recorder = Recorder("trace", kept, interval_s=1.0)
    recorder.begin()
    for one in last:
        recorder.make_sample([], poller_cpu_s=0.0, last=one, final=final and one)
    recorder.send()
    return [sample.elapsed_s for sample in kept.samples]


@pytest.mark.parametrize("final", [True, False])
def test_what_ends_before_the_first_look_has_its_beginning_for_a_second_sample(final: bool) -> None:
    began_s, ended_s = sample_times(last=[True], final=final)

    assert began_s == 0 < ended_s


def test_what_has_samples_needs_no_beginning() -> None:
    times_s = sample_times(last=[False, True], final=True)

    assert len(times_s) == 2
    assert times_s[0] > 0


def test_while_an_iterator_is_dropped_its_last_known_requests_stand() -> None:
    iterator = iter(tf.data.Dataset.range(100))
    for _ in range(3):
        next(iterator)
    requests = Requests(iterator)
    alive = requests.read()
    # The iterator is gone, and its model at the end has not come: as between the two in another thread.
    requests.detach()
    del iterator
    gc.collect()

    assert alive.nodes[alive.output].num_elements == 3
    assert requests.read() == alive


def test_an_iterator_dropped_before_it_was_read_has_no_requests() -> None:
    iterator = iter(tf.data.Dataset.range(100))
    requests = Requests(iterator)
    requests.detach()
    del iterator
    gc.collect()

    assert requests.read() is None
