"""The data of `optimize_families.py`: made from a seed at the first run, and kept.

Each data set lies in a folder of its own, named after a digest of all that decides its bytes, in the user's cache
directory. Sizes and entropy are those of the real thing: photograph-like JPEGs, sentences whose words follow Zipf's
law. Families are sized for 2 cores and 24 GB: a pass takes seconds, and everything that is worth caching fits into
memory. What "does not fit" is therefore brought about by a limit given to `optimize` (`optimize_worker.WAYS`: half
of the bytes on disk, so that not even the records fit), not by tens of gigabytes of data.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tensorboard_plugin_plumber.demo import photographs

#: Raised when the bytes of a set change, so that an older one is not taken for it.
VERSION = 1
_SEED = 20_261
#: Words of the two languages, and the law by which they occur.
VOCABULARY = 32_000
_ZIPF = 1.3
#: Tokens of either sentence of a fixed-length record, padded with 0.
RECORD_TOKENS = 50
_LARGE_SIDES = (640, 960)
_UNBOXED = 0.2


@dataclass(frozen=True)
class DataSet:
    """One data set: so many files of so many records."""

    files: int
    records_per_file: int
    write: Callable[[Path, int, np.random.Generator], None]
    suffix: str = "tfrecord"

    def scaled(self, scale: float) -> DataSet:
        """The same number of files, with a share of the records, at least 8 each."""
        records = max(8, round(self.records_per_file * scale))
        return DataSet(self.files, records, self.write, self.suffix)


def prepare(name: str, scale: float = 1.0, root: Path | None = None) -> Path:
    """The folder of one of `DATA_SETS`, made where it is not there yet.

    It appears under its name only when it is whole.

    Args:
      name: the data set.
      scale: share of its records.
      root: parent folder; the user's cache by default.
    """
    data = DATA_SETS[name].scaled(scale)
    said = repr((VERSION, _SEED, photographs.VERSION, name, data.files, data.records_per_file))
    digest = hashlib.sha256(said.encode()).hexdigest()[:12]
    directory = (root or photographs.cache_directory() / "benchmarks") / f"{name}-{digest}"
    if directory.exists():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{name}-"))
    try:
        for file in range(data.files):
            rng = np.random.default_rng([_SEED, VERSION, file])
            data.write(partial / f"{file:05d}.{data.suffix}", data.records_per_file, rng)
        os.replace(partial, directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return directory


# The writers: one file of `records`, from the generator alone.


def _labelled_images(path: Path, records: int, rng: np.random.Generator) -> None:
    """`image` (500×375 JPEG, quality 90) and `label`."""
    noise = _noise()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(records):
            label = int(rng.integers(len(photographs.SHAPES)))
            image = photographs.draw(rng, noise, photographs.SHAPES[label])
            writer.write(_example(image=_jpeg(image), label=[label]))


def _boxed_images(path: Path, records: int, rng: np.random.Generator) -> None:
    """`image` (500×375), `boxes` (corners as shares of the sides: y, x, y, x) and `classes`; a fifth has no box."""
    _write_boxed(path, records, rng, (photographs.HEIGHT, photographs.WIDTH), _UNBOXED, turned=False)


def _large_boxed_images(path: Path, records: int, rng: np.random.Generator) -> None:
    """As `_boxed_images`, 960×640 or upright, each with boxes."""
    _write_boxed(path, records, rng, _LARGE_SIDES, 0.0, turned=True)


def _write_boxed(
    path: Path,
    records: int,
    rng: np.random.Generator,
    sides: tuple[int, int],
    unboxed: float,
    *,
    turned: bool,
) -> None:
    noise = _noise()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(records):
            height, width = sides[::-1] if turned and rng.random() < 0.3 else sides
            boxes = 0 if rng.random() < unboxed else int(rng.integers(1, 8))
            corners = _corners(rng, boxes)
            image = _with_boxes(rng, noise, height, width, corners)
            classes = rng.integers(1, 91, boxes)
            writer.write(_example(image=_jpeg(image), boxes=corners.ravel(), classes=classes))


def _sentence_pairs(path: Path, records: int, rng: np.random.Generator) -> None:
    """`source` and `target`: tokens, 4 to 256, most of them below 60."""
    lengths = np.clip(rng.lognormal(3.2, 0.6, (records, 2)), 4, 256).astype(int)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for source, target in lengths:
            writer.write(_example(source=_tokens(rng, source), target=_tokens(rng, target)))


def _fixed_length_pairs(path: Path, records: int, rng: np.random.Generator) -> None:
    """Records of 2 × RECORD_TOKENS int32: a sentence and its translation, padded with 0."""
    tokens = _tokens(rng, records * 2 * RECORD_TOKENS).astype(np.int32).reshape(records, 2, RECORD_TOKENS)
    lengths = rng.integers(8, RECORD_TOKENS + 1, (records, 2, 1))
    tokens[np.arange(RECORD_TOKENS) >= lengths] = 0
    tokens.tofile(path)


def _arrays(path: Path, records: int, rng: np.random.Generator) -> None:
    """One array of `records` × 128 float32, as NumPy saves it."""
    np.save(path, rng.random((records, 128), dtype=np.float32))


@functools.cache
def _noise() -> list[photographs.Field]:
    return photographs.noise_fields()


def _corners(rng: np.random.Generator, boxes: int) -> npt.NDArray[np.float32]:
    centres, sides = rng.uniform(0.2, 0.8, (boxes, 2)), rng.uniform(0.05, 0.4, (boxes, 2))
    corners = np.concatenate([centres - sides / 2, centres + sides / 2], axis=1)
    found: npt.NDArray[np.float32] = np.clip(corners, 0, 1).astype(np.float32)
    return found


def _with_boxes(
    rng: np.random.Generator,
    noise: list[photographs.Field],
    height: int,
    width: int,
    corners: npt.NDArray[np.float32],
) -> npt.NDArray[np.uint8]:
    """A noisy ground with a plainer rectangle in each box, [height, width, 3]."""
    luminance, red, blue = (photographs.window(rng, noise, height, width) for _ in range(3))
    ground = np.stack([luminance + 0.3 * red, luminance, luminance + 0.3 * blue], axis=-1)
    picture = rng.uniform(60, 190, 3) + rng.uniform(41, 72) * ground
    for top, left, bottom, right in corners * [height, width, height, width]:
        inside = np.s_[int(top) : int(bottom), int(left) : int(right)]
        picture[inside] = rng.uniform(20, 235, 3) + 20 * ground[inside]
    return np.clip(picture, 0, 255).astype(np.uint8)


def _tokens(rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    """Token numbers above 1, the frequent ones low."""
    found: npt.NDArray[np.int64] = 2 + (rng.zipf(_ZIPF, count) % VOCABULARY)
    return found


def _jpeg(image: npt.NDArray[np.uint8]) -> bytes:
    return bytes(tf.io.encode_jpeg(image, quality=photographs.QUALITY).numpy())


def _example(**values: Any) -> bytes:
    """A serialised Example: bytes, integers or floats by what they are."""
    features = {}
    for name, value in values.items():
        if isinstance(value, bytes):
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        elif np.asarray(value).dtype.kind == "f":
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=value))
        else:
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


DATA_SETS: Mapping[str, DataSet] = {
    "labelled-images": DataSet(8, 256, _labelled_images),
    "boxed-images": DataSet(8, 192, _boxed_images),
    "large-boxed-images": DataSet(4, 96, _large_boxed_images),
    "sentence-pairs": DataSet(8, 12_500, _sentence_pairs),
    "fixed-length-pairs": DataSet(4, 40_000, _fixed_length_pairs, "bin"),
    "arrays": DataSet(64, 128, _arrays, "npy"),
}
