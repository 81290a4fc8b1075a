"""What is said of the consumer, against the clocks of the test's own loop: waits, first elements, CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture.poller import Pace
from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.model.analyse import analyse
from tensorboard_plugin_plumber.report import Report
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

STEPS = 160
LONG_S = 0.02


@dataclass
class OwnClock:
    """Times every request of a loop from outside."""

    waits_s: list[float] = field(default_factory=list)
    firsts_s: list[float] = field(default_factory=list)
    work_cpu_s: float = 0.0

    def loop(self, dataset: tf.data.Dataset, work: Callable[[], Any]) -> None:
        """Takes all of the dataset."""
        iterator, waits = iter(dataset), []
        while True:
            began_s = time.perf_counter()
            try:
                next(iterator)
            except StopIteration:
                break
            waits.append(time.perf_counter() - began_s)
            began_s = time.thread_time()
            work()
            self.work_cpu_s += time.thread_time() - began_s
        self.firsts_s.append(waits[0])
        self.waits_s += waits[1:]


def spin(seconds: float) -> None:
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def every_tenth_is_slow(steps: int, *, first_s: float = 0.0) -> tf.data.Dataset:
    """One element in ten takes LONG_S; nothing is made ahead, so the consumer waits for each of these."""

    def make(index: Any) -> Any:
        if index == 0:
            time.sleep(first_s)
        elif index % 10 == 5:
            time.sleep(LONG_S)
        return index

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    dataset = tf.data.Dataset.range(steps)
    return dataset.map(lambda i: tf.numpy_function(make, [i], tf.int64)).with_options(options)


def recorded(log_dir: Path) -> tuple[m.PipelineSample, a.Analysis]:
    (recording,) = reader.read(log_dir)
    return recording.samples[-1].pipelines[0], analyse(recording)


def test_the_share_of_steps_that_wait_is_that_of_the_loops_own_clock(tmp_path: Path) -> None:
    own = OwnClock()

    with plumber.trace(tmp_path, consumer="synchronous"):
        for _ in range(2):
            own.loop(every_tenth_is_slow(STEPS, first_s=0.3), lambda: spin(0.003))

    # Two datasets built by the same lines are one pipeline.
    sample, analysis = recorded(tmp_path)
    long = sum(wait_s > 1e-3 for wait_s in own.waits_s)
    # A wait of just a millisecond may fall on either side of it.
    close = sum(0.7e-3 < wait_s < 1.3e-3 for wait_s in own.waits_s)
    assert sample.waits_seen == pytest.approx(len(own.waits_s), abs=4)
    assert sample.waits_over_1ms == pytest.approx(long, abs=close + 2)
    assert analysis.verdict.waits_over_1ms == pytest.approx(long / len(own.waits_s), rel=0.3)
    assert sample.step_s - sample.gap_s == pytest.approx(sum(own.waits_s), rel=0.1, abs=0.1)
    # AND the first elements are those of the loop's clock.
    assert sample.epochs_started == analysis.verdict.epochs == 2
    assert [start.delay_s for start in sample.epoch_starts] == pytest.approx(own.firsts_s, abs=0.1)
    assert analysis.verdict.first_step_delay_s == pytest.approx(sum(own.firsts_s) / 2, abs=0.1)
    assert "first element after" in Report(analysis).text()


def test_the_cpu_of_the_consuming_thread_is_its_own(tmp_path: Path) -> None:
    own = OwnClock()

    with plumber.trace(tmp_path, consumer="synchronous"):
        own.loop(every_tenth_is_slow(STEPS), lambda: spin(0.01))

    sample, analysis = recorded(tmp_path)
    if not sample.HasField("consumer_thread_cpu_s"):
        pytest.skip("the kernel does not count the time of threads")
    per_step_s = own.work_cpu_s / STEPS
    assert analysis.verdict.HasField("consumer_thread_cpu_s")
    assert analysis.verdict.consumer_thread_cpu_s == pytest.approx(per_step_s, rel=0.25)
    # All of the process but the pipeline is at least that thread.
    assert analysis.verdict.consumer_cpu_s >= 0.8 * per_step_s


@pytest.mark.parametrize("looks", ["many", "one"])
def test_a_loop_without_python_says_nothing_of_single_steps_but_something_of_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: str
) -> None:
    if looks == "one":  # and that after the last step
        monkeypatch.setattr(Pace, "period_s", lambda *_: 1e6)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    dataset = every_tenth_is_slow(STEPS, first_s=1.0).with_options(options)
    weight = tf.Variable(tf.ones([200, 200]))

    @tf.function
    def train(iterator: Any) -> None:
        for _ in tf.range(STEPS):
            next(iterator)
            weight.assign(tf.linalg.matmul(weight, weight) * 1e-3)

    with plumber.trace(tmp_path, consumer="synchronous"):
        iterator = iter(dataset)
        began_s = time.perf_counter()
        train(iterator)
        seconds = time.perf_counter() - began_s

    sample, analysis = recorded(tmp_path)
    assert sample.steps == STEPS
    assert sample.waits_seen == 0
    assert not analysis.verdict.HasField("waits_over_1ms")
    assert sample.epochs_started == 1
    # Between all of the time and the slow elements' alone: one look cannot tell the first wait from steps.
    assert 0.7 * STEPS / seconds < analysis.verdict.observed_rate < 1.2 / (0.1 * LONG_S)
    if looks == "many":
        assert 0.6 < sample.epoch_start_delay_s < seconds


class FirstBatch(keras.callbacks.Callback):
    """When each epoch's first step began, and was over."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 0:
            self._began_s = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 0:
            self.seconds.append(time.perf_counter() - self._began_s)


def test_the_fill_of_a_shuffle_buffer_delays_the_first_step_of_each_epoch(tmp_path: Path) -> None:
    # GIVEN a buffer of 60 elements that take 10 ms each
    def make(index: Any) -> Any:
        time.sleep(0.01)
        return index

    def element(index: tf.Tensor) -> Any:
        made = tf.numpy_function(make, [index], tf.int64)
        return tf.ones([4]) * tf.cast(tf.ensure_shape(made, []), tf.float32), 1.0

    dataset = tf.data.Dataset.range(80).map(element).shuffle(60).batch(2)
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    own = FirstBatch()

    model.fit(dataset, epochs=3, callbacks=[plumber.PlumberCallback(tmp_path), own], verbose=0)

    sample, analysis = recorded(tmp_path)
    delays = [start.delay_s for start in sample.epoch_starts]
    assert len(delays) == analysis.verdict.epochs == 3
    # The first epoch's first step is traced as well, which is no wait for data.
    for delay_s, step_s in zip(delays, own.seconds, strict=True):
        assert 0.55 < delay_s <= step_s
    for delay_s, step_s in zip(delays[1:], own.seconds[1:], strict=True):
        assert delay_s == pytest.approx(step_s, rel=0.2)
