"""Transformations that put elements together and take them apart."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.operators.case import Bench, table

Dataset = tf.data.Dataset
CASES, operator = table()


def varied(x: tf.Tensor) -> tf.Tensor:
    """As many elements as the number's last digit, one at least."""
    return tf.ones([1 + x % 10], tf.int64)


@operator("Dataset.batch", "Batch 15\n  Range 60")
def batch(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.batch(4)  # Batch


@operator("Dataset.batch", "ParallelBatch 60\n  Range 120")
def batch_parallel(bench: Bench) -> Any:
    numbers = Dataset.range(120)  # Range
    return numbers.batch(2, num_parallel_calls=2)  # ParallelBatch


@operator("Dataset.batch Dataset.map", "Batch 60 @MapAndBatch\n  Map =seen @MapAndBatch\n    Range 120")
def map_then_batch(bench: Bench) -> Any:
    numbers = Dataset.range(120)  # Range
    return numbers.map(bench.counted("seen")).batch(2, drop_remainder=True)  # Map, Batch


@operator("Dataset.padded_batch", "PaddedBatch 15\n  Map 60\n    Range 60")
def padded_batch(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.map(varied).padded_batch(4)  # Map, PaddedBatch


@operator("Dataset.ragged_batch", "RaggedBatch 60 @MapAndBatch\n  Map 120 @MapAndBatch\n    Range 120")
def ragged_batch(bench: Bench) -> Any:
    numbers = Dataset.range(120)  # Range
    return numbers.map(varied).ragged_batch(2)  # Map, RaggedBatch


@operator("Dataset.sparse_batch", "SparseBatch 15\n  Map 60\n    Range 60")
def sparse_batch(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.map(varied).sparse_batch(4, row_shape=[12])  # Map, SparseBatch


@operator("Dataset.unbatch", "Unbatch 60\n  Batch 15\n    Range 60")
def unbatch(bench: Bench) -> Any:
    numbers = Dataset.range(60).batch(4)  # Range, Batch
    return numbers.unbatch()  # Unbatch


@operator("Dataset.unbatch", "Unbatch 120\n  RaggedBatch 60\n    Map 120\n      Range 120")
def unbatch_ragged(bench: Bench) -> Any:
    numbers = Dataset.range(120).map(varied).ragged_batch(2)  # Range, Map, RaggedBatch
    return numbers.unbatch()  # Unbatch


@operator("Dataset.rebatch", "Rebatch 20\n  Batch 10\n    Range 60")
def rebatch(bench: Bench) -> Any:
    numbers = Dataset.range(60).batch(6)  # Range, Batch
    return numbers.rebatch(3)  # Rebatch


@operator("Dataset.rebatch", "Rebatch 20\n  Batch 10\n    Range 60")
def rebatch_in_turns(bench: Bench) -> Any:
    numbers = Dataset.range(60).batch(6)  # Range, Batch
    return numbers.rebatch([4, 2])  # Rebatch


@operator(
    "Dataset.bucket_by_sequence_length",
    "BucketBySequenceLength 12\n  Map 60\n    Range 60",
    unmapped=frozenset({"Window"}),
)
def bucket_by_sequence_length(bench: Bench) -> Any:
    numbers = Dataset.range(60).map(varied)  # Range, Map
    return numbers.bucket_by_sequence_length(  # BucketBySequenceLength
        element_length_func=lambda x: tf.shape(x)[0], bucket_boundaries=[6], bucket_batch_sizes=[5, 5]
    )


@operator("experimental.pad_to_cardinality", "PadToCardinality 80\n  Map 60\n    Range 60")
def pad_to_cardinality(bench: Bench) -> Any:
    numbers = Dataset.range(60).map(lambda x: {"x": x + 1})  # Range, Map
    return numbers.apply(tf.data.experimental.pad_to_cardinality(80))  # PadToCardinality


@operator("experimental.parse_example_dataset", "ParseExample 6\n  Batch 6\n    TFRecord 60")
def parse_example_dataset(bench: Bench) -> Any:
    from tensorflow.python.data.experimental.ops import parsing_ops

    records = tf.data.TFRecordDataset(bench.records).batch(10)  # TFRecord, Batch
    features = {"x": tf.io.FixedLenFeature([], tf.int64)}
    return records.apply(parsing_ops.parse_example_dataset(features))  # ParseExample
