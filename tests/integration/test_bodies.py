"""Operators in the bodies of functions, changed: the same elements, by what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction, graphs
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.rewrite.bodies import BodyEdit, BodyOperator, operators_in_bodies, with_bodies
from tensorboard_plugin_plumber.rewrite.proof import prove
from tensorboard_plugin_plumber.rewrite.rebuild import Refused
from tests.support.digests import elements

construction.install()
Dataset = tf.data.Dataset


def mapped_and_batched(index: Any) -> Any:
    return Dataset.range(index + 4).map(lambda number: number * 2).batch(2)


@tf.function
def _called(index: Any) -> Any:
    return Dataset.range(index + 4).map(lambda number: {"number": number * 2, "index": index}).batch(2)


def built_in_a_call(index: Any) -> Any:
    return _called(index)


def parallel_already(index: Any) -> Any:
    numbers = Dataset.range(index + 4).map(lambda number: number * 2, num_parallel_calls=2)
    return numbers.batch(2, num_parallel_calls=2)


def interleaved(index: Any) -> Any:
    return Dataset.range(index + 2).interleave(lambda one: Dataset.range(one + 1), cycle_length=2)


def types_in_bodies(dataset: Any) -> list[str]:
    """Operators that stand in function bodies, as the graph has them."""
    root, _ = graphs.written(dataset)
    return [node.op for node in root.walk() if node.function]


def found(dataset: Any) -> dict[str, BodyOperator]:
    """By the operator's type."""
    types = {one.id: one.type for one in describe(dataset, role="trace").pipeline.operators}
    return {types[name]: one for name, one in operators_in_bodies(dataset).items()}


@pytest.mark.parametrize("name", ["interleave", "flat_map", "parallel interleave"])
@pytest.mark.parametrize(
    ("body", "edits", "wanted"),
    [
        (mapped_and_batched, {"Map": BodyEdit(calls=3)}, "ParallelMapDatasetV2"),
        (mapped_and_batched, {"Batch": BodyEdit(calls=tf.data.AUTOTUNE)}, "ParallelBatchDataset"),
        (mapped_and_batched, {"Batch": BodyEdit(prefetch=2)}, "PrefetchDataset"),
        (mapped_and_batched, {"Map": BodyEdit(2, 1), "Batch": BodyEdit(2, 1)}, "ParallelBatchDataset"),
        (built_in_a_call, {"Map": BodyEdit(calls=3, prefetch=tf.data.AUTOTUNE)}, "ParallelMapDatasetV2"),
        (interleaved, {"Interleave": BodyEdit(calls=2)}, "ParallelInterleaveDatasetV4"),
    ],
)
def test_an_operator_in_a_body_is_changed_and_the_elements_are_the_same(
    name: str, body: Callable[..., Any], edits: dict[str, BodyEdit], wanted: str
) -> None:
    # GIVEN a pipeline whose function builds datasets
    source = Dataset.range(4)
    dataset = {
        "interleave": lambda: source.interleave(body, cycle_length=2, block_length=2),
        "flat_map": lambda: source.flat_map(body),
        "parallel interleave": lambda: source.interleave(body, cycle_length=2, num_parallel_calls=2),
    }[name]()
    assert wanted not in types_in_bodies(dataset)
    there = found(dataset)

    # WHEN what stands in the body is changed
    made = with_bodies(dataset, source, {there[kind].node: edit for kind, edit in edits.items()})

    # THEN it is what was asked for, over the same elements
    assert wanted in types_in_bodies(made)
    assert all(there[kind].owner is dataset for kind in edits)
    proof = prove(dataset, made, in_order=True, budget_s=10)
    assert proof.same, proof.reason
    assert elements(made) == elements(dataset)


def test_the_calls_of_what_is_parallel_already_change() -> None:
    dataset = Dataset.range(3).flat_map(parallel_already)
    there = found(dataset)
    made = with_bodies(dataset, dataset._input_dataset, {there["ParallelMap"].node: BodyEdit(calls=5)})

    def calls(of: Any) -> Any:
        root, _ = graphs.written(of)
        (node,) = (one for one in root.walk() if one.op == "ParallelMapDatasetV2")
        return node.constant("num_parallel_calls")

    assert (calls(dataset), calls(made)) == (2, 5)
    assert elements(made) == elements(dataset)


def test_files_are_read_with_the_variables_and_tables_of_the_original(tmp_path: Path) -> None:
    # GIVEN a body that reads files and captures a variable and a table
    for number in range(3):
        with tf.io.TFRecordWriter(str(tmp_path / f"{number}.tfrecord")) as writer:
            for record in range(4):
                writer.write(f"{number}{record}".encode())
    variable = tf.Variable(1, dtype=tf.int64, trainable=False)
    keys = tf.lookup.KeyValueTensorInitializer([b"00", b"11"], tf.constant([7, 8], tf.int64))
    table = tf.lookup.StaticHashTable(keys, 0)

    def read(path: Any) -> Any:
        return tf.data.TFRecordDataset(path).map(lambda record: (record, table.lookup(record) * variable))

    dataset = Dataset.list_files(str(tmp_path / "*"), shuffle=False).interleave(read, cycle_length=3)

    made = with_bodies(
        dataset, dataset._input_dataset, {found(dataset)["Map"].node: BodyEdit(calls=2, prefetch=3)}
    )

    assert {"ParallelMapDatasetV2", "PrefetchDataset"} <= set(types_in_bodies(made))
    assert elements(made) == elements(dataset)
    variable.assign(10)
    assert {int(number) for _, number in made} == {0, 70, 80}


def test_what_cannot_be_changed_is_refused() -> None:
    dataset = Dataset.range(3).flat_map(lambda index: Dataset.range(9).filter(lambda one: one > index))
    node = found(dataset)["Filter"].node
    with pytest.raises(Refused, match="FilterDataset in the body has no parallel form"):
        with_bodies(dataset, dataset._input_dataset, {node: BodyEdit(calls=2)})
    with pytest.raises(Refused, match="there is no operator nowhere"):
        with_bodies(dataset, dataset._input_dataset, {"nowhere": BodyEdit(prefetch=1)})
    with pytest.raises(Refused, match="_RangeDataset has no body"):
        with_bodies(dataset._input_dataset, None, {})
    left = Dataset.range(3).flat_map(lambda index: Dataset.range(3).interleave(Dataset.range))
    with pytest.raises(Refused, match="leaves its cycle length to TensorFlow"):
        with_bodies(left, left._input_dataset, {found(left)["Interleave"].node: BodyEdit(calls=2)})


def test_a_body_in_a_body_is_not_among_them() -> None:
    dataset = Dataset.range(3).flat_map(interleaved)
    types = {one.id: one for one in describe(dataset, role="trace").pipeline.operators}
    there = [types[one].type for one in operators_in_bodies(dataset)]
    assert sorted(there) == ["Interleave", "Range"]
