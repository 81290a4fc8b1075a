"""Ways of iterating a dataset, each told as a function that says what it delivered."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

BATCHES, BATCH = 150, 4
# Of the loop's body: a pass takes long enough to be looked at several times.
BODY_S = 0.002


def double(x: tf.Tensor) -> tf.Tensor:
    """The user's function."""
    return x * 2


def make_dataset(batches: int = BATCHES) -> tf.data.Dataset:
    """Batches in an order that a seed decides."""
    dataset = tf.data.Dataset.range(batches * BATCH)
    dataset = dataset.shuffle(50, seed=3)
    dataset = dataset.map(double)
    return dataset.batch(BATCH)


# Types of the user's operators, from the root, and the lines of `make_dataset` that make them.
OPERATORS = ["Batch", "Map", "Shuffle", "Range"]
_FIRST_LINE = inspect.getsourcelines(make_dataset)[1]
LINES = {
    "Batch": _FIRST_LINE + 5,
    "Map": _FIRST_LINE + 4,
    "Shuffle": _FIRST_LINE + 3,
    "Range": _FIRST_LINE + 2,
}


class Delivered:
    """What a loop's body got: called from Python, and in graphs as `Delivered.in_graph`."""

    def __init__(self, body_s: float = BODY_S) -> None:
        self.sums: list[int] = []
        self._body_s = body_s

    def __call__(self, batch: Any) -> None:
        """The body of a loop."""
        time.sleep(self._body_s)
        self.sums.append(int(np.sum(batch)))

    def in_graph(self, batch: tf.Tensor) -> tf.Tensor:
        """The same for graphs; returns 1."""

        def body(value: Any) -> Any:
            self(value)
            return np.int64(1)

        return tf.ensure_shape(tf.numpy_function(body, [batch], tf.int64), [])


Way = Callable[[tf.data.Dataset, Delivered], None]


def eager_loop(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """The loop of every tutorial, twice."""
    step = tf.function(lambda batch: batch + 1)
    for _ in range(2):
        for batch in dataset:
            step(batch)
            delivered(batch)


def as_numpy(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """`as_numpy_iterator`."""
    for batch in dataset.as_numpy_iterator():
        delivered(batch)


def as_list(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """`list(ds)`, of a dataset slow enough to be looked at."""
    slow = dataset.map(lambda batch: (batch, delivered.in_graph(batch))[0])
    assert len(list(slow)) == BATCHES


def loop_in_function(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """`for x in ds` in a tf.function that closes over the dataset, called twice."""

    @tf.function
    def epoch() -> tf.Tensor:
        steps = tf.constant(0, tf.int64)
        for batch in dataset:
            steps += delivered.in_graph(batch)
        return steps

    assert epoch() == epoch() == BATCHES


def loop_over_argument(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """`for x in ds` in a tf.function that is given the dataset, called twice."""

    @tf.function
    def epoch(given: tf.data.Dataset) -> tf.Tensor:
        steps = tf.constant(0, tf.int64)
        for batch in given:
            steps += delivered.in_graph(batch)
        return steps

    assert epoch(dataset) == epoch(dataset) == BATCHES


def loop_over_member(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """The same, the dataset in a structure that is given by keyword."""

    @tf.function
    def epoch(data: dict[str, Any]) -> tf.Tensor:
        steps = tf.constant(0, tf.int64)
        for batch in data["train"][0]:
            steps += delivered.in_graph(batch)
        return steps

    assert epoch(data={"train": (dataset, tf.constant(1))}) == BATCHES


def enumerate_in_function(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """`for step, x in enumerate(ds)` in a tf.function."""

    @tf.function
    def epoch() -> tf.Tensor:
        steps = tf.constant(0, tf.int64)
        for _, batch in enumerate(dataset):
            steps += delivered.in_graph(batch)
        return steps

    assert epoch() == BATCHES


def epochs_in_function(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """A loop over epochs with a loop over the dataset inside, all in one tf.function."""

    @tf.function
    def train() -> tf.Tensor:
        steps = tf.constant(0, tf.int64)
        for _ in tf.range(2):
            for batch in dataset:
                steps += delivered.in_graph(batch)
        return steps

    assert train() == 2 * BATCHES


def break_in_function(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """A loop in a tf.function that is left early, twice."""

    @tf.function
    def epoch() -> tf.Tensor:
        steps = tf.constant(0, tf.int64)
        for batch in dataset:
            steps += delivered.in_graph(batch)
            if steps == 100:
                break
        return steps

    assert epoch() == epoch() == 100


def iterator_in_function(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """`iter(ds)` and `next(it)`, both in the tf.function."""

    @tf.function
    def epoch() -> None:
        iterator = iter(dataset)
        for _ in tf.range(BATCHES):
            delivered.in_graph(next(iterator))

    epoch()
    epoch()


def next_in_function(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """`next(it)` in a tf.function that closes over the iterator."""
    iterator = iter(dataset)

    @tf.function
    def step() -> tf.Tensor:
        return delivered.in_graph(next(iterator))

    for _ in range(BATCHES):
        step()


def function_of_iterator(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """A tf.function that is given the iterator, and takes ten elements of it at each call."""

    @tf.function
    def steps(iterator: Any) -> None:
        for _ in tf.range(10):
            delivered.in_graph(next(iterator))

    iterator = iter(dataset)
    for _ in range(BATCHES // 10):
        steps(iterator)


def reduce(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """`ds.reduce`, twice."""
    for _ in range(2):
        steps = dataset.reduce(np.int64(0), lambda steps, batch: steps + delivered.in_graph(batch))
        assert steps == BATCHES


def reduce_in_function(dataset: tf.data.Dataset, delivered: Delivered) -> None:
    """`ds.reduce` in a tf.function that closes over the dataset."""

    @tf.function
    def epoch() -> tf.Tensor:
        return dataset.reduce(np.int64(0), lambda steps, batch: steps + delivered.in_graph(batch))

    assert epoch() == epoch() == BATCHES


@dataclass(frozen=True)
class Recorded:
    """One pipeline as it was recorded."""

    pipeline: m.Pipeline
    sample: m.PipelineSample

    def operators(self) -> list[m.Operator]:
        """The user's, from the root."""
        return [one for one in self.pipeline.operators if not one.injected]

    def elements(self, kind: str) -> float:
        """Elements that the operator of that type delivered."""
        (operator,) = [one for one in self.operators() if one.type == kind]
        return float(self.sample.operators[operator.running].elements)


def recorded(log_dir: Path) -> list[Recorded]:
    """The pipelines of the one recording in a log directory."""
    (recording,) = reader.read(log_dir)
    return [
        Recorded(pipeline, sample)
        for pipeline, sample in zip(recording.graph.pipelines, recording.samples[-1].pipelines, strict=True)
    ]
