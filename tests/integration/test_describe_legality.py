"""What a described operator says of caches and threads."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tests.support.described import double, operator, trace

construction.install()
Dataset = tf.data.Dataset


class TestLegality:
    def test_python_functions_forbid_a_cache_and_allow_threads_with_a_reserve(self):
        def load(x):
            return np.int64(x * 2)

        dataset = Dataset.range(9).map(lambda x: tf.numpy_function(load, [x], tf.int64)).batch(3)
        description = trace(dataset)
        one = operator(description, "Map")

        assert one.function.python
        assert one.function.may_wait
        assert "load" in one.cache.reason
        assert (one.cache.allowed, operator(description, "Batch").cache.operator) == (False, one.id)
        assert one.parallel.allowed
        assert "several threads" in one.parallel.reason

    def test_python_functions_with_visible_writes_stay_sequential(self):
        seen = []

        def load(x):
            seen.append(int(x))
            return x

        one = operator(trace(Dataset.range(9).map(lambda x: tf.py_function(load, [x], tf.int64))), "Map")

        assert not one.parallel.allowed
        assert any("seen" in write for write in one.function.writes)

    @pytest.mark.skipif(
        "synchronous" not in inspect.signature(Dataset.map).parameters,
        reason="`map` has no `synchronous` before TensorFlow 2.18",
    )
    def test_a_map_that_was_asked_to_be_synchronous_stays_so(self):
        """TensorFlow raises where it is also given `num_parallel_calls`."""
        one = operator(trace(Dataset.range(9).map(double, synchronous=True)), "Map")

        assert not one.parallel.allowed
        assert "synchronous" in one.parallel.reason
        assert one.cache.allowed

    def test_seeded_randomness_stays_sequential(self):
        one = operator(trace(Dataset.range(9).map(lambda x: tf.random.uniform([], seed=3))), "Map")

        assert one.function.seeded
        assert not one.parallel.allowed
        assert not one.cache.allowed

    def test_stateless_randomness_with_a_constant_seed_is_deterministic(self):
        one = operator(trace(Dataset.range(9).map(lambda x: tf.random.stateless_uniform([], [1, 2]))), "Map")

        assert one.cache.allowed
        assert one.parallel.allowed

    def test_variables_and_generators(self):
        count = tf.Variable(0, dtype=tf.int64)
        generator = tf.random.Generator.from_seed(1)
        writes = operator(trace(Dataset.range(9).map(lambda x: count.assign_add(x))), "Map")
        draws = operator(trace(Dataset.range(9).map(lambda x: generator.uniform([]))), "Map")
        reads = operator(trace(Dataset.range(9).map(lambda x: x + count)), "Map")

        assert not writes.cache.allowed
        assert not writes.parallel.allowed
        assert not draws.cache.allowed
        assert not draws.parallel.allowed
        assert not reads.cache.allowed  # training changes it
        assert reads.parallel.allowed
        assert count.numpy() == 0  # the description ran nothing

    def test_table_lookups_are_deterministic(self):
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [5, 6]), -1)
        one = operator(trace(Dataset.from_tensor_slices([0, 1]).map(table.lookup)), "Map")

        assert one.cache.allowed
        assert one.parallel.allowed

    def test_an_endless_input_never_completes_a_cache(self):
        description = trace(Dataset.range(9).repeat().map(double).take(5))

        assert not operator(description, "Map").cache.allowed
        assert operator(description, "Map").cache.operator == operator(description, "Repeat").id
        assert operator(description, "Take").cache.allowed

    def test_a_shuffle_that_keeps_its_order_may_be_cached(self):
        kept = operator(trace(Dataset.range(9).shuffle(9, seed=1, reshuffle_each_iteration=False)), "Shuffle")
        drawn = operator(trace(Dataset.range(9).shuffle(9, seed=1)), "Shuffle")

        assert kept.cache.allowed
        assert not drawn.cache.allowed
