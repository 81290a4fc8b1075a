"""An upper bound of the rate over all settings, close enough to scale a program by.

It is the smallest bound that is left when every setting is at its highest and each resource by itself chooses the
caches that suit it best: one pass over the tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tensorboard_plugin_plumber.model.bounds import stretched_capacity
from tensorboard_plugin_plumber.model.decisions import Freedom, capacity, pooled_s
from tensorboard_plugin_plumber.model.loads import callers
from tensorboard_plugin_plumber.model.network import CACHE_READ_S, Choice, Network

#: Rate beyond which no pipeline goes, steps/s: the price of one read from a cache.
FASTEST = 1.0 / CACHE_READ_S

_Cost = Callable[[int], float]


def ceiling(network: Network, freedoms: list[Freedom], k_max: int, *, filling: bool = False) -> float:
    """No settings reach more than this, steps/s; `filling`: in the epoch in which new caches fill."""
    operators, consumer, limits = network.operators, network.consumer, network.limits
    tree = _Tree(network, freedoms, filling)

    def alone(i: int) -> float:
        freedom, choice = freedoms[i], network.current.choices[i]
        calls = capacity(operators[i], freedom.highest) if choice.parallel or freedom.parallel else 1.0
        return operators[i].visits * operators[i].service_s / (freedom.copies * calls)

    def each(seconds: _Cost) -> _Cost:
        return lambda i: operators[i].visits * seconds(i)

    def nothing(_: int) -> float:
        return 0.0

    pool = (
        network.current.threadpool_size if network.pool_fixed else max(k_max, network.current.threadpool_size)
    )
    loads = [
        tree.least(alone, lambda i: tree.read(i) / freedoms[i].copies, max),
        _per(
            tree.least(each(lambda i: operators[i].cpu_s), tree.read, sum) + consumer.cpu_s,
            limits.cores - consumer.other_cores,
        ),
        tree.least(each(lambda i: operators[i].cpu_s * operators[i].stretch), nothing, sum)
        / stretched_capacity(network),
        tree.least(lambda i: 0.0 if freedoms[i].unbounded else pooled_s(operators[i]), nothing, sum) / pool,
        tree.least(each(lambda i: operators[i].gil_s or 0.0), nothing, sum),
        consumer.step_s or 0.0,
        1.0 / FASTEST,
    ]
    if limits.storage is not None:
        read = tree.least(each(lambda i: operators[i].read_bytes), nothing, sum)
        loads.append(_per(read, limits.storage.bytes_per_s(_most_readers(network, freedoms))))
    return 1.0 / max(loads)


class _Tree:
    def __init__(self, network: Network, freedoms: list[Freedom], filling: bool) -> None:
        self._network, self._freedoms, self._filling = network, freedoms, filling

    def read(self, i: int) -> float:
        """What the cheapest cache on the output of i takes, seconds per root element."""
        operator, freedom = self._network.operators[i], self._freedoms[i]
        in_memory = freedom.cache or self._network.current.choices[i].cache
        return operator.visits * operator.read_s(Choice(file_cache=not in_memory))

    def least(self, own: _Cost, read: _Cost, join: Callable[[Iterable[float]], float]) -> float:
        """The least load: what operators cost by themselves, joined over the tree, or what a cache costs instead."""
        network, freedoms = self._network, self._freedoms
        found = 0.0
        below: list[list[float]] = [[] for _ in network.operators]
        for i in reversed(range(len(network.operators))):
            found = join([own(i), *below[i]])
            if network.current.choices[i].cache:
                found = read(i)
            elif (freedoms[i].cache or freedoms[i].file_cache) and not self._filling:
                found = min(found, read(i))
            if (parent := network.operators[i].parent) is not None:
                below[parent].append(found)
        return found


def _most_readers(network: Network, freedoms: list[Freedom]) -> float:
    total = 1.0
    for i, operator in enumerate(network.operators):
        if operator.read_bytes > 0:
            total += max([1, *(freedoms[n].copies * freedoms[n].highest for n in callers(network, i))])
    return total


def _per(load: float, capacity: float) -> float:
    if load <= 0:
        return 0.0
    return load / capacity if capacity > 0 else math.inf
