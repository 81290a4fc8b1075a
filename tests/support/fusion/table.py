"""Pipelines of all that TensorFlow fuses, parallelises, injects and drops."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.fusion.case import Dataset, Injected, Row, Source, pipeline

FINAL_PREFETCH = "Prefetch"
# TensorFlow 2.17 drops it, later ones let it run.
PREFETCH_OF_NOTHING = (
    Row("Prefetch", None, "") if tf.__version__.startswith("2.17.") else Row("Prefetch", 1, "Prefetch")
)


def double(x: tf.Tensor) -> tf.Tensor:
    return x * 2


def add_one(x: tf.Tensor) -> tf.Tensor:
    return x + 1


def draw(x: tf.Tensor) -> tf.Tensor:
    return x + tf.random.uniform([], 0, 2, tf.int64)


def is_even(x: tf.Tensor) -> tf.Tensor:
    return x % 2 == 0


def is_third(x: tf.Tensor) -> tf.Tensor:
    return x % 3 == 0


def drop_names(element: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    return element["a"], element["b"]


def name_both(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"a": x, "b": x}


BATCHED = ("Batch", "Map:numbers")
CARRIES_BATCH = Row("Map:numbers", 1, "MapAndBatch", BATCHED)


@pipeline(Row("Batch", 1 / 4, "MapAndBatch", BATCHED, "Map:numbers"), counted=CARRIES_BATCH)
def python_map_and_batch(counted: Source) -> Any:
    return counted().batch(4)  # Batch


@pipeline(
    Row("Batch", 1 / 4, "MapAndBatch", ("Batch", "Map"), "Map"),
    Row("Map", 1, "MapAndBatch", ("Batch", "Map")),
)
def stateless_map_and_batch(counted: Source) -> Any:
    mapped = counted().map(double)  # Map
    return mapped.batch(4)  # Batch


@pipeline(
    Row("Batch", 1 / 4, "MapAndBatch", ("Batch", "Map"), "Map"),
    Row("Map", 1, "MapAndBatch", ("Batch", "Map")),
)
def random_map_and_batch(counted: Source) -> Any:
    mapped = counted().map(draw)  # Map
    return mapped.batch(4)  # Batch


@pipeline(
    Row("Batch", 1 / 4, "MapAndBatch", ("Batch", "ParallelMap"), "ParallelMap"),
    Row("ParallelMap", 1, "MapAndBatch", ("Batch", "ParallelMap")),
)
def parallel_map_and_batch(counted: Source) -> Any:
    mapped = counted().map(draw, num_parallel_calls=2)  # ParallelMap
    return mapped.batch(4)  # Batch


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 4),
    Row("Batch", 1 / 4, "BatchV2"),
    Row("Map", 1, "ParallelMapV2"),
    map_and_batch_fusion=False,
)
def map_and_batch_that_may_not_fuse(counted: Source) -> Any:
    mapped = counted().map(double)  # Map
    return mapped.batch(4)  # Batch


@pipeline(
    Injected(FINAL_PREFETCH, 1),
    Row("Repeat", 1, "ShuffleAndRepeat", ("Repeat", "Shuffle")),
    Row("Shuffle", 1, "ShuffleAndRepeat", ("Repeat", "Shuffle"), "Repeat"),
    Row("Take", 1, "FiniteTake"),
)
def shuffle_and_repeat(counted: Source) -> Any:
    few = counted().take(50)  # Take
    shuffled = few.shuffle(8)  # Shuffle
    return shuffled.repeat()  # Repeat


@pipeline(
    Injected(FINAL_PREFETCH, 1),
    Row("Repeat", 1, "ForeverRepeat"),
    Row("Shuffle", 1, "Shuffle"),
    Row("Take", 1, "FiniteTake"),
    shuffle_and_repeat_fusion=False,
)
def shuffle_and_repeat_that_may_not_fuse(counted: Source) -> Any:
    few = counted().take(50)  # Take
    shuffled = few.shuffle(8)  # Shuffle
    return shuffled.repeat()  # Repeat


@pipeline(Row("Map", 1, "ParallelMapV2"))
def parallelised_map(counted: Source) -> Any:
    return counted().map(double)  # Map


@pipeline(Injected(FINAL_PREFETCH, 1), Row("Map", 1, "Map"), map_parallelization=False)
def map_that_may_not_be_parallelised(counted: Source) -> Any:
    return counted().map(double)  # Map


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 2),
    Row("Filter", 1 / 2, "Filter"),
    Row("Map", 1, "ParallelMapV2"),
)
def final_prefetch_behind_a_filter(counted: Source) -> Any:
    mapped = counted().map(add_one)  # Map
    return mapped.filter(is_even)  # Filter


@pipeline(Row("Filter", 1 / 2, "Filter"), inject_prefetch=False)
def no_injected_prefetch(counted: Source) -> Any:
    return counted().filter(is_even)  # Filter


@pipeline(Row("Prefetch", 1 / 2, "Prefetch"), Row("Filter", 1 / 2, "Filter"))
def prefetch_of_the_users(counted: Source) -> Any:
    filtered = counted().filter(is_even)  # Filter
    return filtered.prefetch(2)  # Prefetch


@pipeline(
    Injected(FINAL_PREFETCH, 1),
    Row("ParallelInterleave", 1, "Interleave"),
    Injected("Prefetch", 1, hands_to="ParallelInterleave"),
    Row("TensorSlice", None, "TensorSlice"),
    Row("Take", 1, "FiniteTake"),
    seq_interleave_prefetch=True,
)
def prefetch_injected_into_the_body_of_an_interleave(counted: Source) -> Any:
    starts = Dataset.from_tensor_slices([0, 0])  # TensorSlice
    return starts.interleave(  # ParallelInterleave
        lambda _: counted().take(1 << 40),  # Take
        cycle_length=2,
        num_parallel_calls=2,
        deterministic=True,
    )


@pipeline(
    Row("Batch", 1 / 4, "MapAndBatch", BATCHED, "Map:numbers"),
    Row("Repeat", None, ""),
    Row("Take", None, ""),
    Row("Skip", None, ""),
    Row("Shard", None, ""),
    counted=CARRIES_BATCH,
)
def operators_that_do_nothing(counted: Source) -> Any:
    sharded = counted().shard(1, 0)  # Shard
    skipped = sharded.skip(0)  # Skip
    taken = skipped.take(-1)  # Take
    once = taken.repeat(1)  # Repeat
    return once.batch(4)  # Batch


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 4),
    Row("Batch", 1 / 4, "BatchV2"),
    Row("Repeat", 1, "FiniteRepeat"),
    Row("Take", 1, "FiniteTake"),
    Row("Skip", 1, "FiniteSkip"),
    noop_elimination=False,
)
def operators_that_do_nothing_but_are_kept(counted: Source) -> Any:
    skipped = counted().skip(0)  # Skip
    taken = skipped.take(-1)  # Take
    once = taken.repeat(1)  # Repeat
    return once.batch(4)  # Batch


@pipeline(
    Injected(FINAL_PREFETCH, 1),
    Row("Shuffle", 1, "Shuffle"),
    Row("Map:2", None, ""),
    Row("Map:1", 1, "ParallelMapV2"),
)
def map_that_only_rearranges(counted: Source) -> Any:
    named = counted().map(name_both)  # Map:1
    pairs = named.map(drop_names)  # Map:2
    return pairs.shuffle(2)  # Shuffle


@pipeline(
    Injected(FINAL_PREFETCH, 1),
    Row("Shuffle", 1, "Shuffle"),
    PREFETCH_OF_NOTHING,
)
def prefetch_of_nothing(counted: Source) -> Any:
    prefetched = counted().prefetch(0)  # Prefetch
    return prefetched.shuffle(2)  # Shuffle


@pipeline(
    Row("Map:2", 1, "ParallelMapV2", ("Map:2", "Map:1")),
    Row("Map:1", 1, "ParallelMapV2", ("Map:2", "Map:1"), "Map:2"),
    map_fusion=True,
)
def fused_maps(counted: Source) -> Any:
    doubled = counted().map(double)  # Map:1
    return doubled.map(add_one)  # Map:2


@pipeline(
    Row("Batch", 1 / 4, "MapAndBatch", ("Batch", "Map:2", "Map:1"), "Map:2"),
    Row("Map:2", 1, "MapAndBatch", ("Batch", "Map:2", "Map:1")),
    Row("Map:1", 1, "MapAndBatch", ("Batch", "Map:2", "Map:1"), "Map:2"),
    map_fusion=True,
)
def fused_maps_and_batch(counted: Source) -> Any:
    doubled = counted().map(double)  # Map:1
    increased = doubled.map(add_one)  # Map:2
    return increased.batch(4)  # Batch


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 6),
    Row("Filter:2", 1 / 6, "Filter", ("Filter:2", "Filter:1")),
    Row("Filter:1", None, "Filter", ("Filter:2", "Filter:1"), "Filter:2"),
    filter_fusion=True,
)
def fused_filters(counted: Source) -> Any:
    even = counted().filter(is_even)  # Filter:1
    return even.filter(is_third)  # Filter:2


FILTERED = ("Filter", "Map:numbers")


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 2),
    Injected("Map", 1 / 2),
    Row("Filter", 1 / 2, "Filter", FILTERED, "Map:numbers"),
    counted=Row("Map:numbers", 1, "Map", FILTERED),
    map_and_filter_fusion=True,
)
def fused_map_and_filter(counted: Source) -> Any:
    return counted().filter(is_even)  # Filter


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 2), Row("Filter", 1 / 2, "ParallelFilter"), filter_parallelization=True
)
def parallelised_filter(counted: Source) -> Any:
    return counted().filter(is_even)  # Filter


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 8),
    Row("Batch", 1 / 8, "BatchV2"),
    Row("Filter", 1 / 2, "Filter"),
    parallel_batch=True,
)
def parallel_batch(counted: Source) -> Any:
    filtered = counted().filter(is_even)  # Filter
    return filtered.batch(4)  # Batch


@pipeline(
    Row("Batch", 1 / 4, "MapAndBatch", ("Batch", "Map:2", "Map:1"), "Map:2"),
    Row("Map:2", 1, "MapAndBatch", ("Batch", "Map:2", "Map:1")),
    Row("Map:1", 1, "MapAndBatch", ("Batch", "Map:2", "Map:1"), "Map:2"),
    Row("Repeat", 1, "ShuffleAndRepeat", ("Repeat", "Shuffle")),
    Row("Shuffle", 1, "ShuffleAndRepeat", ("Repeat", "Shuffle"), "Repeat"),
    Row("Skip", None, ""),
    Row("Take", 1, "FiniteTake"),
    map_fusion=True,
    filter_fusion=True,
    map_and_filter_fusion=True,
    filter_parallelization=True,
    parallel_batch=True,
)
def all_at_once(counted: Source) -> Any:
    few = counted().take(50)  # Take
    skipped = few.skip(0)  # Skip
    shuffled = skipped.shuffle(8)  # Shuffle
    repeated = shuffled.repeat()  # Repeat
    doubled = repeated.map(double)  # Map:1
    increased = doubled.map(add_one)  # Map:2
    return increased.batch(4)  # Batch


@pipeline(
    Row("Batch", 1 / 4, "BatchV2"),
    Row("Map", 1, "Map"),
    Row("Skip", 1, "FiniteSkip"),
    apply_default_optimizations=False,
)
def nothing_rewritten(counted: Source) -> Any:
    skipped = counted().skip(0)  # Skip
    mapped = skipped.map(double)  # Map
    return mapped.batch(4)  # Batch
