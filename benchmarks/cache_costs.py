"""What caches cost: `python benchmarks/cache_costs.py [DIRECTORY]`.

Passes are drawn in C++ (a skip), so that what is measured is the cache's own: core time per element and per byte of
TensorFlow's caches and of the guarded ones of `rewrite/caches.py`, in memory and in files, filling and served. What
the input and the skip cost alone is taken off. `model/network.py` takes its constants from here.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.rewrite.caches import FileCache, MemoryCache, cached

#: Name -> (elements, bytes of each).
SIZES = {"8 B": (50_000, 8), "150 kB": (2_000, 150_000), "5 MB": (100, 5_000_000)}
_REPEATS = 3


def elements(count: int, size: int) -> tf.data.Dataset:
    """Tensors of their own."""
    return tf.data.Dataset.range(count).map(lambda i: tf.fill([size], tf.cast(i, tf.uint8)))


def drawn(dataset: tf.data.Dataset) -> tuple[float, float]:
    """Core time and time of one pass, seconds."""
    nothing = dataset.skip(dataset.cardinality())
    core_s, clock_s = time.process_time(), time.perf_counter()
    for _ in nothing:
        pass
    return time.process_time() - core_s, time.perf_counter() - clock_s


def line(name: str, count: int, size: int, times: tuple[float, float], alone: tuple[float, float]) -> None:
    """One row of the table."""
    core_s, clock_s = (max(0.0, one - other) for one, other in zip(times, alone, strict=True))
    gigabytes = count * size / 1e9
    print(
        f"{name:34} {core_s / count * 1e6:9.2f} µs of a core an element"
        + (
            f", {core_s / gigabytes:6.3f} core-s/GB, {gigabytes / max(clock_s, 1e-9) * 1e3:8.0f} MB/s"
            if size > 1000
            else ""
        ),
        flush=True,
    )


def measure(name: str, make: Callable[[tf.data.Dataset], Any], count: int, size: int) -> None:
    """Fills a cache and reads it."""
    given = elements(count, size)
    alone = min(drawn(given) for _ in range(_REPEATS))
    # What TensorFlow does once is done before.
    warm = make(elements(2, size))
    drawn(warm)
    drawn(warm)
    dataset = make(given)
    line(f"{name}, filling", count, size, drawn(dataset), alone)
    served = min(drawn(dataset) for _ in range(_REPEATS))
    line(f"{name}, served", count, size, served, (0.0, 0.0))


def main() -> None:
    """Runs all cases."""
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    for label, (count, size) in SIZES.items():
        print(f"{count:,} elements of {label}")
        measure("memory, TensorFlow's", lambda one: one.cache(), count, size)
        measure("memory, guarded", lambda one: cached(one, MemoryCache(8 << 30)), count, size)
        if size < 1000:
            continue
        with tempfile.TemporaryDirectory(dir=parent) as directory:
            numbers = iter(range(1000))
            measure(
                "files, TensorFlow's",
                lambda one, d=directory, n=numbers: one.cache(f"{d}/{next(n)}"),  # type: ignore[misc]
                count,
                size,
            )
            measure(
                "files, guarded",
                lambda one, d=directory: cached(one, FileCache(d, 4 << 30, 1 << 20)),  # type: ignore[misc]
                count,
                size,
            )
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
