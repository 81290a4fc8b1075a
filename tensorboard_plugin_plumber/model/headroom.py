"""Calls and pool of a plan, made as small as carries some more than its rate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tensorboard_plugin_plumber.model import memory
from tensorboard_plugin_plumber.model.bounds import (
    Kind,
    bounds,
    calls_seconds,
    fills,
    pool_seconds,
    predicted_rate,
)
from tensorboard_plugin_plumber.model.decisions import (
    Freedom,
    least_calls,
    memory_limit,
    parallelism_changes,
)
from tensorboard_plugin_plumber.model.loads import callers
from tensorboard_plugin_plumber.model.network import Choice, Network, Settings

#: Parallelism and pool are sized for this much more than the plan's rate.
HEADROOM = 1.15


@dataclass(frozen=True)
class _Demand:
    """What is asked of calls and pool, once new caches serve or while they fill."""

    #: steps/s.
    wanted: float
    #: Seconds per root element in the calls of each operator, and in the pool.
    calls_s: list[float]
    pool_s: float
    filling: bool


def with_headroom(
    network: Network, freedoms: list[Freedom], settings: Settings, rate: float, k_max: int
) -> Settings:
    """`settings` with each k and T that is free, or changed anyway, as small as carries HEADROOM times their rate.

    Their rate is what they reach with all of those at their highest, at most `rate`; no headroom is asked for
    beyond what the cores allow. Where memory is short, or storage needs its readers, an operator keeps the k that
    it has in `settings`.
    """
    pool_changes = settings.threadpool_size != network.current.threadpool_size
    widest_pool = max(k_max, settings.threadpool_size) if pool_changes else settings.threadpool_size
    ranges = [
        _sizes(*each, widest_pool)
        for each in zip(network.current.choices, settings.choices, freedoms, strict=True)
    ]
    widest = _with_sizes(settings, [high for _, high in ranges], widest_pool)
    over_epochs = network.epochs is not None and fills(network, settings)
    demands = [
        _demand(network, widest, math.inf if over_epochs else rate, filling=filling)
        for filling in ((False, True) if over_epochs else (False,))
    ]
    if not all(math.isfinite(demand.wanted) for demand in demands):
        return settings
    sizes = [
        max(_least(network, i, freedom, *each, demand) for demand in demands)
        for i, (freedom, each) in enumerate(zip(freedoms, ranges, strict=True))
    ]
    _keep_readers(network, settings, sizes, demands)
    _keep_memory(network, settings, sizes)
    pool = settings.threadpool_size
    if pool_changes:
        needed = [math.ceil(demand.wanted * demand.pool_s * (1 - 1e-9)) for demand in demands]
        follow = [
            k
            for k, choice, freedom in zip(sizes, settings.choices, freedoms, strict=True)
            if choice.autotuned and freedom.follows_pool and not choice.unbounded
        ]
        pool = min(max(*needed, network.current.threadpool_size + 1, *follow), widest_pool)
    return _with_sizes(settings, sizes, pool)


def _demand(network: Network, widest: Settings, most: float, *, filling: bool) -> _Demand:
    reached = min(predicted_rate(network, widest, filling=filling), most)
    found = bounds(network, widest, filling=filling)
    cores = min((bound.rate for bound in found if bound.kind is Kind.CPU), default=math.inf)
    return _Demand(
        wanted=min(HEADROOM * reached, max(cores, reached)),
        calls_s=calls_seconds(network, widest, filling=filling),
        pool_s=pool_seconds(network, widest, filling=filling),
        filling=filling,
    )


def _least(network: Network, i: int, freedom: Freedom, low: int, high: int, demand: _Demand) -> int:
    load = demand.wanted * demand.calls_s[i] / freedom.copies
    least = least_calls(network.operators[i], load, high)
    return max(low, high if least is None else least)


def _keep_readers(network: Network, settings: Settings, sizes: list[int], demands: list[_Demand]) -> None:
    """Where fewer calls would read too slowly, they stay as many as in `settings`."""
    sized = _with_sizes(settings, sizes, settings.threadpool_size)
    short = any(
        bound.kind is Kind.STORAGE and bound.rate < demand.wanted
        for demand in demands
        for bound in bounds(network, sized, filling=demand.filling)
    )
    for i, operator in enumerate(network.operators):
        if short and operator.read_bytes > 0:
            for n in callers(network, i):
                sizes[n] = max(sizes[n], settings.choices[n].parallelism)


def _keep_memory(network: Network, settings: Settings, sizes: list[int]) -> None:
    """Where memory is short, operators keep the k of `settings`, those of large elements first."""
    limit = memory_limit(network)
    for i in sorted(range(len(sizes)), key=lambda i: -network.operators[i].element_bytes):
        if memory.needed_bytes(network, _with_sizes(settings, sizes, settings.threadpool_size)) <= limit:
            break
        sizes[i] = settings.choices[i].parallelism


def _sizes(old: Choice, new: Choice, freedom: Freedom, pool: int) -> tuple[int, int]:
    """The k that `new` may have at no further change in a pool of `pool`."""
    if not new.parallel or freedom.idle or freedom.highest == freedom.lowest:
        return new.parallelism, new.parallelism
    if new.autotuned:
        led = freedom.free_unbounded if new.unbounded else pool
        return freedom.lowest, min(freedom.highest, led) if freedom.follows_pool else freedom.free
    if parallelism_changes(old, new):
        return (freedom.free + 1 if old.parallel else 2), freedom.highest
    return new.parallelism, new.parallelism


def _with_sizes(settings: Settings, sizes: list[int], pool: int) -> Settings:
    choices = [replace(choice, parallelism=k) for choice, k in zip(settings.choices, sizes, strict=True)]
    return Settings(tuple(choices), pool)
