"""What a boundary costs: process CPU and wall time per element of the root, with less without.

    python -m benchmarks.boundary [--elements 5000] [--pairs 15]

The same loop runs with and without, in turns, in one process; the elements are scalars, so the
difference is the boundary's own. Printed are medians over the pairs, and their quartiles.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from tensorboard_plugin_plumber.capture import hidden


@dataclass(frozen=True)
class Case:
    """A loop, as it runs without a boundary and with one.

    Attributes:
      name: of the way of iterating.
      without, within: run through the dataset once.
    """

    name: str
    without: Callable[[], object]
    within: Callable[[], object]


def listening(run: Callable[[], object]) -> Callable[[], object]:
    """The same run while somebody listens, as a session does."""

    def within() -> object:
        stop = hidden.listen(lambda one: None)
        try:
            return run()
        finally:
            stop()

    return within


def cases(elements: int) -> list[Case]:
    """The ways of iterating that need a boundary."""
    dataset = tf.data.Dataset.range(elements).map(lambda x: x + 1)

    def reduce() -> object:
        return dataset.reduce(np.int64(0), lambda total, x: total + x)

    def loop() -> tf.Tensor:
        total = tf.constant(0, tf.int64)
        for x in dataset:
            total += x
        return total

    plain, seen = tf.function(loop), tf.function(loop)
    plain()
    listening(seen)()
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")

    def distributed() -> int:
        return sum(1 for _ in strategy.experimental_distribute_dataset(dataset))

    return [
        Case("dataset.reduce", reduce, listening(reduce)),
        Case("for x in dataset, in a tf.function", plain, listening(seen)),
        Case("OneDeviceStrategy", distributed, listening(distributed)),
    ]


def cost_us(run: Callable[[], object], elements: int) -> tuple[float, float]:
    """CPU and wall time of one run, µs per element."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    run()
    return (
        (time.process_time() - cpu_s) / elements * 1e6,
        (time.perf_counter() - wall_s) / elements * 1e6,
    )


def measure(case: Case, elements: int, pairs: int) -> str:
    """A line of the table."""
    case.without()
    case.within()
    rows = [(cost_us(case.without, elements), cost_us(case.within, elements)) for _ in range(pairs)]
    words = [f"{case.name:36}"]
    for index in range(2):
        differences = [within[index] - without[index] for without, within in rows]
        low, middle, high = statistics.quantiles(differences, n=4)
        base = statistics.median(without[index] for without, _ in rows)
        words.append(f"{base:8.1f} {middle:+8.1f} [{low:+.1f}, {high:+.1f}]".ljust(36))
    return "".join(words)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=5000)
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    print(f"{'µs per element':36}{'CPU: without, boundary adds':36}wall: without, boundary adds")
    for case in cases(arguments.elements):
        print(measure(case, arguments.elements, arguments.pairs), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
