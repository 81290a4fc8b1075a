"""Transformations whose function returns a dataset, or is given one."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tests.support.operators.case import Bench, table

Dataset = tf.data.Dataset
CASES, operator = table()
# What a function is given as a window: it only hands on what is in memory already.
WINDOWS = frozenset({"Window"})
HANDED = "the iterator of each window, which hands on what is in memory"


@operator("Dataset.flat_map", "FlatMap 60\n  Range 10\n  * Map =seen\n    Range:2 60")
def flat_map(bench: Bench) -> Any:
    seen = bench.counted("seen")

    def body(x: tf.Tensor) -> Any:
        six = Dataset.range(6)  # Range:2
        return six.map(seen)  # Map

    numbers = Dataset.range(10)  # Range
    return numbers.flat_map(body)  # FlatMap


@operator("Dataset.interleave", "Interleave 60\n  Range 6\n  * Map =seen\n    Range:2 60")
def interleave(bench: Bench) -> Any:
    seen = bench.counted("seen")

    def body(x: tf.Tensor) -> Any:
        ten = Dataset.range(x, x + 10)  # Range:2
        return ten.map(seen)  # Map

    numbers = Dataset.range(6)  # Range
    return numbers.interleave(body, cycle_length=3, block_length=2)  # Interleave


@operator("Dataset.interleave", "ParallelInterleave 60\n  Range 6\n  * Map =seen\n    Range:2 60")
def interleave_parallel(bench: Bench) -> Any:
    seen = bench.counted("seen")

    def body(x: tf.Tensor) -> Any:
        ten = Dataset.range(x, x + 10)  # Range:2
        return ten.map(seen)  # Map

    numbers = Dataset.range(6)  # Range
    return numbers.interleave(body, cycle_length=3, num_parallel_calls=2)  # ParallelInterleave


@operator("Dataset.interleave", "ParallelInterleave 60\n  Range 6\n  * Map =seen\n    Range:2 60")
def interleave_unordered(bench: Bench) -> Any:
    seen = bench.counted("seen")

    def body(x: tf.Tensor) -> Any:
        ten = Dataset.range(x, x + 10)  # Range:2
        return ten.map(seen)  # Map

    numbers = Dataset.range(6)  # Range
    return numbers.interleave(  # ParallelInterleave
        body, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
    )


@operator("Dataset.interleave TFRecordDataset", "Interleave 60\n  TensorSlice 3\n  * TFRecord 60")
def interleave_of_readers(bench: Bench) -> Any:
    names = Dataset.from_tensor_slices(bench.records)  # TensorSlice
    return names.interleave(tf.data.TFRecordDataset)  # Interleave, TFRecord


@operator("Dataset.flat_map TextLineDataset", "FlatMap 57\n  TensorSlice 3\n  * Skip 57\n    TextLine 60")
def flat_map_of_readers(bench: Bench) -> Any:
    names = Dataset.from_tensor_slices(bench.texts)  # TensorSlice
    return names.flat_map(  # FlatMap
        lambda name: tf.data.TextLineDataset(name).skip(1)  # TextLine, Skip
    )


@operator(
    "Dataset.flat_map FixedLengthRecordDataset", "FlatMap 60\n  TensorSlice 3\n  * FixedLengthRecord 60"
)
def flat_map_of_partial(bench: Bench) -> Any:
    opened = functools.partial(tf.data.FixedLengthRecordDataset, record_bytes=4)
    names = Dataset.from_tensor_slices(bench.fixed)  # TensorSlice
    return names.flat_map(opened)  # FlatMap, FixedLengthRecord


@operator(
    "Dataset.interleave",
    """
    Interleave 216
      Range 3
      * FlatMap 216
        Range:2 108
        * Map =seen
          TensorSlice 216
    """,
)
def interleave_nested(bench: Bench) -> Any:
    seen = bench.counted("seen")

    def inner(x: tf.Tensor) -> Any:
        return Dataset.from_tensor_slices([x, x]).map(seen)  # TensorSlice, Map

    def outer(x: tf.Tensor) -> Any:
        many = Dataset.range(36)  # Range:2
        return many.flat_map(inner)  # FlatMap

    numbers = Dataset.range(3)  # Range
    return numbers.interleave(outer, cycle_length=2)  # Interleave


@operator("Dataset.interleave", "Interleave 40\n  Range 4\n  * Range:2 20\n  * Map 20\n    Range:3 20")
def interleave_of_a_condition(bench: Bench) -> Any:
    def body(x: tf.Tensor) -> Any:
        if x % 2 == 0:
            return Dataset.range(10)  # Range:2
        return Dataset.range(10).map(lambda y: y + 1)  # Range:3, Map

    numbers = Dataset.range(4)  # Range
    return numbers.interleave(body, cycle_length=2)  # Interleave


@operator(
    "Dataset.window Dataset.flat_map",
    "FlatMap 20\n  Window 20\n    Range 60\n  * Batch 20",
    unmapped=WINDOWS,
    unseen=HANDED,
)
def window(bench: Bench) -> Any:
    windows = Dataset.range(60).window(3)  # Range, Window
    return windows.flat_map(  # FlatMap
        lambda one: one.batch(3)  # Batch
    )


@operator("Dataset.window", "Map 20\n  Window 20\n    Range 60", unmapped=WINDOWS, unseen=HANDED)
def window_reduced(bench: Bench) -> Any:
    windows = Dataset.range(60).window(3)  # Range, Window
    return windows.map(lambda one: one.reduce(tf.constant(0, tf.int64), lambda a, b: a + b))  # Map


@operator(
    "Dataset.window Dataset.flat_map",
    "FlatMap 60\n  Window 20\n    Range 60",
    unmapped=WINDOWS,
    unseen=HANDED,
)
def window_taken_apart(bench: Bench) -> Any:
    windows = Dataset.range(60).window(3)  # Range, Window
    return windows.flat_map(lambda one: one)  # FlatMap


@operator("Dataset.interleave", "Interleave 60\n  Range 6\n  * Map =seen\n    Range:2 60")
def interleave_through_a_function(bench: Bench) -> Any:
    seen = bench.counted("seen")

    @tf.function
    def ten_from(x: tf.Tensor) -> Any:
        return Dataset.range(x, x + 10).map(seen)  # Range:2, Map

    numbers = Dataset.range(6)  # Range
    return numbers.interleave(lambda x: ten_from(x), cycle_length=2)  # Interleave


@operator(
    "Dataset.group_by_window",
    "GroupByWindow 12\n  Range 60\n  * Batch 12",
    unmapped=WINDOWS,
    unseen=HANDED,
)
def group_by_window(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.group_by_window(  # GroupByWindow
        lambda x: x % 2,
        lambda key, one: one.batch(5),  # Batch
        window_size=5,
    )


@operator(
    "experimental.group_by_reducer",
    "GroupByReducer 2\n  Range 60",
    not_in=frozenset({"shuffled_and_repeated"}),
    unseen="how much of its input it took in passes that nobody saw: it takes all before its first element",
)
def group_by_reducer(bench: Bench) -> Any:
    counting = tf.data.experimental.Reducer(
        init_func=lambda _: tf.constant(0, tf.int64),
        reduce_func=lambda count, _: count + 1,
        finalize_func=lambda count: count,
    )
    numbers = Dataset.range(60)  # Range
    return numbers.apply(tf.data.experimental.group_by_reducer(lambda x: x % 2, counting))  # GroupByReducer
