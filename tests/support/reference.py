"""The mathematics of docs/model.md once more, written apart from the product's: plain, slow and exhaustive.

`rate` evaluates fixed settings, `search` tries every assignment of the decisions. Only the tables of eta and of
prefetch sizes are taken from the product.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tensorboard_plugin_plumber.model.memory import prefetch_size
from tensorboard_plugin_plumber.model.network import Choice, Network, Operator, Settings
from tensorboard_plugin_plumber.model.ordered import eta

READ_S = 1e-6


def rate(network: Network, settings: Settings) -> float:
    """The greatest X that breaks no constraint, steps/s."""
    load = _on_the_clock(network, settings)
    if load == 0 or all(op.stretch == 1 for op in network.operators):
        return _rate(network, settings)
    # As much core time on the clock as there are cores, or as today's settings make of an eager consumer.
    others = replace(network.consumer, step_s=0.0, turn_s=0.0)
    today = _rate(replace(network, consumer=others), network.current)
    most = max(math.ceil(network.limits.cores), today * _on_the_clock(network, network.current))
    return min(_rate(network, settings), most / load)


def _on_the_clock(network: Network, settings: Settings) -> float:
    """Stretched core time of one root element."""
    served = [any(settings.choices[j].cache for j in network.path(i)) for i in range(len(network.operators))]
    each = [op.visits * op.cpu_s * op.stretch for op in network.operators]
    return sum(time for time, idle in zip(each, served, strict=True) if not idle)


def _rate(network: Network, settings: Settings) -> float:
    """`rate`, as if nothing were known of how crowded the host is."""
    ops, choose = network.operators, settings.choices

    def covered(i: int) -> bool:
        """A cache nearer the root makes i and its own cache idle."""
        return any(choose[j].cache for j in network.path(i)[1:])

    def works(i: int) -> bool:
        return not covered(i) and not choose[i].cache

    def own(i: int) -> float:
        return ops[i].visits * (ops[i].cpu_s * ops[i].stretch + ops[i].wait_s) if works(i) else 0.0

    def read(i: int) -> float:
        return ops[i].visits * READ_S if choose[i].cache and not covered(i) else 0.0

    def children(i: int, in_body: bool) -> list[int]:
        return [j for j, op in enumerate(ops) if op.parent == i and op.in_body == in_body]

    def thread(i: int) -> float:
        if choose[i].cache:
            return read(i)
        total = sum(handed_on(j) for j in children(i, False))
        if not choose[i].parallel:
            total += own(i) + sum(handed_on(b) for b in children(i, True))
        return total

    def handed_on(i: int) -> float:
        if choose[i].prefetch:
            return 0.0
        if choose[i].parallel and not choose[i].cache:
            return 0.0
        return thread(i)

    def instances(i: int) -> int:
        count = 1
        for j in network.path(i):
            if ops[j].in_body:
                count *= ops[ops[j].parent or 0].cycle_length or 1
        return count

    ratios: list[tuple[float, float]] = [(1.0, 1e-6)]
    for i, op in enumerate(ops):
        m = instances(i)
        ratios.append((m, thread(i)))
        if choose[i].parallel and works(i):
            k = choose[i].parallelism
            if op.interleave:
                carried = own(i) + sum(handed_on(b) for b in children(i, True))
                ratios.append((m * min(k, op.cycle_length or 1), carried))
            else:
                carried = own(i) + sum(handed_on(j) for j in children(i, False))
                ratios.append((m * k * (eta(k, op.variation, op.batch_size) if op.ordered else 1.0), carried))
    working = [(i, op) for i, op in enumerate(ops) if works(i)]
    cpu = sum(op.visits * op.cpu_s for _, op in working) + sum(read(i) for i in range(len(ops)))
    ratios.append((network.limits.cores - network.consumer.other_cores, cpu + network.consumer.cpu_s))
    ratios.append(
        (settings.threadpool_size, sum(own(i) for i, op in working if op.pooled and not op.unbounded))
    )
    ratios.append((1.0, sum(op.visits * (op.gil_s or 0.0) for _, op in working)))
    asynchronous = choose[0].prefetch or (choose[0].parallel and not choose[0].cache)
    if not asynchronous:
        ratios.append((1.0, thread(0) + (network.consumer.turn_s if thread(0) > 0 else 0.0)))
    ratios.append((1.0, network.consumer.step_s or 0.0))
    return min(capacity / load for capacity, load in ratios if load > 0)


def changes(network: Network, settings: Settings) -> int:
    count = 0
    for old, new in zip(network.current.choices, settings.choices, strict=True):
        if new.parallel and not (old.autotuned and new.autotuned):
            count += (new.parallel, new.parallelism, new.autotuned) != (
                old.parallel,
                old.parallelism,
                old.autotuned,
            )
        count += (new.prefetch and not old.prefetch) + (new.cache and not old.cache)
    return count + (settings.threadpool_size != network.current.threadpool_size)


def threads(settings: Settings) -> int:
    calls = sum(choice.parallelism for choice in settings.choices if choice.parallel)
    return calls + sum(choice.prefetch for choice in settings.choices) + settings.threadpool_size


def memory(network: Network, settings: Settings) -> float:
    """Bytes of all buffers and of new caches."""
    total = 0.0
    for i, (op, old, new) in enumerate(
        zip(network.operators, network.current.choices, settings.choices, strict=True)
    ):
        held = 0.0
        if new.parallel and op.interleave:
            held += op.cycle_length or 1
        elif new.parallel and op.batch_size > 1:
            held += op.batch_size * min(-(-new.parallelism // op.batch_size) + 1, 16)
        elif new.parallel:
            held += new.parallelism
        held += new.prefetch_size if new.prefetch else 0
        for j in network.path(i):
            if network.operators[j].in_body:
                held *= network.operators[network.operators[j].parent or 0].cycle_length or 1
        total += held * op.element_bytes
        if new.cache and not old.cache:
            total += op.cache_bytes or math.inf
    return total


def memory_limit(network: Network) -> float:
    """What is free, or what is held without any plan."""
    size = network.current.threadpool_size
    most = []
    for op, choice in zip(network.operators, network.current.choices, strict=True):
        k = size if _in_pool(op) else max(1, math.ceil(network.limits.cores))
        most.append(replace(choice, parallelism=k) if choice.autotuned else choice)
    today = Settings(tuple(most), size)
    return max(network.limits.memory_free_bytes, memory(network, today))


@dataclass(frozen=True)
class Found:
    settings: Settings
    rate: float
    changes: int
    threads: int
    memory: float


def search(network: Network, k_max: int) -> list[Found]:
    """Every legal assignment that fits into memory."""
    found = []
    limit = memory_limit(network)
    size = network.current.threadpool_size
    follows = [
        _in_pool(op) and now.parallel and now.autotuned
        for op, now in zip(network.operators, network.current.choices, strict=True)
    ]
    options = [list(_options(network, i, k_max)) for i in range(len(network.operators))]
    for choices in itertools.product(*options):
        if not _legal(network, choices):
            continue
        calls = [c.parallelism for c, f in zip(choices, follows, strict=True) if f and c.autotuned]
        for pool in range(max(size, *calls, 1), max(size, k_max) + 1):
            settings = Settings(choices, pool)
            held = memory(network, settings)
            if held <= limit:
                x = rate(network, settings)
                found.append(Found(settings, x, changes(network, settings), threads(settings), held))
    return found


def _in_pool(op: Operator) -> bool:
    return op.pooled and not op.unbounded and not op.interleave


def _legal(network: Network, choices: tuple[Choice, ...]) -> bool:
    """No new cache on a path that has another."""
    for i, choice in enumerate(choices):
        for j in network.path(i)[1:]:
            news = [choices[n].cache and not network.current.choices[n].cache for n in (i, j)]
            if choice.cache and choices[j].cache and any(news):
                return False
    return True


def _options(network: Network, i: int, k_max: int) -> Iterator[Choice]:
    op, now = network.operators[i], network.current.choices[i]
    idle = any(network.current.choices[j].cache for j in network.path(i)[1:])
    cached = now.cache or idle
    cap = op.cycle_length or 1 if op.interleave else k_max
    calls: list[Choice] = [now]
    if now.parallel and now.autotuned:
        free = network.current.threadpool_size if _in_pool(op) else max(1, math.ceil(network.limits.cores))
        free = min(free, cap) if op.interleave else free
        # In the pool AUTOTUNE goes as far as the pool does, which `search` sees to.
        reach = max(free, cap) if _in_pool(op) else free
        calls = [replace(now, parallelism=k) for k in range(1, reach + 1)]
        if op.may_parallel and not cached:
            calls += [replace(now, parallelism=k, autotuned=False) for k in range(free + 1, cap + 1)]
    elif now.parallel and op.may_parallel and not cached:
        calls += [replace(now, parallelism=k) for k in range(now.parallelism + 1, cap + 1)]
    elif op.may_parallel and not cached and cap > 1:
        calls += [replace(now, parallel=True, parallelism=k) for k in range(2, cap + 1)]
    for choice in calls:
        for prefetched in {now.prefetch, (op.may_prefetch and not idle) or now.prefetch}:
            for served in {
                now.cache,
                now.cache or (op.may_cache and not cached and op.cache_bytes is not None),
            }:
                size = now.prefetch_size if now.prefetch else prefetch_size(network, i) if prefetched else 0
                yield replace(choice, prefetch=prefetched, prefetch_size=size, cache=served)
