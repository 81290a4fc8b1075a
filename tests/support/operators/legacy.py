"""Transformations of tf.data.experimental that others have replaced."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.operators.case import Bench, table

Dataset = tf.data.Dataset
CASES, operator = table()


@operator("experimental.map_and_batch", "MapAndBatch 60\n  Range 120")
def map_and_batch(bench: Bench) -> Any:
    numbers = Dataset.range(120)  # Range
    return numbers.apply(  # MapAndBatch
        tf.data.experimental.map_and_batch(bench.counted("seen"), 2, num_parallel_calls=2)
    )


@operator("experimental.shuffle_and_repeat", "ShuffleAndRepeat 60\n  Range 60")
def shuffle_and_repeat(bench: Bench) -> Any:
    numbers = Dataset.range(20)  # Range
    return numbers.apply(tf.data.experimental.shuffle_and_repeat(5, count=3))  # ShuffleAndRepeat


@operator(
    "experimental.parallel_interleave", "ParallelInterleave 60\n  Range ?\n  * Map =seen\n    Range:2 60"
)
def parallel_interleave(bench: Bench) -> Any:
    seen = bench.counted("seen")

    # Autograph takes functions of equal code at equal lines for one, whatever file they are in: hence the name.
    def opened(x: tf.Tensor) -> Any:
        ten = Dataset.range(x, x + 10)  # Range:2
        return ten.map(seen)  # Map

    numbers = Dataset.range(6)  # Range
    return numbers.apply(  # ParallelInterleave
        tf.data.experimental.parallel_interleave(opened, cycle_length=3)
    )


@operator(
    "experimental.dense_to_ragged_batch", "RaggedBatch 60 @MapAndBatch\n  Map 120 @MapAndBatch\n    Range 120"
)
def dense_to_ragged_batch(bench: Bench) -> Any:
    numbers = Dataset.range(120).map(lambda x: tf.ones([1 + x % 10]))  # Range, Map
    return numbers.apply(tf.data.experimental.dense_to_ragged_batch(2))  # RaggedBatch


@operator("experimental.dense_to_sparse_batch", "SparseBatch 15\n  Map 60\n    Range 60")
def dense_to_sparse_batch(bench: Bench) -> Any:
    numbers = Dataset.range(60).map(lambda x: tf.ones([1 + x % 10]))  # Range, Map
    return numbers.apply(tf.data.experimental.dense_to_sparse_batch(4, row_shape=[12]))  # SparseBatch


@operator("experimental.unbatch", "Unbatch 60\n  Batch 15\n    Range 60")
def unbatch(bench: Bench) -> Any:
    numbers = Dataset.range(60).batch(4)  # Range, Batch
    return numbers.apply(tf.data.experimental.unbatch())  # Unbatch


@operator("experimental.enumerate_dataset", "Enumerate 60\n  Range 60")
def enumerate_dataset(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.apply(tf.data.experimental.enumerate_dataset())  # Enumerate


@operator("experimental.unique", "Unique 30\n  Map 60\n    Range 60")
def unique(bench: Bench) -> Any:
    numbers = Dataset.range(60).map(lambda x: x // 2)  # Range, Map
    return numbers.apply(tf.data.experimental.unique())  # Unique


@operator("experimental.scan", "Scan 60\n  Range 60")
def scan(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    zero = tf.constant(0, tf.int64)
    return numbers.apply(tf.data.experimental.scan(zero, lambda state, x: (state + x, state)))  # Scan


@operator("experimental.take_while", "TakeWhile 40\n  Range 40")
def take_while(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.apply(tf.data.experimental.take_while(lambda x: x < 40))  # TakeWhile


@operator("experimental.ignore_errors", "IgnoreErrors 59\n  Map 59\n    Range 60")
def ignore_errors(bench: Bench) -> Any:
    numbers = Dataset.range(1, 61)  # Range
    checked = numbers.map(lambda x: tf.debugging.check_numerics(1 / (x - 30), "zero"))  # Map
    return checked.apply(tf.data.experimental.ignore_errors())  # IgnoreErrors


@operator("experimental.snapshot", "Snapshot 60\n  Map =seen\n    Range =seen")
def snapshot(bench: Bench) -> Any:
    numbers = Dataset.range(60).map(bench.counted("seen"))  # Range, Map
    return numbers.apply(tf.data.experimental.snapshot(bench.path()))  # Snapshot


@operator(
    "experimental.bucket_by_sequence_length",
    "BucketBySequenceLength 12\n  Map 60\n    Range 60",
    unmapped=frozenset({"Window"}),
)
def bucket_by_sequence_length(bench: Bench) -> Any:
    numbers = Dataset.range(60).map(lambda x: tf.ones([1 + x % 10]))  # Range, Map
    return numbers.apply(  # BucketBySequenceLength
        tf.data.experimental.bucket_by_sequence_length(lambda x: tf.shape(x)[0], [6], [5, 5])
    )


@operator(
    "experimental.group_by_window",
    "GroupByWindow 12\n  Range 60\n  * Batch 12",
    unmapped=frozenset({"Window"}),
)
def group_by_window(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.apply(  # GroupByWindow
        tf.data.experimental.group_by_window(
            lambda x: x % 2,
            lambda key, one: one.batch(5),  # Batch
            window_size=5,
        )
    )


@operator(
    "experimental.rejection_resample",
    "RejectionResample ?\n  Map ?\n    Range ?\n  Map:2 400\n    Range:2 400",
)
def rejection_resample(bench: Bench) -> Any:
    numbers = Dataset.range(400).map(lambda x: tf.cast(x % 4 == 0, tf.int32))  # Range, Map, Range:2, Map:2
    return numbers.apply(  # RejectionResample
        tf.data.experimental.rejection_resample(lambda x: x, [0.5, 0.5], initial_dist=[0.75, 0.25], seed=1)
    )


@operator("experimental.sample_from_datasets", "SampleFromDatasets 200\n  Range 100\n  Range:2 100")
def sample_from_datasets(bench: Bench) -> Any:
    datasets = [
        Dataset.range(100),  # Range
        Dataset.range(100),  # Range:2
    ]
    return tf.data.experimental.sample_from_datasets(datasets, [0.7, 0.3], seed=1)  # SampleFromDatasets


@operator(
    "experimental.choose_from_datasets",
    "ChooseFromDatasets 60\n  Repeat 60\n    Range 60\n  Range:2 30\n  Range:3 30",
)
def choose_from_datasets(bench: Bench) -> Any:
    datasets = [
        Dataset.range(30),  # Range:2
        Dataset.range(30),  # Range:3
    ]
    choice = Dataset.range(2).repeat(30)  # Range, Repeat
    return tf.data.experimental.choose_from_datasets(datasets, choice)  # ChooseFromDatasets


@operator("experimental.load experimental.save", "Load 60")
def load(bench: Bench) -> Any:
    path = bench.path()
    tf.data.experimental.save(Dataset.range(60), path)
    return tf.data.experimental.load(path)  # Load


@operator("experimental.Counter", "Counter 60", steps=60)
def counter(bench: Bench) -> Any:
    return tf.data.experimental.Counter(start=3)  # Counter


@operator("experimental.RandomDataset", "Random 60", steps=60)
def random_dataset(bench: Bench) -> Any:
    return tf.data.experimental.RandomDataset(seed=1)  # Random
