"""Variables and tables that functions capture: which of them a pipeline writes, and which it only reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture.functions import Library
from tensorboard_plugin_plumber.capture.operations import kind_of
from tensorboard_plugin_plumber.capture.survey import Survey, traced_of
from tensorboard_plugin_plumber.rewrite.split.flat import Flat, functions_of, library_of

_HAND_ON = frozenset({"Identity", "IdentityN", "Switch", "Enter", "Merge"})
_LOOKS = frozenset({"VarIsInitializedOp", "VariableShape"})
# Inputs that come before those that become the arguments of the functions called.
_BEFORE_ARGUMENTS = {
    "PartitionedCall": 0, "StatefulPartitionedCall": 0, "While": 0, "StatelessWhile": 0,
    "If": 1, "StatelessIf": 1, "Case": 1, "StatelessCase": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Written:
    """What a pipeline writes.

    Attributes:
      handles: of the variables and tables, as `handle_of` names them.
    """

    handles: frozenset[str] = frozenset()

    def holds(self, handles: Iterable[str]) -> bool:
        """Whether it writes one of these."""
        return not self.handles.isdisjoint(handles)


def handle_of(value: Any) -> str:
    """A captured resource by name: two tensors that hold the same one have the same."""
    return str(value)


def written_by(dataset: Any) -> Written:
    """What the functions of all operators from a dataset down write of what they have captured."""
    survey = Survey()
    survey.look_at(dataset)
    found: set[str] = set()
    for one in survey.order:
        for wrapper in traced_of(one):
            found |= written_captures(getattr(wrapper, "_function", None))
    return Written(frozenset(found))


def held_by(operation: Any, flat: Flat) -> frozenset[str]:
    """The captured resources that an operation of a function takes."""
    found = set()
    for value in operation.inputs:
        origin = value
        while origin.dtype == tf.resource and origin.op.type in ("Identity", "IdentityN"):
            origin = origin.op.inputs[origin.value_index]
        if origin.dtype == tf.resource and origin.name in flat.captures:
            found.add(handle_of(flat.captures[origin.name]))
    return frozenset(found)


def trainable(flat: Flat) -> dict[str, str]:
    """Handles of the captured variables that training changes, and their names."""
    return {
        handle_of(one.handle): str(one.name).split(":", 1)[0]
        for one in variables_of(flat)
        if getattr(one, "trainable", False)
    }


def variables_of(flat: Flat) -> tuple[Any, ...]:
    """The captured variables that are still there."""
    try:
        return tuple(flat.wrapper._function.graph.variables)
    except ReferenceError:  # the user has dropped one
        return ()


def written_captures(function: Any) -> set[str]:
    """Handles that one traced function writes."""
    graph = getattr(function, "graph", None)
    captures = [
        (inside.name.split(":")[0], handle_of(outside))
        for outside, inside in getattr(graph, "captures", ())
        if outside.dtype == tf.resource
    ]
    if graph is None or not captures:
        return set()
    graph_def = graph.as_graph_def()
    functions = library_of(graph_def)
    return _written(graph_def.node, dict(captures), functions, Library(functions), ())


def _written(
    nodes: Iterable[Any],
    holders: Mapping[str, str],
    functions: Mapping[str, Any],
    library: Library,
    inside: tuple[str, ...],
) -> set[str]:
    """Handles that nodes write.

    Args:
      holders: name of an argument -> the handle that it holds.
      inside: functions that are being looked through.
    """
    by_name = {node.name: node for node in nodes}
    found: set[str] = set()
    for node in by_name.values():
        if node.op in _HAND_ON:
            continue
        held = [_traced(one, by_name, holders) for one in node.input if not one.startswith("^")]
        handles = {one for one in held if one}
        if not handles:
            continue
        kind = kind_of(node.op)
        if node.op in _BEFORE_ARGUMENTS:
            given = held[_BEFORE_ARGUMENTS[node.op] :]
            for name in functions_of(node):
                found |= _written_inside(name, given, functions, library, inside)
        elif kind.calls or kind.list_calls:
            facts = library.facts(functions_of(node), whole=True)
            if facts.graph_writes or facts.unknown:
                found |= handles
        elif not (kind.reads_variable or kind.reads_table or node.op in _LOOKS):
            found |= handles
    return found


def _written_inside(
    name: str,
    given: list[str],
    functions: Mapping[str, Any],
    library: Library,
    inside: tuple[str, ...],
) -> set[str]:
    function = functions.get(name)
    if function is None or name in inside:
        return {one for one in given if one}
    holders = {
        one.name: handle for one, handle in zip(function.signature.input_arg, given, strict=False) if handle
    }
    return _written(function.node_def, holders, functions, library, (*inside, name)) if holders else set()


def _traced(reference: str, by_name: Mapping[str, Any], holders: Mapping[str, str]) -> str:
    """The handle behind an input; "" if it is none that is known."""
    for _ in range(len(by_name) + 1):
        name, _, rest = reference.lstrip("^").partition(":")
        if name in holders:
            return holders[name]
        node = by_name.get(name)
        if node is None or node.op not in _HAND_ON:
            return ""
        index = rest.rsplit(":", 1)[-1] if node.op == "IdentityN" else "0"
        reference = node.input[int(index) if index.isdigit() else 0]
    return ""
