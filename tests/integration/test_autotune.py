"""What is recorded of AUTOTUNE equals what TensorFlow's live model says at that moment."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.model.analyse import analyse
from tensorboard_plugin_plumber.schema.recording import Recording

AUTOTUNE = tf.data.AUTOTUNE


def work(x):
    """Some hundred microseconds in few large ops."""
    matrix = tf.ones([120, 120]) + tf.cast(x, tf.float32)
    for _ in range(3):
        matrix = tf.linalg.matmul(matrix, matrix) * 1e-4
    return tf.reduce_mean(matrix)


def augment(x):
    return work(x) + tf.random.uniform([])


def followed(dataset, log_dir, seconds=2.5):
    """Iterates in a traced block; the recording, and the live model before and after its last look."""
    with plumber.trace(log_dir):
        iterator = iter(dataset)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            next(iterator)
        before = tf.data.experimental.get_model_proto(iterator)
    after = tf.data.experimental.get_model_proto(iterator)
    (recording,) = reader.read(log_dir)
    return recording, before, after


def in_force(parameter):
    return parameter.state_value if parameter.tunable else parameter.state_value or parameter.value


def live(model):
    """{(type, parameter): (value in force, tunable)} of the nodes of a model."""
    return {
        (node.name, parameter.name): (in_force(parameter), parameter.tunable)
        for node in model.nodes.values()
        for parameter in node.parameters
    }


def recorded(recording: Recording):
    types = [one.type for one in recording.graph.pipelines[0].running]
    sample = recording.last_sample(0)
    assert sample is not None
    return {
        (type_, parameter.name): (parameter.value, parameter.tunable)
        for type_, counters in zip(types, sample.operators, strict=True)
        for parameter in counters.parameters
    }


@pytest.mark.parametrize(
    "build",
    [
        lambda d: d.map(work, num_parallel_calls=AUTOTUNE).batch(8).prefetch(AUTOTUNE),
        lambda d: d.map(augment).batch(8),
        lambda d: d.map(work, num_parallel_calls=2).batch(8).prefetch(3),
        lambda d: (
            d.interleave(
                lambda x: tf.data.Dataset.range(10**6).map(work),
                cycle_length=2,
                num_parallel_calls=AUTOTUNE,
            )
            .shuffle(64)
            .batch(8)
        ),
    ],
    ids=["tuned", "random", "fixed", "interleave"],
)
def test_parameters_are_those_of_the_live_model(tmp_path: Path, build) -> None:
    recording, before, after = followed(build(tf.data.Dataset.range(10**9)), tmp_path)

    # Nodes in the function of an interleave come several times, all alike but for their values.
    found, early, late = recorded(recording), live(before), live(after)
    assert found.keys() <= early.keys()
    outer = {key: value for key, value in found.items() if key[0] != "ParallelMapV2"}
    assert outer
    for key, value in outer.items():
        assert value in (early[key], late[key])
    analysis = analyse(recording)
    shown = {parameter.name: parameter.value for row in analysis.operators for parameter in row.parameters}
    assert shown.keys() == {name for _, name in found}
    for row in analysis.operators:
        for parameter in row.parameters:
            values = [point.value for point in parameter.history]
            assert values[-1] == parameter.value
            assert all(a != b for a, b in itertools.pairwise(values))
            assert parameter.tunable == (not parameter.fixed_by)


def test_budgets_and_algorithm_are_those_of_the_live_model(tmp_path: Path) -> None:
    options = tf.data.Options()
    options.autotune.cpu_budget = 3
    options.autotune.ram_budget = 50_000_000
    options.autotune.autotune_algorithm = tf.data.experimental.AutotuneAlgorithm.GRADIENT_DESCENT
    dataset = tf.data.Dataset.range(10**9).map(work, num_parallel_calls=AUTOTUNE).batch(8)
    recording, before, after = followed(dataset.with_options(options), tmp_path)

    pipeline = recording.graph.pipelines[0]
    assert (pipeline.autotune_cpu_budget, pipeline.autotune_ram_budget_bytes) == (3, 50_000_000)
    last = recording.last_sample(0)
    assert last is not None
    assert last.autotune.algorithm == "GRADIENT_DESCENT"
    assert last.autotune.cpu_budget == before.optimization_params.cpu_budget == 3
    # What is left of it: what larger buffers took is off.
    limits = [one.optimization_params.ram_budget for one in (before, after)]
    assert min(limits) <= last.autotune.ram_budget_bytes <= max(limits) <= 50_000_000
    summary = analyse(recording).autotune
    assert (summary.enabled, summary.algorithm, summary.cpu_budget) == (True, "GRADIENT_DESCENT", 3)
    assert "with a budget of 3 cores" in summary.sentence


def test_what_it_may_not_touch_is_said_with_the_reason(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.range(10**9).map(work).map(augment).batch(8).prefetch(2)
    recording, _, _ = followed(dataset, tmp_path)

    analysis = analyse(recording)
    (sentence,) = [analysis.autotune.sentence]
    (row,) = [row for row in analysis.operators if row.label == "augment"]
    assert f"may not touch Map augment ({row.source}), because its function is random" in sentence
    assert "Map work" not in sentence.split("may not touch")[1]


def test_buffers_are_as_full_as_they_are(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.range(10**9).shuffle(50).map(work).prefetch(4)
    with plumber.trace(tmp_path):
        iterator = iter(dataset)
        for _ in range(200):
            next(iterator)
        time.sleep(1.5)  # the producer fills up while nobody asks
    (recording,) = reader.read(tmp_path)
    rows = {row.type: row for row in analyse(recording).operators}

    assert rows["Prefetch"].buffer_fill == 1
    # A shuffle that gave out one has not taken the next yet.
    assert rows["Shuffle"].buffer_fill in (49 / 50, 1)
    assert iterator is not None
