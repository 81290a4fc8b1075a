"""Pipelines under distribution strategies, seen through a boundary."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import boundary, construction, hidden, iterators
from tensorboard_plugin_plumber.capture.align import align
from tensorboard_plugin_plumber.capture.describe import describe

construction.install()


def make_dataset(*, reshuffle: bool = True) -> tf.data.Dataset:
    dataset = tf.data.Dataset.range(64).map(
        lambda x: {"x": tf.cast(x, tf.float32), "text": tf.strings.as_string(x)}
    )
    return dataset.shuffle(16, seed=3, reshuffle_each_iteration=reshuffle).batch(8)


class Opened:
    """What the hook was told; keeps nothing alive."""

    def __init__(self) -> None:
        self.passes: list[weakref.ref] = []
        self.descriptions = []

    def __call__(self, one) -> None:
        self.passes.append(weakref.ref(one))
        self.descriptions.append(describe(one.source, role="train"))


def model_of(one):
    return iterators.parse_model(iterators.read_model(one._iterator_resource))


@pytest.mark.parametrize("strategy", [tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy])
def test_a_distributed_pipeline_is_seen_and_its_elements_stay_the_same(strategy):
    strategy = strategy("CPU:0") if strategy is tf.distribute.OneDeviceStrategy else strategy(["CPU:0"])

    def epochs():
        distributed = strategy.experimental_distribute_dataset(make_dataset())
        found = []
        for _ in range(2):
            for batch in distributed:
                (local,) = strategy.experimental_local_results(batch)
                found.append(local["x"].numpy())
        return found

    without = epochs()
    opened = Opened()
    uninstall = hidden.listen(opened)
    distributed = strategy.experimental_distribute_dataset(make_dataset())
    iterator = iter(distributed)
    next(iterator)
    next(iterator)
    model = model_of(opened.passes[-1]())
    description = opened.descriptions[-1]
    found = align(description, model)
    seen = {node.name: node.num_elements for node in model.nodes.values()}
    through = epochs()
    uninstall()
    count = len(opened.passes)
    epochs()

    own = [one for one in description.pipeline.operators if not one.injected]
    assert [one.type for one in own] == ["Batch", "Shuffle", "Map", "Range"]
    assert own[1].source.scope == "make_dataset"
    assert seen["Shuffle"] >= 16
    assert {node.name for id_, node in model.nodes.items() if id_ not in found} == {"Root"}
    np.testing.assert_array_equal(without, through)
    assert len(opened.passes) == count  # nothing is wrapped once it has ended
    del iterator, distributed
    gc.collect()
    assert all(one() is None for one in opened.passes)


@pytest.mark.parametrize(
    "dataset",
    [
        make_dataset(reshuffle=False),
        tf.data.Dataset.range(5).repeat(),
        tf.data.Dataset.range(9).filter(lambda x: x > 2),
        tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1, 2], [3], []])),
    ],
    ids=["nested", "endless", "unknown", "ragged"],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_boundary_keeps_elements_spec_and_cardinality_pass_after_pass(dataset, whole):
    wrapped = boundary.show(dataset, "reduce", whole=whole, cardinality=True)

    assert wrapped.element_spec == dataset.element_spec
    assert wrapped.cardinality() == dataset.cardinality()
    for _ in range(2):
        for mine, theirs in zip(wrapped.take(3), dataset.take(3), strict=True):
            tf.nest.assert_same_structure(mine, theirs, expand_composites=True)
            for one, other in zip(tf.nest.flatten(mine, True), tf.nest.flatten(theirs, True), strict=True):
                np.testing.assert_array_equal(one, other)


def test_each_pass_can_be_read_from_its_first_element_to_its_end():
    heard, dataset = [], tf.data.Dataset.range(100).map(lambda x: x + 1).batch(2)
    uninstall = hidden.listen(heard.append)
    try:
        shown = boundary.show(dataset, "reduce", whole=True)
        first, second = iter(shown), iter(shown)
        for iterator in (first, second, second):
            next(iterator)
        models = [model_of(one) for one in heard]
    finally:
        uninstall()

    assert [one.source for one in heard] == [dataset, dataset]
    assert [model.nodes[model.output].num_elements for model in models] == [1, 2]
    assert "MapAndBatch" in {node.name for node in models[0].nodes.values()}
    # WHEN the user drops an iterator THEN whoever still holds the pass does not hold the pipeline
    del first
    gc.collect()
    with pytest.raises(iterators.Gone):
        model_of(heard[0])
    assert model_of(heard[1])


def test_what_fails_leaves_training_as_it_was(caplog, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no")

    monkeypatch.setattr(boundary, "show_pass", broken)
    uninstall = hidden.listen(lambda one: None)
    try:
        strategy = tf.distribute.OneDeviceStrategy("CPU:0")
        for _ in range(2):
            assert len(list(strategy.experimental_distribute_dataset(make_dataset()))) == 8
    finally:
        uninstall()
    assert sum("distributed pipeline" in record.message for record in caplog.records) == 1


def test_keras_fit_under_two_replicas(tmp_path):
    program = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tensorboard_plugin_plumber.capture import construction, hidden
construction.install()
from tensorboard_plugin_plumber.capture.describe import describe
import keras

def make_dataset():
    return tf.data.Dataset.range(64).map(lambda x: (tf.cast(x, tf.float32)[None], 0.0)).batch(8)

found = []
hidden.listen(lambda one: found.append(describe(one.source, role="train").pipeline))
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
history = model.fit(make_dataset(), epochs=2, verbose=0)
print(len(history.history["loss"]), len({pipeline.id for pipeline in found}))
print([(one.type, one.injected) for one in found[0].operators])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=180)

    assert done.returncode == 0, done.stderr
    counts, operators = done.stdout.splitlines()[-2:]
    assert counts == "2 1"
    assert operators.startswith("[('Batch', False), ('Map', False), ('Range', False)")
    assert "('Rebatch', True)" in operators
