"""Writes the programs: a source, some operators above it, each chosen among those that its input's elements allow."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tests.support.random_pipelines import functions
from tests.support.random_pipelines.functions import Files

_MOST_OPERATORS = 6
_UNSEEDED = re.compile(r"shuffle\(\d+\)|jitter\b|random\(\)|0\.5\]\)")
# Calls in no order draw in no order, whatever the seed.
_OUT_OF_ORDER = re.compile(r"jitter\b.*num_parallel_calls")
# Elements that a pipeline of the kind gives at most, about.
_MOST_ELEMENTS = 150


@dataclass(frozen=True)
class Pipeline:
    """A program that makes a dataset.

    Attributes:
      number: the seed that it was made from.
      lines: its code; the dataset is `d`.
      files: which it reads.
      global_seed: what TensorFlow's random operators start from; None: nothing.
    """

    number: int
    lines: tuple[str, ...]
    files: Files
    global_seed: int | None

    @property
    def code(self) -> str:
        """The program, to be looked at."""
        return "\n".join((f"tf.random.set_seed({self.global_seed})", *self.lines))

    def build(self) -> Any:
        """A new dataset; each one starts from the same state if there is a global seed."""
        tf.random.set_seed(self.global_seed)
        names = _names(self.files)
        exec("\n".join(self.lines), names)
        return names["d"]

    @property
    def draws_freely(self) -> bool:
        """No seed decides its draws."""
        if any(_OUT_OF_ORDER.search(line) for line in self.lines):
            return True
        return self.global_seed is None and any(_UNSEEDED.search(line) for line in self.lines)

    @property
    def order_is_open(self) -> bool:
        """It does not promise the order of its elements."""
        return any("deterministic=False" in line or "in_any_order" in line for line in self.lines)


def generated(number: int, files: Files, *, costly: bool = False) -> Pipeline:
    """The program of that number.

    Args:
      files: to read from.
      costly: its elements take milliseconds each, so that a rewrite can make it faster.
    """
    chance = random.Random(number)
    global_seed = None if chance.random() < 0.3 else number + 1
    lines = [f"d = {chance.choice(SOURCES)}"]
    names = _names(files)
    if costly:
        exec(lines[0], names)
        lines.append(f"d = d.map({chance.choice(('slowly', 'at_a_cost'))})")
    for _ in range(chance.randint(1, _MOST_OPERATORS)):
        exec(lines[-1], names)
        dataset = names["d"]
        line = chance.choice(list(_above(dataset.element_spec, int(dataset.cardinality()), chance)))
        lines.append(f"d = {line}")
    return Pipeline(number, tuple(lines), files, global_seed)


def _names(files: Files) -> dict[str, Any]:
    return {**vars(functions), "files": files}


SOURCES = (
    "Dataset.range(40)",
    "Dataset.range(3, 33, 3, output_type=tf.int32)",
    "Dataset.from_tensor_slices(np.arange(24, dtype=np.float32).reshape(8, 3) / 7)",
    "Dataset.from_tensor_slices({'x': np.arange(12), 'y': [f't{i}' for i in range(12)]})",
    "Dataset.from_tensor_slices((np.arange(10), np.linspace(0, 1, 10)))",
    "Dataset.from_tensor_slices(['one', 'two', 'three', 'two', 'five'])",
    "Dataset.from_tensor_slices(tf.ragged.constant([[1, 2], [3], [], [4, 5, 6], [7]], dtype=tf.int64))",
    "Dataset.from_tensor_slices(tf.sparse.from_dense(np.eye(6, dtype=np.int64)))",
    "Dataset.from_tensors(np.arange(5)).repeat(4)",
    "Dataset.range(7).map(plain(lambda x: tf.range(x)))",
    "Dataset.from_generator(generate, output_signature=(tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.float32)))",
    "tf.data.TFRecordDataset(files.records).map(of_record)",
    "tf.data.TFRecordDataset(files.records, num_parallel_reads=2)",
    "Dataset.from_tensor_slices(files.records).interleave(record_dataset, cycle_length=2).map(of_record)",
    "Dataset.from_tensor_slices(files.records).interleave(record_dataset, num_parallel_calls=2).batch(3)",
    "Dataset.from_tensor_slices(files.records).flat_map(record_dataset)",
    "tf.data.TextLineDataset(files.texts)",
    "tf.data.FixedLengthRecordDataset(files.fixed, 4, header_bytes=2)",
    "tf.data.experimental.CsvDataset(files.table, [tf.int64, tf.string], header=True)",
    "tf.data.experimental.SqlDataset('sqlite', files.database, 'select x from numbers', (tf.int64,))",
    "Dataset.load(files.saved)",
    "tf.data.experimental.from_list([1, 2, 3, 5, 8, 13])",
    "Dataset.list_files(files.texts, shuffle=False)",
    "Dataset.list_files(files.records, seed=3)",
    "Dataset.random(seed=5).take(12)",
    "Dataset.random().take(12)",
    "Dataset.counter(3, 2).take(15)",
    "Dataset.zip((Dataset.range(12), Dataset.range(5, 20)))",
    "Dataset.sample_from_datasets([Dataset.range(9), Dataset.range(50, 62)], [0.3, 0.7], seed=2)",
    "Dataset.choose_from_datasets([Dataset.range(9), Dataset.range(50, 62)], Dataset.range(2).repeat(8))",
)


@dataclass(frozen=True)
class _Elements:
    """What an operator must know of its input."""

    spec: Any
    cardinality: int

    @property
    def parts(self) -> list[Any]:
        return list(tf.nest.flatten(self.spec))

    @property
    def are_tensors(self) -> bool:
        return all(isinstance(one, tf.TensorSpec) for one in self.parts)

    @property
    def are_known(self) -> bool:
        """Tensors, ragged or sparse: no datasets."""
        kinds = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)
        return all(isinstance(one, kinds) for one in self.parts)

    @property
    def are_whole(self) -> bool:
        """Tensors that fit into one batch."""
        return self.are_tensors and all(one.shape.is_fully_defined() for one in self.parts)

    @property
    def have_rank(self) -> bool:
        return self.are_tensors and all(one.shape.rank is not None for one in self.parts)

    @property
    def are_batches(self) -> bool:
        """Tensors of one length."""
        if not self.have_rank or any(one.shape.rank == 0 for one in self.parts):
            return False
        return len({one.shape[0] for one in self.parts}) == 1 and (
            len(self.parts) == 1 or self.parts[0].shape[0] is None
        )

    @property
    def are_vectors(self) -> bool:
        return self.have_rank and len(self.parts) == 1 and self.parts[0].shape.rank == 1

    @property
    def are_scalars(self) -> bool:
        return self.are_tensors and len(self.parts) == 1 and self.parts[0].shape.rank == 0


def _above(spec: Any, cardinality: int, chance: random.Random) -> Iterator[str]:
    """Operators that may stand above elements of a kind."""
    elements = _Elements(spec, cardinality)
    for allowed, operators in OPERATORS:
        if allowed(elements):
            for operator in operators:
                if "repeat" in operator and not 0 <= cardinality < _MOST_ELEMENTS:
                    continue
                yield operator.format(
                    size=chance.randint(2, 4),
                    seed=chance.randint(1, 99),
                    calls=chance.randint(2, 4),
                    cardinality=cardinality,
                )


OPERATORS: tuple[tuple[Callable[[_Elements], bool], tuple[str, ...]], ...] = (
    (
        lambda one: True,
        (
            "d.shuffle({size}0, seed={seed})",
            "d.shuffle({size}, seed={seed}, reshuffle_each_iteration=False)",
            "d.shuffle({size}0)",
            "d.repeat({size})",
            "d.take(2{size})",
            "d.skip({size})",
            "d.shard({size}, 1)",
            "d.enumerate()",
            "d.prefetch({size})",
            "d.prefetch(AUTOTUNE)",
            "d.concatenate(d.take({size}))",
            "Dataset.zip((d, d.skip(1)))",
            "Dataset.zip({{'a': d, 'n': Dataset.range(99)}})",
            "Dataset.sample_from_datasets([d, d.skip(2)], seed={seed})",
            "Dataset.sample_from_datasets([d, d.skip(2)], [0.5, 0.5])",
            "Dataset.choose_from_datasets([d, d.take(4)], Dataset.range(2).repeat({size}))",
            "d.with_options(in_a_pool({size}))",
            "d.with_options(in_any_order())",
            "d.apply(lambda one: one.skip(1))",
            "d.window({size}, drop_remainder=True).flat_map(windows)",
            "d.window({size}, shift=2, stride=2).flat_map(windows)",
            "d.ignore_errors()",
            "d.window({size})",
        ),
    ),
    (
        lambda one: one.are_known,
        (
            "d.map(bump)",
            "d.map(shrink)",
            "d.map(bump).map(shrink, num_parallel_calls={calls})",
            "d.map(bump, num_parallel_calls=AUTOTUNE)",
            "d.map(bump, num_parallel_calls={calls}, deterministic=False)",
            "d.map(jitter)",
            "d.map(jitter, num_parallel_calls={calls})",
            "d.map(jitter_with_seed)",
            "d.map(jitter_stateless)",
            "d.map(through_python)",
            "d.map(valid)",
            "d.map(valid).ignore_errors()",
            "d.filter(keep)",
            "d.take_while(small)",
            "d.cache()",
            "d.map(bump).cache()",
            "d.scan(np.int64(0), counting)",
            "d.interleave(twice, cycle_length={size}, block_length=1)",
            "d.interleave(twice, cycle_length=4, num_parallel_calls={calls})",
            "d.interleave(twice, num_parallel_calls=AUTOTUNE)",
            "d.flat_map(twice)",
            "d.map(shrink).prefetch({size})",
            "d.apply(tf.data.experimental.parallel_interleave(twice, cycle_length=2, sloppy=False))",
        ),
    ),
    (
        lambda one: one.are_whole,
        (
            "d.batch({size})",
            "d.batch({size}, drop_remainder=True)",
            "d.map(bump).batch({size}, num_parallel_calls={calls})",
            "d.batch({size}).map(bump)",
            "d.group_by_window(key, batches({size}), {size})",
            "d.batch({size}).unbatch()",
            "d.batch(3).rebatch({size})",
            "d.apply(tf.data.experimental.map_and_batch(bump, {size}))",
            "d.apply(tf.data.experimental.map_and_batch(bump, {size}, num_parallel_calls={calls}))",
            "d.apply(tf.data.experimental.group_by_reducer(key, counted_up))",
        ),
    ),
    (
        lambda one: one.have_rank,
        ("d.padded_batch({size})", "d.padded_batch({size}, drop_remainder=True)", "d.ragged_batch({size})"),
    ),
    (lambda one: one.are_batches, ("d.unbatch()", "d.rebatch({size})")),
    (lambda one: one.are_scalars, ("d.unique()",)),
    (
        lambda one: one.cardinality >= 0,
        ("d.filter(everything).apply(tf.data.experimental.assert_cardinality({cardinality}))",),
    ),
    (
        lambda one: one.are_vectors,
        (
            "d.bucket_by_sequence_length(length, [2, 4], [2, 3, 2])",
            "d.bucket_by_sequence_length(length, [3], [{size}, 2], drop_remainder=True)",
            "d.apply(tf.data.experimental.dense_to_sparse_batch({size}, [50]))",
        ),
    ),
)
