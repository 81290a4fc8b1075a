"""What decoding a part of a JPEG costs, as a share of decoding it whole.

python -m benchmarks.decoding [--repeats 25]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from benchmarks.report import table

#: Height, width, quality, and pixels to a detail.
IMAGES = ((256, 256, 90, 8), (480, 640, 95, 8), (480, 640, 85, 4), (1080, 1920, 90, 8))
#: Where a window of a quarter of each side begins: share of the height that may stand above it.
PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)
RATIOS = (2, 4, 8)


def photograph(height: int, width: int, quality: int, detail: int) -> tf.Tensor:
    """A packed image with details of so many pixels, from a fixed seed."""
    noise = np.random.default_rng(0).integers(0, 256, (height // detail, width // detail, 3))
    smooth = tf.image.resize(noise.astype(np.float32), (height, width), "bicubic")
    return tf.io.encode_jpeg(tf.saturate_cast(smooth, tf.uint8), quality=quality)


def core_s(work: Callable[[], object], repeats: int) -> float:
    """Median core seconds of the calling thread."""

    def once() -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    return statistics.median(once() for _ in range(repeats))


def main(arguments: list[str] | None = None) -> int:
    """Prints a row for each image."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=25)
    repeats = parser.parse_args(arguments).repeats
    rows = []
    for height, width, quality, detail in IMAGES:
        packed = photograph(height, width, quality, detail)
        whole = core_s(lambda packed=packed: tf.io.decode_jpeg(packed), repeats)
        cut = (height // 4, width // 4)
        windows = [[int((height - cut[0]) * place), width // 3, *cut] for place in PLACES]
        cropped = [
            core_s(lambda window=window, packed=packed: tf.io.decode_and_crop_jpeg(packed, window), repeats)
            for window in windows
        ]
        scaled = [
            core_s(lambda ratio=ratio, packed=packed: tf.io.decode_jpeg(packed, ratio=ratio), repeats)
            for ratio in RATIOS
        ]
        rows.append(
            [
                f"{width} x {height}, quality {quality}",
                f"{whole * 1e3:.2f} ms",
                " ".join(f"{one / whole:.2f}" for one in cropped),
                " ".join(f"{one / whole:.2f}" for one in scaled),
            ]
        )
    print(table(["image", "whole", "window from top to bottom", "ratio 2, 4, 8"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
