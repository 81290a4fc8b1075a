"""Sources: what makes elements out of nothing, memory, Python or files."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.operators.case import Bench, table

Dataset = tf.data.Dataset
CASES, operator = table()


@operator("Dataset.range", "Range 60")
def range_(bench: Bench) -> Any:
    return Dataset.range(60)  # Range


@operator("Dataset.from_tensors", "Tensor 1")
def from_tensors(bench: Bench) -> Any:
    return Dataset.from_tensors([1, 2])  # Tensor


@operator("Dataset.from_tensor_slices", "TensorSlice 60")
def from_tensor_slices(bench: Bench) -> Any:
    return Dataset.from_tensor_slices(np.arange(60))  # TensorSlice


@operator("experimental.from_list", "List 60")
def from_list(bench: Bench) -> Any:
    return tf.data.experimental.from_list(list(range(60)))  # List


@operator("Dataset.from_generator", "Generator 60")
def from_generator(bench: Bench) -> Any:
    def numbers() -> Any:
        yield from range(60)

    return Dataset.from_generator(  # Generator
        numbers, output_signature=tf.TensorSpec([], tf.int64)
    )


@operator("Dataset.random", "Random 60", steps=60)
def random(bench: Bench) -> Any:
    return Dataset.random(seed=1)  # Random


@operator("Dataset.counter", "Counter 60", steps=60)
def counter(bench: Bench) -> Any:
    return Dataset.counter(start=3)  # Counter


@operator("Dataset.list_files", "ListFiles 3")
def list_files(bench: Bench) -> Any:
    pattern = f"{bench.directory}/part-*.tfrecord"
    bench.records  # noqa: B018 - writes them
    return Dataset.list_files(pattern)  # ListFiles


@operator("Dataset.list_files", "ListFiles 3")
def list_files_in_order(bench: Bench) -> Any:
    return Dataset.list_files(bench.records, shuffle=False)  # ListFiles


@operator("TFRecordDataset", "TFRecord 60")
def tfrecord(bench: Bench) -> Any:
    return tf.data.TFRecordDataset(bench.records)  # TFRecord


@operator("TFRecordDataset", "TFRecord 60")
def tfrecord_parallel(bench: Bench) -> Any:
    return tf.data.TFRecordDataset(bench.records, num_parallel_reads=2)  # TFRecord


@operator("TextLineDataset", "TextLine 60")
def text_line(bench: Bench) -> Any:
    return tf.data.TextLineDataset(bench.texts)  # TextLine


@operator("FixedLengthRecordDataset", "FixedLengthRecord 60")
def fixed_length_record(bench: Bench) -> Any:
    return tf.data.FixedLengthRecordDataset(bench.fixed, 4)  # FixedLengthRecord


@operator("experimental.CsvDataset", "CSV 60")
def csv(bench: Bench) -> Any:
    return tf.data.experimental.CsvDataset(bench.tables, [tf.int64, tf.int64], header=True)  # CSV


@operator(
    "experimental.make_csv_dataset",
    """
    Prefetch 20
      Map dropped
        Batch 20
          ParallelInterleave 60
            TensorSlice ?
            * CSV 60
    """,
)
def make_csv_dataset(bench: Bench) -> Any:
    make = tf.data.experimental.make_csv_dataset
    return make(  # Prefetch, Map, Batch, ParallelInterleave, TensorSlice, CSV
        bench.tables, batch_size=3, num_epochs=1, shuffle=False, num_rows_for_inference=5
    )


@operator(
    "experimental.make_batched_features_dataset",
    """
    Prefetch 20
      ParseExample 20
        Batch 20
          ParallelInterleave 60
            TensorSlice ?
            * TFRecord 60
    """,
)
def make_batched_features_dataset(bench: Bench) -> Any:
    make = tf.data.experimental.make_batched_features_dataset
    return make(  # Prefetch, ParseExample, Batch, ParallelInterleave, TensorSlice, TFRecord
        bench.records,
        batch_size=3,
        features={"x": tf.io.FixedLenFeature([], tf.int64)},
        num_epochs=1,
        shuffle=False,
    )


@operator("experimental.SqlDataset", "Sql 20")
def sql(bench: Bench) -> Any:
    import sqlite3

    path = bench.path()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE numbers (x INTEGER)")
        connection.executemany("INSERT INTO numbers VALUES (?)", [(index,) for index in range(20)])
    return tf.data.experimental.SqlDataset("sqlite", path, "SELECT x FROM numbers", (tf.int64,))  # Sql
