"""What tests ask of a described pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture.align import align
from tensorboard_plugin_plumber.capture.describe import Description, describe
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


def line_of(path: Path, text: str) -> int:
    """The only line of a file that holds the text (and is not the call of this function)."""
    (line,) = [
        number
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if text in line and "line_of(" not in line
    ]
    return line


def trace(dataset: tf.data.Dataset) -> Description:
    """Describes a dataset as one that is iterated in `plumber.trace`."""
    return describe(dataset, role="trace")


def types(description: Description) -> list[str]:
    """Types of the user's operators, from the last one down."""
    return [one.type for one in description.pipeline.operators if not one.injected]


def operator(description: Description, type_: str) -> m.Operator:
    """The user's only operator of a type."""
    (found,) = [one for one in description.pipeline.operators if one.type == type_ and not one.injected]
    return found


def executed_by(description: Description, one: m.Operator) -> str | None:
    """Type of the running operator that executes one of the user's; None if none does."""
    return description.pipeline.running[one.running].type if one.HasField("running") else None


def unmatched(description: Description, dataset: tf.data.Dataset, elements: int = 3) -> set[str]:
    """Names of the live model's nodes that belong to no running operator."""
    iterator = iter(dataset)
    missing = set()
    for _ in range(elements):
        next(iterator)
        model = tf.data.experimental.get_model_proto(iterator)
        found = align(description, model)
        missing |= {
            node.name for id_, node in model.nodes.items() if id_ not in found and node.name != "Root"
        }
    return missing


def assert_whole(description: Description) -> None:
    """What holds for any pipeline."""
    pipeline = description.pipeline
    ids = {one.id for one in pipeline.operators}
    assert pipeline.operators[0].parent == ""
    for one in pipeline.operators:
        assert one.parent in ids | {""}
        assert one.flows_to in ids | {""}
        assert bool(one.parent) or one.injected or one is pipeline.operators[0]
        if one.HasField("running"):
            assert one.id in pipeline.running[one.running].operators
    for index, one in enumerate(pipeline.running):
        assert list(one.operators)
        assert set(one.operators) <= ids
        assert not one.HasField("parent") or one.parent < index
    roots = [one.id for one in pipeline.operators if not one.flows_to]
    assert len(roots) == 1
    assert roots[0] in pipeline.running[0].operators


def double(x: Any) -> Any:
    """A user's function."""
    return x * 2
