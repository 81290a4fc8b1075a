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

#: Core time per element of a cache, and per byte of one on disk: to read, and to write.
READ_S, FILE_READ_S, FILE_WRITE_S = 1e-6, 0.6e-9, 1 / 280e6


def mean_rate(network: Network, settings: Settings) -> float:
    """Steps/s over all epochs, the first of which fills the new caches; as many as there may be if unknown."""
    if not network.epochs or not any(_new(network, settings, i) for i in range(len(network.operators))):
        return rate(network, settings)
    rates = [rate(network, settings, filling=True)] + [rate(network, settings)] * (int(network.epochs) - 1)
    return len(rates) / sum(1 / each for each in rates) if min(rates) > 0 else 0.0


def _new(network: Network, settings: Settings, i: int) -> bool:
    choice = settings.choices[i]
    return (choice.cache or choice.file_cache) and not network.current.choices[i].cache


def rate(network: Network, settings: Settings, *, filling: bool = False) -> float:
    """The greatest X that breaks no constraint, steps/s."""
    load = _on_the_clock(network, settings, filling)
    if load == 0 or all(op.stretch == 1 for op in network.operators):
        return _rate(network, settings, filling)
    # As much core time on the clock as there are cores, or as today's settings make of an eager consumer.
    others = replace(network.consumer, step_s=0.0, turn_s=0.0)
    today = _rate(replace(network, consumer=others), network.current, False)
    most = max(math.ceil(network.limits.cores), today * _on_the_clock(network, network.current, False))
    return min(_rate(network, settings, filling), most / load)


def _serves(network: Network, settings: Settings, i: int, filling: bool) -> bool:
    """A cache stands on i, and does not just fill."""
    choice = settings.choices[i]
    return (choice.cache or choice.file_cache) and not (filling and _new(network, settings, i))


def _on_the_clock(network: Network, settings: Settings, filling: bool) -> float:
    """Stretched core time of one root element."""
    served = [
        any(_serves(network, settings, j, filling) for j in network.path(i))
        for i in range(len(network.operators))
    ]
    each = [op.visits * op.cpu_s * op.stretch for op in network.operators]
    return sum(time for time, idle in zip(each, served, strict=True) if not idle)


def _rate(network: Network, settings: Settings, filling: bool) -> float:
    """`rate`, as if nothing were known of how crowded the host is."""
    ops, choose = network.operators, settings.choices

    serves = [_serves(network, settings, i, filling) for i in range(len(ops))]

    def covered(i: int) -> bool:
        """A cache nearer the root makes i and its own cache idle."""
        return any(serves[j] for j in network.path(i)[1:])

    def works(i: int) -> bool:
        return not covered(i) and not serves[i]

    def own(i: int) -> float:
        return ops[i].visits * (ops[i].cpu_s * ops[i].stretch + ops[i].wait_s) if works(i) else 0.0

    def cached(i: int) -> float:
        """To read from the cache on i, or to write to it."""
        if covered(i) or not (choose[i].cache or choose[i].file_cache):
            return 0.0
        per_byte = FILE_READ_S if serves[i] else FILE_WRITE_S
        return ops[i].visits * (READ_S + (per_byte * ops[i].element_bytes if choose[i].file_cache else 0.0))

    def children(i: int, in_body: bool) -> list[int]:
        return [j for j, op in enumerate(ops) if op.parent == i and op.in_body == in_body]

    def thread(i: int) -> float:
        if serves[i]:
            return cached(i)
        total = sum(handed_on(j) for j in children(i, False))
        if not choose[i].parallel:
            total += own(i) + cached(i) + sum(handed_on(b) for b in children(i, True))
        return total

    def taken(i: int) -> float:
        """What the thread has to do that takes elements from i."""
        return cached(i) if choose[i].parallel and not serves[i] else thread(i)

    def handed_on(i: int) -> float:
        return 0.0 if choose[i].prefetch else taken(i)

    def instances(i: int) -> int:
        count = 1
        for j in network.path(i):
            if ops[j].in_body:
                count *= ops[ops[j].parent or 0].cycle_length or 1
        return count

    ratios: list[tuple[float, float]] = [(1.0, 1e-6)]
    for i, op in enumerate(ops):
        m = instances(i)
        ratios += [(m, thread(i)), (m, taken(i))]
        if choose[i].parallel and works(i):
            k = choose[i].parallelism
            if op.interleave:
                carried = own(i) + sum(handed_on(b) for b in children(i, True))
                ratios.append((m * min(k, op.cycle_length or 1), carried))
            else:
                carried = own(i) + sum(handed_on(j) for j in children(i, False))
                ratios.append((m * k * (eta(k, op.variation, op.batch_size) if op.ordered else 1.0), carried))
    working = [(i, op) for i, op in enumerate(ops) if works(i)]
    cpu = sum(op.visits * op.cpu_s for _, op in working) + sum(cached(i) for i in range(len(ops)))
    ratios.append((network.limits.cores - network.consumer.other_cores, cpu + network.consumer.cpu_s))
    ratios.append(
        (
            settings.threadpool_size,
            sum(own(i) for i, op in working if op.pooled and not op.unbounded and not choose[i].unbounded),
        )
    )
    ratios.append((1.0, sum(op.visits * (op.gil_s or 0.0) for _, op in working)))
    if not choose[0].prefetch:
        ratios.append((1.0, taken(0) + (network.consumer.turn_s if taken(0) > 0 else 0.0)))
    if network.limits.storage:
        reading = [i for i, op in working if op.read_bytes]
        delivered = _delivered(
            network.limits.storage.points, sum(_readers(network, settings, i) for i in reading)
        )
        ratios.append((delivered, sum(ops[i].visits * ops[i].read_bytes for i in reading)))
    ratios.append((1.0, network.consumer.step_s or 0.0))
    return min(capacity / load for capacity, load in ratios if load > 0)


def reading_rate(network: Network, settings: Settings) -> float:
    """What storage delivers to all that read, bytes/s; 0 where it is unknown."""
    if network.limits.storage is None:
        return 0.0
    busy = [
        i
        for i, op in enumerate(network.operators)
        if op.read_bytes and not any(_serves(network, settings, j, False) for j in network.path(i))
    ]
    return _delivered(network.limits.storage.points, sum(_readers(network, settings, i) for i in busy))


def _readers(network: Network, settings: Settings, i: int) -> int:
    """Threads that read at a time: the calls of i, or those of the interleaves around it, in all their instances."""
    around = [network.operators[j].parent or 0 for j in network.path(i) if network.operators[j].in_body]
    for n in ([] if network.operators[i].interleave else [i]) + around:
        if settings.choices[n].parallel:
            k = settings.choices[n].parallelism
            if network.operators[n].interleave:
                k = min(k, network.operators[n].cycle_length or 1)
            for j in network.path(n):
                if network.operators[j].in_body:
                    k *= network.operators[network.operators[j].parent or 0].cycle_length or 1
            return k
    return 1


def _delivered(points: tuple[tuple[float, float], ...], readers: float) -> float:
    """Bytes per second: linear between nothing and the points, level behind them."""
    before = (0.0, 0.0)
    for after in points:
        if readers <= after[0]:
            return before[1] + (after[1] - before[1]) * (readers - before[0]) / (after[0] - before[0])
        before = after
    return before[1]


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
        count += 2 * new.file_cache + new.unbounded
    return count + (settings.threadpool_size != network.current.threadpool_size)


def threads(settings: Settings) -> int:
    calls = sum(choice.parallelism for choice in settings.choices if choice.parallel)
    outside = sum(1 + choice.parallelism for choice in settings.choices if choice.unbounded)
    return calls + outside + sum(choice.prefetch for choice in settings.choices) + settings.threadpool_size


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
    #: Over all epochs.
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
        calls = [
            c.parallelism
            for c, f in zip(choices, follows, strict=True)
            if f and c.autotuned and not c.unbounded
        ]
        for pool in range(max(size, *calls, 1), max(size, k_max) + 1):
            settings = Settings(choices, pool)
            held = memory(network, settings)
            if held <= limit:
                x = mean_rate(network, settings)
                found.append(Found(settings, x, changes(network, settings), threads(settings), held))
    return found


def _in_pool(op: Operator) -> bool:
    return op.pooled and not op.unbounded and not op.interleave


def _legal(network: Network, choices: tuple[Choice, ...]) -> bool:
    """No new cache on a path that has another, and files fit onto the disk."""
    caches = [choice.cache or choice.file_cache for choice in choices]
    for i in range(len(choices)):
        for j in network.path(i)[1:]:
            news = [caches[n] and not network.current.choices[n].cache for n in (i, j)]
            if caches[i] and caches[j] and any(news):
                return False
    files = [
        op.file_cache_bytes or 0.0 for op, c in zip(network.operators, choices, strict=True) if c.file_cache
    ]
    return sum(files) <= network.limits.disk_free_bytes


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
    sizes = [now.prefetch_size]
    if op.may_prefetch and not idle and not now.prefetch:
        sizes += [prefetch_size(network, i)]
    caches = [(now.cache, False)]
    if op.may_cache and not cached and (network.epochs is None or network.epochs > 1):
        caches += [(True, False)] if op.cache_bytes is not None else []
        caches += [(False, True)] if op.file_cache_bytes is not None else []
    for choice, size, (in_memory, on_disk) in itertools.product(calls, sizes, caches):
        new = replace(choice, prefetch=size > 0, prefetch_size=size, cache=in_memory, file_cache=on_disk)
        yield new
        may_leave = op.may_unbounded and op.pooled and not op.unbounded and not cached and new.parallel
        # Outside of the pool AUTOTUNE goes as far as the cores.
        led = new.autotuned and new.parallelism > max(1, math.ceil(network.limits.cores))
        if may_leave and not led:
            yield replace(new, unbounded=True)
