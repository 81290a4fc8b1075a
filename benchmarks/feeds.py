"""Five pipelines on which the cost of recording is measured, with data made from a seed.

Nothing here imports Plumber: the side without it must not have it in its process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

_SEED = 7
_PARALLEL = 2


@dataclass(frozen=True)
class Feed:
    """One pipeline.

    Attributes:
      what: in words.
      make: the endless dataset, from a folder for its data.
    """

    what: str
    make: Callable[[Path], tf.data.Dataset]


def tiny_elements(directory: Path) -> tf.data.Dataset:
    """Single numbers: all that there is, is what a call costs."""
    dataset = tf.data.Dataset.range(1000).shuffle(100, seed=_SEED).repeat()
    dataset = dataset.map(lambda x: x + 1)
    return dataset.filter(lambda x: x % 8 > 0).take(10**12).prefetch(16)


def jpeg(directory: Path) -> tf.data.Dataset:
    """Small photographs, decoded, scaled, and in batches of 8."""
    for index, image in enumerate(_images(48)):
        tf.io.write_file(str(directory / f"{index:03}.jpg"), tf.io.encode_jpeg(image, quality=90))

    def decode(path: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(image, [128, 128]) / 255.0

    dataset = tf.data.Dataset.list_files(str(directory / "*.jpg"), seed=_SEED).repeat()
    return dataset.map(decode, num_parallel_calls=_PARALLEL).batch(8).prefetch(2)


def text(directory: Path) -> tf.data.Dataset:
    """Lines of words, split and hashed, in batches of 64 that are padded."""
    rng = np.random.default_rng(_SEED)
    words = [f"w{number:x}" for number in rng.integers(0, 1 << 20, 5000)]
    lines = [" ".join(rng.choice(words, rng.integers(5, 40))) for _ in range(4000)]
    (directory / "lines.txt").write_text("\n".join(lines), encoding="utf-8")

    def split(line: Any) -> Any:
        return tf.strings.to_hash_bucket_fast(tf.strings.split(line), 1 << 16)

    dataset = tf.data.TextLineDataset(str(directory / "lines.txt")).repeat().shuffle(500, seed=_SEED)
    return dataset.map(split, num_parallel_calls=_PARALLEL).padded_batch(64).prefetch(2)


def many_files(directory: Path) -> tf.data.Dataset:
    """200 files of 20 records, 8 read by turns: operators come and go all the time."""
    rng = np.random.default_rng(_SEED)
    for file in range(200):
        with tf.io.TFRecordWriter(str(directory / f"{file:03}.tfrecord")) as writer:
            for _ in range(20):
                writer.write(rng.random(512, dtype=np.float32).tobytes())

    def parse(record: Any) -> Any:
        return tf.reduce_mean(tf.reshape(tf.io.decode_raw(record, tf.float32), [16, 32]), axis=0)

    files = tf.data.Dataset.list_files(str(directory / "*.tfrecord"), seed=_SEED).repeat()
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=_PARALLEL)
    return dataset.map(parse, num_parallel_calls=_PARALLEL).batch(32).prefetch(2)


def python_function(directory: Path) -> tf.data.Dataset:
    """A function in Python on every element, in batches of 8."""

    def normalise(x: Any) -> Any:
        values = np.sort((np.arange(2000, dtype=np.float32) * (x + 1)) % 97)
        return np.float32((values - values.mean()) / values.std())

    def call(x: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(normalise, [x], tf.float32), [2000])

    return tf.data.Dataset.range(1000).repeat().map(call).batch(8).prefetch(2)


FEEDS: Mapping[str, Feed] = {
    "tiny": Feed("tiny elements", tiny_elements),
    "jpeg": Feed("JPEG", jpeg),
    "text": Feed("text", text),
    "files": Feed("interleave of many files", many_files),
    "python": Feed("Python function", python_function),
}


def make(name: str) -> tf.data.Dataset:
    """One of `FEEDS`, its data in a temporary folder of its own."""
    return FEEDS[name].make(Path(tempfile.mkdtemp(prefix="plumber-feed-")))


def _images(count: int) -> list[Any]:
    """Smooth random colours, 200 × 300."""
    rng = np.random.default_rng(_SEED)
    coarse = rng.integers(0, 255, (count, 14, 20, 3)).astype(np.float32)
    fine = tf.image.resize(coarse, [200, 300], method="bicubic")
    return list(tf.cast(tf.clip_by_value(fine, 0, 255), tf.uint8))
