"""The decisions that a plan may take at each operator, and what it costs to take them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tensorboard_plugin_plumber.model import memory
from tensorboard_plugin_plumber.model.loads import multiplicity
from tensorboard_plugin_plumber.model.network import Choice, Network, Operator, Settings
from tensorboard_plugin_plumber.model.ordered import MAX_BATCHES, throughput

#: Changes that a file cache counts as: it leaves something behind that must be deleted when data or code change,
#: so that a memory cache is taken wherever it does as well.
FILE_CACHE_CHANGES = 2


@dataclass(frozen=True)
class Freedom:
    """What may be decided at one operator."""

    #: A cache of the user's nearer the root makes it idle: nothing is to be decided.
    idle: bool
    parallel: bool
    prefetch: bool
    cache: bool
    file_cache: bool
    #: Its function may leave the pool for the unbounded one.
    unbounded: bool
    #: k may be anything from `lowest` to `free` without a change of its own, and up to `highest` with one.
    lowest: int
    free: int
    highest: int
    #: AUTOTUNE goes up to the size of the pool: a larger pool makes as many more calls free, and outside of the
    #: pool only `free_unbounded` are.
    follows_pool: bool
    free_unbounded: int
    prefetch_size: int
    copies: int


def memory_limit(network: Network) -> float:
    """Bytes that buffers and new caches may take: those that no plan is needed for are there anyway."""
    return max(network.limits.memory_free_bytes, memory.buffer_bytes(network, unchanged(network)))


def freedoms_of(network: Network, k_max: int) -> list[Freedom]:
    """What a plan may decide at each operator, with no parallelism above `k_max`."""
    limit = memory_limit(network)
    copies = multiplicity(network)
    above_cache = [False] * len(network.operators)
    for i in reversed(range(len(network.operators))):
        parent = network.operators[i].parent
        if parent is not None and (above_cache[i] or network.current.choices[i].cache):
            above_cache[parent] = True
    repeats = network.epochs is None or network.epochs > 1
    found: list[Freedom] = []
    served: list[bool] = []
    for i, (operator, choice) in enumerate(zip(network.operators, network.current.choices, strict=True)):
        idle = operator.parent is not None and served[operator.parent]
        served.append(idle or choice.cache)
        lowest, free, highest = _parallelism_range(network, i, k_max)
        works = not served[i]
        parallel = works and operator.may_parallel and not choice.parallel and highest > 1
        may_leave = operator.may_unbounded and operator.pooled and not operator.unbounded
        may_cache = works and operator.may_cache and not above_cache[i] and repeats
        found.append(
            Freedom(
                idle=idle,
                parallel=parallel,
                prefetch=not idle and operator.may_prefetch and not choice.prefetch,
                cache=may_cache and _fits(operator.cache_bytes, limit),
                file_cache=may_cache and _fits(operator.file_cache_bytes, network.limits.disk_free_bytes),
                unbounded=works and may_leave and (parallel or choice.parallel),
                lowest=lowest,
                free=free,
                highest=highest if works else free,
                follows_pool=_follows_pool(operator, choice),
                free_unbounded=max(1, math.ceil(network.limits.cores)),
                prefetch_size=memory.prefetch_size(network, i),
                copies=copies[i],
            )
        )
    return found


def _fits(size: float | None, limit: float) -> bool:
    return size is not None and size <= limit


def _parallelism_range(network: Network, i: int, k_max: int) -> tuple[int, int, int]:
    """(lowest, free, highest) k of `Freedom`; an interleave's calls beyond its cycle length do nothing."""
    operator, choice = network.operators[i], network.current.choices[i]
    cap = k_max
    if operator.interleave:
        cap = max(operator.cycle_length or 1, 1)
    elif operator.batch_size > 1:
        cap = min(k_max, (MAX_BATCHES - 1) * operator.batch_size)
    if not choice.parallel:
        return 1, 1, cap if operator.may_parallel else 1
    if choice.autotuned:
        lowest, free = 1, _autotuned_highest(network, i)
    else:
        lowest = free = choice.parallelism
    if operator.interleave:
        lowest, free = min(lowest, cap), min(free, cap)
    may_rise = operator.may_parallel or _follows_pool(operator, choice)
    return lowest, free, max(free, cap) if may_rise else free


def unchanged(network: Network) -> Settings:
    """The settings in force, with AUTOTUNE at the highest it may choose."""
    choices = [
        replace(choice, parallelism=_autotuned_highest(network, i))
        if choice.parallel and choice.autotuned
        else choice
        for i, choice in enumerate(network.current.choices)
    ]
    return replace(network.current, choices=tuple(choices))


def _follows_pool(operator: Operator, choice: Choice) -> bool:
    """Whether TensorFlow lets AUTOTUNE raise k up to the size of the iterator's pool."""
    in_pool = operator.pooled and not operator.unbounded and not operator.interleave
    return choice.parallel and choice.autotuned and in_pool


def _autotuned_highest(network: Network, i: int) -> int:
    """The highest k that AUTOTUNE may choose with the pool in force."""
    operator = network.operators[i]
    if _follows_pool(operator, network.current.choices[i]):
        return network.current.threadpool_size
    highest = max(1, math.ceil(network.limits.cores))
    return min(highest, max(operator.cycle_length or 1, 1)) if operator.interleave else highest


def count_changes(network: Network, settings: Settings) -> int:
    """Changes to the user's code that turn the settings in force into `settings`."""
    count = int(settings.threadpool_size != network.current.threadpool_size)
    for old, new in zip(network.current.choices, settings.choices, strict=True):
        count += int(parallelism_changes(old, new))
        count += int(new.prefetch != old.prefetch) + int(new.cache != old.cache)
        count += FILE_CACHE_CHANGES * int(new.file_cache) + int(new.unbounded)
    return count


def parallelism_changes(old: Choice, new: Choice) -> bool:
    """Whether the user must write another ``num_parallel_calls``; what AUTOTUNE chooses is no change."""
    if new.parallel != old.parallel or new.autotuned != old.autotuned:
        return True
    return new.parallel and not new.autotuned and new.parallelism != old.parallelism


def capacity(operator: Operator, k: int) -> float:
    """eta(k) k; k itself for an interleave, whose workers each have an iterator of their own."""
    if operator.interleave or not operator.ordered:
        return float(k)
    return float(throughput(k, operator.variation, operator.batch_size)[-1])


def pooled_s(operator: Operator) -> float:
    """Time in the iterator's thread pool per root element."""
    return operator.visits * operator.service_s if operator.pooled and not operator.unbounded else 0.0


def least_calls(operator: Operator, load: float, highest: int) -> int | None:
    """The least k up to `highest` that carries `load` (calls' worth of time per instance); None if none does."""
    variation = operator.variation if operator.ordered and not operator.interleave else None
    carried = throughput(highest, variation, operator.batch_size)
    k = int(np.searchsorted(carried, load * (1 - 1e-9))) + 1
    return k if k <= highest else None
