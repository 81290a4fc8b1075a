"""Transformations of several datasets."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.operators.case import Bench, table

Dataset = tf.data.Dataset
CASES, operator = table()


@operator("Dataset.zip", "Zip 30\n  Map 30\n    Range 30\n  Batch 30\n    Range:2 60")
def zip_(bench: Bench) -> Any:
    left = Dataset.range(30).map(lambda x: x + 1)  # Range, Map
    right = Dataset.range(60).batch(2)  # Range:2, Batch
    return Dataset.zip((left, right))  # Zip


@operator("Dataset.zip", "Zip 30\n  Map 30\n    Range 30\n  Map:2 30\n    Range:2 30")
def zip_of_one_with_itself(bench: Bench) -> Any:
    shared = Dataset.range(30).map(lambda x: x + 1)  # Range, Map, Range:2, Map:2
    return Dataset.zip((shared, shared))  # Zip


@operator("Dataset.concatenate", "Concatenate 120\n  Range 60\n  Map 60\n    Range:2 60")
def concatenate(bench: Bench) -> Any:
    first = Dataset.range(60)  # Range
    second = Dataset.range(60).map(lambda x: x + 1)  # Range:2, Map
    return first.concatenate(second)  # Concatenate


@operator(
    "Dataset.sample_from_datasets",
    "SampleFromDatasets 60\n  Repeat ?\n    Range ?\n  Repeat:2 ?\n    Range:2 ?",
    steps=60,
)
def sample_from_datasets(bench: Bench) -> Any:
    left = Dataset.range(20).repeat()  # Range, Repeat
    right = Dataset.range(20).repeat()  # Range:2, Repeat:2
    return Dataset.sample_from_datasets([left, right], weights=[0.5, 0.5], seed=1)  # SampleFromDatasets


@operator(
    "Dataset.sample_from_datasets",
    "SampleFromDatasets 200\n  Repeat ?\n    Tensor ?\n  Range 100\n  Range:2 100",
)
def sample_by_weights_in_a_dataset(bench: Bench) -> Any:
    left, right = (
        Dataset.range(100),  # Range
        Dataset.range(100),  # Range:2
    )
    weights = Dataset.from_tensors([0.7, 0.3]).repeat()  # Tensor, Repeat
    return Dataset.sample_from_datasets([left, right], weights=weights, seed=1)  # SampleFromDatasets


@operator(
    "Dataset.choose_from_datasets",
    """
    ChooseFromDatasets 60
      Repeat 60
        Range 60
      Range:2 30
      Range:3 30
    """,
)
def choose_from_datasets(bench: Bench) -> Any:
    left = Dataset.range(30)  # Range:2
    right = Dataset.range(30)  # Range:3
    choice = Dataset.range(2).repeat(30)  # Range, Repeat
    return Dataset.choose_from_datasets([left, right], choice)  # ChooseFromDatasets


@operator(
    "Dataset.rejection_resample",
    "RejectionResample ?\n  Map ?\n    Range ?\n  Map:2 400\n    Range:2 400",
)
def rejection_resample(bench: Bench) -> Any:
    numbers = Dataset.range(400).map(lambda x: tf.cast(x % 4 == 0, tf.int32))  # Range, Map, Range:2, Map:2
    return numbers.rejection_resample(  # RejectionResample
        class_func=lambda x: x, target_dist=[0.5, 0.5], initial_dist=[0.75, 0.25], seed=1
    )
