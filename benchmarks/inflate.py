"""How fast TensorFlow's readers inflate: core time of reading compressed records over reading plain ones.

python -m benchmarks.inflate [--repeats 5]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.report import Machine, table

RECORDS, RECORD_BYTES = 64, 1 << 20


@dataclass(frozen=True)
class Inflating:
    """What one kind of content costs: inflated bytes per core second beyond plain reading, the repeats' median."""

    content: str
    compression: str
    ratio: float
    bytes_per_s: float
    lowest: float
    highest: float


def contents() -> dict[str, bytes]:
    """Records of several entropies, from a fixed seed."""
    rng = np.random.default_rng(0)
    rounded = np.round(rng.normal(size=RECORD_BYTES // 4), 1).astype(np.float32)
    words = np.array([f"token{v} " for v in range(4000)])
    text = "".join(words[rng.zipf(1.3, RECORD_BYTES // 6) % 4000]).encode()[:RECORD_BYTES]
    return {
        "noise": rng.integers(0, 256, RECORD_BYTES, np.uint8).tobytes(),
        "rounded floats": rounded.tobytes(),
        "text": text,
    }


def _core_s(path: str, compression: str) -> float:
    """Core seconds of one pass over a file."""
    dataset = tf.data.TFRecordDataset(path, compression_type=compression)
    began = time.process_time()
    for _ in dataset:
        pass
    return time.process_time() - began


def measure(repeats: int) -> list[Inflating]:
    """Each content with each compression, interleaved with plain reading."""
    found = []
    with tempfile.TemporaryDirectory(prefix="plumber-inflate-") as folder:
        for name, record in contents().items():
            paths = {}
            for compression in ("", "GZIP", "ZLIB"):
                paths[compression] = str(Path(folder) / f"{len(paths)}.tfrecord")
                with tf.io.TFRecordWriter(paths[compression], options=compression) as writer:
                    for _ in range(RECORDS):
                        writer.write(record)
                _core_s(paths[compression], compression)  # first calls, page cache
            for compression in ("GZIP", "ZLIB"):
                rates = []
                for _ in range(repeats):
                    plain, packed = _core_s(paths[""], ""), _core_s(paths[compression], compression)
                    rates.append(RECORDS * len(record) / max(packed - plain, 1e-9))
                sizes = [Path(paths[one]).stat().st_size for one in ("", compression)]
                found.append(
                    Inflating(
                        name,
                        compression,
                        sizes[0] / sizes[1],
                        statistics.median(rates),
                        min(rates),
                        max(rates),
                    )
                )
    return found


def describe(found: list[Inflating]) -> str:
    rows = [
        [
            one.content,
            one.compression,
            f"{one.ratio:.2f}",
            f"{one.bytes_per_s / 1e6:.0f}",
            f"{one.lowest / 1e6:.0f} to {one.highest / 1e6:.0f}",
        ]
        for one in found
    ]
    return table(["content", "compression", "ratio", "inflated MB per core s", "of repeats"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"{Machine.here()}\n\n{describe(measure(options.repeats))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
