"""How long the optimum of a pipeline of 30 operators takes, from built inputs to a plan.

    python -m benchmarks.solve_time [--operators 30 300] [--networks 15]

All stages of the objective, the upper bound included. The first solve of a process also imports
the solver; it is reported apart.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass

from benchmarks.report import Interval, Machine, bootstrap, table
from tensorboard_plugin_plumber.model.network import Choice, Consumer, Limits, Network, Operator, Settings
from tensorboard_plugin_plumber.model.optimum import optimise


@dataclass(frozen=True)
class SolveTime:
    """Seconds per solve."""

    operators: int
    solves: int
    first_s: float
    median_s: Interval
    worst_s: float


def network(operators: int, seed: int) -> Network:
    """A random tree of `operators`: a chain with one zip and one interleave, a third of it costly."""
    rng = random.Random(seed)
    joint, reader = operators // 3, operators - 4
    nodes: list[Operator] = []
    for position in range(operators):
        parent = position - 1 if position else None
        if position == operators // 2:
            # The zip's other branch begins here.
            parent = joint
        costly = rng.random() < 1 / 3
        interleave = position == reader
        nodes.append(
            Operator(
                id=f"op{position}",
                parent=parent,
                in_body=position == reader + 1,
                label=f"operator {position}",
                visits=1.0 if position < 3 else 32.0,
                cpu_s=rng.uniform(1e-4, 4e-3) if costly else rng.uniform(1e-7, 1e-5),
                wait_s=rng.uniform(1e-3, 1e-2) if costly and rng.random() < 0.2 else 0.0,
                pooled=costly,
                interleave=interleave,
                cycle_length=4 if interleave else None,
                element_bytes=rng.uniform(1e3, 1e6),
                cache_bytes=rng.uniform(1e7, 1e10),
                may_cache=not interleave and rng.random() < 0.7,
                may_parallel=costly or interleave,
            )
        )
    choices = tuple(Choice(prefetch=position == 0, prefetch_size=2) for position in range(operators))
    limits = Limits(cores=8, memory_bytes=64e9, memory_free_bytes=20e9)
    return Network(tuple(nodes), Settings(choices, threadpool_size=8), limits, Consumer(step_s=5e-3))


def measure(operators: int = 30, networks: int = 15) -> SolveTime:
    """Solves each of `networks` random networks once, after one for the first."""
    times = []
    for seed in range(networks + 1):
        problem = network(operators, seed)
        start = time.perf_counter()
        optimise(problem)
        times.append(time.perf_counter() - start)
    first, *later = times
    return SolveTime(operators, len(later), first, bootstrap(later), max(later))


def describe(solve: SolveTime) -> str:
    return table(
        [f"solve, {solve.operators} operators", "seconds"],
        [
            ["first, with the import of the solver", f"{solve.first_s:.3f}"],
            [f"later, median of {solve.solves} (95 %)", solve.median_s],
            ["later, worst", f"{solve.worst_s:.3f}"],
        ],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--operators", type=int, nargs="+", default=[30, 300])
    parser.add_argument("--networks", type=int, default=15)
    options = parser.parse_args()
    print(Machine.here())
    for operators in options.operators:
        print(f"\n{describe(measure(operators, options.networks))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
