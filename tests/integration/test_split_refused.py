"""What cannot be cut is refused in words that say why, and a broken cut does not pass its proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.rewrite.rebuild import Refused
from tensorboard_plugin_plumber.rewrite.split import (
    Split,
    applied,
    candidates,
    prove_split,
    split_at_fewest_bytes,
    split_at_randomness,
)
from tests.support import augmented
from tests.support.augmented import SIDE, decoded, pictures

construction.install()
Dataset = tf.data.Dataset


def random_at_the_start(jpeg: Any, label: Any) -> Any:
    image = tf.io.decode_jpeg(tf.cond(tf.random.uniform(()) < 2.0, lambda: jpeg, lambda: tf.constant(b"")))
    return tf.image.resize(image, (32, 32)), label


def python_at_the_start(jpeg: Any, label: Any) -> Any:
    image = tf.py_function(lambda one: tf.io.decode_jpeg(one), [jpeg], tf.uint8)
    return augmented.augmented(tf.ensure_shape(image, (SIDE, SIDE, 3))), label


def numpy_at_the_start(jpeg: Any, label: Any) -> Any:
    image = tf.numpy_function(lambda one: tf.io.decode_jpeg(one).numpy(), [jpeg], tf.uint8, stateful=False)
    return augmented.augmented(tf.ensure_shape(image, (SIDE, SIDE, 3))), label


def the_clock_at_the_start(jpeg: Any, label: Any) -> Any:
    image = tf.io.decode_jpeg(
        tf.cond(tf.timestamp() > 0.0, lambda: jpeg, lambda: tf.constant(b"")), channels=3
    )
    return augmented.augmented(tf.ensure_shape(image, (SIDE, SIDE, 3))), label


def cheap(jpeg: Any, label: Any) -> Any:
    return tf.strings.length(jpeg) + 1, tf.cast(label, tf.float32) * tf.random.uniform(())


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (random_at_the_start, r"the function draws random numbers \(RandomUniform\)"),
        (python_at_the_start, r"the function runs Python code \(<lambda>\) of unknown purity"),
        (numpy_at_the_start, r"runs Python code \(<lambda>\) of unknown purity"),
        (the_clock_at_the_start, r"reads the clock \(Timestamp\)"),
        (cheap, r"only \d+ µs of its work could be done before a cut: the function draws random numbers"),
        (lambda jpeg, label: (decoded(jpeg), label), "is the same in each epoch"),
    ],
)
def test_where_nothing_can_go_before_the_cache_it_says_why(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        split_at_randomness(pictures().map(function))


def test_what_is_random_is_not_cut_as_if_it_were_not() -> None:
    with pytest.raises(Refused, match="draws random numbers"):
        split_at_fewest_bytes(pictures().map(augmented.plain))


def test_what_grows_nowhere_is_not_cut_for_its_bytes() -> None:
    dataset = pictures().map(lambda jpeg, label: (tf.image.resize(decoded(jpeg), (32, 32)), label))
    with pytest.raises(Refused, match="nowhere behind its costly part"):
        split_at_fewest_bytes(dataset)


def test_only_maps_are_cut() -> None:
    with pytest.raises(Refused, match="_FlatMapDataset is no map"):
        split_at_randomness(Dataset.range(3).flat_map(lambda index: Dataset.range(index)))


def test_a_function_of_tensorflow_1_is_left_alone() -> None:
    dataset = tf.compat.v1.data.make_one_shot_iterator  # there, whatever the version
    assert callable(dataset)
    made = tf.compat.v1.data.Dataset.range(3).map_with_legacy_function(lambda index: tf.random.uniform(()))
    with pytest.raises(Refused, match="TensorFlow 1"):
        split_at_randomness(made._dataset)


def test_a_variable_that_another_map_writes_is_not_read_before_the_cut() -> None:
    # GIVEN a variable that a map above counts up, and from which the decoding follows
    variable = tf.Variable(1.0, trainable=False)
    source = pictures()
    dataset = source.map(augmented.of_a_variable(variable))

    def count(image: Any, label: Any) -> Any:
        variable.assign_add(1.0)
        return image, label

    pipeline = dataset.map(count).batch(2)

    # THEN the map alone could be cut, but not in this pipeline
    assert split_at_randomness(dataset).assumptions
    with pytest.raises(Refused, match="reads a variable that the pipeline writes"):
        split_at_randomness(dataset, pipeline=pipeline)
    found = {id(one.map_dataset): one for one in candidates(pipeline)}
    assert "reads a variable that the pipeline writes" in found[id(dataset)].refused


def test_a_variable_that_is_written_in_a_nested_call_counts_as_written() -> None:
    variable = tf.Variable(1.0, trainable=False)

    @tf.function
    def inner(one: Any) -> Any:
        return tf.cond(one > 0, lambda: variable.assign_add(1.0), lambda: variable.assign(2.0))

    def function(jpeg: Any, label: Any) -> Any:
        image = augmented.of_a_variable(variable)(jpeg, label)[0]
        inner(label)
        return image, label

    with pytest.raises(Refused, match=r"(reads a variable that the pipeline writes|writes a variable)"):
        split_at_randomness(pictures().map(function))


def test_another_variable_may_be_written() -> None:
    """Only what is read before the cut must stay as it is."""
    read, written = tf.Variable(1.0, trainable=False), tf.Variable(0, trainable=False)

    def function(jpeg: Any, label: Any) -> Any:
        image, label = augmented.of_a_variable(read)(jpeg, label)
        written.assign_add(label)
        return image, label

    dataset = pictures().map(function)
    split = split_at_randomness(dataset)

    proof = prove_split(split, dataset, 3)
    assert proof.same, proof.reason
    assert int(written) == 0  # neither measuring nor proving counts
    made = applied(split, dataset, dataset._input_dataset, between=lambda first: first.cache())
    list(made)
    assert int(written) == 21
    list(made)
    assert int(written) == 42


def test_a_variable_that_training_changes_is_not_read_before_the_cut() -> None:
    variable = tf.Variable(1.0)
    with pytest.raises(Refused, match="reads a variable that training changes"):
        split_at_randomness(pictures().map(augmented.of_a_variable(variable)))


def test_a_table_that_the_pipeline_fills_is_looked_up_behind_the_cut() -> None:
    table = tf.lookup.experimental.MutableHashTable(tf.int32, tf.int32, -1)

    def function(jpeg: Any, label: Any) -> Any:
        table.insert(label, label * 10)
        return augmented.augmented(decoded(jpeg)), table.lookup(label)

    dataset = pictures().map(function)
    split = split_at_randomness(dataset)

    first = {node.op for node in split.first.function.graph.as_graph_def().node}
    assert "DecodeJpeg" in first
    assert not any(op.startswith("LookupTable") for op in first)
    made = applied(split, dataset, dataset._input_dataset, between=lambda one: one.cache())
    assert [int(label) for _, label in made] == [10, 20, 30, 40, 50, 60]


def test_another_input_than_the_function_was_traced_for_is_refused() -> None:
    dataset = pictures().map(augmented.plain)
    split = split_at_randomness(dataset)
    with pytest.raises(Refused, match="not those that its function was traced for"):
        applied(split, dataset, Dataset.range(3), between=lambda one: one)
    with pytest.raises(Refused, match="changes the elements"):
        applied(split, dataset, dataset._input_dataset, between=lambda one: one.batch(2))


# A cut that was broken on purpose.


def _crossed(split: Split) -> Split:
    """What crosses arrives in another order."""
    behind = split.behind
    return replace(split, behind=replace(behind, takes=behind.takes[::-1]))


def _doubled_constant(split: Split) -> Split:
    """A constant of the rest has another value."""
    graph_def = type(split.behind.graph_def)()
    graph_def.CopyFrom(split.behind.graph_def)
    for node in graph_def.node:
        if node.op == "Const" and node.attr["dtype"].type == tf.float32.as_datatype_enum:
            value = tf.make_ndarray(node.attr["value"].tensor) * 2
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    return replace(split, behind=replace(split.behind, graph_def=graph_def))


def _another_picture(split: Split) -> Split:
    """The first half does more than it should."""
    before = split.before
    graph_def = type(before.graph_def)()
    graph_def.CopyFrom(before.graph_def)
    for node in graph_def.node:
        if node.op == "DecodeJpeg":
            node.attr["dct_method"].s = b"INTEGER_FAST"
            node.attr["fancy_upscaling"].b = not node.attr["fancy_upscaling"].b
    return replace(split, before=replace(before, graph_def=graph_def))


def _drawn_early(split: Split) -> Split:
    """Something random stands before the cut."""
    before = split.before
    drawing = next(name for name in sorted(split.sides.causes))
    return replace(split, before=replace(before, operations=before.operations | {drawing}))


def _never_drawn(split: Split) -> Split:
    """The rest is the first half: it draws nothing."""
    return replace(split, rest=split.first)


@pytest.mark.parametrize(
    "broken",
    [_crossed, _doubled_constant, _another_picture, _drawn_early, _never_drawn],
    ids=lambda one: one.__name__,
)
def test_a_broken_cut_does_not_pass(broken: Callable[[Split], Split]) -> None:
    def function(jpeg: Any, label: Any) -> Any:
        image = tf.image.resize(decoded(jpeg), (80, 80))
        mirrored = tf.image.resize(image, (80, 80), "bicubic")[::-1]
        cropped = tf.image.random_crop(tf.concat([image, mirrored], 2), (64, 64, 6))
        return cropped[..., :3] - cropped[..., 3:] * tf.random.uniform(()) / 3.0 + label_of(label), label

    def label_of(label: Any) -> Any:
        return tf.cast(label, tf.float32) * 3.0

    dataset = pictures().map(function)
    split = split_at_randomness(dataset)
    proof = prove_split(split, dataset, 4)
    assert proof.same, proof.reason

    proof = prove_split(broken(split), dataset, 4)

    assert not proof.same
    assert proof.reason
