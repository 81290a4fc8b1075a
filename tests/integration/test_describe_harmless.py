"""Describing leaves the user's data, functions and random state alone, wherever it is done."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tests.support.described import double, operator, trace

construction.install()
Dataset = tf.data.Dataset


def test_describing_leaves_random_state_functions_and_elements_alone():
    traced = []

    def counted(x):
        traced.append(1)
        return x + 1

    def make():
        return Dataset.from_tensor_slices(np.arange(400_000)).map(counted).shuffle(5).batch(2).take(3)

    tf.random.set_seed(7)
    undisturbed = [list(make().as_numpy_iterator()), tf.random.uniform([]).numpy()]
    tf.random.set_seed(7)
    dataset = make()
    count = len(traced)
    description = trace(dataset)
    trace(dataset)
    disturbed = [list(dataset.as_numpy_iterator()), tf.random.uniform([]).numpy()]

    assert len(traced) == count
    np.testing.assert_array_equal(undisturbed[0], disturbed[0])
    assert undisturbed[1] == disturbed[1]
    assert operator(description, "TensorSlice").cardinality == 400_000


def test_state_that_changes_meanwhile_is_left_alone():
    """The copy that is tagged has tables and variables of its own."""
    from tensorboard_plugin_plumber.capture import graphs

    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    table.insert([1], [10])
    variable = tf.Variable(1.0)
    dataset = Dataset.range(5).map(lambda x: (table.lookup(x), tf.cast(x, tf.float32) + variable))
    serialised = graphs.serialise(dataset._variant_tensor)
    table.insert([1, 2], [11, 20])
    variable.assign(5.0)
    graphs.finalise(serialised, dataset)

    assert dict(zip(*(one.numpy().tolist() for one in table.export()), strict=True)) == {1: 11, 2: 20}
    assert variable.numpy() == 5.0


def test_pipelines_inside_a_function_and_in_other_threads_can_be_described():
    import threading

    dataset = Dataset.range(9).map(double)
    found = []
    thread = threading.Thread(target=lambda: found.append(trace(dataset)))
    thread.start()
    thread.join()

    @tf.function(autograph=False)
    def inside():
        found.append(trace(dataset))
        return 1

    inside()
    assert found[0].pipeline == found[1].pipeline == trace(dataset).pipeline
