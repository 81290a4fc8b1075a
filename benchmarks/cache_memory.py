"""What a memory cache holds beside its tensors' bytes: `python benchmarks/cache_memory.py`.

Each case fills a cache in a process of its own and compares the growth of resident memory with the bytes that
TensorFlow counts. `model/sizes.py` takes its `CACHE_TENSOR_BYTES` from here.
"""

from __future__ import annotations

import subprocess
import sys

#: Name -> (elements, tensors per element, values of a tensor).
CASES = {
    "int64 scalar": (200_000, 1, 1),
    "3 int64 scalars": (200_000, 3, 1),
    "vector of 16": (200_000, 1, 16),
    "3 vectors of 16": (100_000, 3, 16),
    "vector of 1,000": (20_000, 1, 1000),
    "vector of 24,000": (1000, 1, 24_000),
}


def measure(name: str) -> None:
    """Fills one cache and prints bytes of memory per tensor beyond its content."""
    import psutil
    import tensorflow as tf

    elements, tensors, values = CASES[name]

    def make(one: tf.Tensor) -> dict[str, tf.Tensor]:
        shape = [] if values == 1 else [values]
        return {str(i): tf.fill(shape, one) for i in range(tensors)}

    def fill(count: int) -> int:
        dataset = tf.data.Dataset.range(count).map(make).cache()
        before = psutil.Process().memory_info().rss
        for _ in dataset:
            pass
        grown = psutil.Process().memory_info().rss - before
        del dataset
        return int(grown)

    fill(100)  # what TensorFlow allocates once
    beside = fill(elements) / elements - tensors * values * 8
    print(f"{name:20} {elements:8,} elements: {beside / tensors:7.0f} B per tensor beside its bytes")


def main() -> None:
    """Runs every case in a process of its own."""
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    for name in CASES:
        subprocess.run([sys.executable, __file__, name], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
