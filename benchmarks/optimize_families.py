"""The pipelines that `optimize.py` measures: five after training workloads that people know, and some that wait.

Each is written as people write it, with the two settings that they tune by hand as arguments (`Tuning`). Nothing here
imports Plumber: the sides without it must not have it in their process.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

_MEAN = (123.675, 116.28, 103.53)
_DEVIATION = (58.395, 57.12, 57.375)
_CYCLE = 4
_TOKENS = 50
_LONGEST_SENTENCE = 100
#: Upper lengths of the buckets of sentences.
_BUCKETS = (8, 12, 16, 24, 32, 48, 64)
_TOKENS_PER_BATCH = 4096
_ENDLESS = 1 << 40


@dataclass(frozen=True)
class Tuning:
    """What is set by hand; None is left out, as in code that nobody tuned.

    Attributes:
      calls: num_parallel_calls wherever it can be said.
      prefetch: buffer size of a prefetch at the end.
      pool: private_threadpool_size.
    """

    calls: int | None = None
    prefetch: int | None = None
    pool: int | None = None


@dataclass(frozen=True)
class Family:
    """One pipeline.

    Attributes:
      what: in words.
      data: its data set, of `optimize_data.DATA_SETS`; None where it needs none.
      make: the dataset, from the folder of its data (for `http`: with the server's address) and a tuning.
      endless: it never ends; rates are those of a stretch of time, and there are no epochs.
      wait_s: how long each of its elements waits, seconds.
      batch: elements per step, where that is fixed.
    """

    what: str
    data: str | None
    make: Callable[[Path, Tuning], tf.data.Dataset]
    endless: bool = False
    wait_s: float = 0.0
    batch: int | None = None


def _finished(dataset: tf.data.Dataset, tuning: Tuning) -> tf.data.Dataset:
    if tuning.prefetch is not None:
        dataset = dataset.prefetch(tuning.prefetch)
    if tuning.pool is not None:
        options = tf.data.Options()
        options.threading.private_threadpool_size = tuning.pool
        dataset = dataset.with_options(options)
    return dataset


def _files(directory: Path, pattern: str = "*.tfrecord") -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(sorted(tf.io.gfile.glob(str(directory / pattern))))


def _records(directory: Path, tuning: Tuning) -> tf.data.Dataset:
    # No more calls than files read by turns, or TensorFlow refuses.
    calls = tuning.calls if tuning.calls is None else min(tuning.calls, _CYCLE)
    return _files(directory).interleave(
        tf.data.TFRecordDataset, cycle_length=_CYCLE, num_parallel_calls=calls
    )


def resnet(directory: Path, tuning: Tuning) -> tf.data.Dataset:
    """Images for a classifier: everything in one function, as most people write it."""

    def prepare(record: Any) -> Any:
        features = {
            "image": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64),
        }
        example = tf.io.parse_single_example(record, features)
        image = tf.io.decode_jpeg(example["image"], channels=3)
        image = tf.image.resize(image, [256, 256])
        image = tf.image.random_crop(image, [224, 224, 3])
        image = tf.image.random_flip_left_right(image)
        return (image - _MEAN) / _DEVIATION, example["label"]

    dataset = _records(directory, tuning).map(prepare, num_parallel_calls=tuning.calls)
    dataset = dataset.shuffle(256).batch(32, drop_remainder=True)
    return _finished(dataset, tuning)


_BOXED = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "boxes": tf.io.VarLenFeature(tf.float32),
    "classes": tf.io.VarLenFeature(tf.int64),
}


def _boxes_of(example: Mapping[str, Any]) -> tuple[Any, Any]:
    boxes = tf.reshape(tf.sparse.to_dense(example["boxes"]), [-1, 4])
    return boxes, tf.sparse.to_dense(example["classes"])


def rcnn(directory: Path, tuning: Tuning) -> tf.data.Dataset:
    """Large images with boxes, scaled into a canvas of their own orientation, in batches of one orientation."""

    def prepare(record: Any) -> Any:
        example = tf.io.parse_single_example(record, _BOXED)
        boxes, classes = _boxes_of(example)
        image = tf.io.decode_jpeg(example["image"], channels=3)
        sides = tf.shape(image)[:2]
        canvas = tf.where(sides[0] < sides[1], [416, 640], [640, 416])
        scale = tf.reduce_min(tf.cast(canvas, tf.float32) / tf.cast(sides, tf.float32))
        scaled = tf.cast(tf.cast(sides, tf.float32) * scale, tf.int32)
        image = (tf.image.resize(image, scaled) - _MEAN) / _DEVIATION
        image = tf.image.pad_to_bounding_box(image, 0, 0, canvas[0], canvas[1])
        boxes *= tf.tile(tf.cast(scaled, tf.float32) / tf.cast(canvas, tf.float32), [2])
        return {"image": image, "boxes": boxes, "classes": classes}

    def upright(example: Mapping[str, Any]) -> Any:
        sides = tf.shape(example["image"])
        return tf.cast(sides[0] > sides[1], tf.int64)

    dataset = _records(directory, tuning).map(prepare, num_parallel_calls=tuning.calls)
    dataset = dataset.group_by_window(
        upright, lambda _, window: window.padded_batch(4, drop_remainder=True), window_size=4
    )
    return _finished(dataset, tuning)


def ssd(directory: Path, tuning: Tuning) -> tf.data.Dataset:
    """Images with boxes: those without are left out, the others are cropped at random around theirs."""

    def decode(record: Any) -> Any:
        example = tf.io.parse_single_example(record, _BOXED)
        boxes, classes = _boxes_of(example)
        return tf.io.decode_jpeg(example["image"], channels=3), boxes, classes

    def crop(image: Any, boxes: Any, classes: Any) -> Any:
        begin, size, window = tf.image.sample_distorted_bounding_box(
            tf.shape(image), boxes[tf.newaxis], min_object_covered=0.3, area_range=[0.3, 1.0]
        )
        image = tf.ensure_shape(tf.slice(image, begin, size), [None, None, 3])
        image = (tf.image.resize(image, [300, 300]) - _MEAN) / _DEVIATION
        corner = window[0, 0, :2]
        boxes = (boxes - tf.tile(corner, [2])) / tf.tile(window[0, 0, 2:] - corner, [2])
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside = tf.reduce_all((centres > 0) & (centres < 1), axis=1)
        return image, tf.clip_by_value(boxes[inside], 0, 1), classes[inside]

    dataset = _records(directory, tuning).map(decode, num_parallel_calls=tuning.calls)
    dataset = dataset.filter(lambda image, boxes, classes: tf.size(classes) > 0)
    dataset = dataset.map(crop, num_parallel_calls=tuning.calls)
    return _finished(dataset.padded_batch(16, drop_remainder=True), tuning)


def transformer(directory: Path, tuning: Tuning) -> tf.data.Dataset:
    """Pairs of sentences, long ones left out, padded in batches of similar length and about as many tokens."""

    def parse(record: Any) -> Any:
        features = {"source": tf.io.VarLenFeature(tf.int64), "target": tf.io.VarLenFeature(tf.int64)}
        example = tf.io.parse_single_example(record, features)
        return tf.sparse.to_dense(example["source"]), tf.sparse.to_dense(example["target"])

    def length(source: Any, target: Any) -> Any:
        return tf.maximum(tf.size(source), tf.size(target))

    dataset = _records(directory, tuning).map(parse, num_parallel_calls=tuning.calls)
    dataset = dataset.filter(lambda source, target: length(source, target) <= _LONGEST_SENTENCE)
    sizes = [_TOKENS_PER_BATCH // longest for longest in (*_BUCKETS, _LONGEST_SENTENCE)]
    dataset = dataset.bucket_by_sequence_length(length, list(_BUCKETS), sizes)
    return _finished(dataset, tuning)


def gnmt(directory: Path, tuning: Tuning) -> tf.data.Dataset:
    """Pairs of sentences in records of fixed length."""

    def parse(record: Any) -> Any:
        tokens = tf.reshape(tf.io.decode_raw(record, tf.int32), [2, _TOKENS])
        lengths = tf.math.count_nonzero(tokens, axis=1, dtype=tf.int32)
        return {"source": tokens[0], "target": tokens[1], "lengths": lengths}

    files = sorted(tf.io.gfile.glob(str(directory / "*.bin")))
    dataset = tf.data.FixedLengthRecordDataset(files, record_bytes=2 * _TOKENS * 4)
    dataset = dataset.map(parse, num_parallel_calls=tuning.calls)
    return _finished(dataset.shuffle(10_000).batch(128, drop_remainder=True), tuning)


def waiting(seconds: float) -> Callable[[Path, Tuning], tf.data.Dataset]:
    """A function that does nothing but wait."""

    def wait(number: Any) -> Any:
        time.sleep(seconds)
        return number

    def call(number: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(wait, [number], tf.int64), [])

    def make(directory: Path, tuning: Tuning) -> tf.data.Dataset:
        dataset = tf.data.Dataset.range(_ENDLESS).map(call, num_parallel_calls=tuning.calls)
        return _finished(dataset.batch(_WAITING_BATCH), tuning)

    return make


def http(directory: Path, tuning: Tuning) -> tf.data.Dataset:
    """Objects from a server that answers after a while."""
    address = (directory / "address").read_text(encoding="utf-8").strip()

    def get(number: Any) -> bytes:
        with urllib.request.urlopen(f"http://{address}/object/{number}") as answer:
            return bytes(answer.read())

    def fetch(number: Any) -> Any:
        content = tf.ensure_shape(tf.numpy_function(get, [number], tf.string), [])
        return tf.reshape(tf.io.decode_raw(content, tf.float32), [-1])

    dataset = tf.data.Dataset.range(_ENDLESS).map(fetch, num_parallel_calls=tuning.calls)
    return _finished(dataset.padded_batch(_WAITING_BATCH), tuning)


def slow_files(directory: Path, tuning: Tuning) -> tf.data.Dataset:
    """Arrays in files each of which takes 10 ms to open, as on a network file system, read in Python."""

    def load(path: bytes) -> Any:
        time.sleep(_OPEN_S)
        return np.load(path.decode())

    def read(path: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(load, [path], tf.float32), [None, 128])

    dataset = _files(directory, "*.npy").repeat().map(read, num_parallel_calls=tuning.calls)
    return _finished(dataset.batch(_WAITING_BATCH), tuning)


_WAITING_BATCH = 16
_OPEN_S = 0.010
#: The server's delay, seconds.
HTTP_S = 0.020


def _waits(milliseconds: int) -> Family:
    seconds = milliseconds / 1000
    return Family(f"a wait of {milliseconds} ms", None, waiting(seconds), True, seconds, batch=_WAITING_BATCH)


FAMILIES: Mapping[str, Family] = {
    "resnet": Family("JPEG, crop and flip", "labelled-images", resnet, batch=32),
    "rcnn": Family("large images by orientation", "large-boxed-images", rcnn, batch=4),
    "ssd": Family("images cropped around boxes", "boxed-images", ssd, batch=16),
    "transformer": Family("sentences in buckets", "sentence-pairs", transformer),
    "gnmt": Family("fixed-length records", "fixed-length-pairs", gnmt, batch=128),
    "latency-5ms": _waits(5),
    "latency-20ms": _waits(20),
    "latency-50ms": _waits(50),
    "latency-http": Family("objects over HTTP", None, http, True, HTTP_S, batch=_WAITING_BATCH),
    "latency-files": Family("slow files", "arrays", slow_files, True, _OPEN_S, batch=_WAITING_BATCH),
}
