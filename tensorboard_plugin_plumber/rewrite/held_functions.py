"""Traced functions in which chance is held still: the same draws at every call, whatever the order of the calls.

A random op without a seed, and one that draws from a generator's state, becomes the op without a state that draws the
same kind of numbers, from one fixed seed. Then two pipelines that do the same to their elements give the same, bit for
bit. The functions of the user's datasets are left as they are: what is changed has another name in the library.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import op_def_registry, tensor_util

from tensorboard_plugin_plumber.capture import graphs
from tensorboard_plugin_plumber.capture.operations import kind_of

#: Of everything that has none.
SEED = 7
_numbers = itertools.count()
_LOOPS = frozenset({"While", "StatelessWhile"})


@dataclass(frozen=True)
class _Stateless:
    """The op that takes a random op's place.

    Attributes:
      op: its name.
      place: where among the inputs those stand that decide the draws.
      seeds: these inputs, and the type of each.
      renamed: attributes that have another name there.
    """

    op: str
    place: int
    seeds: tuple[tuple[Any, str], ...] = (((SEED, SEED), "int64"),)
    renamed: dict[str, str] = field(default_factory=dict)


_STATELESS = {
    "RandomUniform": _Stateless("StatelessRandomUniform", 1),
    "RandomUniformInt": _Stateless("StatelessRandomUniformInt", 1, renamed={"Tout": "dtype"}),
    "RandomStandardNormal": _Stateless("StatelessRandomNormal", 1),
    "TruncatedNormal": _Stateless("StatelessTruncatedNormal", 1),
    "Multinomial": _Stateless("StatelessMultinomial", 2),
    "SampleDistortedBoundingBoxV2": _Stateless("StatelessSampleDistortedBoundingBox", 3),
    # By key, counter, and the algorithm of a key of that size (Philox).
    "RandomShuffle": _Stateless(
        "StatelessShuffle", 1, (((SEED,), "uint64"), ((0, 0), "uint64"), (1, "int32"))
    ),
}


@dataclass(frozen=True)
class _Use:
    """How a function is called: again and again until something drawn says otherwise; in no order."""

    in_loop: bool
    unordered: bool


class CannotHold(Exception):
    """Chance cannot be held still; the message says where and why."""


class _HeldFunction:
    """A traced function under another name in the library; it captures what the original does."""

    def __init__(self, function: Any, name: str) -> None:
        self.original = function
        self.name = name.encode()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["original"], name)


def name_of(wrapper: Any) -> str:
    """The library name of a traced function, by its wrapper."""
    name = wrapper._function.name
    return name.decode() if isinstance(name, bytes) else str(name)


class Holder:
    """Holds functions still, each once.

    Args:
      unordered: library names of functions whose calls come in no order: what their ops draw with a seed is left to
        chance, too.

    Attributes:
      draws: ops that drew, as TensorFlow names them.
    """

    def __init__(self, unordered: Collection[str] = ()) -> None:
        self.draws: list[str] = []
        self._unordered = unordered
        self._held: dict[tuple[str, _Use], str] = {}

    def wrapper(self, wrapper: Any) -> Any:
        """The wrapper of a traced function, itself where nothing in it is left to chance.

        Raises:
          CannotHold: an op in it draws in a way that is not understood.
        """
        name = name_of(wrapper)
        held = self._function(name, _Use(in_loop=False, unordered=name in self._unordered))
        if held == name:
            return wrapper
        made = object.__new__(type(wrapper))
        made.__dict__.update(wrapper.__dict__, _function=_HeldFunction(wrapper._function, held))
        return made

    def _function(self, name: str, use: _Use) -> str:
        """The library name of the function with chance held still; its own where there is none."""
        if (name, use) not in self._held:
            self._held[name, use] = name  # it may call itself
            definition = context.context().get_function_def(name)
            made = function_pb2.FunctionDef.FromString(definition.SerializeToString())
            if self._hold(made, use):
                made.signature.name = f"{name}_held_{next(_numbers)}"
                context.context().add_function_def(made)
                self._held[name, use] = made.signature.name
        return self._held[name, use]

    def _hold(self, definition: Any, use: _Use) -> bool:
        """Changes what a function leaves to chance; returns whether there was anything."""
        changed = False
        for node in list(definition.node_def):
            changed |= self._hold_calls(node, replace(use, in_loop=True) if node.op in _LOOPS else use)
            changed |= _hold_order(node)
            kind = kind_of(node.op)
            if kind.random_dataset:
                changed |= _hold_dataset(definition, node)
            elif kind.random and (use.unordered or kind.generator or not _is_seeded(node)):
                if use.in_loop:
                    raise CannotHold(
                        f"{node.op} draws in a loop, which might never end with the same draws again"
                    )
                self.draws.append(node.op)
                _hold_draw(definition, node)
                changed = True
        return changed

    def _hold_calls(self, node: Any, use: _Use) -> bool:
        changed = False
        for called in _called(node):
            held = self._function(called.name, use)
            changed |= held != called.name
            called.name = held
        if op_def_registry.get(node.op) is None:  # a call by the function's own name
            held = self._function(node.op, use)
            changed |= held != node.op
            node.op = held
        return changed


def _called(node: Any) -> Iterator[Any]:
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func
        yield from value.list.func


def _is_seeded(node: Any) -> bool:
    return any(node.attr[one].i for one in ("seed", "seed2") if one in node.attr)


def _hold_order(node: Any) -> bool:
    if "deterministic" not in node.attr or node.attr["deterministic"].s != b"false":
        return False
    node.attr["deterministic"].s = b"true"
    return True


def _hold_dataset(definition: Any, node: Any) -> bool:
    """Gives a random dataset in a body a seed, where it has none."""
    places = (0, 1) if graphs.base_op(node.op) == "RandomDataset" else (2, 3)
    constants = {one.name: one for one in definition.node_def if one.op == "Const"}
    seeds = [constants.get(node.input[place].split(":", 1)[0]) for place in places]
    if any(one is None or tensor_util.MakeNdarray(one.attr["value"].tensor).any() for one in seeds):
        return False
    for place in places:
        node.input[place] = _constant(definition, tf.constant(SEED, tf.int64))
    return True


def _hold_draw(definition: Any, node: Any) -> None:
    """Puts an op without a state in the place of one that draws."""
    if node.op == "RngReadAndSkip":
        state = _constant(definition, tf.constant([0, 0, SEED], tf.int64))  # counter and key
        _become(node, "Identity", [state], {})
        node.attr["T"].type = tf.int64.as_datatype_enum
        _rename_output(definition, f"{node.name}:value:", f"{node.name}:output:")
        return
    stateless = _STATELESS.get(node.op)
    if stateless is None:
        raise CannotHold(f"{node.op} draws, and no op draws the same from a fixed seed")
    inputs = list(node.input)
    inputs[stateless.place : stateless.place] = [
        _constant(definition, tf.constant(value, dtype)) for value, dtype in stateless.seeds
    ]
    _become(node, stateless.op, inputs, stateless.renamed)
    if any(one.name == "Tseed" for one in op_def_registry.get(stateless.op).attr):
        node.attr["Tseed"].type = tf.int64.as_datatype_enum


def _become(node: Any, op: str, inputs: list[str], renamed: dict[str, str]) -> None:
    """Makes a node another op, with the attributes that this op has too."""
    known = {one.name for one in op_def_registry.get(op).attr}
    kept = {renamed.get(name, name): value for name, value in node.attr.items()}
    attributes = {
        name: tf.compat.v1.AttrValue.FromString(value.SerializeToString()) for name, value in kept.items()
    }
    node.op = op
    del node.input[:]
    node.input.extend(inputs)
    for name in list(node.attr):
        del node.attr[name]
    for name, value in attributes.items():
        if name in known or name.startswith("_"):
            node.attr[name].CopyFrom(value)


def _rename_output(definition: Any, old: str, new: str) -> None:
    for node in definition.node_def:
        for place, name in enumerate(node.input):
            if name.startswith(old):
                node.input[place] = new + name[len(old) :]
    for name, value in definition.ret.items():
        if value.startswith(old):
            definition.ret[name] = new + value[len(old) :]


def _constant(definition: Any, value: Any) -> str:
    """Adds a constant to a function's body; returns the name by which nodes take it."""
    node = definition.node_def.add(name=f"held/{len(definition.node_def)}", op="Const")
    node.attr["dtype"].type = value.dtype.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    return f"{node.name}:output:0"
