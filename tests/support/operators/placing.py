"""Transformations that move elements: to a device, to and from other processes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.operators.case import Bench, table

Dataset = tf.data.Dataset
CASES, operator = table()
BEHIND = "below the transfer nothing is counted: TensorFlow hides the iterator that runs it"
ON_WORKERS = "what runs on the workers is not counted here"
# A function's graph does not show what a transfer or a service takes its elements from.
NOT_IN = frozenset({"in_an_interleave"})


@operator(
    "experimental.prefetch_to_device",
    "PrefetchToDevice 15\n  Batch remote\n    Map remote\n      Range remote",
    not_in=NOT_IN,
    unseen=BEHIND,
)
def prefetch_to_device(bench: Bench) -> Any:
    numbers = Dataset.range(60).map(bench.counted("seen")).batch(4)  # Range, Map, Batch
    return numbers.apply(tf.data.experimental.prefetch_to_device("/cpu:0"))  # PrefetchToDevice


@operator(
    "experimental.copy_to_device",
    "CopyToDevice 15\n  Batch remote\n    Map remote\n      Range remote",
    not_in=NOT_IN,
    unseen=BEHIND,
)
def copy_to_device(bench: Bench) -> Any:
    numbers = Dataset.range(60).map(bench.counted("seen")).batch(4)  # Range, Map, Batch
    return numbers.apply(tf.data.experimental.copy_to_device("/cpu:0"))  # CopyToDevice


@operator(
    "experimental.copy_to_device",
    "Map 15 @ParallelMapV2\n  CopyToDevice 15\n    Batch remote\n      Range remote",
    not_in=NOT_IN,
    unseen=BEHIND,
)
def copy_to_device_then_map(bench: Bench) -> Any:
    numbers = Dataset.range(60).batch(4)  # Range, Batch
    copied = numbers.apply(tf.data.experimental.copy_to_device("/cpu:0"))  # CopyToDevice
    return copied.map(lambda x: x + 1)  # Map


@operator(
    "experimental.service.distribute experimental.service.DispatchServer experimental.service.WorkerServer",
    "Map 15 @ParallelMapV2\n  DataService 15\n    Batch remote\n      Map:2 remote\n        Range remote",
    not_in=NOT_IN,
    unseen=ON_WORKERS,
)
def distribute(bench: Bench) -> Any:
    numbers = Dataset.range(60).map(lambda x: x + 1).batch(4)  # Range, Map:2, Batch
    service = bench.service
    distributed = numbers.apply(  # DataService
        tf.data.experimental.service.distribute("parallel_epochs", service)
    )
    return distributed.map(lambda x: x * 2)  # Map


@operator(
    "experimental.service.register_dataset experimental.service.from_dataset_id",
    "DataService 60",
    not_in=NOT_IN,
    unseen=ON_WORKERS,
)
def from_dataset_id(bench: Bench) -> Any:
    numbers = Dataset.range(60)
    identifier = tf.data.experimental.service.register_dataset(bench.service, numbers)
    return tf.data.experimental.service.from_dataset_id(  # DataService
        "parallel_epochs", bench.service, identifier, numbers.element_spec
    )
