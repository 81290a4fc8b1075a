"""The wait for the first element of an iterator."""

from __future__ import annotations

import threading
import time

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture.epochs import EpochStarts, FirstElement, is_executing
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


def test_a_sample_sums_all_starts_and_names_the_latest() -> None:
    starts = EpochStarts()
    for epoch in range(30):
        starts.add(100.0 + epoch, 100.5 + epoch)
    sample = m.PipelineSample()

    starts.fill(sample, now_s=130.0, elapsed_s=31.0)

    assert sample.epochs_started == 30
    assert sample.epoch_start_delay_s == pytest.approx(15.0)
    assert [start.epoch for start in sample.epoch_starts] == list(range(11, 31))
    assert sample.epoch_starts[-1].delay_s == pytest.approx(0.5)
    assert sample.epoch_starts[-1].elapsed_s == pytest.approx(30.5)


def test_looks_before_the_first_request_are_no_wait() -> None:
    first = FirstElement(0.0)
    first.nothing_yet(0.3, works=False)
    first.nothing_yet(0.6, works=True)
    first.nothing_yet(0.9, works=True)

    # WHEN a look finds elements, and gaps of a second between their requests
    first.came(2.1, 1.0)

    assert (first.idle_s, first.came_s) == (0.3, pytest.approx(1.1))


def test_the_first_element_came_after_the_last_look_without_one() -> None:
    first = FirstElement(0.0)
    first.nothing_yet(2.0, works=True)
    first.came(2.1, 1.0)

    assert first.came_s == 2.0


def test_a_thread_that_waits_in_tensorflow_is_told_from_one_that_computes() -> None:
    entered, done = threading.Event(), threading.Event()

    def slow(x: tf.Tensor) -> tf.Tensor:
        entered.set()
        done.wait(20)
        return x

    def consume() -> None:
        next(iter(tf.data.Dataset.range(1).map(lambda x: tf.py_function(slow, [x], tf.int64))))

    consumer = threading.Thread(target=consume)
    consumer.start()
    entered.wait(20)
    waits = [is_executing(consumer.ident or 0) for _ in range(20) if time.sleep(0.01) is None]
    done.set()
    consumer.join()

    assert all(waits)
    assert not is_executing(threading.get_ident())
