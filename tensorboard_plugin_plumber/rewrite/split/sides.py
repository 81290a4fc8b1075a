"""Which operations of a map's function have to stay behind a cache, and why.

What stays runs exactly as often, and in the same order, as it did. So only what goes before has to be
understood: it must give the same for the same element in each epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture.functions import Facts, Library
from tensorboard_plugin_plumber.capture.operations import Kind, kind_of
from tensorboard_plugin_plumber.rewrite.rebuild import Refused
from tensorboard_plugin_plumber.rewrite.split import resources
from tensorboard_plugin_plumber.rewrite.split.flat import Flat, functions_of, library_of

#: Values of these types are bound to the process, or cannot be written to a file.
UNCROSSABLE = frozenset({tf.resource, tf.variant})
# They only look at what they hold, or hand it on.
_LOOKS = frozenset({"VarIsInitializedOp", "VariableShape", "Identity", "IdentityN", "Placeholder"})


@dataclass(frozen=True)
class Sides:
    """Where the operations of a function may stand.

    Attributes:
      rest: those that must stay behind the cache, by name, and why, in words.
      causes: those of `rest` that are a reason themselves; the others follow from them.
      free: they depend on constants and captured values alone: each half makes its own.
      reads: those that read what somebody might change, and what it is; they may go before only if it is
        taken for granted that nobody does.
    """

    rest: Mapping[str, str]
    causes: frozenset[str]
    free: frozenset[str]
    reads: Mapping[str, str]

    def first(self, flat: Flat) -> list[Any]:
        """Operations that may go before the cache, arguments apart, in an order in which they can run."""
        return [
            one
            for one in flat.operations
            if one.name not in self.rest and one.name not in flat.placeholders and one.name not in self.free
        ]


def sides_of(flat: Flat, written: resources.Written, *, trusting: bool) -> Sides:
    """Where the operations of a function may stand.

    Args:
      written: what the whole pipeline writes.
      trusting: variables and tables that the pipeline only reads are taken not to change.

    Raises:
      Refused: an argument would have to cross that cannot.
    """
    library = Library(library_of(flat.graph_def))
    trained = resources.trainable(flat)
    free = _free(flat)
    rest: dict[str, str] = {}
    reads: dict[str, str] = {}
    for one in flat.operations:
        if one.name in flat.placeholders or one.name in free:
            continue
        why = _reason(one, flat, library, free)
        held = resources.held_by(one, flat) if not why else frozenset()
        if held:
            why, what = _reason_to_read(one, held, library, written, trained)
            if not why and not trusting:
                why = f"reads {what}"
            elif not why:
                reads[one.name] = what
        if why:
            rest[one.name] = why
    causes = frozenset(rest)
    _follow(flat, free, rest)
    return Sides(rest, causes, free, {name: what for name, what in reads.items() if name not in rest})


def _free(flat: Flat) -> frozenset[str]:
    """Operations that depend on constants and captured values alone, and only compute."""
    captured = {name.split(":")[0] for name in flat.captures}
    found: set[str] = set()
    for one in flat.operations:
        if one.name in flat.placeholders:
            continue
        kind = kind_of(one.type)
        computes = not (one.op_def.is_stateful or kind.calls or kind.list_calls or kind.stateless)
        known = all(value.op.name in found or value.op.name in captured for value in one.inputs)
        waits = all(before.name in found for before in one.control_inputs)
        of_process = any(value.dtype in UNCROSSABLE for value in (*one.inputs, *one.outputs))
        if computes and known and waits and (not of_process or one.type == "Identity"):
            found.add(one.name)
    return frozenset(found)


def _reason(one: Any, flat: Flat, library: Library, free: frozenset[str]) -> str:
    """Why an operation itself must stay behind; "" if nothing speaks against it but what it holds."""
    kind = kind_of(one.type)
    if kind.calls or kind.list_calls:
        why = _reason_in(library.facts(functions_of(one.node_def), whole=True))
        if why:
            return why
    return _reason_of(one, kind, free) or _reason_for_state(one, flat)


def _reason_of(one: Any, kind: Kind, free: frozenset[str]) -> str:
    if kind.python:
        return _reason_in(Library({"": _alone(one)}).facts([""]))
    if kind.random:
        return f"draws random numbers ({one.type})"
    if kind.stateless and any(value.op.name not in free for value in list(one.inputs)[1:]):
        return f"draws random numbers from a seed that may change ({one.type})"
    if kind.random_dataset:
        return f"draws random numbers ({one.type})"
    if kind.writes:
        return f"writes {kind.writes}"
    if kind.clock:
        return f"reads the clock ({one.type})"
    if kind.unknown or (one.op_def.is_stateful and "Iterator" in one.type):
        return f"holds state that is not understood ({one.type})"
    return ""


def _reason_in(found: Facts) -> str:
    """Why what calls functions must stay behind."""
    if found.python:
        return f"runs Python code ({found.python[0].name}) of unknown purity"
    if found.random:
        return f"draws random numbers ({found.random[0]})"
    if found.stateless and found.fed:
        return f"draws random numbers from a seed that may change ({found.stateless[0]})"
    if found.datasets:
        return f"draws random numbers ({found.datasets[0].op})"
    if found.graph_writes:
        return f"writes {found.graph_writes[0]}"
    if found.clocks:
        return f"reads the clock ({found.clocks[0]})"
    if found.unknown:
        return f"holds state that is not understood ({found.unknown[0]})"
    return ""


def _alone(one: Any) -> Any:
    from tensorflow.core.framework import function_pb2

    function = function_pb2.FunctionDef()
    function.node_def.add().CopyFrom(one.node_def)
    return function


def _reason_for_state(one: Any, flat: Flat) -> str:
    """Resources that live in the process: made by the function, or found by their names."""
    makes = any(value.dtype == tf.resource for value in one.outputs)
    if makes and not any(value.dtype == tf.resource for value in one.inputs):
        return f"makes or finds a resource ({one.type})"
    held = [value for value in one.inputs if value.dtype == tf.resource]
    kind = kind_of(one.type)
    known = kind.reads_variable or kind.reads_table or kind.calls or kind.list_calls or one.type in _LOOKS
    return f"uses a resource in a way that is not understood ({one.type})" if held and not known else ""


def _reason_to_read(
    one: Any,
    held: frozenset[str],
    library: Library,
    written: resources.Written,
    trained: Mapping[str, str],
) -> tuple[str, str]:
    """(why an operation that reads captured resources must stay behind, "" if it need not; what it reads)."""
    kind = kind_of(one.type)
    found = library.facts(functions_of(one.node_def), whole=True)
    table = kind.reads_table or found.reads_tables
    what = "a table" if table and not (kind.reads_variable or found.reads_variables) else "a variable"
    if any(handle in trained for handle in held):
        names = ", ".join(trained[handle] for handle in sorted(held) if handle in trained)
        return f"reads a variable that training changes ({names})", what
    if written.holds(held):
        return f"reads {what} that the pipeline writes", what
    return "", what


def _follow(flat: Flat, free: frozenset[str], rest: dict[str, str]) -> None:
    """Adds to `rest` what follows from it: all downstream, and what makes values for it that cannot cross."""
    arguments = {name.split(":")[0] for name in flat.arguments}
    returned = {flat.tensor(name).op.name for name in flat.outputs if flat.tensor(name).dtype in UNCROSSABLE}
    for name in returned:
        if name in arguments:
            raise Refused("a component of its elements is handed on that cannot be cached")
        if name not in free:
            rest.setdefault(name, "makes a component of a kind that is put together behind the cache")
    changed = True
    while changed:
        before = len(rest)
        for one in flat.operations:
            if one.name in rest or one.name in flat.placeholders or one.name in free:
                continue
            sources = [*(value.op.name for value in one.inputs), *(each.name for each in one.control_inputs)]
            cause = next((name for name in sources if name in rest), None)
            if cause is not None:
                rest[one.name] = rest[cause]
        for name in list(rest):
            for value in flat.graph.get_operation_by_name(name).inputs:
                if value.dtype not in UNCROSSABLE or value.op.name in free or value.name in flat.captures:
                    continue
                if value.op.name in arguments:
                    raise Refused(f"{rest[name]}, and takes a part of the element that cannot be cached")
                rest.setdefault(value.op.name, rest[name])
        changed = len(rest) != before
