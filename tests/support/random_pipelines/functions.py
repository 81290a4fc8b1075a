"""What the programs call: functions that take elements of any structure, and files to read."""

from __future__ import annotations

import functools
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

Dataset = tf.data.Dataset
Options = tf.data.Options
AUTOTUNE = tf.data.AUTOTUNE
plain = tf.autograph.experimental.do_not_convert


class Files:
    """Small files of every kind that tf.data reads.

    Args:
      directory: where they are made.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @functools.cached_property
    def records(self) -> list[str]:
        """Three TFRecord files of seven records."""
        paths = [str(self.directory / f"part-{index}.tfrecord") for index in range(3)]
        for index, path in enumerate(paths):
            with tf.io.TFRecordWriter(path) as writer:
                for number in range(7):
                    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[10 * index + number]))
                    features = tf.train.Features(feature={"x": feature})
                    writer.write(tf.train.Example(features=features).SerializeToString())
        return paths

    @functools.cached_property
    def texts(self) -> list[str]:
        """Two files of six lines."""
        return [self._written(f"lines-{index}.txt", f"line {index}\n" * 6) for index in range(2)]

    @functools.cached_property
    def fixed(self) -> list[str]:
        """Two files of eight records of four bytes, behind two bytes."""
        return [self._written(f"fixed-{index}.bin", "hh" + "abcdefgh" * 4) for index in range(2)]

    @functools.cached_property
    def table(self) -> str:
        """A CSV file of nine rows of a number and a word, below their names."""
        return self._written("table.csv", "a,b\n" + "".join(f"{index},w{index % 4}\n" for index in range(9)))

    @functools.cached_property
    def database(self) -> str:
        """A database of one table of eight rows."""
        path = self.directory / "numbers.db"
        with sqlite3.connect(path) as connection:
            connection.execute("create table numbers (x integer)")
            connection.executemany("insert into numbers values (?)", [(index,) for index in range(8)])
        return str(path)

    @functools.cached_property
    def saved(self) -> str:
        """A directory to which a dataset of eleven numbers was saved."""
        path = str(self.directory / "saved")
        Dataset.range(11).save(path)
        return path

    def _written(self, name: str, content: str) -> str:
        path = self.directory / name
        path.write_text(content)
        return str(path)


def each(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function of an element of any structure that changes each of its tensors."""

    @plain
    def mapped(*element: Any) -> Any:
        whole = element[0] if len(element) == 1 else element
        return tf.nest.map_structure(function, whole)

    return mapped


def _by_type(number: Callable[[Any], Any], text: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def change(x: Any) -> Any:
        if isinstance(x, tf.SparseTensor):
            return tf.SparseTensor(x.indices, change(x.values), x.dense_shape)
        if isinstance(x, tf.RaggedTensor):
            return x.with_flat_values(change(x.flat_values))
        return text(x) if x.dtype == tf.string else x if x.dtype == tf.bool else number(x)

    return change


#: Deterministic, of every type.
bump = each(_by_type(lambda x: x * 3 + 1, lambda x: tf.strings.join([x, "!"])))
shrink = each(_by_type(lambda x: x - 2, lambda x: tf.strings.substr(x, 0, 2)))


def _drawn(draw: Callable[[Any], Any]) -> Callable[..., Any]:
    return each(_by_type(lambda x: x + tf.cast(draw(x), x.dtype), lambda x: x))


#: Draws without a seed, with one, and from a seed that is fixed.
jitter = _drawn(lambda x: tf.random.uniform([], 0.0, 9.0))
jitter_with_seed = _drawn(lambda x: tf.random.uniform([], 0.0, 9.0, seed=4))
jitter_stateless = _drawn(lambda x: tf.random.stateless_uniform([], [3, 4], 0.0, 9.0))


def _in_python(x: Any) -> Any:
    return x + np.asarray(1, x.dtype)


def _through_python(x: Any) -> Any:
    found = tf.numpy_function(_in_python, [x], x.dtype, stateful=False)
    found.set_shape(x.shape)
    return found


through_python = each(_by_type(_through_python, tf.identity))


def _wait(x: Any) -> Any:
    time.sleep(0.003)
    return x


def _slowly(x: Any) -> Any:
    found = tf.numpy_function(_wait, [x], x.dtype, stateful=False)
    found.set_shape(x.shape)
    return found


def _at_a_cost(x: Any) -> Any:
    work = tf.reduce_sum(tf.sort(tf.random.stateless_uniform([30000], [1, 2]))) * 0
    return x + tf.cast(work, x.dtype)


#: The same elements, after a wait in Python, and after some milliseconds of a core.
slowly = each(_by_type(_slowly, tf.identity))
at_a_cost = each(_by_type(_at_a_cost, tf.identity))


def numbers_of(element: Any) -> Any:
    """A number that depends on all of an element, int64."""
    total = tf.constant(0, tf.int64)
    for part in tf.nest.flatten(element, expand_composites=True):
        if part.dtype == tf.string:
            part = tf.strings.to_hash_bucket_fast(part, 97)
        elif part.dtype.is_floating:
            part = tf.bitcast(tf.cast(part, tf.float64), tf.int64) // 2**40
        total += tf.reduce_sum(tf.cast(part, tf.int64)) + tf.size(part, tf.int64)
    return total


@plain
def key(*element: Any) -> Any:
    """One of three groups."""
    return numbers_of(element) % 3


@plain
def keep(*element: Any) -> Any:
    """Two of three elements, about."""
    return numbers_of(element) % 3 != 0


@plain
def small(*element: Any) -> Any:
    """All elements but large ones, of which the first ends the data."""
    return numbers_of(element) % 11 != 7


@plain
def everything(*element: Any) -> Any:
    """All elements; but TensorFlow does not know."""
    return numbers_of(element) < 2**62


counted_up = tf.data.experimental.Reducer(
    plain(lambda _: tf.constant(0, tf.int64)),
    plain(lambda state, *element: state + numbers_of(element)),
    plain(lambda state: state),
)


@plain
def length(*element: Any) -> Any:
    """Of the first tensor of an element, int32."""
    return tf.shape(tf.nest.flatten(element)[0])[0]


@plain
def counting(state: Any, *element: Any) -> Any:
    """For scan: a running number beside each element."""
    whole = element[0] if len(element) == 1 else element
    return state + numbers_of(element), (state, whole)


@plain
def twice(*element: Any) -> Any:
    """A small dataset of each element."""
    whole = element[0] if len(element) == 1 else element
    return Dataset.from_tensors(whole).repeat(2)


@plain
def windows(*window: Any) -> Any:
    """The elements of a window again, of any structure."""
    return Dataset.zip(window[0] if len(window) == 1 else window)


def batches(size: int) -> Callable[..., Any]:
    """For group_by_window: batches of a group."""
    return plain(lambda _, group: group.batch(size))


@plain
def valid(*element: Any) -> Any:
    """The element, or an error for about one of thirteen."""
    whole = element[0] if len(element) == 1 else element
    with tf.control_dependencies(
        [tf.debugging.assert_none_equal(numbers_of(element) % 13, tf.constant(5, tf.int64))]
    ):
        return tf.nest.map_structure(tf.identity, whole, expand_composites=True)


@plain
def of_record(record: Any) -> Any:
    """The number in a record."""
    return tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([], tf.int64)})["x"]


@plain
def record_dataset(path: Any) -> Any:
    """The records of one file."""
    return tf.data.TFRecordDataset(path)


def generate() -> Any:
    """A Python generator."""
    yield from ((index, float(index) / 3) for index in range(9))


def in_any_order() -> Any:
    """Options that give up the order of what is parallel."""
    options = Options()
    options.deterministic = False
    return options


def in_a_pool(threads: int) -> Any:
    """Options of a private pool."""
    options = Options()
    options.threading.private_threadpool_size = threads
    return options
