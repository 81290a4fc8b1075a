"""Pipelines whose rates are predicted, as somebody might have written them, and the settings to predict them under.

Their data is made from a seed. All are endless, so that a cache serves after its first pass.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.ground_truth import (
    Books,
    hasher,
    named,
    native_spin,
    python_burn,
    python_spin,
    recorded,
    sleep,
)
from benchmarks.predict_settings import AUTOTUNE, Edit

_SEED = 7
_CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Pipeline:
    """One pipeline.

    Attributes:
      what: in words.
      make: the dataset as written, from a folder for its data.
      edits: the settings; the first one is none.
      patience: how many times the usual windows last, where single elements differ much.
    """

    what: str
    make: Callable[[Path], tf.data.Dataset]
    edits: Sequence[Edit]
    patience: float = 1.0


def calls(name: str, *parallelism: int, **others: Any) -> list[Edit]:
    """Edits with so many calls of one function."""
    return [Edit(calls={name: k}, **others) for k in parallelism]


def _jpeg(directory: Path, *, cached: bool) -> tf.data.Dataset:
    paths = _jpeg_files(directory)

    def decode(path: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.ensure_shape(image, [200, 300, 3])

    def augment(image: Any) -> Any:
        image = tf.image.random_flip_left_right(tf.image.random_crop(image, [160, 160, 3]))
        return tf.image.random_brightness(tf.cast(image, tf.float32) / 255.0, 0.1)

    dataset = tf.data.Dataset.from_tensor_slices(paths).map(decode)
    if cached:
        dataset = dataset.cache()
    return dataset.repeat().map(augment).batch(8)


def text(directory: Path) -> tf.data.Dataset:
    """Lines of words, split and hashed."""
    path = directory / "lines.txt"
    if not path.exists():
        rng = np.random.default_rng(_SEED)
        words = [f"w{number:x}" for number in rng.integers(0, 1 << 20, 5000)]
        lines = [" ".join(rng.choice(words, rng.integers(20, 200))) for _ in range(2000)]
        path.write_text("\n".join(lines), encoding="utf-8")

    def encode(line: Any) -> Any:
        hashes = tf.strings.to_hash_bucket_fast(tf.strings.split(tf.strings.lower(line)), 1 << 16)[:128]
        return tf.pad(hashes, [[0, 128 - tf.size(hashes)]])

    return tf.data.TextLineDataset(str(path)).map(encode).repeat().batch(32)


def records(directory: Path) -> tf.data.Dataset:
    """Examples of floats in four files, parsed and normalised."""
    paths = [directory / f"{file}.tfrecord" for file in range(4)]
    if not paths[-1].exists():
        rng = np.random.default_rng(_SEED)
        for path in paths:
            with tf.io.TFRecordWriter(str(path)) as writer:
                for _ in range(60):
                    writer.write(_example(rng.random(20_000)))

    def parse(record: Any) -> Any:
        values = tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([20_000], tf.float32)})["x"]
        return (values - tf.reduce_mean(values)) / tf.math.reduce_std(values)

    return tf.data.TFRecordDataset([str(path) for path in paths]).map(parse).repeat().batch(8)


def sleeping(directory: Path) -> tf.data.Dataset:
    """Reads that take 10 ms each."""
    return _numbers().map(sleep(Books(), 0.010)).batch(4)


def python(directory: Path) -> tf.data.Dataset:
    """Python that holds the interpreter lock."""
    return _numbers().map(python_spin(Books(), 0.002)).batch(4)


def mixed(directory: Path) -> tf.data.Dataset:
    """Python, a kernel that needs no interpreter, and a wait."""
    work = hasher(0.0015)

    def call() -> float:
        python_burn(0.0004)
        work()
        time.sleep(0.005)
        return 0.005

    return _numbers().map(recorded("mixed", Books(), call)).batch(4)


def zipped(directory: Path) -> tf.data.Dataset:
    """Two branches of random augmentation, which TensorFlow leaves sequential."""
    images = _seconds().map(named("image", native_spin(2)))
    masks = _seconds().map(named("mask", native_spin(1)))
    return tf.data.Dataset.zip((images, masks)).batch(4)


def chain(directory: Path) -> tf.data.Dataset:
    """Two costly maps on one thread, with nothing that TensorFlow puts in."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    dataset = _seconds().map(named("first", native_spin(1))).map(named("second", native_spin(2)))
    return dataset.batch(4).with_options(options)


def map_and_batch(directory: Path) -> tf.data.Dataset:
    """A costly map that TensorFlow fuses with its batch."""
    return _seconds().map(native_spin(2)).batch(8)


def stragglers(directory: Path) -> tf.data.Dataset:
    """Reads of 2 ms, in order, of which one of twenty takes 40."""
    late = np.random.default_rng(_SEED).random(1 << 16) < 0.05
    turn = iter(range(1 << 30))

    def call() -> float:
        seconds = 0.040 if late[next(turn) % len(late)] else 0.002
        time.sleep(seconds)
        return seconds

    function = recorded("straggle", Books(), call)
    return _in_pool(_numbers().map(function, num_parallel_calls=2), 32)


def interleaved(directory: Path) -> tf.data.Dataset:
    """Compressed records of many files, read by turns."""
    paths = [directory / f"{file}.tfrecord" for file in range(32)]
    if not paths[-1].exists():
        rng = np.random.default_rng(_SEED)
        for path in paths:
            with tf.io.TFRecordWriter(str(path), options="GZIP") as writer:
                for _ in range(30):
                    writer.write(np.round(rng.normal(size=12_000), 1).astype(np.float32).tobytes())

    def read(path: Any) -> Any:
        return tf.data.TFRecordDataset(path, compression_type="GZIP")

    def parse(record: Any) -> Any:
        return tf.ensure_shape(tf.io.decode_raw(record, tf.float32), [12_000])

    files = tf.data.Dataset.from_tensor_slices([str(path) for path in paths]).repeat()
    return files.interleave(read, cycle_length=4).map(parse).batch(16)


def body(directory: Path) -> tf.data.Dataset:
    """A costly map inside the function of an interleave."""
    paths = _jpeg_files(directory)

    def decode(path: Any) -> Any:
        return tf.ensure_shape(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), [200, 300, 3])

    def shard(start: Any) -> Any:
        return tf.data.Dataset.from_tensor_slices(paths).skip(start).take(12).map(decode)

    starts = tf.data.Dataset.range(0, len(paths), 12).repeat()
    options = tf.data.Options()
    options.experimental_optimization.map_parallelization = False
    return starts.interleave(shard, cycle_length=4).batch(8).with_options(options)


def waiting_body(directory: Path) -> tf.data.Dataset:
    """Reads of 10 ms inside the function of an interleave, in a pool that does not bind."""
    function = sleep(Books(), 0.010)

    def shard(_: Any) -> Any:
        return tf.data.Dataset.range(200).map(function)

    return _in_pool(_numbers().interleave(shard, cycle_length=6).batch(4), 48)


def case(number: str) -> Callable[[Path], tf.data.Dataset]:
    """A pipeline of `cases/`, made endless."""

    def make(directory: Path) -> tf.data.Dataset:
        (path,) = _CASES.glob(f"{number}_*.py")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.make_dataset().repeat()

    return make


def _numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(1 << 40)


def _seconds() -> tf.data.Dataset:
    return _numbers().map(named("seconds", lambda _: tf.zeros([], tf.float64)))


def _in_pool(dataset: tf.data.Dataset, size: int) -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = size
    return dataset.with_options(options)


def _example(values: Any) -> bytes:
    feature = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=values))}
    return bytes(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def _jpeg_files(directory: Path) -> list[str]:
    """Smooth random colours, 200 × 300."""
    paths = [directory / f"{index:03}.jpg" for index in range(96)]
    if not paths[-1].exists():
        rng = np.random.default_rng(_SEED)
        for path in paths:
            coarse = rng.integers(0, 255, (14, 20, 3)).astype(np.float32)
            fine = tf.image.resize(coarse, [200, 300], method="bicubic")
            image = tf.cast(tf.clip_by_value(fine, 0, 255), tf.uint8)
            tf.io.write_file(str(path), tf.io.encode_jpeg(image, quality=90))
    return [str(path) for path in paths]


def _decoding(name: str) -> list[Edit]:
    """The settings of a stateless map that may be cached."""
    return [
        Edit(),
        *calls(name, 1, 2, 4, AUTOTUNE),
        *calls(name, 2, prefetch={name: 8}),
        *calls(name, 8, pool=8),
        Edit(prefetch={name: 2}),
        Edit(cache=name),
        Edit(cache=name, prefetch={name: 2}),
    ]


def _waiting(name: str) -> list[Edit]:
    """The settings of a map that waits."""
    return [
        Edit(),
        *calls(name, 1, 2, 8, AUTOTUNE),
        *calls(name, 2, 4, 8, 16, AUTOTUNE, pool=16),
        *calls(name, 4, pool=8, prefetch={name: 4}),
    ]


def _computing(name: str) -> list[Edit]:
    """The settings of a map that computes and may not be cached."""
    return [
        Edit(),
        *calls(name, 1, 2, 4, 8, AUTOTUNE),
        *calls(name, 2, prefetch={name: 2}),
        *calls(name, 4, pool=4),
    ]


def _both(first: str, second: str) -> list[Edit]:
    pairs = [(1, 1), (1, 2), (2, 1), (2, 2), (4, 4), (AUTOTUNE, AUTOTUNE)]
    return [
        Edit(),
        *(Edit(calls={first: k, second: n}) for k, n in pairs),
        *calls(first, 2),
        *calls(second, 2),
        Edit(prefetch={first: 2}),
    ]


_AUGMENTED = [
    Edit(),
    *calls("augment", 1, 2, 4, AUTOTUNE),
    Edit(calls={"augment": 2}, prefetch={"augment": 4}),
    Edit(prefetch={"decode": 2}),
]
_NESTED = [Edit(), *(Edit(calls={"shard": k}) for k in (1, 2, 4))]

PIPELINES: Mapping[str, Pipeline] = {
    "jpeg": Pipeline(
        "JPEG decode and random augmentation",
        lambda directory: _jpeg(directory, cached=False),
        [
            *_AUGMENTED,
            *(Edit(calls={"decode": k, "augment": k}) for k in (1, 2, 4)),
            Edit(cache="decode"),
            *calls("augment", 1, 2, 4, AUTOTUNE, cache="decode"),
        ],
    ),
    "text": Pipeline("lines of text", text, _decoding("encode")),
    "records": Pipeline("TFRecord examples", records, _decoding("parse")),
    "sleeping": Pipeline("reads that wait", sleeping, _waiting("sleep")),
    "python": Pipeline("Python functions", python, _computing("python_spin")),
    "mixed": Pipeline("Python, kernel and wait", mixed, _waiting("mixed")),
    "zip": Pipeline("zip of two branches", zipped, _both("image", "mask")),
    "chain": Pipeline("two maps on one thread", chain, _both("first", "second")),
    "map-and-batch": Pipeline("map fused with its batch", map_and_batch, _computing("native_spin")),
    "cached": Pipeline("behind a cache", lambda directory: _jpeg(directory, cached=True), _AUGMENTED),
    "stragglers": Pipeline(
        "ordered, with stragglers",
        stragglers,
        [Edit(), *calls("straggle", 1, 4, 8, 16), Edit(pool=8)],
        patience=4.0,
    ),
    "interleave": Pipeline(
        "many compressed files",
        interleaved,
        [
            Edit(),
            *calls("read", 1, 2, 4, AUTOTUNE),
            *(Edit(calls={"read": k, "parse": n}) for k, n in product((1, 2), (1, 2))),
            Edit(prefetch={"read": 8}),
        ],
    ),
    "body": Pipeline(
        "a map inside an interleave",
        body,
        [*_NESTED, Edit(calls={"shard": 2, "decode": 2}), *calls("decode", 1, 2)],
    ),
    "waiting-body": Pipeline(
        "reads inside an interleave",
        waiting_body,
        [
            *_NESTED,
            *(Edit(calls={"shard": k, "sleep": n}) for k, n in product((1, 2, 4), (1, 2, 4))),
            *calls("sleep", 1, 2, 4),
        ],
    ),
    "case-02": Pipeline("case 02: pickles read slowly in Python", case("02"), _waiting("_read")),
    "case-07": Pipeline("case 07: crops of whole images", case("07"), _computing("_crop_pair")),
    "case-34": Pipeline("case 34: padding to 512 tokens", case("34"), _decoding("_pad")),
    "case-35": Pipeline(
        "case 35: images and masks",
        case("35"),
        [*_both("_image", "_mask"), Edit(cache="_image"), Edit(cache="_image", prefetch={"_image": 2})],
    ),
    "case-49": Pipeline("case 49: most records skipped", case("49"), [Edit(), *calls("_decode", 1, 2, 4)]),
}
