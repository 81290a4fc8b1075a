"""Networks of known costs, for tests of the mathematics and for the solve-time benchmark."""

from __future__ import annotations

import random

from tensorboard_plugin_plumber.model.network import Choice, Consumer, Limits, Network, Operator, Settings


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
