"""What the operations of a function cost and what their outputs hold, measured on a few elements.

Each operation waits for the one before it, and the clock is read in between: the time is the
operation's own, by all the threads that it uses. Only what has no effects and draws nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tensorboard_plugin_plumber.capture.remake import CannotRemake, arguments_of, remade
from tensorboard_plugin_plumber.rewrite.rebuild import Refused, copied
from tensorboard_plugin_plumber.rewrite.split.flat import Flat
from tensorboard_plugin_plumber.rewrite.split.halves import part, traced
from tensorboard_plugin_plumber.rewrite.split.sides import UNCROSSABLE, Sides

# Of a string in a tensor, whatever it holds.
_BYTES_PER_STRING = 24
# They take a tensor's shape, which may be known beforehand, and not its contents.
_OF_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})


@dataclass(frozen=True)
class Costs:
    """Per element.

    Attributes:
      seconds: by operation.
      bytes: by tensor; those that cannot cross are left out.
      elements: on how many it was measured.
    """

    seconds: Mapping[str, float]
    bytes: Mapping[str, float]
    elements: int


def sampled(map_dataset: Any, elements: int) -> Any:
    """The first elements that a map takes, from a copy of what stands below it.

    Raises:
      Refused: it cannot be made again.
    """
    return copied(map_dataset._input_dataset).take(elements)


def mapped(map_dataset: Any, input_dataset: Any, wrapper: Any, **changes: Any) -> Any:
    """A map of the same kind over another input with another traced function.

    Raises:
      Refused: it cannot be made again.
    """
    try:
        arguments = {**arguments_of(map_dataset), "input_dataset": input_dataset, **changes}
        return remade(map_dataset, arguments, [wrapper])
    except CannotRemake as error:
        raise Refused(str(error)) from error


def measured(flat: Flat, sides: Sides, map_dataset: Any, elements: int) -> Costs:
    """Runs what may go before the cut on the first elements, once for the bytes and once for the times.

    Args:
      sides: where the operations may stand.
      map_dataset: the map that has the function.
      elements: how many; the first one's times do not count where there are others.

    Raises:
      Refused: it cannot be run, or there are no elements.
    """
    operations = [one.name for one in sides.first(flat)]
    bytes_of = _bytes(flat, sides, operations, _run_by(map_dataset, elements))
    seconds_of = _seconds(flat, sides, operations, _run_by(map_dataset, elements))
    return Costs(seconds_of, bytes_of, elements)


def _run_by(map_dataset: Any, elements: int) -> Callable[[Any], Iterator[Any]]:
    """Runs a function in the place of the map's on its first elements, one after the other."""
    one_by_one = {"num_parallel_calls": 1} if hasattr(map_dataset, "_num_parallel_calls") else {}

    def run(wrapper: Any) -> Iterator[Any]:
        count = 0
        try:
            for values in mapped(map_dataset, sampled(map_dataset, elements), wrapper, **one_by_one):
                count += 1
                yield values
        except tf.errors.OpError as error:
            raise Refused(f"its first elements could not be made: {error.message}") from error
        if not count:
            raise Refused("it has no elements to measure with")

    return run


def _bytes(
    flat: Flat, sides: Sides, operations: Sequence[str], run: Callable[[Any], Iterator[Any]]
) -> dict[str, float]:
    """Bytes of each tensor that may cross, a mean over the elements."""
    tensors = [
        value.name
        for name in operations
        for value in flat.graph.get_operation_by_name(name).outputs
        if value.dtype not in UNCROSSABLE
    ]
    tensors += [name for name in flat.arguments if flat.tensor(name).dtype not in UNCROSSABLE]
    if not tensors:
        raise Refused("nothing that it makes could be cached")
    whole = part(flat, takes=flat.arguments, gives=tensors, runs=operations, free=sides.free)
    sizes = [
        [_bytes_of(one) for one in values] for values in run(traced(lambda given: whole(given)[0], flat))
    ]
    return dict(zip(tensors, np.mean(sizes, axis=0).tolist(), strict=True))


def _seconds(
    flat: Flat, sides: Sides, operations: Sequence[str], run: Callable[[Any], Iterator[Any]]
) -> dict[str, float]:
    """Time of each operation: the lower quartile over the elements, as other threads on the cores only ever add."""
    whole = part(
        flat,
        takes=flat.arguments,
        gives=_ends(flat, operations),
        runs=operations,
        free=sides.free,
    )
    nodes = {node.name: node for node in whole.graph_def.node}
    clocks = [_clock(whole.graph_def, 0)]
    for index, name in enumerate(operations, start=1):
        nodes[name].input.append(f"^{clocks[-1]}")
        clocks.append(_clock(whole.graph_def, index))
        whole.graph_def.node[-1].input.append(f"^{name}")

    def probe(given: list[Any]) -> list[Any]:
        values, made = whole(given)
        return [tf.stack([made[name].outputs[0] for name in clocks]), *values]

    spent = [np.maximum(np.diff(readings), 0.0) for readings, *_ in run(traced(probe, flat))]
    return dict(zip(operations, np.percentile(spent[1:] or spent, 25, axis=0).tolist(), strict=True))


def _ends(flat: Flat, operations: Sequence[str]) -> list[str]:
    """Tensors whose contents none of the operations takes.

    They are handed out, for TensorFlow leaves out what makes a value that nobody takes. All others are not: what is
    held cannot be computed in place, as it is in the user's function.
    """
    inside = set(operations)
    return [
        value.name
        for name in operations
        for value in flat.graph.get_operation_by_name(name).outputs
        if value.dtype not in UNCROSSABLE
        and not any(one.name in inside and one.type not in _OF_SHAPES for one in value.consumers())
    ]


def _clock(graph_def: Any, index: int) -> str:
    """Adds a reading of the clock to a graph; returns its name."""
    name = f"plumber_clock_{index}"
    graph_def.node.add(name=name, op="Timestamp")
    return name


def _bytes_of(tensor: Any) -> int:
    if tensor.dtype != tf.string:
        return int(tf.size(tensor)) * max(int(tensor.dtype.size), 1)
    return sum(len(one) + _BYTES_PER_STRING for one in np.ravel(tensor.numpy()))
