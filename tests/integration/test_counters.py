"""Counters of pipelines whose operators come and go are the counts of the functions themselves."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

CLOSE = 0.1


class Calls:
    """How often each of some functions was called, and for how long, counted by the functions."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def count(self, name: str, seconds: float = 0.0) -> Callable[[tf.Tensor], tf.Tensor]:
        """A function for `map` that passes elements on, and takes some time over it."""

        def run(value: Any) -> Any:
            began = time.perf_counter()
            time.sleep(seconds)
            with self._lock:
                self.by_name[name] += 1
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
            return value

        def passed_on(value: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(tf.numpy_function(run, [value], value.dtype), value.shape)

        passed_on.__name__ = name
        return passed_on


@pytest.fixture
def calls() -> Calls:
    return Calls()


def numbers(count: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(count)


def trace(log_dir: Path, loop: Callable[[], Any]) -> tuple[m.Pipeline, list[m.PipelineSample]]:
    """Traces a loop over one dataset: what was seen of it."""
    with plumber.trace(log_dir):
        loop()
    (recording,) = reader.read(log_dir)
    (pipeline,) = recording.graph.pipelines
    return pipeline, [sample.pipelines[0] for sample in recording.samples if sample.pipelines]


def elements(pipeline: m.Pipeline, sample: m.PipelineSample) -> dict[str, float]:
    """Elements by the label of the operator as the user wrote it."""
    counted = {}
    for operator in pipeline.operators:
        if operator.HasField("running"):
            running = pipeline.running[operator.running]
            fused = running.batch_size if running.type == "MapAndBatch" and operator.type != "Batch" else 1
            counted[operator.label] = sample.operators[operator.running].elements * fused
    return counted


def drain(dataset: tf.data.Dataset, epochs: int = 1, step_s: float = 0.0) -> Callable[[], None]:
    def loop() -> None:
        for _ in range(epochs):
            for _ in dataset:
                time.sleep(step_s)

    return loop


def test_interleave_with_children_that_hardly_live(calls: Calls, tmp_path: Path) -> None:
    # GIVEN 600 children of three elements each: most live and die between two looks
    inner = calls.count("inner", 0.0005)
    dataset = (
        numbers(600).interleave(lambda _: numbers(3).map(inner), cycle_length=2).map(calls.count("outer"))
    )

    pipeline, (*_, sample) = trace(tmp_path, drain(dataset))
    counted = elements(pipeline, sample)

    # THEN those that nobody saw are made up, from the interleave that survived them
    assert counted["inner"] == pytest.approx(calls.by_name["inner"], rel=CLOSE)
    assert counted["outer"] == pytest.approx(calls.by_name["outer"], rel=CLOSE)
    assert sample.steps == 1800


def test_interleave_with_long_children(calls: Calls, tmp_path: Path) -> None:
    inner = calls.count("inner", 0.0005)
    dataset = numbers(4).interleave(
        lambda _: numbers(500).map(inner), cycle_length=2, num_parallel_calls=2, deterministic=False
    )

    pipeline, (*_, sample) = trace(tmp_path, drain(dataset))
    counted = elements(pipeline, sample)

    assert counted["inner"] == pytest.approx(calls.by_name["inner"], rel=CLOSE)
    assert sample.steps == 2000


def test_flat_map_whose_children_batch(calls: Calls, tmp_path: Path) -> None:
    # GIVEN two levels inside of the function: one element of the batch is five of the map
    inner = calls.count("inner", 0.0002)
    dataset = numbers(200).flat_map(lambda _: numbers(20).map(inner).batch(5))

    pipeline, (*_, sample) = trace(tmp_path, drain(dataset))
    counted = elements(pipeline, sample)

    assert sample.steps == 800
    assert counted["inner"] == pytest.approx(calls.by_name["inner"], rel=CLOSE)
    assert counted["Batch"] == pytest.approx(800, rel=CLOSE)


def test_repeat_of_epochs_shorter_than_a_look(calls: Calls, tmp_path: Path) -> None:
    # GIVEN epochs of some 25 ms below the repeat, and a shuffle that reads ahead in each
    dataset = (
        numbers(50)
        .map(calls.count("first", 0.0004))
        .shuffle(20)
        .map(calls.count("second"))
        .repeat(60)
        .batch(10)
    )

    pipeline, (*_, sample) = trace(tmp_path, drain(dataset))
    counted = elements(pipeline, sample)

    assert sample.steps == 300
    assert counted["first"] == pytest.approx(calls.by_name["first"], rel=CLOSE)
    assert counted["second"] == pytest.approx(calls.by_name["second"], rel=CLOSE)


def test_filter_and_batch_at_the_end_of_a_sequence(calls: Calls, tmp_path: Path) -> None:
    # GIVEN a sequence that ends: its operators drop their inputs before anybody looks
    dataset = numbers(900).map(calls.count("first", 0.0004)).filter(lambda x: x % 3 == 0).batch(10)

    pipeline, (*_, sample) = trace(tmp_path, drain(dataset))
    counted = elements(pipeline, sample)

    assert sample.steps == 30
    assert counted["first"] == pytest.approx(900, rel=CLOSE)


def test_a_large_shuffle_buffer_is_not_counted_twice(calls: Calls, tmp_path: Path) -> None:
    # GIVEN a shuffle that has read all of its input before it gives the first element
    dataset = numbers(1000).map(calls.count("first", 0.0003)).shuffle(1000).map(calls.count("second", 0.0003))

    pipeline, (*_, sample) = trace(tmp_path, drain(dataset))
    counted = elements(pipeline, sample)

    assert counted["first"] == pytest.approx(1000, rel=CLOSE)
    assert counted["second"] == pytest.approx(1000, rel=CLOSE)


def test_epochs_of_one_dataset_are_one_pipeline(calls: Calls, tmp_path: Path) -> None:
    dataset = numbers(100).map(calls.count("first", 0.001)).batch(5)

    pipeline, (*_, sample) = trace(tmp_path, drain(dataset, epochs=8))
    counted = elements(pipeline, sample)

    assert sample.iterators == 8
    assert sample.steps == 160
    assert counted["first"] == pytest.approx(calls.by_name["first"], rel=CLOSE)


def test_a_cache_fills_once_and_then_serves(calls: Calls, tmp_path: Path) -> None:
    dataset = numbers(400).map(calls.count("first", 0.0005)).cache().batch(4)

    pipeline, (*_, sample) = trace(tmp_path, drain(dataset, epochs=4, step_s=0.002))
    counted = elements(pipeline, sample)

    assert sample.steps == 400
    assert calls.by_name["first"] == 400
    assert counted["first"] == pytest.approx(400, rel=CLOSE)
    assert list(sample.cache_states.values()) == ["serving"]


def test_a_cache_that_is_never_read_to_its_end(calls: Calls, tmp_path: Path) -> None:
    # GIVEN a take behind the cache that leaves the most of it unread
    dataset = numbers(4000).map(calls.count("first", 0.0005)).cache().take(800).batch(4)

    _, (*_, sample) = trace(tmp_path, drain(dataset, epochs=4))

    assert list(sample.cache_states.values()) == ["never completes"]


def test_times_belong_to_the_elements_that_were_seen(calls: Calls, tmp_path: Path) -> None:
    # GIVEN children of which only a part is ever seen
    inner = calls.count("inner", 0.002)
    dataset = numbers(300).interleave(lambda _: numbers(2).map(inner), cycle_length=1)

    pipeline, (first, *_, last) = trace(tmp_path, drain(dataset))
    # By name: of children that come and go this fast, less time may be seen than of what hands them on.
    (running,) = (operator.running for operator in pipeline.operators if operator.label == "inner")
    before, after = first.operators[running], last.operators[running]

    # THEN the time of one element is right, whatever part that was, once the first calls are over
    assert after.elements_seen < after.elements
    time_ns = after.processing_time_ns - before.processing_time_ns
    seconds = calls.seconds["inner"] / calls.by_name["inner"]
    assert time_ns * 1e-9 / (after.elements_seen - before.elements_seen) == pytest.approx(seconds, rel=0.3)
