"""Upper bounds on the rate of a network under fixed settings (docs/model.md, "Bounds").

Under fixed settings every activity A_i is either the root's rate X or 0 (a cache serves above it), so each
constraint reads ``load * X <= capacity`` and gives one bound ``capacity / load``. The smallest bound is the
bottleneck.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from tensorboard_plugin_plumber.model.network import Network, Settings
from tensorboard_plugin_plumber.model.ordered import eta

#: A segment's bound is put down to one operator if it takes at least this share of the segment's time.
OPERATOR_SHARE = 0.8
#: Bounds this close bind together.
TIE = 0.02
#: With as many slots as cores, `threadpool` and `cpu` coincide; it is `cpu` if the functions compute this share.
CPU_SHARE = 0.9


class Kind(Enum):
    """What a bound speaks of; the values are those of `bottleneck.constraint`."""

    OPERATOR = "operator"
    THREAD = "thread"
    CPU = "cpu"
    THREADPOOL = "threadpool"
    GIL = "gil"
    STORAGE = "storage"
    CONSUMER = "consumer"


#: Kinds that speak of something all operators share.
RESOURCES = frozenset({Kind.CPU, Kind.THREADPOOL, Kind.GIL, Kind.STORAGE})


@dataclass(frozen=True)
class Bound:
    """``rate`` <= capacity / load, in root elements per second; infinite where nothing loads it."""

    kind: Kind
    rate: float
    #: Positions of the operators that load it, the largest share first.
    operators: tuple[int, ...] = ()
    #: Shares of `operators` in the load, summing to at most 1 (the consumer may hold the rest).
    shares: tuple[float, ...] = ()
    #: The parallel operator whose calls these are; None for anything else.
    calls_of: int | None = None
    #: The window of an ordered operator costs at least a fifth here: variation, not service time, binds.
    stragglers: bool = False
    #: The root makes its elements in the consumer's own thread: they take turns.
    takes_turns: bool = False


def served(network: Network, settings: Settings) -> list[bool]:
    """For each operator, whether a cache on its own output or nearer the root makes it idle."""
    found: list[bool] = []
    for operator, choice in zip(network.operators, settings.choices, strict=True):
        above = operator.parent is not None and found[operator.parent]
        found.append(above or choice.cache)
    return found


def multiplicity(network: Network, settings: Settings) -> list[int]:
    """m_i: how many instances of i may run at a time, in live iterators of the interleaves around it.

    A sequential body shares its interleave's thread, so only what is asynchronous inside the body, or feeds
    something that is, exists once per live iterator.
    """
    found = [1] * len(network.operators)
    for i, operator in enumerate(network.operators):
        if operator.parent is None:
            continue
        live = max(network.operators[operator.parent].cycle_length or 1, 1) if operator.in_body else 1
        found[i] = found[operator.parent] * live
    return found


def iterators_beside(network: Network, position: int) -> int:
    """Iterators that run an operator at a time today: the workers of the parallel interleaves around it."""
    found = 1
    for j in network.enclosing[position]:
        choice, cycle = network.current.choices[j], network.operators[j].cycle_length
        if choice.parallel:
            found *= min(choice.parallelism, cycle or choice.parallelism)
    return found


class _Loads:
    """Times that threads carry per unit of the root's rate, with who carries how much."""

    def __init__(self, network: Network, settings: Settings) -> None:
        self.network, self.settings = network, settings
        self.idle = served(network, settings)
        count = len(network.operators)
        #: V_i s_i, or the cache's read, or 0 if a cache above serves; seconds per root element.
        self.own = [0.0] * count
        for i, operator in enumerate(network.operators):
            above = operator.parent is not None and self.idle[operator.parent]
            if settings.choices[i].cache and not above:
                self.own[i] = operator.visits * operator.cache_read_s
            elif not self.idle[i]:
                self.own[i] = operator.visits * operator.service_s
        #: What the thread that makes i's output carries (t_i), by operator.
        self.thread: list[dict[int, float]] = [{} for _ in range(count)]
        #: What the calls of a parallel operator carry: its work, and what it pulls from its inputs while a call
        #: is reserved for the result; for an interleave, its work and its bodies'.
        self.workers: list[dict[int, float]] = [{} for _ in range(count)]
        for i in reversed(range(count)):
            self._carry(i)

    def _carry(self, i: int) -> None:
        choice, operator = self.settings.choices[i], self.network.operators[i]
        thread: dict[int, float] = {}
        if choice.cache:
            thread[i] = self.own[i]
        else:
            if not choice.parallel:
                thread[i] = self.own[i]
            for j in self.network.inputs[i]:
                thread |= self.handed_on(j)
            if choice.parallel and not operator.interleave:
                self.workers[i] = {i: self.own[i]} | thread
            if operator.interleave:
                body = {k: t for b in self.network.bodies[i] for k, t in self.handed_on(b).items()}
                if choice.parallel:
                    self.workers[i] = {i: self.own[i]} | body
                else:
                    thread |= body
        self.thread[i] = thread

    def handed_on(self, i: int) -> dict[int, float]:
        """r_i: what is left for the consumer's thread of i; nothing across anything asynchronous."""
        choice = self.settings.choices[i]
        if choice.prefetch or (choice.parallel and not choice.cache):
            return {}
        return self.thread[i]


def bounds(network: Network, settings: Settings) -> list[Bound]:
    """Every bound under `settings`, the smallest first.

    The root's thread, where it takes turns with the consumer, is bounded by r_0 + turn; a known g is a bound
    of kind `CONSUMER` of its own.
    """
    return _bounds(network, settings, stretched_capacity(network))


def _bounds(network: Network, settings: Settings, stretched: float) -> list[Bound]:
    loads = _Loads(network, settings)
    copies = multiplicity(network, settings)
    found: list[Bound] = []
    for i, choice in enumerate(settings.choices):
        operator = network.operators[i]
        asynchronous = choice.prefetch or (choice.parallel and not choice.cache)
        if choice.parallel and not choice.cache and not loads.idle[i]:
            if operator.interleave:
                k = min(choice.parallelism, operator.cycle_length or choice.parallelism)
                found.append(_shared(loads.workers[i], k * copies[i]))
            else:
                found.append(_parallel(network, i, choice.parallelism, copies[i], loads.workers[i]))
        if i == 0 and not asynchronous:
            found.append(_root(loads.thread[0], network.consumer.turn_s))
        elif asynchronous or choice.cache:
            found.append(_shared(loads.thread[i], copies[i]))
    found += [_cpu(network, loads, stretched), _pool(network, settings, loads), _gil(network, loads)]
    if network.consumer.step_s:
        found.append(Bound(Kind.CONSUMER, 1.0 / network.consumer.step_s))
    # Bounds without load say nothing and are left out, but one always stays.
    loaded = [bound for bound in found if math.isfinite(bound.rate)] or [Bound(Kind.THREAD, math.inf)]
    return sorted(loaded, key=_rank)


def calls_seconds(network: Network, settings: Settings) -> list[float]:
    """Seconds per root element that the calls of each parallel operator carry; 0 where it is not parallel."""
    loads = _Loads(network, settings)
    found = []
    for i, choice in enumerate(settings.choices):
        carried = sum(loads.workers[i].values())
        found.append(carried if choice.parallel and not loads.idle[i] else 0.0)
    return found


def pool_seconds(network: Network, settings: Settings) -> float:
    """Seconds per root element in the iterator's thread pool."""
    return sum(_pooled(network, _Loads(network, settings)).values())


def _rank(bound: Bound) -> float:
    """Bounds by rate; a shared resource goes before an operator's own setting that binds together with it.

    Raising the setting could not help then.
    """
    return bound.rate * (1.0 - TIE if bound.kind in RESOURCES else 1.0)


def data_rate(network: Network, settings: Settings) -> float:
    """The smallest bound of the data side, the consumer's own left out; steps/s."""
    rates = [bound.rate for bound in bounds(network, settings) if bound.kind is not Kind.CONSUMER]
    return min(rates, default=math.inf)


def predicted_rate(network: Network, settings: Settings) -> float:
    """The smallest bound of all, steps/s."""
    return min(bound.rate for bound in bounds(network, settings))


def _ranked(load: dict[int, float], total: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    ranking = sorted((i for i, t in load.items() if t > 0), key=lambda i: -load[i])
    return tuple(ranking), tuple(load[i] / total for i in ranking)


def _rate(capacity: float, load: float) -> float:
    return max(capacity, 0.0) / load if load > 0 else math.inf


def _shared(load: dict[int, float], capacity: float) -> Bound:
    """A thread, or the workers of an interleave, that several operators share."""
    total = sum(load.values())
    operators, shares = _ranked(load, total or 1.0)
    kind = Kind.OPERATOR if shares and shares[0] >= OPERATOR_SHARE else Kind.THREAD
    return Bound(kind, _rate(capacity, total), operators, shares)


def _root(load: dict[int, float], turn_s: float) -> Bound:
    """r_0 + turn <= 1/X: the consumer's thread makes the root's elements itself."""
    total = sum(load.values())
    operators, shares = _ranked(load, total or 1.0)
    kind = Kind.OPERATOR if shares and shares[0] >= OPERATOR_SHARE else Kind.THREAD
    return Bound(kind, _rate(1.0, total + turn_s if total else 0.0), operators, shares, takes_turns=True)


def _parallel(network: Network, i: int, k: int, copies: int, load: dict[int, float]) -> Bound:
    operator = network.operators[i]
    efficiency = eta(k, operator.variation, operator.batch_size) if operator.ordered else 1.0
    bound = _shared(load, efficiency * k * copies)
    return replace(bound, calls_of=i, stragglers=efficiency < OPERATOR_SHARE)


def _cpu(network: Network, loads: _Loads, stretched: float) -> Bound:
    consumer = network.consumer
    load = {}
    for i, operator in enumerate(network.operators):
        share = operator.cpu_s / operator.service_s if operator.service_s else 1.0
        load[i] = loads.own[i] if loads.settings.choices[i].cache else loads.own[i] * share
    total = sum(load.values()) + consumer.cpu_s
    operators, shares = _ranked(load, total or 1.0)
    rate = _rate(network.limits.cores - consumer.other_cores, total)
    if math.isfinite(stretched):
        rate = min(rate, _rate(stretched, _stretched_s(network, loads)))
    return Bound(Kind.CPU, rate, operators, shares)


def stretched_capacity(network: Network) -> float:
    """S: seconds of stretched core time per second that settings may count on; infinite where none is stretched.

    As many as there are cores: on a crowded host nobody knows whether more threads would get more of them. At
    least what the settings in force carry when nothing waits for the consumer: that much was measured.
    """
    if all(operator.stretch <= 1.0 for operator in network.operators):
        return math.inf
    eager = replace(network, consumer=replace(network.consumer, step_s=None, turn_s=0.0))
    carried = _stretched_s(eager, _Loads(eager, eager.current))
    now = min(bound.rate for bound in _bounds(eager, eager.current, math.inf))
    return max(math.ceil(network.limits.cores), now * carried if carried else 0.0)


def _stretched_s(network: Network, loads: _Loads) -> float:
    """Core time per root element as the clock sees it, seconds."""
    return sum(
        operator.visits * operator.cpu_s * operator.stretch
        for i, operator in enumerate(network.operators)
        if not loads.idle[i]
    )


def _pooled(network: Network, loads: _Loads) -> dict[int, float]:
    return {
        i: loads.own[i]
        for i, operator in enumerate(network.operators)
        if operator.pooled and not operator.unbounded and not loads.idle[i]
    }


def _pool(network: Network, settings: Settings, loads: _Loads) -> Bound:
    load = _pooled(network, loads)
    total = sum(load.values())
    operators, shares = _ranked(load, total or 1.0)
    computed = sum(
        load[i] * (1 - network.operators[i].wait_s / network.operators[i].service_s) for i in operators
    )
    at_cores = settings.threadpool_size >= math.floor(network.limits.cores)
    kind = Kind.CPU if at_cores and total and computed >= CPU_SHARE * total else Kind.THREADPOOL
    return Bound(kind, _rate(settings.threadpool_size, total), operators, shares)


def _gil(network: Network, loads: _Loads) -> Bound:
    load = {
        i: operator.visits * operator.gil_s
        for i, operator in enumerate(network.operators)
        if operator.gil_s and not loads.idle[i]
    }
    total = sum(load.values())
    operators, shares = _ranked(load, total or 1.0)
    return Bound(Kind.GIL, _rate(1.0, total), operators, shares)
