"""Pipelines that hold much, or are very long, are described all the same."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tests.support.described import operator, trace, types, unmatched

construction.install()
Dataset = tf.data.Dataset


def test_large_arrays_are_not_serialised():
    from tensorboard_plugin_plumber.capture import graphs, shrink

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
