"""Pipelines under distribution strategies, seen through a boundary."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import model_pb2

from tensorboard_plugin_plumber.capture import boundary, construction
from tensorboard_plugin_plumber.capture.align import align
from tensorboard_plugin_plumber.capture.describe import describe

construction.install()


def make_dataset() -> tf.data.Dataset:
    dataset = tf.data.Dataset.range(64).map(
        lambda x: {"x": tf.cast(x, tf.float32), "text": tf.strings.as_string(x)}
    )
    return dataset.shuffle(16, seed=3).batch(8)


class Opened:
    """What the hook was told; keeps nothing alive."""

    def __init__(self) -> None:
        self.boundaries: list[weakref.ref] = []
        self.descriptions = []

    def __call__(self, dataset, opened) -> None:
        self.boundaries.append(weakref.ref(opened))
        self.descriptions.append(describe(dataset, role="train"))


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
    uninstall = boundary.install_boundary(opened)
    distributed = strategy.experimental_distribute_dataset(make_dataset())
    iterator = iter(distributed)
    next(iterator)
    next(iterator)
    model = model_pb2.ModelProto.FromString(opened.boundaries[-1]().read())
    description = opened.descriptions[-1]
    found = align(description, model)
    seen = {node.name: node.num_elements for node in model.nodes.values()}
    through = epochs()
    uninstall()
    count = len(opened.boundaries)
    epochs()

    own = [one for one in description.pipeline.operators if not one.injected]
    assert [one.type for one in own] == ["Batch", "Shuffle", "Map", "Range"]
    assert own[1].source.scope == "make_dataset"
    assert seen["Shuffle"] >= 16
    assert {node.name for id_, node in model.nodes.items() if id_ not in found} == {"Root"}
    np.testing.assert_array_equal(without, through)
    assert len(opened.boundaries) == count  # nothing is wrapped once it has ended
    del iterator, distributed
    gc.collect()
    assert all(one() is None for one in opened.boundaries)


@pytest.mark.parametrize(
    "dataset",
    [
        make_dataset(),
        tf.data.Dataset.range(5).repeat(),
        tf.data.Dataset.range(9).filter(lambda x: x > 2),
        tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1, 2], [3], []])),
    ],
    ids=["nested", "endless", "unknown", "ragged"],
)
def test_a_boundary_keeps_elements_spec_and_cardinality_pass_after_pass(dataset):
    wrapped = boundary.open_boundary(dataset).dataset

    assert wrapped.element_spec == dataset.element_spec
    assert wrapped.cardinality() == dataset.cardinality()
    for _ in range(2):
        for mine, theirs in zip(wrapped.take(3), dataset.take(3), strict=True):
            assert tf.nest.map_structure(tf.shape, mine) is not None
            tf.nest.assert_same_structure(mine, theirs, expand_composites=True)


def test_a_boundary_has_no_model_before_it_is_iterated_and_one_after():
    opened = boundary.open_boundary(tf.data.Dataset.range(100).map(lambda x: x + 1).batch(2))
    assert opened.read() is None

    iterator = iter(opened.dataset)
    next(iterator)
    model = model_pb2.ModelProto.FromString(opened.read())
    assert "MapAndBatch" in {node.name for node in model.nodes.values()}


def test_what_fails_leaves_training_as_it_was(caplog, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no")

    monkeypatch.setattr(boundary, "open_boundary", broken)
    uninstall = boundary.install_boundary(lambda dataset, opened: None)
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
from tensorboard_plugin_plumber.capture import boundary, construction
construction.install()
from tensorboard_plugin_plumber.capture.describe import describe
import keras

def make_dataset():
    return tf.data.Dataset.range(64).map(lambda x: (tf.cast(x, tf.float32)[None], 0.0)).batch(8)

found = []
boundary.install_boundary(lambda dataset, opened: found.append(describe(dataset, role="train").pipeline))
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
