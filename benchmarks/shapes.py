"""Small pipelines of the shapes that a diagnosis must get right, with the truth about their costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import tensorflow as tf

from benchmarks.ground_truth import Books, named, native_spin, sleep, spin


@dataclass(frozen=True)
class Shape:
    """A pipeline and, by the label of its map, the service time of one element, seconds.

    The truth is read after the pipeline ran; it never comes from Plumber.
    """

    dataset: tf.data.Dataset
    service_s: Mapping[str, Callable[[], float]]


def numbers(count: int = 1_000_000) -> tf.data.Dataset:
    """Integers, which cost nothing to make."""
    return tf.data.Dataset.range(count)


def _cpu(books: Books) -> Callable[[], float]:
    return lambda: books.totals.cpu_per_call_s


def sequential_map() -> Shape:
    """A costly native map that TensorFlow leaves sequential: its elements carry their own time."""
    zeros = numbers().map(lambda _: tf.zeros([], tf.float64))
    dataset = zeros.map(native_spin(1)).batch(4)

    def truth() -> float:
        times = [float(tf.reduce_mean(batch)) for batch in dataset.take(120)]
        return sum(times[20:]) / len(times[20:])

    return Shape(dataset, {"native_spin": truth})


def sleeping_map() -> Shape:
    """A map that waits, with more parallel calls than any usual pool has slots."""
    books = Books()
    dataset = numbers().map(sleep(books, 0.02), num_parallel_calls=64).batch(2)
    return Shape(dataset, {"sleep": lambda: books.totals.wait_per_call_s})


def chain(*, default_optimizations: bool) -> Shape:
    """Two costly maps and a batch on one thread, with or without what TensorFlow injects."""
    first, second = Books(), Books()
    dataset = (
        numbers().map(named("first", spin(first, 0.003))).map(named("second", spin(second, 0.004))).batch(2)
    )
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = default_optimizations
    return Shape(dataset.with_options(options), {"first": _cpu(first), "second": _cpu(second)})


def zipped() -> Shape:
    """Two branches of different cost."""
    image, mask = Books(), Books()
    images = numbers().map(named("image", spin(image, 0.006)))
    masks = numbers().map(named("mask", spin(mask, 0.002)))
    return Shape(tf.data.Dataset.zip((images, masks)).batch(2), {"image": _cpu(image), "mask": _cpu(mask)})


def interleaved() -> Shape:
    """A costly map within the function of an interleave, whose iterators come and go."""
    books = Books()
    function = spin(books, 0.004)
    dataset = numbers().interleave(lambda _: numbers(25).map(function), cycle_length=2).batch(2)
    return Shape(dataset, {"spin": _cpu(books)})


SHAPES: Mapping[str, Callable[[], Shape]] = {
    "CPU-bound sequential map": sequential_map,
    "sleeping map held by the pool": sleeping_map,
    "sequential chain, no default optimizations": lambda: chain(default_optimizations=False),
    "sequential chain, default optimizations": lambda: chain(default_optimizations=True),
    "zip": zipped,
    "map inside an interleave": interleaved,
}
