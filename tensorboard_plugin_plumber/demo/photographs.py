"""Photograph-like JPEG images in TFRecord shards, made from a seed and kept between runs.

The images are sums of 1/f noise (the spectrum of natural scenes) and one shape, whose kind is the
label; at quality 90 they take as many bytes, and as long to decode, as a small photograph.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

# Raised when the bytes of the set change, so that an older cache is not taken for it.
VERSION = 1
HEIGHT, WIDTH = 375, 500
QUALITY = 90
SHAPES = ("ellipse", "rectangle", "triangle", "ring")

_NOISE_SIZE = 1024
_NOISE_FIELDS = 12
# Amplitude falls as 1/f^1.15: between the 1/f of natural scenes and the softness of a camera's lens.
_NOISE_EXPONENT = 1.15

Field = npt.NDArray[np.float32]
Image = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class ShardSet:
    """A set of TFRecord files, each record an Example with `image` (JPEG bytes) and `label` (int64)."""

    directory: Path
    shards: int
    images_per_shard: int

    @property
    def pattern(self) -> str:
        """The glob that matches exactly the shards."""
        return str(self.directory / f"photographs-*-of-{self.shards:05d}.tfrecord")

    @property
    def images(self) -> int:
        return self.shards * self.images_per_shard

    def path(self, shard: int) -> Path:
        return self.directory / f"photographs-{shard:05d}-of-{self.shards:05d}.tfrecord"


def cache_directory() -> Path:
    """Where this user's caches go (XDG_CACHE_HOME, else ~/.cache), Plumber's own part of it."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "tensorboard-plugin-plumber"


def prepare(
    shards: int = 8,
    images_per_shard: int = 96,
    *,
    root: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ShardSet:
    """The set, made where it is not there yet.

    A shard appears under its name only when it is whole, and each depends on its number alone: an
    interrupted run leaves whole shards, and the next one makes the others.

    Args:
      shards: number of files.
      images_per_shard: images in each.
      root: parent folder; the user's cache by default.
      progress: called with (shards done, shards in all).

    Raises:
      OSError: the folder cannot be written.
    """
    directory = (root or cache_directory()) / f"photographs-v{VERSION}-{shards}x{images_per_shard}"
    found = ShardSet(directory, shards, images_per_shard)
    missing = [shard for shard in range(shards) if not found.path(shard).exists()]
    if not missing:
        return found
    directory.mkdir(parents=True, exist_ok=True)
    noise = noise_fields()
    for done, shard in enumerate(missing, start=shards - len(missing)):
        progress(done, shards)
        _write_shard(found, shard, noise)
    progress(shards, shards)
    return found


def draw(rng: np.random.Generator, noise: list[Field], shape: str) -> Image:
    """One image, [HEIGHT, WIDTH, 3] uint8, with one `shape` of SHAPES on a noisy ground."""
    luminance, red, blue = (window(rng, noise) for _ in range(3))
    ground = np.stack([luminance + 0.3 * red, luminance, luminance + 0.3 * blue], axis=-1)
    contrast = rng.uniform(41, 72)
    colour = rng.uniform(60, 190, 3)
    inside = _mask(rng, shape)[..., np.newaxis]
    # A plain object on a textured ground: its own texture is weaker.
    figure = rng.uniform(20, 235, 3) + 0.4 * contrast * ground
    picture = (1 - inside) * (colour + contrast * ground) + inside * figure
    return np.clip(picture, 0, 255).astype(np.uint8)


def noise_fields() -> list[Field]:
    """Periodic 1/f noise, [_NOISE_SIZE, _NOISE_SIZE] each, mean 0 and standard deviation 1."""
    rng = np.random.default_rng([VERSION, 0])
    size = _NOISE_SIZE
    frequency = np.hypot(np.fft.fftfreq(size)[:, np.newaxis], np.fft.rfftfreq(size)[np.newaxis])
    frequency[0, 0] = np.inf
    amplitude = frequency**-_NOISE_EXPONENT
    fields = []
    for _ in range(_NOISE_FIELDS):
        phase = rng.uniform(0, 2 * np.pi, amplitude.shape)
        field = np.fft.irfft2(amplitude * np.exp(1j * phase), s=(size, size))
        fields.append((field / field.std()).astype(np.float32))
    return fields


def window(rng: np.random.Generator, noise: list[Field], height: int = HEIGHT, width: int = WIDTH) -> Field:
    """A part of one of the noise fields, turned over at random; [height, width], each below 1024."""
    field = noise[rng.integers(len(noise))]
    top, left = rng.integers(_NOISE_SIZE - height), rng.integers(_NOISE_SIZE - width)
    part = field[top : top + height, left : left + width]
    return part[:: rng.choice([-1, 1]), :: rng.choice([-1, 1])]


def _mask(rng: np.random.Generator, shape: str) -> Field:
    """1 inside the shape, 0 outside, with an edge as soft as a lens makes it; [HEIGHT, WIDTH]."""
    radius = rng.uniform(60, 120)
    y = (np.arange(HEIGHT) - rng.uniform(130, HEIGHT - 130))[:, np.newaxis] / radius
    x = (np.arange(WIDTH) - rng.uniform(130, WIDTH - 130))[np.newaxis] / radius
    distances = {
        "ellipse": np.hypot(x, 1.3 * y) - 1,
        "rectangle": np.maximum(np.abs(x), 1.3 * np.abs(y)) - 1,
        "triangle": np.maximum(np.abs(x) * 1.7 + y, -y) - 0.8,
        "ring": np.abs(np.hypot(x, y) - 0.8) - 0.2,
    }
    inside: Field = np.clip(0.5 - distances[shape] * radius / 2, 0, 1).astype(np.float32)
    return inside


def _write_shard(target: ShardSet, shard: int, noise: list[Field]) -> None:
    rng = np.random.default_rng([VERSION, 1, shard])
    handle, partial = tempfile.mkstemp(dir=target.directory, prefix=".", suffix=".partial")
    os.close(handle)
    try:
        with tf.io.TFRecordWriter(partial) as writer:
            for _ in range(target.images_per_shard):
                label = int(rng.integers(len(SHAPES)))
                jpeg = tf.io.encode_jpeg(draw(rng, noise, SHAPES[label]), quality=QUALITY).numpy()
                features = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
        os.replace(partial, target.path(shard))
    finally:
        Path(partial).unlink(missing_ok=True)
