"""Fills a guarded file cache: `python -m tests.support.filling DIRECTORY RECORDS [OPTION…]`.

Prints the state and the numbers of each pass.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import tensorflow as tf

from tensorboard_plugin_plumber.rewrite import cache_stores
from tensorboard_plugin_plumber.rewrite.caches import FileCache, cached, statuses


def pipeline(records: str) -> tf.data.Dataset:
    """Elements of some 40 kB each."""
    return tf.data.TFRecordDataset(records).map(
        lambda record: {
            "number": tf.strings.to_number(record, tf.int64),
            "values": tf.fill([10_000], tf.strings.to_number(record, tf.float32)),
        }
    )


def main() -> None:
    """Prints `STATE …` at first and after each pass, `PASS …` with its numbers, and `ELEMENT …` where it is slow."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("records")
    parser.add_argument("--keep", action="store_true", help="leave it, and wait until it is complete")
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--slow", type=float, default=0.0, help="seconds between elements")
    given = parser.parse_args()
    cache_stores.SEGMENT_BYTES = 200_000
    dataset = cached(pipeline(given.records), FileCache(given.directory, 12_000_000, 1 << 20, given.keep))
    print("STATE", statuses(dataset)[0].state, flush=True)
    for _ in range(given.passes):
        seen = []
        for element in dataset:
            seen.append(int(element["number"]))
            if given.slow:
                print("ELEMENT", seen[-1], flush=True)
                time.sleep(given.slow)
        print("PASS", *seen, flush=True)
        print("STATE", statuses(dataset)[0].state, flush=True)
    if given.keep:
        while not list(Path(given.directory).rglob("complete.json")):
            time.sleep(0.05)


if __name__ == "__main__":
    main()
