"""A map's traced function as one graph, the functions that it calls spread out in it.

A user's function may do all of its work in a `tf.function` of its own: then the graph of the map is a
single call, in which no cut could be made. So calls are replaced by what they do, as TensorFlow itself
does when it runs them. Loops and conditions stay whole.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, graph_pb2
from tensorflow.python.data.util import structure
from tensorflow.python.framework import function_def_to_graph

from tensorboard_plugin_plumber.capture import graphs
from tensorboard_plugin_plumber.capture.operations import kind_of
from tensorboard_plugin_plumber.rewrite.rebuild import Refused

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# Compiled as one: what is spread out would be compiled no more, and could round otherwise.
_COMPILED = ("_XlaMustCompile", "_XlaCompile")
_MOST_CALLS = 2000
_SHAPES = "_output_shapes"


@dataclass(frozen=True, eq=False)
class Flat:
    """A traced function with its calls spread out.

    Attributes:
      graph: its operations, arguments and captures as placeholders.
      arguments: names of the tensors that it is given, in the order of the flat element of its input.
      captures: name of the placeholder's tensor -> what is captured.
      outputs: names of the tensors that it returns, in the order of the flat element of its output.
      wrapper: the `StructuredFunctionWrapper` that it was read from.
    """

    graph: tf.Graph
    arguments: tuple[str, ...]
    captures: Mapping[str, Any]
    outputs: tuple[str, ...]
    wrapper: Any

    @functools.cached_property
    def operations(self) -> list[Any]:
        """In an order in which they can run."""
        return list(self.graph.get_operations())

    @functools.cached_property
    def placeholders(self) -> frozenset[str]:
        """Names of the operations that stand for arguments and captures."""
        return frozenset(name.split(":")[0] for name in (*self.arguments, *self.captures))

    def tensor(self, name: str) -> Any:
        return self.graph.get_tensor_by_name(name)

    @functools.cached_property
    def graph_def(self) -> Any:
        """The graph with all known shapes, and the functions that loops and conditions call."""
        return self.graph.as_graph_def(add_shapes=True)


def flattened(wrapper: Any) -> Flat:
    """The function of a map as one graph.

    Args:
      wrapper: the `StructuredFunctionWrapper` of the map.

    Raises:
      Refused: it is no graph of its own.
    """
    function: Any = getattr(wrapper, "_function", None)
    graph = getattr(function, "graph", None)
    if graph is None or not hasattr(graph, "captures"):
        raise Refused("the function was traced in a way of TensorFlow 1")
    captures = list(graph.captures)
    arguments = graph.inputs[: len(graph.inputs) - len(captures)]
    if len(captures) != len(function.captured_inputs):
        raise Refused("the function captures what is only known when it is called")
    if len(arguments) != len(structure.get_flat_tensor_types(wrapper._input_structure)):
        raise Refused("the function's arguments are not those of an element")
    if not all(hasattr(outside, "_numpy") for outside, _ in captures):
        raise Refused("the function was traced inside another function")
    spread = _Spreading(graph.as_graph_def(add_shapes=True))
    flat = tf.Graph()
    with flat.as_default():
        tf.graph_util.import_graph_def(spread.graph_def(), name="")
    return Flat(
        flat,
        tuple(one.name for one in arguments),
        {inside.name: outside for outside, inside in captures},
        tuple(spread.reference(one.name) for one in graph.outputs),
        wrapper,
    )


def library_of(graph_def: Any) -> dict[str, Any]:
    """Its functions by name."""
    return {function.signature.name: function for function in graph_def.library.function}


def functions_of(node: Any) -> list[str]:
    """Names of the functions that a node calls."""
    kind = kind_of(node.op)
    found = [node.attr[one].func.name for one in kind.calls if one in node.attr]
    return found + [each.name for one in kind.list_calls for each in node.attr[one].list.func]


def reachable(nodes: Iterable[Any], library: Mapping[str, Any]) -> list[Any]:
    """The functions that nodes call, and those that these call in turn."""
    found: dict[str, Any] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        for name in (*functions_of(node), node.op):
            if name in library and name not in found:
                found[name] = library[name]
                waiting += library[name].node_def
    return list(found.values())


class _Spreading:
    """Replaces the calls of a graph by what they call, until none is left."""

    def __init__(self, graph_def: Any) -> None:
        self._library = library_of(graph_def)
        self._versions = graph_def.versions
        self._nodes: list[Any] = []
        # Outputs of calls, and calls that are waited for, by what stands for them now.
        self._outputs: dict[str, str] = {}
        self._controls: dict[str, str] = {}
        self._calls = 0
        self._add(graph_def.node)

    def graph_def(self) -> Any:
        for node in self._nodes:
            node.input[:] = [self._renamed(one) for one in node.input]
        made = graph_pb2.GraphDef(versions=self._versions, node=_in_order(self._nodes))
        made.library.function.extend(reachable(made.node, self._library))
        return made

    def reference(self, name: str) -> str:
        """The tensor that stands for one of the original graph."""
        seen = self._outputs.get(name, name)
        return self.reference(seen) if seen != name else name

    def control(self, name: str) -> str:
        """The operation that stands for one of the original graph."""
        seen = self._controls.get(name, name)
        return self.control(seen) if seen != name else name

    def _renamed(self, one: str) -> str:
        if one.startswith("^"):
            return "^" + self.control(one[1:])
        return self.reference(one if ":" in one else f"{one}:0")

    def _add(self, nodes: Iterable[Any]) -> None:
        for node in nodes:
            body = self._body_of(node)
            if body is None:
                copy = type(node)()
                copy.CopyFrom(node)
                # What shares a device may stand in the other half.
                copy.attr.pop("_class", None)
                self._nodes.append(copy)
            else:
                self._calls += 1
                if self._calls > _MOST_CALLS:
                    raise Refused(f"the function makes more than {_MOST_CALLS} calls")
                self._spread(node, body)

    def _body_of(self, node: Any) -> Any:
        if node.op not in _CALLS or any(node.attr[one].b for one in _COMPILED if one in node.attr):
            return None
        function = self._library.get(node.attr["f"].func.name)
        if function is None or any(function.attr[one].b for one in _COMPILED if one in function.attr):
            return None
        return function

    def _spread(self, call: Any, function: Any) -> None:
        body, flat_names = function_def_to_graph.function_def_to_graph_def(function)
        given = [one for one in call.input if not one.startswith("^")]
        first = [one for one in call.input if one.startswith("^")]
        arguments = {one.name: value for one, value in zip(function.signature.input_arg, given, strict=True)}

        def inner(reference: str) -> str:
            name = reference.lstrip("^").split(":", 1)[0]
            if name in arguments:
                return arguments[name] if not reference.startswith("^") else ""
            prefix = "^" if reference.startswith("^") else ""
            return f"{prefix}{call.name}/{reference.lstrip('^')}"

        inside = []
        for node in body.node:
            if node.name in arguments:
                continue
            copy = type(node)()
            copy.CopyFrom(node)
            copy.name = f"{call.name}/{node.name}"
            copy.input[:] = [one for one in map(inner, node.input) if one]
            if _has_effects(node):  # it may only run once what the call waits for has run
                copy.input.extend(first)
            inside.append(copy)
        inside += self._ends(call, function, [inner(flat_names[function.ret[one.name]]) for one in
                                              function.signature.output_arg],
                             [inner("^" + one) for one in function.control_ret.values()])  # fmt: skip
        self._add(inside)

    def _ends(self, call: Any, function: Any, returned: Sequence[str], controls: list[str]) -> list[Any]:
        """What stands for the call's outputs and for its end."""
        shapes = call.attr[_SHAPES].list.shape if _SHAPES in call.attr else ()
        made = []
        for index, (value, output) in enumerate(zip(returned, function.signature.output_arg, strict=True)):
            node = graph_pb2.GraphDef().node.add(
                name=f"{call.name}/returned_{index}", op="Identity", input=[value]
            )
            node.attr["T"].type = output.type
            if index < len(shapes):
                node.attr[_SHAPES].CopyFrom(
                    attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(shape=[shapes[index]]))
                )
            self._outputs[f"{call.name}:{index}"] = f"{node.name}:0"
            made.append(node)
        done = graph_pb2.GraphDef().node.add(name=f"{call.name}/done", op="NoOp")
        done.input.extend([*(f"^{one.name}" for one in made), *(one for one in controls if one)])
        self._controls[call.name] = done.name
        return [*made, done]


def _has_effects(node: Any) -> bool:
    kind = kind_of(node.op)
    return bool(
        kind.stateful or kind.random or kind.calls or kind.list_calls or graphs.is_dataset_op(node.op)
    )


def _in_order(nodes: Sequence[Any]) -> list[Any]:
    """Each after all that it takes, otherwise as they were."""
    places = {node.name: index for index, node in enumerate(nodes)}
    waits: list[set[int]] = []
    followers: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        before = {places[one.lstrip("^").split(":", 1)[0]] for one in node.input}
        waits.append(before)
        for one in before:
            followers.setdefault(one, []).append(index)
    ready = [index for index, before in enumerate(waits) if not before]
    ordered = []
    while ready:
        index = heapq.heappop(ready)
        ordered.append(nodes[index])
        for one in followers.get(index, ()):
            waits[one].discard(index)
            if not waits[one]:
                heapq.heappush(ready, one)
    if len(ordered) != len(nodes):
        raise Refused("the function holds a loop of TensorFlow 1")
    return ordered
