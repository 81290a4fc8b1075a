"""Upper bounds on the rate of a network under fixed settings (docs/model.md, "Bounds").

Under fixed settings every activity A_i is either the root's rate X or 0 (a cache serves above it), so each
constraint reads ``load * X <= capacity`` and gives one bound ``capacity / load``. The smallest bound is the
bottleneck.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from tensorboard_plugin_plumber.model.loads import Loads, multiplicity
from tensorboard_plugin_plumber.model.network import Network, Settings, StorageCurve
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


def iterators_beside(network: Network, position: int) -> int:
    """Iterators that run an operator at a time today: the workers of the parallel interleaves around it."""
    found = 1
    for j in network.enclosing[position]:
        choice, cycle = network.current.choices[j], network.operators[j].cycle_length
        if choice.parallel:
            found *= min(choice.parallelism, cycle or choice.parallelism)
    return found


def bounds(network: Network, settings: Settings, *, filling: bool = False) -> list[Bound]:
    """Every bound under `settings`, the smallest first; while their new caches fill, or once they serve.

    The root's thread, where it takes turns with the consumer, is bounded by r_0 + turn; a known g is a bound
    of kind `CONSUMER` of its own.
    """
    return _bounds(network, settings, stretched_capacity(network), filling)


def _bounds(network: Network, settings: Settings, stretched: float, filling: bool) -> list[Bound]:
    loads = Loads(network, settings, filling=filling)
    copies = multiplicity(network)
    found: list[Bound] = []
    for i, choice in enumerate(settings.choices):
        calls = loads.calls_work(i)
        if calls and not loads.idle[i]:
            found.append(_calls(network, i, choice.parallelism, copies[i], loads.workers[i]))
        if choice.prefetch or calls or (loads.serves[i] and i > 0):
            found.append(_shared(loads.thread[i], copies[i]))
        if choice.prefetch and calls:
            found.append(_shared(loads.delivered(i), copies[i]))
    if not settings.choices[0].prefetch:
        found.append(_root(loads.delivered(0), network.consumer.turn_s))
    found += [_cpu(network, loads, stretched), _pool(network, settings, loads), _gil(network, loads)]
    if network.limits.storage is not None:
        found.append(_storage(network, loads, network.limits.storage))
    if network.consumer.step_s:
        found.append(Bound(Kind.CONSUMER, 1.0 / network.consumer.step_s))
    # Bounds without load say nothing and are left out, but one always stays.
    loaded = [bound for bound in found if math.isfinite(bound.rate)] or [Bound(Kind.THREAD, math.inf)]
    return sorted(loaded, key=_rank)


def calls_seconds(network: Network, settings: Settings, *, filling: bool = False) -> list[float]:
    """Seconds per root element that the calls of each parallel operator carry; 0 where it is not parallel."""
    loads = Loads(network, settings, filling=filling)
    found = []
    for i, choice in enumerate(settings.choices):
        carried = sum(loads.workers[i].values())
        found.append(carried if choice.parallel and not loads.idle[i] else 0.0)
    return found


def pool_seconds(network: Network, settings: Settings, *, filling: bool = False) -> float:
    """Seconds per root element in the iterator's thread pool."""
    return sum(_pooled(network, Loads(network, settings, filling=filling)).values())


def _rank(bound: Bound) -> float:
    """Bounds by rate; a shared resource goes before an operator's own setting that binds together with it.

    Raising the setting could not help then.
    """
    return bound.rate * (1.0 - TIE if bound.kind in RESOURCES else 1.0)


def data_rate(network: Network, settings: Settings) -> float:
    """The smallest bound of the data side, the consumer's own left out; steps/s."""
    rates = [bound.rate for bound in bounds(network, settings) if bound.kind is not Kind.CONSUMER]
    return min(rates, default=math.inf)


def predicted_rate(network: Network, settings: Settings, *, filling: bool = False) -> float:
    """The smallest bound of all, steps/s; while the new caches of `settings` fill, or once they serve."""
    return min(bound.rate for bound in bounds(network, settings, filling=filling))


def epochs_rate(network: Network, settings: Settings) -> float:
    """The mean rate over E epochs, of which new caches fill in the first, steps/s; E unknown counts as many."""
    serving = predicted_rate(network, settings)
    if not fills(network, settings) or network.epochs is None:
        return serving
    filling = predicted_rate(network, settings, filling=True)
    if min(serving, filling) <= 0:
        return 0.0
    first = min(1.0 / network.epochs, 1.0)
    return 1.0 / (first / filling + (1.0 - first) / serving)


def fills(network: Network, settings: Settings) -> bool:
    """Whether `settings` have caches that are not in force."""
    return any(
        new.serves and not old.serves
        for old, new in zip(network.current.choices, settings.choices, strict=True)
    )


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


def _calls(network: Network, i: int, k: int, copies: int, load: dict[int, float]) -> Bound:
    """The parallel calls of i; those of an interleave beyond its cycle length do nothing."""
    operator = network.operators[i]
    if operator.interleave:
        return _shared(load, min(k, operator.cycle_length or k) * copies)
    efficiency = eta(k, operator.variation, operator.batch_size) if operator.ordered else 1.0
    bound = _shared(load, efficiency * k * copies)
    return replace(bound, calls_of=i, stragglers=efficiency < OPERATOR_SHARE)


def _of_resource(kind: Kind, load: dict[int, float], capacity: float, others: float = 0.0) -> Bound:
    """A resource that all operators share; `others` is what is no operator's load on it."""
    total = sum(load.values()) + others
    operators, shares = _ranked(load, total or 1.0)
    return Bound(kind, _rate(capacity, total), operators, shares)


def _cpu(network: Network, loads: Loads, stretched: float) -> Bound:
    consumer = network.consumer
    load = {i: loads.computed(i) for i in range(len(network.operators))}
    bound = _of_resource(Kind.CPU, load, network.limits.cores - consumer.other_cores, consumer.cpu_s)
    if math.isfinite(stretched):
        return replace(bound, rate=min(bound.rate, _rate(stretched, _stretched_s(network, loads))))
    return bound


def stretched_capacity(network: Network) -> float:
    """S: seconds of stretched core time per second that settings may count on; infinite where none is stretched.

    As many as there are cores: on a crowded host nobody knows whether more threads would get more of them. At
    least what the settings in force carry when nothing waits for the consumer: that much was measured.
    """
    if all(operator.stretch <= 1.0 for operator in network.operators):
        return math.inf
    eager = replace(network, consumer=replace(network.consumer, step_s=None, turn_s=0.0))
    carried = _stretched_s(eager, Loads(eager, eager.current))
    now = min(bound.rate for bound in _bounds(eager, eager.current, math.inf, False))
    return max(math.ceil(network.limits.cores), now * carried if carried else 0.0)


def _stretched_s(network: Network, loads: Loads) -> float:
    """Core time per root element as the clock sees it, seconds."""
    return sum(
        operator.visits * operator.cpu_s * operator.stretch
        for i, operator in enumerate(network.operators)
        if not loads.idle[i]
    )


def _pooled(network: Network, loads: Loads) -> dict[int, float]:
    return {
        i: loads.own[i]
        for i, operator in enumerate(network.operators)
        if operator.pooled and not (operator.unbounded or loads.settings.choices[i].unbounded)
    }


def _pool(network: Network, settings: Settings, loads: Loads) -> Bound:
    load = _pooled(network, loads)
    bound = _of_resource(Kind.THREADPOOL, load, settings.threadpool_size)
    computed = sum(
        load[i] * (1 - network.operators[i].wait_s / network.operators[i].service_s) for i in bound.operators
    )
    at_cores = settings.threadpool_size >= math.floor(network.limits.cores)
    total = sum(load.values())
    return replace(bound, kind=Kind.CPU) if at_cores and total and computed >= CPU_SHARE * total else bound


def _gil(network: Network, loads: Loads) -> Bound:
    load = {
        i: operator.visits * operator.gil_s
        for i, operator in enumerate(network.operators)
        if operator.gil_s and not loads.idle[i]
    }
    return _of_resource(Kind.GIL, load, 1.0)


def _storage(network: Network, loads: Loads, curve: StorageCurve) -> Bound:
    load = {
        i: operator.visits * operator.read_bytes
        for i, operator in enumerate(network.operators)
        if operator.read_bytes and not loads.idle[i]
    }
    return _of_resource(Kind.STORAGE, load, curve.bytes_per_s(loads.readers()))
