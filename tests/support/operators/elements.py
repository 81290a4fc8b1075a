"""Transformations of one element at a time, and of the order in which they come."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.operators.case import Bench, table

Dataset = tf.data.Dataset
AUTOTUNE = tf.data.AUTOTUNE
CASES, operator = table()


def double(x: tf.Tensor) -> tf.Tensor:
    return x * 2


@operator("Dataset.map", "Map =seen\n  Range 60")
def map_(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.map(bench.counted("seen"))  # Map


@operator("Dataset.map", "ParallelMap =seen @ParallelMapV2\n  Range 60")
def map_parallel(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.map(bench.counted("seen"), num_parallel_calls=3)  # ParallelMap


@operator("Dataset.map", "ParallelMap 60\n  Range 60")
def map_autotune(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.map(  # ParallelMap
        double,
        num_parallel_calls=AUTOTUNE,
    )


@operator("Dataset.map", "Map 60 @ParallelMapV2\n  Range 60")
def map_made_parallel(bench: Bench) -> Any:
    """TensorFlow itself runs a map without state in parallel."""
    numbers = Dataset.range(60)  # Range
    return numbers.map(double)  # Map


@operator("Dataset.map", "ParallelMap =seen\n  Range 60")
def map_unordered(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.map(bench.counted("seen"), num_parallel_calls=2, deterministic=False)  # ParallelMap


@operator("Dataset.map", "Map dropped\n  Map:2 60\n    Range 60")
def map_dropped(bench: Bench) -> Any:
    """A map that only rearranges components is not run."""
    numbers = Dataset.range(60)  # Range
    pairs = numbers.map(lambda x: {"a": x, "b": x + 1})  # Map:2
    return pairs.map(lambda pair: (pair["a"], pair["b"]))  # Map


@operator("Dataset.filter", "Filter 30\n  Range 60")
def filter_(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.filter(lambda x: x % 2 == 1)  # Filter


@operator("Dataset.scan", "Scan 60\n  Range 60")
def scan(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.scan(tf.constant(0, tf.int64), lambda state, x: (state + x, state))  # Scan


@operator("Dataset.take_while", "TakeWhile 40\n  Range 40")
def take_while(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.take_while(lambda x: x < 40)  # TakeWhile


@operator("Dataset.unique", "Unique 30\n  Map 60\n    Range 60")
def unique(bench: Bench) -> Any:
    numbers = Dataset.range(60).map(lambda x: x // 2)  # Range, Map
    return numbers.unique()  # Unique


@operator("Dataset.enumerate", "Enumerate 60\n  Range 60")
def enumerate_(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.enumerate()  # Enumerate


@operator("Dataset.take", "Take 20\n  Range 20")
def take(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.take(20)  # Take


@operator("Dataset.skip", "Skip 40\n  Range 60")
def skip(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.skip(20)  # Skip


@operator("Dataset.shard", "Shard 20\n  Range 60")
def shard(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.shard(3, 1)  # Shard


@operator("Dataset.shuffle", "Shuffle 60\n  Range 60")
def shuffle(bench: Bench) -> Any:
    numbers = Dataset.range(60)  # Range
    return numbers.shuffle(10)  # Shuffle


@operator("Dataset.repeat", "Repeat 60\n  Range 60")
def repeat(bench: Bench) -> Any:
    numbers = Dataset.range(20)  # Range
    return numbers.repeat(3)  # Repeat


@operator("Dataset.repeat", "Repeat 60\n  Range 60", steps=60)
def repeat_for_ever(bench: Bench) -> Any:
    numbers = Dataset.range(20)  # Range
    return numbers.repeat()  # Repeat


@operator(
    "Dataset.shuffle Dataset.repeat",
    "Repeat 60 @ShuffleAndRepeat\n  Shuffle 60 @ShuffleAndRepeat\n    Range 60",
)
def shuffle_then_repeat(bench: Bench) -> Any:
    numbers = Dataset.range(20)  # Range
    return numbers.shuffle(5).repeat(3)  # Shuffle, Repeat


@operator("Dataset.apply", "Filter 30\n  Map 60\n    Range 60")
def apply(bench: Bench) -> Any:
    def doubled_quarters(dataset: Any) -> Any:
        doubled = dataset.map(double)  # Map
        return doubled.filter(lambda x: x % 4 == 0)  # Filter

    numbers = Dataset.range(60)  # Range
    return numbers.apply(doubled_quarters)


@operator("Dataset.ignore_errors", "IgnoreErrors 59\n  Map 59\n    Range 60")
def ignore_errors(bench: Bench) -> Any:
    numbers = Dataset.range(1, 61)  # Range
    checked = numbers.map(lambda x: tf.debugging.check_numerics(1 / (x - 30), "zero"))  # Map
    return checked.ignore_errors()  # IgnoreErrors


@operator("experimental.assert_cardinality", "AssertCardinality 60\n  Filter 60\n    Range 60")
def assert_cardinality(bench: Bench) -> Any:
    numbers = Dataset.range(60).filter(lambda x: x >= 0)  # Range, Filter
    return numbers.apply(tf.data.experimental.assert_cardinality(60))  # AssertCardinality


@operator("Dataset.with_options", "ParallelMap 60\n  Range 60")
def with_options(bench: Bench) -> Any:
    options = tf.data.Options()
    options.deterministic = False
    numbers = Dataset.range(60).map(double, num_parallel_calls=2)  # Range, ParallelMap
    return numbers.with_options(options)


@operator("Dataset.prefetch", "Prefetch 200\n  Range 200")
def prefetch(bench: Bench) -> Any:
    numbers = Dataset.range(200)  # Range
    return numbers.prefetch(4)  # Prefetch


@operator("Dataset.prefetch", "Prefetch 200\n  Range 200")
def prefetch_autotune(bench: Bench) -> Any:
    numbers = Dataset.range(200)  # Range
    return numbers.prefetch(AUTOTUNE)  # Prefetch
