"""How the elements of each running operator belong to those of its consumer."""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tensorboard_plugin_plumber.schema import measurement_pb2 as m

# Each output took exactly one input, all through a whole epoch.
_ONE_TO_ONE = re.compile(
    r"Prefetch|Map(V\d)?$|MapWithUnbounded|ParallelMap(V\d)?$|.*Shuffle|.*Repeat|FiniteTake|Take|Zip|Options|Scan|"
    r"AssertNext|AssertCardinality|SetStatsAggregator|MaxIntraOpParallelism|PrivateThreadPool|Root|Model$"
)
_BATCH = re.compile(r"Batch|ParallelBatch|PaddedBatch|MapAndBatch")
_STEADY = re.compile(
    r"Batch|ParallelBatch|PaddedBatch|MapAndBatch|Filter|ParallelFilter|Shard|DenseToSparseBatch"
)
# Its bytes are those of its inputs: neither padded, nor made by a function.
_COPIES = re.compile(r"Batch|ParallelBatch")
# A cache that serves takes nothing from its input: what it gave out says nothing about that.
CACHE = re.compile(r"(Memory|File)?Cache")
# What a call of a user's function costs beside the kernels, and the step from operator to operator: roughly, for ages.
_CALL_NS = 30_000.0
_STEP_NS = 1_000.0


class Edge(enum.Enum):
    """How the elements of an operator belong to those of its consumer."""

    ROOT = enum.auto()
    # The root of a function's body: what it makes is handed on one by one.
    BODY = enum.auto()
    ONE_TO_ONE = enum.auto()
    # So many inputs for each output but the last of a sequence.
    BATCH = enum.auto()
    # One input after the other.
    CONCATENATE = enum.auto()
    # Some inputs before the first output, and then one for each.
    SKIP = enum.auto()
    CACHE = enum.auto()
    # In a ratio that only the counts know.
    RATIO = enum.auto()


@dataclass(frozen=True)
class Place:
    """One running operator, as far as it matters for counting.

    Attributes:
      consumer: index of its consumer, -1 at the root.
      edge: to its consumer.
      batch: elements of it in one of the consumer's batches; 1 elsewhere.
      steady: the ratio to the consumer's elements holds at any moment, to the end of a sequence.
      copied: its bytes are those of the consumer's batches, unchanged.
      overhead_ns: of one element, beside the processing time.
      window_of: index of the input of the group_by_window whose windows it reads; None elsewhere.
      first_input: it is its consumer's first input.
      comes_again: it is made anew for each epoch.
      of_windows: its lives are windows: many inputs begin one.
      life: index of the root of the lives it stands in; 0 where it lives as long as the iterator.
      finest: nothing below it in a function's body has another number of elements.
      opens_ahead: its children are made before it is their turn.
      shuffled: its inputs, if it shuffles.
      bodies: roots of the datasets that its function returns, of which it hands the elements on.
    """

    consumer: int
    edge: Edge
    batch: int
    steady: bool
    copied: bool
    overhead_ns: float
    window_of: int | None
    first_input: bool
    comes_again: bool
    of_windows: bool
    life: int
    finest: bool
    opens_ahead: bool
    shuffled: tuple[int, ...]
    bodies: tuple[int, ...]


def places(running: Sequence[m.RunningOperator], bodies: Collection[int]) -> tuple[Place, ...]:
    """What `totals` must know of the running operators.

    Args:
      running: pre-order, index 0 the root.
      bodies: indices of the roots of function bodies.
    """
    found: list[Place] = []
    fed = {op.parent for op in running if op.HasField("parent")}
    first: dict[int, int] = {}
    for i, op in enumerate(running):
        consumer = op.parent if op.HasField("parent") else -1
        above = running[consumer] if consumer >= 0 else None
        edge = Edge.BODY if i in bodies else _edge(above)
        starts = i in bodies or (above is not None and "Repeat" in above.type)
        if consumer >= 0 and i not in bodies:
            first.setdefault(consumer, i)
        found.append(
            Place(
                consumer=consumer,
                edge=edge,
                batch=max(1, int(above.batch_size)) if above is not None and edge is Edge.BATCH else 1,
                steady=above is not None and bool(_STEADY.match(above.type)),
                copied=above is not None and bool(_COPIES.match(above.type)),
                overhead_ns=_STEP_NS + (_CALL_NS * (op.batch_size or 1) if op.calls_function else 0.0),
                window_of=None
                if i in fed or not _ONE_TO_ONE.match(op.type)
                else _window_of(i, running, bodies),
                first_input=first.get(consumer) == i,
                comes_again=starts and i not in bodies,
                of_windows=above is not None and above.type == "GroupByWindow",
                life=i if starts else found[consumer].life if consumer >= 0 else 0,
                finest=_is_finest(i, running, bodies),
                opens_ahead="ParallelInterleave" in op.type,
                shuffled=tuple(j for j in _inputs(i, running) if "Shuffle" in op.type),
                bodies=tuple(j for j in bodies if running[j].HasField("parent") and running[j].parent == i),
            )
        )
    return tuple(found)


def _edge(consumer: m.RunningOperator | None) -> Edge:
    if consumer is None:
        return Edge.ROOT
    if _ONE_TO_ONE.match(consumer.type):
        return Edge.ONE_TO_ONE
    if _BATCH.match(consumer.type) and consumer.batch_size > 0:
        return Edge.BATCH
    if consumer.type.startswith("Concatenate"):
        return Edge.CONCATENATE
    if consumer.type.endswith("Skip"):
        return Edge.SKIP
    return Edge.CACHE if CACHE.match(consumer.type) else Edge.RATIO


def _window_of(index: int, running: Sequence[m.RunningOperator], bodies: Collection[int]) -> int | None:
    """The input of the nearest group_by_window around a source of its function's body."""
    i = index
    while running[i].HasField("parent"):
        above = running[i].parent
        if i in bodies:
            if running[above].type != "GroupByWindow":
                return None
            inputs = [j for j, op in enumerate(running) if op.HasField("parent") and op.parent == above]
            return next((j for j in inputs if j not in bodies), None)
        i = above
    return None


def _inputs(index: int, running: Sequence[m.RunningOperator]) -> list[int]:
    return [j for j, op in enumerate(running) if op.HasField("parent") and op.parent == index]


def _is_finest(index: int, running: Sequence[m.RunningOperator], bodies: Collection[int]) -> bool:
    """Each operator on the way down to the source makes one element of one."""
    below = _inputs(index, running)
    if not below:
        return True
    return bool(
        len(below) == 1
        and below[0] not in bodies
        and _ONE_TO_ONE.match(running[index].type)
        and _is_finest(below[0], running, bodies)
    )


def rests_on_looks(where: Sequence[Place]) -> bool:
    """Whether operators may come and go of whose counts those of what lives longer tell nothing."""
    return any(
        place.edge is not Edge.ONE_TO_ONE and place.life != index
        for index, place in enumerate(where)
        if place.life
    ) or any(place.edge is Edge.BODY for place in where)


def openers(where: Sequence[Place]) -> dict[int, int]:
    """By root of a function's body: the operator of which each element begins one; empty where nodes vary.

    Only of operators with one body and one input, and where every life has the same nodes.
    """
    if any(place.edge in (Edge.CONCATENATE, Edge.CACHE) or place.comes_again for place in where):
        return {}
    found = {}
    for i, place in enumerate(where):
        if place.edge is Edge.BODY:
            inputs = [
                j
                for j, one in enumerate(where)
                if one.consumer == place.consumer and one.edge is not Edge.BODY
            ]
            if len(inputs) != 1 or len(where[place.consumer].bodies) != 1 or place.of_windows:
                return {}
            found[i] = inputs[0]
    return found


def survivors(where: Sequence[Place]) -> list[bool]:
    """By operator: it stands in no function's body."""
    found: list[bool] = []
    for place in where:
        found.append(place.edge is not Edge.BODY and (place.consumer < 0 or found[place.consumer]))
    return found
