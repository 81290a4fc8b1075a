"""Pipelines that hold much, or are very long, are described all the same."""

from __future__ import annotations

import time

import numpy as np
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction, graphs, shrink, survey
from tests.support.described import assert_whole, operator, trace, types, unmatched

construction.install()
Dataset = tf.data.Dataset


def test_large_arrays_are_not_serialised():
    array = np.zeros([4096, 32, 32], np.float32)  # 16 MB
    options = tf.data.Options()
    options.deterministic = False
    dataset = (
        Dataset.from_tensor_slices((array, np.zeros(4096, np.int64)))
        .shuffle(10, seed=2)
        .map(lambda x, y: (x / 2, y), num_parallel_calls=2)
        .filter(lambda x, y: y >= 0)
        .with_options(options)
        .cache()
        .padded_batch(4)
        .prefetch(1)
        .repeat(2)
    )
    small = graphs.serialise(shrink.serialisable(dataset).dataset._variant_tensor)
    description = trace(dataset)

    assert small.ByteSize() < 1 << 20
    assert types(description) == [
        "Repeat", "Prefetch", "PaddedBatch", "Cache", "Filter", "ParallelMap", "Shuffle", "TensorSlice",
    ]  # fmt: skip
    assert operator(description, "TensorSlice").cardinality == 4096
    assert unmatched(description, dataset) == set()


def test_large_captures_are_described_and_not_serialised():
    # GIVEN two functions that capture 40 MB each, which is more than may be serialised
    constant, variable = tf.zeros([10, 1 << 20]), tf.Variable(tf.zeros([10, 1 << 20]))
    dataset = (
        Dataset.range(10)
        .map(lambda x: (x, tf.reduce_sum(constant)))
        .filter(lambda x, y: y < 1)
        .map(lambda x, y: (x, y + tf.reduce_sum(variable[:1, :1])), num_parallel_calls=2)
        .batch(2)
    )

    small = graphs.serialise(shrink.serialisable(dataset).dataset._variant_tensor)
    description = trace(dataset)

    assert survey.TOO_LARGE_BYTES < 80e6
    assert small.ByteSize() < 1 << 20
    assert types(description) == ["Batch", "ParallelMap", "Filter", "Map", "Range"]
    assert all(one.HasField("running") for one in description.pipeline.operators)
    assert list(description.pipeline.notes) == []
    # THEN the user's functions have what they captured
    assert unmatched(description, dataset) == set()
    assert next(iter(dataset))[1].numpy().tolist() == [0.0, 0.0]


def concatenated(times: int) -> tf.data.Dataset:
    """A pipeline of 2 ** (times + 1) - 1 operators."""
    dataset = Dataset.range(10)
    for _ in range(times):
        dataset = dataset.concatenate(dataset)
    return dataset


def test_very_many_operators_are_cut_with_a_note_and_cost_no_more():
    few, many = concatenated(8), concatenated(14)
    cut = trace(many)

    # THEN it is cut at its far end, to some hundreds, and says so
    assert set(types(cut)) == {"Concatenate"}
    shown = len(types(cut))
    assert 250 < shown <= 1000
    assert list(cut.pipeline.notes) == [
        f"The pipeline has 32,767 operators: the {32_767 - shown:,} that are farthest from its end are not shown."
    ]
    assert_whole(cut)
    # AND 64 times as many operators cost what those that are shown cost
    assert list(trace(few).pipeline.notes) == []
    assert cpu_s(many) < 8 * cpu_s(few)


def cpu_s(dataset: tf.data.Dataset) -> float:
    """CPU seconds of describing it in this thread, the least of three."""
    costs = []
    for _ in range(3):
        began_s = time.thread_time()
        trace(dataset)
        costs.append(time.thread_time() - began_s)
    return min(costs)


def test_a_deep_chain_is_described_as_a_whole():
    dataset = Dataset.range(10)
    for _ in range(250):
        dataset = dataset.map(lambda x: x + 1)
    description = trace(dataset)

    assert types(description) == ["Map"] * 250 + ["Range"]
    assert list(description.pipeline.notes) == []
    assert all(one.HasField("source") for one in description.pipeline.operators if not one.injected)
    assert_whole(description)
    assert unmatched(description, dataset) == set()


def test_a_chain_that_is_too_deep_is_cut_with_a_note():
    dataset = Dataset.range(10)
    for number in range(600):
        dataset = dataset.take(1000 + number)
    description = trace(dataset)

    shown = len(types(description))
    assert types(description) == ["Take"] * shown
    assert 200 < shown < 600
    assert list(description.pipeline.notes) == [
        f"The pipeline has 601 operators: the {601 - shown} that are farthest from its end are not shown."
    ]
    assert_whole(description)
    assert list(dataset.as_numpy_iterator()) == list(range(10))
