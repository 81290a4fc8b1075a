"""What a cut through one function gains: decode and augment in one map, and the same cut in two with a cache between.

python -m benchmarks.splitting [--scale 0.4] [--seconds 30] [--json numbers.json]

The pipeline is written with AUTOTUNE everywhere, shuffles its records, and is measured by turns with the versions that
were cut, their caches full. Each cut is proven before it runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks import optimize_data
from benchmarks.report import Machine, table
from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.rewrite.race import race
from tensorboard_plugin_plumber.rewrite.rebuild import copied
from tensorboard_plugin_plumber.rewrite.split import Split, applied, candidates, prove_split

_BATCH = 32
_PROVEN = 16


@dataclass(frozen=True)
class Row:
    """One version of a pipeline.

    Attributes:
      pipeline, version: what was measured.
      rate: batches/s.
      ratio, low, high: of the rate to that of the pipeline as written, with a 95 % interval.
      kilobytes: that one element holds in the cache; None without one.
      found_s, proven_s: how long it took to find all cuts of the pipeline, and to prove this one.
    """

    pipeline: str
    version: str
    rate: float
    ratio: float
    low: float
    high: float
    kilobytes: float | None = None
    found_s: float | None = None
    proven_s: float | None = None


def _photographed(record: Any) -> Any:
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    return tf.io.decode_jpeg(example["image"], channels=3), example["label"]


def classifier(record: Any) -> Any:
    """Resize, crop and flip at random, normalise."""
    image, label = _photographed(record)
    image = tf.image.random_crop(tf.image.resize(image, (256, 256)), (224, 224, 3))
    return tf.image.random_flip_left_right(image) / 127.5 - 1.0, label


def jittered(record: Any) -> Any:
    """The colours change at random too, which nothing can save."""
    image, label = classifier(record)
    return tf.image.random_saturation(tf.image.random_brightness(image, 0.2), 0.8, 1.2), label


def enlarged(record: Any) -> Any:
    """Nothing is random; a cast makes the element four times as large."""
    image, label = _photographed(record)
    image = tf.cast(tf.image.resize(image, (224, 224), "bicubic", antialias=True), tf.uint8)
    return tf.cast(image, tf.float32) / 255.0, label


FUNCTIONS: tuple[Callable[[Any], Any], ...] = (classifier, jittered, enlarged)


def pipeline(folder: Path, function: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The map, and the pipeline around it; all that can be left to AUTOTUNE is."""
    records = tf.data.TFRecordDataset(sorted(map(str, folder.glob("*.tfrecord"))))
    mapped = records.shuffle(512, seed=1).map(function, num_parallel_calls=tf.data.AUTOTUNE)
    return mapped, mapped.batch(_BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def measure(folder: Path, function: Callable[[Any], Any], seconds: float) -> list[Row]:
    """The rates of a pipeline as written and of all its cuts.

    Raises:
      SystemExit: a cut does not pass its proof.
    """
    name = function.__name__
    mapped, whole = pipeline(folder, function)
    began_s = time.perf_counter()
    (found,) = [one for one in candidates(whole) if one.map_dataset is mapped]
    found_s = time.perf_counter() - began_s
    if not found.splits:
        raise SystemExit(f"{name}: {found.refused}")
    proven_s = []
    for split in found.splits:
        began_s = time.perf_counter()
        proof = prove_split(split, mapped, _PROVEN)
        proven_s.append(time.perf_counter() - began_s)
        if not proof.same:
            raise SystemExit(f"{name}: {proof.reason}")

    def cut(split: Split) -> Any:
        halves = applied(
            split,
            mapped,
            mapped._input_dataset,
            between=lambda first: first.cache(),
            through=found.through,
            pipeline=whole,
        )
        return halves.batch(_BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    versions = [copied(whole), *map(cut, found.splits)]
    measured = race(versions, budget_s=seconds, fill_s=seconds)
    rows = [Row(name, "as written", measured.rates[0], 1.0, 1.0, 1.0)]
    for index, split in enumerate(found.splits, start=1):
        ratio = measured.ratios[index]
        held = split.crossing_bytes / 1000
        share = split.first_seconds / split.deterministic_seconds
        version = f"cut, {share:.0%} of what is the same before it"
        rate = measured.rates[index]
        rows.append(
            Row(name, version, rate, ratio.value, ratio.low, ratio.high, held, found_s, proven_s[index - 1])
        )
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Prints a row for each version."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.4, help="share of the images of `optimize_data`")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each function")
    parser.add_argument("--only", default="", help="names of functions, with commas between")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    options = parser.parse_args(arguments)
    construction.install()
    folder = optimize_data.prepare("labelled-images", options.scale)
    chosen = [one for one in FUNCTIONS if not options.only or one.__name__ in options.only.split(",")]
    rows = [row for one in chosen for row in measure(folder, one, options.seconds)]
    print(Machine.here())
    print(table(["function", "version", "batches/s", "ratio", "kB per element", "found, s", "proven, s"], [
        [
            row.pipeline,
            row.version,
            f"{row.rate:.1f}",
            f"{row.ratio:.2f} ({row.low:.2f} to {row.high:.2f})",
            *("" if one is None else f"{one:.{digits}f}" for one, digits in (
                (row.kilobytes, 0), (row.found_s, 2), (row.proven_s, 2))),
        ]
        for row in rows
    ]))  # fmt: skip
    if options.json:
        numbers = {"machine": asdict(Machine.here()), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
