"""Trainings that count for themselves: elements in the pipeline's own function, steps in a callback of their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording

FEATURES, BATCH = 8, 10


@dataclass
class CountedDataset:
    """Batches of BATCH, made by a map that counts its calls.

    Attributes:
      examples: of one pass.
      weighted: with a sample weight for each example.
      targets: without, only inputs.
    """

    examples: int
    weighted: bool = False
    targets: bool = True
    calls: Any = field(init=False)
    dataset: Any = field(init=False)

    def __post_init__(self) -> None:
        self.calls = tf.Variable(0, dtype=tf.int64)
        self.dataset = tf.data.Dataset.range(self.examples).map(self._make)  # THE MAP
        self.dataset = self.dataset.batch(BATCH)

    def _make(self, index: tf.Tensor) -> Any:
        self.calls.assign_add(1)
        noise = tf.random.uniform([40, 40])
        features = tf.reduce_mean(noise @ noise, axis=0)[:FEATURES]
        parts = [features, tf.cast(index[None] % 2, tf.float32), tf.constant([1.0])]
        if not self.targets:
            return features
        return tuple(parts if self.weighted else parts[:2])


def line_of_map() -> int:
    """The line at which `CountedDataset` calls map."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith("# THE MAP"))


def step_counter(keras: Any) -> Any:
    """A callback of that Keras that counts the ends of batches, by role, in `.steps`."""

    class StepCounter(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.steps: Counter[str] = Counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.steps["train"] += 1

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            self.steps["validation"] += 1

        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            self.steps["predict"] += 1

    return StepCounter()


def by_role(recording: Recording) -> dict[str, tuple[m.Pipeline, m.PipelineSample]]:
    """The pipelines and their last samples."""
    last = recording.samples[-1]
    return {p.role: (p, sample) for p, sample in zip(recording.graph.pipelines, last.pipelines, strict=True)}


def check_map(pipeline: m.Pipeline, sample: m.PipelineSample, calls: int) -> None:
    """The map is the one in this file, at its line, and made so many elements."""
    operator = next(one for one in pipeline.operators if one.label == "_make")
    assert operator.type == "Map"
    assert Path(operator.source.path).name == "counted.py"
    assert operator.source.line == line_of_map()
    carrier = pipeline.running[operator.running]
    made = sample.operators[operator.running].elements
    # A fused map and batch counts batches.
    assert made * (carrier.batch_size or 1) == calls
