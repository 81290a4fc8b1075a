"""Networks of known costs, for tests of the mathematics and for the solve-time benchmark."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from tensorboard_plugin_plumber.model.network import (
    Choice,
    Consumer,
    Limits,
    Network,
    Operator,
    Settings,
    StorageCurve,
)


def realistic(count: int, *, seed: int = 0) -> Network:
    """A badly configured pipeline of `count` operators: zipped branches of maps over interleaved readers.

    Every decision is open somewhere: sequential maps, caches below them, a pool that waiting maps fill.
    """
    rng = random.Random(seed)
    operators = [Operator(id="0", parent=None, label="batch", visits=1.0, cpu_s=2e-4, element_bytes=4e6)]
    branches = max(2, count // 12)
    branch_of_tail = [0] * branches
    while len(operators) < count:
        branch = len(operators) % branches
        tail = branch_of_tail[branch]
        depth = len(operators) // branches
        remaining = count - len(operators)
        interleave = remaining <= 2 * branches and remaining > branches
        cpu_s = 10 ** rng.uniform(-5.5, -2.5)
        wait_s = 10 ** rng.uniform(-4, -2) if rng.random() < 0.15 else 0.0
        below_random = depth >= 2
        operators.append(
            Operator(
                id=str(len(operators)),
                parent=tail,
                in_body=operators[tail].interleave,
                label=f"operator {len(operators)}",
                visits=32.0,
                cpu_s=cpu_s,
                wait_s=wait_s,
                variation=rng.choice([None, 0.2, 0.6, 1.0]),
                pooled=not interleave,
                cycle_length=4 if interleave else None,
                interleave=interleave,
                element_bytes=10 ** rng.uniform(4, 5.5),
                cache_bytes=10 ** rng.uniform(8.5, 11),
                may_cache=below_random and not operators[tail].interleave,
                may_parallel=interleave or rng.random() < 0.8,
                may_prefetch=not operators[tail].interleave,
            )
        )
        branch_of_tail[branch] = len(operators) - 1
    choices = tuple(Choice() for _ in operators)
    return Network(
        operators=tuple(operators),
        current=Settings((Choice(prefetch=True, prefetch_size=2), *choices[1:]), threadpool_size=16),
        limits=Limits(cores=16.0, memory_bytes=64e9, memory_free_bytes=24e9),
        consumer=Consumer(step_s=None, cpu_s=1e-3),
    )


def small(seed: int, *, k_max: int = 3) -> Network:
    """A random network of three to five operators: zips, interleaves, caches, every kind of bound."""
    rng = random.Random(seed)
    operators: list[Operator] = []
    choices: list[Choice] = []
    for i in range(rng.randint(3, 5)):
        parent = None if i == 0 else (i - 1 if rng.random() < 0.7 else rng.randrange(i))
        above = operators[parent] if parent is not None else None
        # An interleave takes one plain input; what else is below it is the body.
        in_body = above is not None and above.interleave and rng.random() < 0.7
        inside = in_body or any(operators[j].in_body for j in _above(operators, parent))
        interleave = i > 0 and rng.random() < 0.3
        length = rng.choice([1, 2, 3]) if interleave else None
        operators.append(
            Operator(
                id=str(i),
                parent=parent,
                in_body=in_body,
                visits=1.0 if above is None else above.visits * rng.choice([1, 1, 2, 8]),
                cpu_s=(1.0 if i == 0 else rng.choice([0.0, 1.0])) * 10 ** rng.uniform(-5, -2),
                wait_s=rng.choice([0.0, 0.0, 1.0]) * 10 ** rng.uniform(-4, -1),
                stretch=rng.choice([1.0, 1.3]),
                variation=rng.choice([None, 0.0, 0.5, 1.0]),
                pooled=not interleave and rng.random() < 0.6,
                unbounded=rng.random() < 0.1,
                gil_s=10 ** rng.uniform(-6, -3) if rng.random() < 0.15 else None,
                ordered=rng.random() < 0.7,
                batch_size=rng.choice([1, 1, 1, 2]),
                cycle_length=length,
                interleave=interleave,
                element_bytes=rng.choice([1.0, 10.0, 100.0]),
                cache_bytes=rng.choice([None, 50.0, 300.0, 2000.0]),
                may_cache=not inside and rng.random() < 0.5,
                may_parallel=rng.random() < 0.6,
                may_prefetch=not inside and rng.random() < 0.7,
            )
        )
        parallel = rng.random() < 0.3
        prefetch = rng.random() < 0.2
        choices.append(
            Choice(
                parallel=parallel,
                parallelism=rng.randint(1, min(k_max, length or k_max)) if parallel else 1,
                autotuned=parallel and rng.random() < 0.5,
                prefetch=prefetch,
                prefetch_size=2 if prefetch else 0,
                cache=not inside and rng.random() < 0.08,
            )
        )
    cores = rng.choice([1.0, 1.5, 2.0, 3.0])
    return Network(
        operators=tuple(operators),
        current=Settings(tuple(choices), threadpool_size=rng.randint(1, 3)),
        limits=Limits(
            cores=cores, memory_bytes=1e4, memory_free_bytes=rng.choice([0.0, 400.0, 1000.0, 5000.0])
        ),
        consumer=Consumer(
            step_s=rng.choice([None, 10 ** rng.uniform(-3, -1)]),
            turn_s=rng.choice([0.0, 10 ** rng.uniform(-4, -2)]),
            cpu_s=rng.choice([0.0, 1e-3]),
            other_cores=rng.choice([0.0, 0.3]),
        ),
    )


def rich(seed: int, *, k_max: int = 3, most: int = 600) -> Network:
    """`small`, with storage, file caches, functions that may leave the pool, and epochs; at most `most` choices."""
    rng = random.Random(f"rich {seed}")
    for attempt in itertools.count():
        network = small(10_000 * seed + attempt, k_max=k_max)
        leaves = [i for i in range(len(network.operators)) if not network.inputs[i] and not network.bodies[i]]
        operators = tuple(
            replace(
                operator,
                read_bytes=rng.choice([0.0, 1e4, 1e5]) if i in leaves else 0.0,
                may_unbounded=operator.pooled and rng.random() < 0.5,
                file_cache_bytes=rng.choice([None, 50.0, 500.0]),
                element_bytes=operator.element_bytes * rng.choice([1.0, 1.0, 1e5]),
            )
            for i, operator in enumerate(network.operators)
        )
        limits = replace(
            network.limits,
            memory_free_bytes=network.limits.memory_free_bytes * rng.choice([1.0, 1e5]),
            storage=rng.choice([None, concave(rng)]),
            disk_free_bytes=rng.choice([0.0, 100.0, 1000.0]),
        )
        found = replace(
            network, operators=operators, limits=limits, epochs=rng.choice([None, None, 1.0, 2.0, 5.0, 30.0])
        )
        if _choices(found) <= most:
            return found
    raise AssertionError("unreachable")


def playable(seed: int) -> Network:
    """A `rich` network that the simulation can run: in order, steady times, whole cores, sequential bodies."""
    for attempt in itertools.count():
        found = rich(1000 * (seed + 1) + attempt)
        cores = max(round(found.limits.cores), 1)
        operators, choices = [], []
        for i, (operator, choice) in enumerate(zip(found.operators, found.current.choices, strict=True)):
            inside = bool(found.enclosing[i])
            operators.append(
                replace(
                    operator,
                    stretch=1.0,
                    variation=None,
                    gil_s=None,
                    batch_size=1,
                    ordered=True,
                    may_parallel=operator.may_parallel and not inside,
                    may_prefetch=operator.may_prefetch and not inside,
                )
            )
            choices.append(Choice(cache=choice.cache) if inside else choice)
        step_s = found.consumer.step_s
        found = replace(
            found,
            operators=tuple(operators),
            current=replace(found.current, choices=tuple(choices)),
            limits=replace(found.limits, cores=float(cores)),
            consumer=Consumer(step_s=step_s, turn_s=step_s or 0.0),
            epochs=None,
        )
        if sum(operator.visits for operator in operators) <= 40:
            return found
    raise AssertionError("unreachable")


def concave(rng: random.Random) -> StorageCurve:
    """Storage that gives one reader some megabytes per second, and further readers less and less."""
    readers, rate, each = 1, 10 ** rng.uniform(6, 8), 1.0
    points = [(1.0, rate)]
    for _ in range(rng.randint(0, 2)):
        more = rng.choice([1, 2])
        each *= rng.uniform(0.2, 0.9)
        readers, rate = readers + more, rate + points[0][1] * each * more
        points.append((float(readers), rate))
    return StorageCurve(tuple(points))


def _choices(network: Network) -> int:
    """About how many settings there are."""
    count = 1
    for operator, choice in zip(network.operators, network.current.choices, strict=True):
        count *= 3 if operator.may_parallel or choice.autotuned else 1
        count *= 1 + operator.may_prefetch
        count *= (
            (1 + (operator.cache_bytes is not None) + (operator.file_cache_bytes is not None))
            if operator.may_cache
            else 1
        )
        count *= 1 + operator.may_unbounded
    return count


def _above(operators: list[Operator], position: int | None) -> list[int]:
    path = []
    while position is not None:
        path.append(position)
        position = operators[position].parent
    return path
