"""The table: one row for each finding, or more where it has several forms."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.support.findings.costs import (
    LARGE_BYTES,
    cheap,
    computes,
    drawing,
    jpeg_file,
    large,
    large_record_file,
    number_file,
    numbers,
    record_files,
    small_files,
    straggles,
    tiny,
    waits,
    work,
)
from tests.support.findings.table import SPELLINGS, Row, Run, Why, row

NEW_EACH_CALL = Why(
    "a memory cache in a function's body is made anew by each call: it keeps nothing between epochs"
)
WHOLE = Why("it speaks of the whole pipeline, however that is built")
MANY_CORES = Run(cores=64)


def pool(size: int) -> Run:
    """With a private pool."""

    def options(given: tf.data.Options) -> None:
        given.threading.private_threadpool_size = size

    return Run(options=options)


def _no_prefetch(options: tf.data.Options) -> None:
    options.experimental_optimization.inject_prefetch = False


def _no_autotune(options: tf.data.Options) -> None:
    options.autotune.enabled = False


def _small_budget(options: tf.data.Options) -> None:
    options.autotune.cpu_budget = 1


# Calls that could run side by side.

PARALLELISM: list[Row] = [
    row(
        "sequential-map",
        lambda: numbers().map(waits(0.004)),
        lambda: numbers().map(waits(0.004), num_parallel_calls=2).map(cheap()),
    ),
    row(
        "sequential-map",
        lambda: numbers().map(drawing),
        lambda: numbers().map(work, num_parallel_calls=2).map(tiny),
        name="native",
        run=MANY_CORES,
    ),
    row(
        "no-prefetch",
        lambda: numbers().map(waits(0.004)),
        lambda: numbers().map(waits(0.004)),
        run=Run(options=_no_prefetch, consumer_rate=250),
        run_near_miss=Run(consumer_rate=250),
    ),
    row(
        "python-function",
        lambda: numbers().map(computes(0.003)),
        lambda: numbers().map(drawing).map(cheap()),
        gain=(),
    ),
    row(
        "python-function",
        lambda: numbers().map(waits(0.01), num_parallel_calls=2),
        lambda: numbers().map(drawing).map(cheap()),
        name="waits",
    ),
    row(
        "pool-limited",
        lambda: numbers().map(waits(0.02), num_parallel_calls=16),
        lambda: numbers().map(waits(0.02), num_parallel_calls=4),
        run=pool(2),
        run_near_miss=pool(16),
    ),
    row(
        "ordered-stragglers",
        lambda: numbers().map(straggles(), num_parallel_calls=8),
        lambda: numbers().map(straggles(), num_parallel_calls=8, deterministic=False),
        run=Run(seconds=2.5, options=pool(16).options),
        quiet=SPELLINGS,
    ),
]


# How files are read.


def _read(path: tf.Tensor) -> tf.Tensor:
    return waits(0.005)(tf.io.read_file(path))


def _names(count: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(small_files(count)).repeat()


READING: list[Row] = [
    row(
        "sequential-read",
        lambda: tf.data.TFRecordDataset(record_files()),
        lambda: tf.data.TFRecordDataset(record_files()[:1]),
        run=MANY_CORES,
        gain=("plain", "behind_zip"),
    ),
    row("small-files", lambda: _names(64).map(_read), lambda: _names(8).map(_read)),
    row(
        "compressed-input",
        lambda: tf.data.TFRecordDataset(record_files("GZIP"), compression_type="GZIP"),
        lambda: tf.data.TFRecordDataset(record_files()),
    ),
    row(
        "large-constant",
        lambda: tf.data.Dataset.from_tensor_slices(np.zeros((200, LARGE_BYTES), np.uint8)),
        lambda: tf.data.Dataset.from_tensor_slices(np.zeros((20, LARGE_BYTES), np.uint8)),
        gain=(),
    ),
]


# Caches.

CACHES: list[Row] = [
    row(
        "missing-cache",
        lambda: numbers(200).map(work),
        lambda: numbers(200).map(drawing),
        nested=lambda: numbers(4).interleave(lambda _: numbers(200).map(work), cycle_length=2),
    ),
    row(
        "cache-after-random",
        lambda: numbers(50).map(drawing).cache(),
        lambda: numbers(50).map(work).cache().map(drawing),
        nested=NEW_EACH_CALL,
        gain=(),
    ),
    row(
        "cache-never-completes",
        lambda: numbers(5000).map(work).cache().take(150),
        lambda: numbers(5000).map(work).take(150).cache(),
        nested=NEW_EACH_CALL,
    ),
    row(
        "cache-too-large",
        lambda: numbers(5000).map(work).map(large).cache(),
        lambda: numbers(500).map(work).map(large).cache(),
        run=Run(room_bytes=100e6),
        nested=Why("how often a function's body runs before its caches are dropped is nobody's to tell"),
        gain=(),
    ),
]


# Buffers.

BUFFERS: list[Row] = [
    row(
        "shuffle-fill",
        lambda: numbers(1000).map(waits(0.002)).shuffle(350),
        lambda: numbers(1000).map(waits(0.002)).shuffle(10),
        run=Run(seconds=1.5, warm_up=False),
        gain=(),
    ),
    row(
        "shuffle-memory",
        lambda: numbers().map(large).shuffle(300),
        lambda: numbers().map(large).shuffle(10),
        run=Run(memory_bytes=100e6),
        gain=(),
    ),
    row(
        "buffer-memory",
        lambda: numbers().map(large).prefetch(300),
        lambda: numbers().map(large).prefetch(2),
        run=Run(memory_bytes=100e6),
        gain=(),
    ),
]


# Work for nothing.


def _lengths(x: tf.Tensor) -> tf.Tensor:
    return tf.ones([tf.where(x % 64 == 0, 100_000, 20)])


def _same_length(x: tf.Tensor) -> tf.Tensor:
    return tf.ones([100_000 + 0 * tf.cast(x, tf.int32)])


def _label(record: tf.Tensor) -> tf.Tensor:
    return work(tf.strings.to_number(record, tf.int64))


def _class(label: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(number_file()).map(_label).filter(lambda x: x == label)


def _labels_of(file: str) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(file).map(_label)


def _images_and_masks(first: str, second: str) -> tf.data.Dataset:
    return tf.data.Dataset.zip((_labels_of(first).map(tiny), _labels_of(second).map(cheap())))


def _shared_branches() -> tf.data.Dataset:
    common = numbers().map(work)
    return tf.data.Dataset.zip((common.map(tiny), common.map(cheap())))


def _separate_branches() -> tf.data.Dataset:
    return tf.data.Dataset.zip((numbers().map(work).map(tiny), numbers(10**8).map(work).map(cheap())))


def _block() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(np.zeros((64, 10_000), np.float32)).repeat()


WASTE: list[Row] = [
    row(
        "wasted-work",
        lambda: numbers().map(work).filter(lambda x: x % 4 == 0),
        lambda: numbers().filter(lambda x: x % 4 == 0).map(work),
    ),
    row(
        "wasted-work",
        lambda: numbers(800).map(work).skip(600),
        lambda: numbers(800).skip(600).map(work),
        name="skip",
    ),
    row(
        "wasted-work",
        lambda: numbers().map(work).window(1, shift=4).flat_map(lambda one: one),
        lambda: numbers().map(work).window(4, shift=4).flat_map(lambda one: one),
        name="window",
    ),
    row(
        "wasted-work",
        lambda: numbers().map(_lengths).padded_batch(64),
        lambda: numbers().map(_same_length).padded_batch(64),
        name="padding",
    ),
    row(
        "repeated-work",
        lambda: numbers(12).interleave(_class, cycle_length=12),
        lambda: tf.data.Dataset.from_tensor_slices([number_file(), number_file("others")]).interleave(
            lambda path: tf.data.TFRecordDataset(path).map(_label), cycle_length=2
        ),
    ),
    row(
        "repeated-work",
        lambda: _images_and_masks(number_file(), number_file()),
        lambda: _images_and_masks(number_file(), number_file("others")),
        name="files",
        nested=Why(
            "what a function's body reads is found by name only where the names are constants of the body"
        ),
    ),
    row("repeated-work", _shared_branches, _separate_branches, name="branches"),
    row(
        "shard-late",
        lambda: numbers().map(work).shard(4, 0),
        lambda: numbers().shard(4, 0).map(work),
    ),
    row(
        "per-element-overhead",
        lambda: numbers().map(tiny).batch(64),
        lambda: numbers().batch(64).map(tiny),
        nested=lambda: numbers().interleave(lambda _: numbers(1000).map(tiny), cycle_length=2).batch(64),
        behind_zip=lambda: tf.data.Dataset.zip((numbers().map(tiny), numbers())).batch(64),
    ),
    row(
        "unbatch-rebatch",
        lambda: _block().unbatch().batch(32),
        lambda: _block().unbatch().shuffle(100).batch(32),
    ),
    row(
        "nested-datasets",
        lambda: numbers().window(8, shift=1, drop_remainder=True).flat_map(lambda one: one.batch(8)),
        lambda: numbers().batch(1024).map(lambda x: tf.signal.frame(x, 8, 1)).unbatch(),
        gain=(),
    ),
]


# What elements are made of.


def _crop(record: tf.Tensor) -> tf.Tensor:
    return tf.io.decode_jpeg(record)[100:132, 100:132]


def _whole(record: tf.Tensor) -> tf.Tensor:
    return tf.io.decode_jpeg(record)


def _image(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(large(x), [LARGE_BYTES // 100, 100])


def _to_float(image: tf.Tensor) -> tf.Tensor:
    return tf.cast(image, tf.float32)


def _rows() -> tf.data.Dataset:
    return tf.data.TFRecordDataset(large_record_file()).repeat()


def _values(record: tf.Tensor) -> tf.Tensor:
    return tf.io.decode_raw(record, tf.uint8)


ELEMENTS: list[Row] = [
    row(
        "decode-whole-image",
        lambda: tf.data.TFRecordDataset(jpeg_file()).repeat().map(_crop),
        lambda: tf.data.TFRecordDataset(jpeg_file()).repeat().map(_whole),
        gain=(),
    ),
    row(
        "late-cast",
        lambda: numbers().map(_image).map(_to_float).shuffle(8).batch(4).batch(8),
        lambda: numbers().map(_image).shuffle(8).batch(4).batch(8).map(_to_float),
    ),
    row(
        "large-element-copies",
        lambda: _rows().map(lambda x: _values(x)[:1000]),
        lambda: _rows().map(lambda x: _values(x)[1000:]),
    ),
]


# What the code says and the pipeline does not.

_COUNTER = tf.Variable(0, dtype=tf.int64, trainable=False)


def _counts(x: tf.Tensor) -> tf.Tensor:
    _COUNTER.assign_add(1)
    return work(x)


def _reads(x: tf.Tensor) -> tf.Tensor:
    return work(x + _COUNTER)


def _draws_again(x: tf.Tensor) -> tf.Tensor:
    return work(x + tf.random.stateless_uniform([], (1, 2), 0, 10, tf.int64))


def _draws_by_seed(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return work(x + tf.random.stateless_uniform([], seed, 0, 10, tf.int64))


def _with_new_seeds() -> tf.data.Dataset:
    seeds = tf.data.Dataset.random(rerandomize_each_iteration=True).batch(2)
    return tf.data.Dataset.zip((numbers(100), seeds)).map(_draws_by_seed)


def _thrown_away() -> tf.data.Dataset:
    dataset = numbers(100).map(work)
    dataset.cache()
    return dataset


def _kept() -> tf.data.Dataset:
    dataset = numbers(100).map(work)
    dataset = dataset.cache()
    return dataset


INTENTIONS: list[Row] = [
    row("side-effects", lambda: numbers().map(_counts), lambda: numbers().map(_reads), gain=()),
    row("randomness-repeats", lambda: numbers(100).map(_draws_again), _with_new_seeds, gain=()),
    row("result-unused", _thrown_away, _kept, gain=("plain", "behind_zip")),
]


# Who rules, and who waits.

TUNING: list[Row] = [
    row(
        "autotune-hidden",
        lambda: numbers().map(work, num_parallel_calls=tf.data.AUTOTUNE),
        lambda: numbers().map(work, num_parallel_calls=2),
        run=Run(options=_small_budget),
        gain=(),
    ),
    row(
        "autotune-off",
        lambda: numbers().map(work),
        lambda: numbers().map(work),
        run=Run(options=_no_autotune),
        run_near_miss=Run(),
        nested=WHOLE,
        behind_zip=WHOLE,
        gain=(),
        whole=True,
    ),
    row(
        "not-input-bound",
        lambda: numbers().map(waits(0.002)),
        lambda: numbers().map(waits(0.002)),
        run=Run(consumer_rate=20),
        run_near_miss=Run(consumer_rate=2000),
        gain=(),
        whole=True,
    ),
    row(
        "oversubscribed",
        lambda: numbers().map(work, num_parallel_calls=16),
        lambda: numbers().map(waits(0.005), num_parallel_calls=16),
        run=pool(16),
        quiet=("near_miss",),
        gain=(),
        whole=True,
    ),
]

ROWS: list[Row] = [
    *PARALLELISM, *READING, *CACHES, *BUFFERS, *WASTE, *ELEMENTS, *INTENTIONS, *TUNING,
]  # fmt: skip
