"""Changes operators in the bodies of `interleave` and `flat_map`: the datasets that a user's function builds.

These have no objects of their own: they are operations of the traced function's graph. So the graph is changed, and
the operator that calls the function is made again with a function of the changed graph. It captures the very same
variables and tables, and the user's code is not run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import op_def_registry

from tensorboard_plugin_plumber.capture import construction, elsewhere, graphs
from tensorboard_plugin_plumber.capture.written import Written, operators_of, unwrap
from tensorboard_plugin_plumber.rewrite.rebuild import Refused
from tensorboard_plugin_plumber.rewrite.split.costs import mapped
from tensorboard_plugin_plumber.rewrite.split.flat import Flat, flattened
from tensorboard_plugin_plumber.rewrite.split.halves import Part, part, traced

_OWNERS = frozenset({"_FlatMapDataset", "_InterleaveDataset", "_ParallelInterleaveDataset"})
# The parallel form of each sequential one: the inputs that it has besides, each before which of the others ("" for
# the last), and None for the number of calls.
_PARALLEL: Mapping[str, tuple[str, tuple[tuple[str, int | None], ...]]] = {
    "MapDataset": ("ParallelMapDatasetV2", (("", None),)),
    "BatchDatasetV2": ("ParallelBatchDataset", (("drop_remainder", None),)),
    # What it holds ready is left to AUTOTUNE, as `Dataset.interleave` does.
    "InterleaveDataset": ("ParallelInterleaveDatasetV4", (("", -1), ("", -1), ("", None))),
}
_CALLS = "num_parallel_calls"


@dataclass(frozen=True)
class BodyEdit:
    """What changes at one operator in a body.

    Attributes:
      calls: its `num_parallel_calls`, `tf.data.AUTOTUNE` included; None leaves it. What was in order stays so.
      prefetch: a prefetch of so many elements on its output, AUTOTUNE included; None for none.
    """

    calls: int | None = None
    prefetch: int | None = None


@dataclass(frozen=True, eq=False)
class BodyOperator:
    """An operator in a body.

    Attributes:
      owner: the dataset object of the operator whose function builds it.
      operator: its id, as `capture.describe` has it.
      node: its operation in the function's graph.
    """

    owner: Any
    operator: str
    node: str


def operators_in_bodies(dataset: Any) -> dict[str, BodyOperator]:
    """The operators in bodies that can be changed, by their ids.

    Not among them: those in a body within a body, and what a function calls other than by a plain call.

    Raises:
      tf.errors.OpError, ValueError: the dataset cannot be serialised.
    """
    with tf.init_scope(), tf.device("/CPU:0"):
        root = operators_of(elsewhere.read(dataset).written, dataset)
    return {found.operator: found for owner in root.walk() for found in _in_body_of(owner)}


def with_bodies(owner: Any, input_dataset: Any, edits: Mapping[str, BodyEdit]) -> Any:
    """An operator made again with changes in its body.

    Args:
      owner: the dataset object of an `interleave` or a `flat_map`; it is not touched.
      input_dataset: what it takes its elements from.
      edits: by `BodyOperator.node`.

    Raises:
      Refused: one of the changes cannot be made.
    """
    if type(owner).__name__ not in _OWNERS:
        raise Refused(f"{type(owner).__name__} has no body that can be changed")
    with tf.init_scope():
        flat = flattened(owner._map_func)
        whole = _with_edits(flat, edits)
        wrapper = traced(lambda given: whole(given)[0], flat, gives=owner._map_func._output_structure)
        made = mapped(owner, input_dataset, wrapper)
        construction.stand_for(made, owner)
    return made


def _in_body_of(owner: Written) -> Iterator[BodyOperator]:
    dataset = unwrap(owner.pair.dataset)[1]
    if type(dataset).__name__ not in _OWNERS:
        return
    name = getattr(dataset._map_func._function, "name", b"")
    name = name.decode() if isinstance(name, bytes) else str(name)
    try:
        flat = flattened(dataset._map_func)
    except Refused:
        return
    own = {one.name: one.type for one in flat.operations}
    for one in owner.walk():
        node = one.head
        if not node.function:
            continue
        # An operation of a function that it calls has the call's name before its own.
        fitting = [
            each
            for each, kind in own.items()
            if kind == node.op
            and (each == node.name if node.function == name else each.endswith(f"/{node.name}"))
        ]
        if len(fitting) == 1:
            yield BodyOperator(dataset, one.id, fitting[0])


def _with_edits(flat: Flat, edits: Mapping[str, BodyEdit]) -> Part:
    """The whole function with the edits made."""
    runs = {one.name for one in flat.operations} - flat.placeholders
    whole = part(flat, takes=flat.arguments, gives=flat.outputs, runs=runs, free=())
    graph_def = type(whole.graph_def)()
    graph_def.CopyFrom(whole.graph_def)
    nodes = {node.name: node for node in graph_def.node}
    for name, edit in edits.items():
        if name not in nodes or not graphs.is_dataset_op(nodes[name].op):
            raise Refused(f"there is no operator {name} in the body")
        if edit.calls is not None:
            _set_calls(graph_def, nodes[name], edit.calls)
        if edit.prefetch is not None:
            _add_prefetch(graph_def, nodes[name], edit.prefetch)
    return replace(whole, graph_def=graph_def)


def _set_calls(graph_def: Any, node: Any, calls: int) -> None:
    arguments = graphs.named_inputs(node)
    if _CALLS in (name for name, _ in arguments):
        _set_inputs(
            node, [_constant(graph_def, node, calls) if name == _CALLS else one for name, one in arguments]
        )
        return
    if node.op not in _PARALLEL or (node.op == "MapDataset" and node.attr["force_synchronous"].b):
        raise Refused(f"{node.op.removesuffix('V2')} in the body has no parallel form")
    if node.op == "InterleaveDataset" and not _is_known(graph_def, dict(arguments)["cycle_length"]):
        raise Refused(
            "the interleave in the body leaves its cycle length to TensorFlow: in parallel it would be another"
        )
    kind, more = _PARALLEL[node.op]
    inputs = []
    for name, one in (*arguments, ("", "")):
        inputs += [
            _constant(graph_def, node, calls if value is None else value) for at, value in more if at == name
        ]
        inputs += [one] if one else []
    _set_inputs(node, inputs)
    node.op = kind
    known = {one.name for one in op_def_registry.get(kind).attr}
    for name in [one for one in node.attr if one not in known and not one.startswith("_")]:
        del node.attr[name]
    node.attr["deterministic"].s = b"true"


def _is_known(graph_def: Any, reference: str) -> bool:
    """Whether an input is a constant that is not left to TensorFlow."""
    node = next(one for one in graph_def.node if one.name == reference.split(":")[0])
    return node.op == "Const" and int(tf.make_ndarray(node.attr["value"].tensor)) > 0


def _add_prefetch(graph_def: Any, node: Any, size: int) -> None:
    """Puts a prefetch between an operator and what takes its elements."""
    name = f"{node.name}/prefetch"
    for other in graph_def.node:
        _set_inputs(
            other,
            [name if one in (node.name, f"{node.name}:0") else one for one in other.input if one[0] != "^"],
        )
    made = graph_def.node.add(name=name, op="PrefetchDataset")
    made.input.extend([node.name, _constant(graph_def, made, size)])
    for attribute in ("output_types", "output_shapes"):
        made.attr[attribute].CopyFrom(node.attr[attribute])
    made.attr["legacy_autotune"].b = True


def _set_inputs(node: Any, data: list[str]) -> None:
    """Replaces what a node takes; what it waits for stays."""
    node.input[:] = [*data, *(one for one in node.input if one.startswith("^"))]


def _constant(graph_def: Any, node: Any, value: int) -> str:
    name = f"{node.name}/constant_{len(graph_def.node)}"
    made = graph_def.node.add(name=name, op="Const")
    made.attr["dtype"].type = tf.int64.as_datatype_enum
    made.attr["value"].CopyFrom(attr_value_pb2.AttrValue(tensor=tf.make_tensor_proto(value, tf.int64)))
    return name
