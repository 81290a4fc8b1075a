"""The minimum cut: which operations go before the cache, so that little is held and much is saved.

A network whose source side goes before. An operation that stays behind pays its time, at a price in
bytes; a tensor that is made before and taken behind pays its bytes, once for all that take it. What is
needed before cannot stay behind: edges of no price run from each operation to what it takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from tensorboard_plugin_plumber.rewrite.split.costs import Costs
from tensorboard_plugin_plumber.rewrite.split.flat import Flat
from tensorboard_plugin_plumber.rewrite.split.sides import UNCROSSABLE, Sides

# A cache pays for each tensor, however small: its object and its buffer's header.
_BYTES_PER_TENSOR = 96
# Capacities are whole numbers of 32 bits; all that are finite add up to no more than this.
_MOST = 1 << 29
_NEVER = 1 << 30
# A share of the work that no bytes would be held for.
_IN_VAIN = 1e-3
# Cuts that are looked for, at most.
_MOST_CUTS = 16


@dataclass(frozen=True)
class Cut:
    """One way to cut a function.

    Attributes:
      first: names of the operations before the cut; free ones are in neither half's books.
      crossing: names of the tensors that cross, in the order in which they are made.
      bytes: that cross per element, each tensor's own cost included.
      seconds: of work before the cut per element.
    """

    first: frozenset[str]
    crossing: tuple[str, ...]
    bytes: float
    seconds: float


def cuts(flat: Flat, sides: Sides, costs: Costs) -> list[Cut]:
    """The cuts that are cheapest at some price of a second, those that save most first.

    Each holds fewer bytes than the one before it, and saves less. Between two of them the price at which
    both cost the same shows the next, if there is one (Eisner and Severance, 1976).
    """
    network = _Network(flat, sides, costs)
    seconds = max(sum(costs.seconds.values()), 1e-9)
    held = sum(costs.bytes.values()) + _BYTES_PER_TENSOR
    most, least = (
        cut_at(flat, sides, costs, network.cheapest(price))
        for price in (held / (_IN_VAIN * seconds), _IN_VAIN * _BYTES_PER_TENSOR / seconds)
    )
    found = {most.first: most, least.first: least}
    waiting = [(most, least)]
    while waiting and len(found) < _MOST_CUTS:
        above, below = waiting.pop()
        if above.seconds <= below.seconds or above.bytes <= below.bytes:
            continue
        price = (above.bytes - below.bytes) / (above.seconds - below.seconds)
        first = network.cheapest(price)
        if first not in found:
            found[first] = between = cut_at(flat, sides, costs, first)
            waiting += [(above, between), (between, below)]
    kept: list[Cut] = []
    for one in sorted(found.values(), key=lambda one: (-one.seconds, one.bytes)):
        if not kept or one.bytes < kept[-1].bytes:
            kept.append(one)
    return kept


def cut_at(flat: Flat, sides: Sides, costs: Costs, first: Collection[str]) -> Cut:
    """The cut behind these operations."""
    crossing = tuple(crossing_of(flat, sides, first))
    held = sum(costs.bytes[name] + _BYTES_PER_TENSOR for name in crossing)
    return Cut(frozenset(first), crossing, held, sum(costs.seconds[name] for name in first))


def crossing_of(flat: Flat, sides: Sides, first: Collection[str]) -> Iterable[str]:
    """Names of the tensors that are made before the cut, arguments included, and taken behind it."""
    arguments = {name.split(":")[0] for name in flat.arguments}
    returned = set(flat.outputs)
    for one in flat.operations:
        if one.name not in first and one.name not in arguments:
            continue
        for value in one.outputs:
            if value.name in returned or any(_behind(each, first, sides) for each in value.consumers()):
                yield value.name


def _behind(operation: Any, first: Collection[str], sides: Sides) -> bool:
    return operation.name not in first and operation.name not in sides.free


class _Network:
    """The network of one function; what changes from price to price are the edges from the source alone."""

    def __init__(self, flat: Flat, sides: Sides, costs: Costs) -> None:
        arguments = {name.split(":")[0] for name in flat.arguments}
        captured = {name.split(":")[0] for name in flat.captures}
        counted = [one for one in flat.operations if one.name not in sides.free and one.name not in captured]
        self._numbers = {one.name: index for index, one in enumerate(counted, start=2)}
        self._seconds = {
            self._numbers[name]: seconds for name, seconds in costs.seconds.items() if name in self._numbers
        }
        self._held: list[tuple[int, int, float]] = []
        self._bound: list[tuple[int, int]] = [(0, self._numbers[name]) for name in sorted(arguments)]
        self._size = len(counted) + 2
        returned = set(flat.outputs)
        for one in counted:
            number = self._numbers[one.name]
            if one.name in sides.rest:
                self._bound.append((number, 1))
            for before in one.control_inputs:
                if before.name in self._numbers:
                    self._bound.append((number, self._numbers[before.name]))
            for value in one.outputs:
                self._add(value, number, costs, returned)

    def _add(self, value: Any, number: int, costs: Costs, returned: Collection[str]) -> None:
        takers = {self._numbers[one.name] for one in value.consumers() if one.name in self._numbers}
        if value.name in returned:
            takers.add(1)
        if not takers:
            return
        tensor = self._size
        self._size += 1
        if value.dtype in UNCROSSABLE:
            self._bound.append((number, tensor))
        else:
            self._held.append((number, tensor, costs.bytes.get(value.name, 0.0) + _BYTES_PER_TENSOR))
        for taker in sorted(takers):
            self._bound.append((tensor, taker))
            if taker != 1:
                self._bound.append((taker, number))

    def cheapest(self, price: float) -> frozenset[str]:
        """Operations before the cheapest cut where a second is worth so many bytes; of equals the largest."""
        paid = [(0, number, seconds * price) for number, seconds in self._seconds.items()]
        finite = [*paid, *self._held]
        unit = max(1.0, sum(one for _, _, one in finite) / _MOST)
        rows = [(start, end, int(one / unit)) for start, end, one in finite]
        rows += [(start, end, _NEVER) for start, end in self._bound]
        starts, ends, capacities = (np.array(one) for one in zip(*rows, strict=True))
        graph = coo_matrix(
            (capacities.astype(np.int64), (starts, ends)), shape=(self._size, self._size)
        ).tocsr()
        graph.data = np.minimum(graph.data, _NEVER).astype(np.int32)
        graph.eliminate_zeros()
        flow = maximum_flow(graph, 0, 1).flow
        # Behind the cut stands what can still reach the sink.
        left = (graph - flow).tocsr()
        left.data = (left.data > 0).astype(np.int32)
        left.eliminate_zeros()
        behind = set(breadth_first_order(left.T.tocsr(), 1, return_predecessors=False).tolist())
        return frozenset(
            name for name, number in self._numbers.items() if number not in behind and number in self._seconds
        )
