"""Transformations that keep elements in memory or on disk."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.operators.case import Bench, table

Dataset = tf.data.Dataset
CASES, operator = table()


def double(x: tf.Tensor) -> tf.Tensor:
    return x * 2


@operator("Dataset.cache", "Cache 60\n  Map =seen\n    Range =seen")
def cache(bench: Bench) -> Any:
    numbers = Dataset.range(60).map(bench.counted("seen"))  # Range, Map
    return numbers.cache()  # Cache


@operator("Dataset.cache", "Cache 60\n  Map =seen\n    Range =seen", not_in=frozenset({"in_an_interleave"}))
def cache_in_a_file(bench: Bench) -> Any:
    numbers = Dataset.range(60).map(bench.counted("seen"))  # Range, Map
    return numbers.cache(bench.path())  # Cache


@operator("Dataset.cache", "Repeat 60\n  Cache 60\n    Map =seen\n      Range =seen")
def cache_then_repeat(bench: Bench) -> Any:
    numbers = Dataset.range(20).map(bench.counted("seen"))  # Range, Map
    return numbers.cache().repeat(3)  # Cache, Repeat


@operator("Dataset.snapshot", "Snapshot 60\n  Map =seen\n    Range =seen")
def snapshot_written(bench: Bench) -> Any:
    numbers = Dataset.range(60).map(bench.counted("seen"))  # Range, Map
    return numbers.snapshot(bench.path())  # Snapshot


@operator("Dataset.snapshot", "Snapshot 60\n  Map 0\n    Range 0")
def snapshot_read(bench: Bench) -> Any:
    """What it was made of does not run any more."""
    path = bench.path()
    for _ in Dataset.range(60).map(double).snapshot(path):
        pass
    numbers = Dataset.range(60).map(double)  # Range, Map
    return numbers.snapshot(path)  # Snapshot


@operator("Dataset.load", "Load 60", unseen="what the reader function does is part of the row")
def load_by_a_function(bench: Bench) -> Any:
    """What the reader function does counts as the load's."""
    path = bench.path()
    Dataset.range(60).save(path)
    return Dataset.load(  # Load
        path, reader_func=lambda shards: shards.interleave(lambda shard: shard.map(double))
    )


@operator("Dataset.load Dataset.save", "Load 60")
def load(bench: Bench) -> Any:
    path = bench.path()
    Dataset.range(60).save(path)
    return Dataset.load(path)  # Load
