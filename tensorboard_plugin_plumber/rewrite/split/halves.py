"""Makes traced functions of parts of a map's graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.data.ops import structured_function
from tensorflow.python.data.util import structure

from tensorboard_plugin_plumber.rewrite.rebuild import Refused
from tensorboard_plugin_plumber.rewrite.split.flat import Flat, library_of, reachable


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a function's graph that can be put into a graph that is being traced.

    Attributes:
      takes: names of the tensors that it is given.
      gives: names of the tensors that it returns.
      operations: names of the operations in it.
    """

    flat: Flat
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    operations: frozenset[str]
    graph_def: Any

    def __call__(
        self, given: Sequence[Any], captures: Mapping[str, Any] | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Adds it to the graph that is being traced.

        Args:
          given: the tensors that it takes.
          captures: what stands for captured values, by name; those that are left out stand for themselves.

        Returns:
          What it gives, and its operations by name.
        """
        used = {_tensor(one) for node in self.graph_def.node for one in node.input if one[0] != "^"}
        graph = tf.compat.v1.get_default_graph()
        known = {
            name: graph.capture(value)
            for name, value in {**self.flat.captures, **(captures or {})}.items()
            if name in used or name in self.gives
        }
        known.update(zip(self.takes, given, strict=True))
        made = [name for name in self.gives if name not in known]
        names = [node.name for node in self.graph_def.node]
        found = tf.graph_util.import_graph_def(
            self.graph_def,
            input_map={name: value for name, value in known.items() if name in used},
            return_elements=[*made, *names],
            name="",
        )
        known.update(zip(made, found, strict=False))
        returned = [known[name] for name in self.gives]
        for name, value in zip(self.gives, returned, strict=True):
            value.set_shape(self.flat.tensor(name).shape)
        return returned, dict(zip(names, found[len(made) :], strict=True))


def part(
    flat: Flat, *, takes: Sequence[str], gives: Sequence[str], runs: Collection[str], free: Collection[str]
) -> Part:
    """A part of a function's graph.

    Args:
      takes: names of the tensors that are given to it.
      gives: names of the tensors that it returns.
      runs: names of the operations that it runs.
      free: operations that it may take in besides, where they are needed.

    Raises:
      ValueError: it needs what it has not: the cut is broken.
    """
    needed = set(runs)
    given = set(takes) | set(flat.captures)
    waiting = list(runs)
    waiting += [flat.tensor(name).op.name for name in gives if name not in given]
    operations = {one.name: one for one in flat.operations}
    while waiting:
        name = waiting.pop()
        if name not in runs and name not in free:
            raise ValueError(f"{name} is needed on this side of the cut, and stands on the other")
        needed.add(name)
        for value in operations[name].inputs:
            if value.name not in given and value.op.name not in needed:
                waiting.append(value.op.name)
    graph_def = flat.graph_def
    sub = graph_pb2.GraphDef(versions=graph_def.versions)
    for node in graph_def.node:
        if node.name in needed:
            copy = sub.node.add()
            copy.CopyFrom(node)
            # What went before the cut has run when this part begins.
            copy.input[:] = [one for one in node.input if one[0] != "^" or one[1:] in needed]
    sub.library.function.extend(reachable(sub.node, library_of(graph_def)))
    return Part(flat, tuple(takes), tuple(gives), frozenset(needed), sub)


def traced(
    make: Callable[[list[Any]], list[Any]],
    flat: Flat,
    *,
    takes: Sequence[Any] | None = None,
    gives: Any = None,
) -> Any:
    """A traced function, as a dataset's operator takes it.

    Args:
      make: from the flat tensors of an element to those of another.
      flat: of the map in whose place it stands.
      takes: flat specs of the elements that it takes; None for those that the map takes, in its structure.
      gives: the structure of the elements that it makes; None for a tuple of tensors.

    Raises:
      Refused: TensorFlow could not make a function of it.
    """
    original = flat.wrapper
    taken = structure.get_flat_tensor_specs(original._input_structure) if takes is None else takes

    def half(*arguments: Any) -> tuple[Any, ...]:
        return tuple(make(list(arguments)))

    half.__name__ = str(getattr(original._func, "__name__", "function"))
    try:
        with tf.init_scope():
            wrapper = structured_function.StructuredFunctionWrapper(
                tf.autograph.experimental.do_not_convert(half),
                "Dataset.map()",
                input_structure=tuple(taken),
                add_to_graph=False,
            )
    except (ValueError, TypeError, tf.errors.OpError) as error:
        raise Refused(f"TensorFlow does not take a half of the function: {error}") from error
    if takes is None:
        wrapper._input_structure = original._input_structure
    if gives is not None:
        wrapper._output_structure = gives
    # For people it is the user's function; and what that one holds lives as long.
    wrapper._func = original._func
    wrapper._whole = original
    return wrapper


def specs_of(flat: Flat, names: Sequence[str]) -> tuple[tf.TensorSpec, ...]:
    """Shapes and types of tensors, as far as they are known before they are made."""
    return tuple(tf.TensorSpec(flat.tensor(name).shape, flat.tensor(name).dtype) for name in names)


def _tensor(reference: str) -> str:
    return reference if ":" in reference else f"{reference}:0"
