"""What the table's pipelines are made of: functions of one kind of cost each, and small files."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.ground_truth import python_burn

#: Bytes of an element that is large enough to count.
LARGE_BYTES = 100_000


def numbers(count: int = 1_000_000_000) -> tf.data.Dataset:
    """Integers, which cost nothing to make."""
    return tf.data.Dataset.range(count)


def work(x: tf.Tensor) -> tf.Tensor:
    """Some ms of a core in TensorFlow's operations, the same for the same x, which it gives back."""
    image = tf.fill([320, 320, 3], tf.cast(x % 256, tf.uint8))
    return x + tf.cast(tf.strings.length(tf.io.encode_jpeg(image)) * 0, x.dtype)


def drawing(x: tf.Tensor) -> tf.Tensor:
    """The same work, and a random number: TensorFlow leaves it sequential."""
    return work(x) + tf.cast(tf.random.uniform([]) * 100, x.dtype)


def tiny(x: tf.Tensor) -> tf.Tensor:
    """Next to nothing."""
    return x * 2 + 1


def large(x: tf.Tensor) -> tf.Tensor:
    """LARGE_BYTES in one element, cheap to make."""
    return tf.fill([LARGE_BYTES], tf.cast(x % 256, tf.uint8))


def in_python(name: str, do: Callable[[Any], None]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Identity that runs `do` in Python for each element."""

    def call(value: Any) -> Any:
        do(value)
        return value

    def function(x: tf.Tensor) -> tf.Tensor:
        result = tf.numpy_function(call, [x], x.dtype)
        result.set_shape(x.shape)
        return result

    function.__name__ = function.__qualname__ = name
    return function


def waits(seconds: float) -> Callable[[tf.Tensor], tf.Tensor]:
    """Identity that waits, as a read from slow storage does."""
    return in_python("waits", lambda _: time.sleep(seconds))


def computes(seconds: float) -> Callable[[tf.Tensor], tf.Tensor]:
    """Identity that computes in Python, holding the interpreter's lock."""
    return in_python("computes", lambda _: python_burn(seconds))


def cheap() -> Callable[[tf.Tensor], tf.Tensor]:
    """Identity in Python, which costs its call."""
    return in_python("cheap", lambda _: None)


def straggles() -> Callable[[tf.Tensor], tf.Tensor]:
    """Identity that waits 4 ms, and 80 ms each sixteenth time."""
    return in_python("straggles", lambda x: time.sleep(0.08 if x % 16 == 0 else 0.004))


@functools.cache
def folder() -> Path:
    """Where the files below lie, for as long as the process lives."""
    made = tempfile.TemporaryDirectory(prefix="plumber-findings-")
    _KEPT.append(made)
    return Path(made.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def _records(name: str, contents: list[bytes], compression: str = "") -> str:
    path = str(folder() / name)
    with tf.io.TFRecordWriter(path, compression) as writer:
        for content in contents:
            writer.write(content)
    return path


@functools.cache
def record_files(compression: str = "", count: int = 4) -> list[str]:
    """TFRecord files of LARGE_BYTES records that compress well."""
    block = np.arange(LARGE_BYTES, dtype=np.uint8) // 7
    return [
        _records(f"{compression or 'plain'}-{count}-{i}.tfrecord", [block.tobytes()] * 40, compression)
        for i in range(count)
    ]


@functools.cache
def large_record_file(record_bytes: int = 10 * LARGE_BYTES) -> str:
    """One TFRecord file of 32 records of 1 MB."""
    return _records(f"large-{record_bytes}.tfrecord", [bytes(record_bytes)] * 32)


@functools.cache
def number_file(name: str = "numbers") -> str:
    """One TFRecord file of 400 short records."""
    return _records(f"{name}.tfrecord", [str(i % 12).encode() for i in range(400)])


@functools.cache
def jpeg_file() -> str:
    """One TFRecord file of photographs, as far as noise is one."""
    rng = np.random.default_rng(0)
    images = []
    for _ in range(8):
        noise = rng.integers(0, 256, (60, 80, 3)).astype(np.float32)
        smooth = tf.image.resize(noise, (480, 640), "bicubic")
        images.append(tf.io.encode_jpeg(tf.saturate_cast(smooth, tf.uint8), quality=95).numpy())
    return _records("jpegs.tfrecord", images)


@functools.cache
def small_files(count: int) -> list[str]:
    """Files of 2 kB."""
    paths = []
    for i in range(count):
        path = folder() / f"small-{count}-{i}"
        path.write_bytes(bytes(2000))
        paths.append(str(path))
    return paths


@functools.cache
def packed_file(count: int) -> str:
    """What `small_files` hold, in one TFRecord file."""
    return _records(f"packed-{count}.tfrecord", [Path(path).read_bytes() for path in small_files(count)])
