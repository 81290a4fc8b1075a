"""Children that differ in length and in what they keep are counted, whether looks found them or not."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.events import reader

CLOSE = 0.1
SECONDS = 5.0


class Calls:
    """Elements that passed some places of a pipeline."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()
        self._variables: dict[str, tf.Variable] = {}
        self._lock = threading.Lock()

    def count(self, name: str, seconds: float = 0.0) -> Callable[[tf.Tensor], tf.Tensor]:
        def run(value: Any) -> Any:
            time.sleep(seconds)
            with self._lock:
                self.by_name[name] += 1
            return value

        def passed_on(value: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(tf.numpy_function(run, [value], value.dtype), value.shape)

        passed_on.__name__ = name
        return passed_on

    def count_fast(self, name: str) -> Callable[[tf.Tensor], tf.Tensor]:
        """Without Python."""
        variable = self._variables.setdefault(name, tf.Variable(0, dtype=tf.int64))

        def passed_on(value: tf.Tensor) -> tf.Tensor:
            variable.assign_add(1)
            return value

        passed_on.__name__ = name
        return passed_on

    def counts(self) -> dict[str, int]:
        return {**self.by_name, **{name: int(variable) for name, variable in self._variables.items()}}


def children(calls: Calls) -> Callable[[tf.Tensor], tf.data.Dataset]:
    """One to a thousand elements of a millisecond each; of long ones a tenth is kept, of short ones all."""
    sizes = np.exp(np.random.default_rng(0).random(512) * np.log(1000)).astype(np.int64)
    size, each = tf.constant(sizes), tf.constant(np.where(sizes > 30, 10, 1))

    def child(i: tf.Tensor) -> tf.data.Dataset:
        one = tf.data.Dataset.range(size[i % 512]).map(calls.count("inner", 0.001))
        return one.filter(lambda x: x % each[i % 512] == 0).map(calls.count("kept"))

    return child


def nested(calls: Calls) -> Callable[[tf.Tensor], tf.data.Dataset]:
    child = children(calls)
    return lambda i: tf.data.Dataset.range(1 + i % 5).flat_map(lambda j: child(7 * i + j))


def tailed(calls: Calls) -> Callable[[tf.Tensor], tf.data.Dataset]:
    """Most children have some elements, a few have a thousand; of these a tenth is kept; it takes no time."""
    draws = np.random.default_rng(1).random(512)
    sizes = (1 / (1 - draws * 0.999)).astype(np.int64)
    size, each = tf.constant(sizes), tf.constant(np.where(sizes > 30, 10, 1))
    made, kept = calls.count_fast("inner"), calls.count_fast("kept")

    def child(i: tf.Tensor) -> tf.data.Dataset:
        return (
            tf.data.Dataset.range(size[i % 512]).map(made).filter(lambda x: x % each[i % 512] == 0).map(kept)
        )

    return child


def unfused(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Something that passes all on, between a map and a batch: fused, the two would count batches, whole or not."""
    return dataset.filter(lambda x: x >= 0)


SHAPES: dict[str, Callable[[tf.data.Dataset, Calls], tf.data.Dataset]] = {
    "flat_map": lambda ds, calls: ds.flat_map(children(calls)),
    "sequential": lambda ds, calls: ds.interleave(children(calls), cycle_length=4),
    "parallel": lambda ds, calls: ds.interleave(children(calls), cycle_length=4, num_parallel_calls=4),
    "nondeterministic": lambda ds, calls: ds.interleave(
        children(calls), cycle_length=4, num_parallel_calls=4, deterministic=False
    ),
    "nested": lambda ds, calls: ds.interleave(nested(calls), cycle_length=3, num_parallel_calls=2),
    "heavy tails, no time": lambda ds, calls: ds.flat_map(tailed(calls)),
    "heavy tails, no time, parallel": lambda ds, calls: ds.interleave(
        tailed(calls), cycle_length=4, num_parallel_calls=4
    ),
    "batches": lambda ds, calls: ds.flat_map(lambda i: unfused(children(calls)(i)).batch(10)),
    "whole batches": lambda ds, calls: ds.flat_map(
        lambda i: unfused(children(calls)(i)).batch(10, drop_remainder=True)
    ),
    "skip and take": lambda ds, calls: ds.flat_map(
        lambda i: tf.data.Dataset.range(i % 40).map(calls.count("inner", 0.0005)).skip(5).take(20)
    ),
    "filter of fixed phase": lambda ds, calls: ds.flat_map(
        lambda i: tf.data.Dataset.range(i % 40).map(calls.count("inner", 0.0005)).filter(lambda x: x > 20)
    ),
    "concatenated, the second short": lambda ds, calls: (
        tf.data.Dataset.range(30)
        .map(calls.count("inner", 0.0005))
        .filter(lambda x: x % 3 == 0)
        .concatenate(tf.data.Dataset.range(3).map(calls.count("second")))
        .repeat()
    ),
    "in epochs": lambda ds, calls: (
        tf.data.Dataset.range(60).map(calls.count("inner", 0.0005)).filter(lambda x: x % 3 == 0).repeat()
    ),
    "concatenated in epochs": lambda ds, calls: (
        tf.data.Dataset.range(30)
        .map(calls.count("inner"))
        .concatenate(tf.data.Dataset.range(20).map(calls.count("second")))
        .repeat()
    ),
    "refilled in each pass": lambda ds, calls: (
        ds.map(calls.count("inner", 0.008))
        .take(60)
        .shuffle(60, reshuffle_each_iteration=False)
        .batch(6)
        .repeat()
    ),
    "windows": lambda ds, calls: tf.data.Dataset.range(10**7).group_by_window(
        lambda x: x % 7, lambda key, window: window.map(calls.count("inner")).batch(4), window_size=20
    ),
}


QUICK = ("refilled in each pass",)


@pytest.mark.parametrize(
    "shape", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in SHAPES]
)
def test_children_of_all_lengths(shape: str, tmp_path: Path) -> None:
    # GIVEN children most of which come and go between two looks
    calls = Calls()
    dataset = SHAPES[shape](tf.data.Dataset.range(10**6), calls)

    with plumber.trace(tmp_path):
        end_s = time.perf_counter() + SECONDS
        for _ in dataset:
            if time.perf_counter() > end_s:
                break
        expected = calls.counts()
    (recording,) = reader.read(tmp_path)
    (pipeline,) = recording.graph.pipelines
    last = [sample.pipelines[0] for sample in recording.samples if sample.pipelines][-1]

    # THEN each operator has as many elements as its function counted
    for operator in pipeline.operators:
        if operator.label in expected and operator.HasField("running"):
            running = pipeline.running[operator.running]
            fused = running.batch_size if running.type == "MapAndBatch" else 1
            counted = last.operators[operator.running].elements * fused
            assert counted == pytest.approx(expected[operator.label], rel=CLOSE), operator.label
