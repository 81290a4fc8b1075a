"""Proves a split: both versions are given the same random tensors, and must return the same bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tensorboard_plugin_plumber.capture.operations import kind_of
from tensorboard_plugin_plumber.rewrite.digests import NotTold, digest
from tensorboard_plugin_plumber.rewrite.proof import FORM_ONLY, IN_ORDER, Proof
from tensorboard_plugin_plumber.rewrite.rebuild import Refused
from tensorboard_plugin_plumber.rewrite.split import resources
from tensorboard_plugin_plumber.rewrite.split.costs import mapped, sampled
from tensorboard_plugin_plumber.rewrite.split.flat import Flat
from tensorboard_plugin_plumber.rewrite.split.halves import Part, part, specs_of, traced
from tensorboard_plugin_plumber.rewrite.split.sides import UNCROSSABLE
from tensorboard_plugin_plumber.rewrite.split.splitting import Split

# Attributes that say nothing about what an operation does.
_NO_MEANING = frozenset({"_output_shapes", "_class"})


def prove_split(split: Split, map_dataset: Any, elements: int) -> Proof:
    """Compares the halves with the whole function.

    What draws, writes or runs Python (the causes of the cut) runs once for each element, in the whole function;
    the halves are given what came out, and run all else. So both see the same random tensors. Variables that the
    function writes are copies; what only writes is left out. That it stands in the rest, as it was and once, is
    shown by its graph.

    Args:
      split: of that map.
      map_dataset: the dataset object of the map.
      elements: that are compared; they are read from a copy of the map's input.

    Returns:
      "in order": bit for bit. `held` names the operations whose outcome was given to both.
    """
    flat = split.behind.flat
    reason = _misplaced(split)
    if reason:
        return Proof(False, 0, FORM_ONLY, reason)
    try:
        with tf.init_scope():
            dataset, held = _both(split, flat, map_dataset, elements)
            return _compared(dataset, held)
    except (Refused, NotTold, tf.errors.OpError) as error:
        return Proof(None, 0, FORM_ONLY, str(error))
    except ValueError as error:  # a half lacks what it needs
        return Proof(False, 0, FORM_ONLY, f"the halves do not fit: {error}")


def _compared(dataset: Any, held: tuple[str, ...]) -> Proof:
    count = 0
    for halves, whole in dataset:
        if digest(halves).content != digest(whole).content:
            return Proof(False, count + 1, IN_ORDER, f"the halves give another element {count}", held=held)
        count += 1
    if not count:
        return Proof(None, 0, FORM_ONLY, "there are no elements to compare")
    return Proof(True, count, IN_ORDER, "", held=held)


def _misplaced(split: Split) -> str:
    """Why what has effects would not run exactly as it does in the whole function; "" if it would."""
    sides = split.sides
    early = sorted(split.before.operations & set(sides.rest))
    if early:
        return f"{early[0]} would run before the cut: the function {sides.rest[early[0]]}"
    nodes = split.behind.flat.graph_def.node
    whole, causes = (
        Counter(map(_settings, nodes)),
        Counter(_settings(node) for node in nodes if node.name in sides.causes),
    )
    first, rest = (
        Counter(map(_settings, each._function.graph.as_graph_def().node))
        for each in (split.first, split.rest)
    )
    for one, count in causes.items():
        if rest[one] < count or first[one] + rest[one] != whole[one]:
            return f"{one[0]} would not run behind the cut as it does in the whole function"
    return ""


def _settings(node: Any) -> tuple[str, tuple[tuple[str, bytes], ...]]:
    """An operation's type and settings, seeds among them."""
    attributes = (
        (name, value.SerializeToString(deterministic=True))
        for name, value in node.attr.items()
        if name not in _NO_MEANING
    )
    return node.op, tuple(sorted(attributes))


def _both(split: Split, flat: Flat, map_dataset: Any, elements: int) -> tuple[Any, tuple[str, ...]]:
    """A dataset of pairs, what the halves give and what the whole gives; and the types of what was held."""
    given, left_out = _held(split, flat)
    tensors = _tensors_of(flat, given)
    whole = part(
        flat,
        takes=flat.arguments,
        gives=[*flat.arguments, *flat.outputs, *tensors],
        runs={one.name for one in flat.operations} - split.sides.free - flat.placeholders - left_out,
        free=split.sides.free,
    )
    behind = _without(split.behind, given, tensors)
    copies = _copies(flat, left_out)
    handles = {name: variable.handle for name, variable in copies.items()}
    count, results, crossing = len(flat.arguments), len(flat.outputs), len(split.before.gives)

    def first(values: list[Any]) -> list[Any]:
        return [*split.before(values[:count])[0], *values[count:]]

    def rest(values: list[Any]) -> list[Any]:
        outputs, drawn = values[crossing : crossing + results], values[crossing + results :]
        return [*behind([*values[:crossing], *drawn])[0], *outputs]

    recorded = traced(lambda values: whole(values, handles)[0], flat)
    recorded._copies = copies  # they live as long
    structure = flat.wrapper._output_structure
    after = specs_of(flat, [*flat.outputs, *tensors])
    halved = traced(first, flat, takes=(*specs_of(flat, flat.arguments), *after))
    joined = traced(rest, flat, takes=(*split.crossing, *after), gives=(structure, structure))
    dataset = sampled(map_dataset, elements)
    settings = {"num_parallel_calls": 1} if hasattr(map_dataset, "_num_parallel_calls") else {}
    for one in (recorded, halved, joined):
        dataset = mapped(map_dataset, dataset, one, **settings)
    types = {flat.graph.get_operation_by_name(name).type for name in given}
    return dataset, tuple(sorted(types))


def _held(split: Split, flat: Flat) -> tuple[frozenset[str], frozenset[str]]:
    """(operations whose outcome both are given, those of them that are not run at all)."""
    held = set(split.sides.causes)
    # What they make may be no tensor: then what takes it is held as well.
    for one in flat.operations:
        if any(value.op.name in held and value.dtype in UNCROSSABLE for value in one.inputs):
            held.add(one.name)
    for name in sorted(held):
        one = flat.graph.get_operation_by_name(name)
        if "Iterator" in one.type or kind_of(one.type).unknown:
            raise Refused(f"what it {split.sides.rest[name]} cannot be run on the side")
    silent = {
        name
        for name in held
        if not flat.graph.get_operation_by_name(name).outputs
        or (kind_of(flat.graph.get_operation_by_name(name).type).writes and not _tensors_of(flat, [name]))
    }
    return frozenset(held), frozenset(silent)


def _tensors_of(flat: Flat, operations: Collection[str]) -> list[str]:
    """Tensors that these operations make and others take."""
    returned = set(flat.outputs)
    return [
        value.name
        for one in flat.operations
        if one.name in operations
        for value in one.outputs
        if value.dtype not in UNCROSSABLE
        and (value.name in returned or any(each.name not in operations for each in value.consumers()))
    ]


def _without(behind: Part, operations: Collection[str], tensors: Sequence[str]) -> Part:
    """The rest without these operations, given what they made."""
    graph_def = graph_pb2.GraphDef(versions=behind.graph_def.versions, library=behind.graph_def.library)
    left = {node.name for node in behind.graph_def.node} - set(operations)
    for node in behind.graph_def.node:
        if node.name in left:
            copy = graph_def.node.add()
            copy.CopyFrom(node)
            copy.input[:] = [one for one in node.input if one[0] != "^" or one[1:] in left]
    return replace(behind, takes=(*behind.takes, *tensors), graph_def=graph_def)


def _copies(flat: Flat, left_out: Collection[str]) -> dict[str, Any]:
    """Variables that stand for those that the function writes, by the name of the capture.

    Raises:
      Refused: it writes what cannot be copied.
    """
    written = resources.written_captures(flat.wrapper._function)
    used = {
        value.name
        for one in flat.operations
        if one.name not in left_out and not kind_of(one.type).reads_table
        for value in one.inputs
    }
    return {
        name: _copy_of(value)
        for name, value in flat.captures.items()
        if value.dtype == tf.resource and name in used and resources.handle_of(value) in written
    }


def _copy_of(handle: Any) -> Any:
    """A variable with the same content as the one behind a handle."""
    kinds: Any = getattr(handle._handle_data, "shape_and_type", None)
    if kinds is None or len(kinds) != 1:
        raise Refused("the function writes something captured that cannot be copied")
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(kinds[0].dtype))
    return tf.Variable(value, trainable=False, shape=tf.TensorShape(kinds[0].shape))
