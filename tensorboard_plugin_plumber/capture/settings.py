"""The settings of an operator, as they stand in the graph."""

from __future__ import annotations

import os
from typing import Any

from tensorboard_plugin_plumber.capture import cardinality, construction, graphs
from tensorboard_plugin_plumber.capture.graphs import Node
from tensorboard_plugin_plumber.capture.written import Written
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

AUTOTUNE = -1
INFINITE = cardinality.INFINITE
UNKNOWN = cardinality.UNKNOWN
# Functions of these are called for every element they deliver or take.
_CALLS = frozenset(
    {
        "MapDataset",
        "ParallelMapDataset",
        "MapAndBatchDataset",
        "FilterDataset",
        "ParallelFilterDataset",
        "ScanDataset",
        "TakeWhileDataset",
        "GroupByWindowDataset",
        "GroupByReducerDataset",
        "GeneratorDataset",
        "MapOnGpuDataset",
    }
)
_COUNTS = {
    "TakeDataset": "count",
    "SkipDataset": "count",
    "RepeatDataset": "count",
    "ShardDataset": "num_shards",
    "RangeDataset": "stop",
    "WindowDataset": "size",
    "ShuffleAndRepeatDataset": "count",
}
_BUFFERS = {
    "PrefetchDataset": "buffer_size",
    "ShuffleDataset": "buffer_size",
    "ShuffleAndRepeatDataset": "buffer_size",
    "ParallelInterleaveDataset": "buffer_output_elements",
}


def options_of(dataset: Any) -> Any:
    """The options in force; as Python keeps them, for the first question to TensorFlow takes milliseconds."""
    stack = [dataset]
    while stack:
        one = stack.pop()
        inputs = construction.inputs_of(one)
        # What was made from a variant has options that only TensorFlow knows.
        if type(one).__name__ == "_VariantDataset" or getattr(one, "_options_attr", None) is None:
            return dataset.options()
        stack += inputs
    return dataset._options_attr


def usable_cores() -> int:
    """Cores as tf.data counts them: those the process may be scheduled on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def fill_operator(out: m.Operator, operator: Written) -> None:
    """Sets the settings of an operator as written, where the graph tells them."""
    node = operator.head
    base = graphs.base_op(node.op)
    calls = _integer(node, "num_parallel_calls")
    if base == "LegacyParallelInterleaveDataset":
        calls = _integer(node, "cycle_length")
    if calls is not None:
        out.num_parallel_calls = calls
    written = deterministic_as_written(node)
    if written is not None:
        out.deterministic = written
    _fill_common(out, node)
    out.components = len(node.proto.attr["output_types"].list.type)
    drop = node.constant("drop_remainder")
    if isinstance(drop, bool):
        out.drop_remainder = drop
    if base == "CacheDataset":
        out.cache_path = str(node.constant("filename") or "")
    unbounded = node.attribute("use_unbounded_threadpool")
    if unbounded is not None and base == "ParallelMapDataset":
        out.use_unbounded_threadpool = bool(unbounded)
    if base in _COUNTS:
        count = _integer(node, _COUNTS[base])
        if count is not None:
            out.count = count
    reshuffle = node.attribute("reshuffle_each_iteration")
    if reshuffle is not None:
        out.reshuffle = bool(reshuffle)


def fill_running(out: m.RunningOperator, node: Node, deterministic: bool) -> None:
    """Sets the settings of a running operator.

    Args:
      deterministic: what the dataset's options say where the operator does not.
    """
    base = graphs.base_op(node.op)
    _fill_common(out, node)
    calls = _integer(node, "num_parallel_calls")
    if base == "LegacyParallelInterleaveDataset":
        calls = _integer(node, "cycle_length")
    if calls is not None:
        out.num_parallel_calls = calls
    out.calls_function = base in _CALLS
    written = deterministic_as_written(node)
    out.deterministic = deterministic if written is None else written
    unbounded = node.attribute("use_unbounded_threadpool")
    if unbounded is not None:
        out.use_unbounded_threadpool = bool(unbounded)


def _fill_common(out: m.Operator | m.RunningOperator, node: Node) -> None:
    base = graphs.base_op(node.op)
    size = _integer(node, "batch_size")
    if size is not None:
        out.batch_size = size
    if base in _BUFFERS:
        buffer = _integer(node, _BUFFERS[base])
        if buffer is not None:
            out.buffer_size = buffer
    if "InterleaveDataset" in base and base != "DirectedInterleaveDataset":
        cycle = _integer(node, "cycle_length")
        if cycle is not None:
            out.cycle_length = resolved_cycle(cycle, _integer(node, "num_parallel_calls"))
        block = _integer(node, "block_length")
        if block is not None:
            out.block_length = block


def resolved_cycle(cycle: int, calls: int | None) -> int:
    """The cycle length that TensorFlow takes for AUTOTUNE on this machine, for so many calls; None: sequential.

    Sequential: a cycle of as many as cores. Parallel with a fixed number of calls: that number, at
    most the cores. Parallel and tuned: a third of the cores, since each open input may also hold
    two threads that prefetch.
    """
    if cycle != AUTOTUNE:
        return cycle
    cores = usable_cores()
    if calls is None:
        return cores
    return min(calls, cores) if calls != AUTOTUNE else -(-cores // 3)


def deterministic_as_written(node: Node) -> bool | None:
    """The operator's own `deterministic`; None where it leaves that to the options."""
    value: Any = node.attribute("deterministic")
    if isinstance(value, bytes):
        return {b"true": True, b"false": False}.get(value)
    sloppy = node.attribute("sloppy")
    return None if sloppy is None else not sloppy


def _integer(node: Node, argument: str) -> int | None:
    value = node.constant(argument)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def cardinality_of(operator: Written, known: dict[int, int | None] | None = None) -> int:
    """Elements of one pass: what TensorFlow says of the live object, else by the operator's rule.

    Args:
      known: as for `cardinality.cardinality_of`.
    """
    dataset = operator.pair.dataset
    if dataset is not None and hasattr(getattr(dataset, "_variant_tensor", None), "numpy"):
        return cardinality.cardinality_of(dataset, known)
    return _cardinality(operator.head)


def _cardinality(node: Node) -> int:
    base = graphs.base_op(node.op)
    below = [_cardinality(one) for one in node.inputs]
    first = below[0] if below else UNKNOWN
    if base == "TensorDataset":
        return 1
    if base == "TensorSliceDataset":
        components = node.inputs_named("components")
        return _or_unknown(graphs.leading_dimension(components[0]) if components else None)
    if base == "RangeDataset":
        values = [_integer(node, name) for name in ("start", "stop", "step")]
        if None in values:
            return UNKNOWN
        start, stop, step = (int(one or 0) for one in values)
        return len(range(start, stop, step)) if step else UNKNOWN
    if base == "RepeatDataset":
        count = _integer(node, "count")
        return UNKNOWN if count is None else cardinality.repeated(first, count)
    if base == "TakeDataset":
        count = _integer(node, "count")
        return UNKNOWN if count is None else cardinality.taken(first, count)
    if base == "SkipDataset":
        count = _integer(node, "count")
        return (UNKNOWN if first >= 0 else first) if count is None else cardinality.skipped(first, count)
    if base in ("BatchDataset", "ParallelBatchDataset", "PaddedBatchDataset"):
        size, drop = _integer(node, "batch_size"), bool(node.constant("drop_remainder"))
        return cardinality.batched(first, size, drop) if size else first
    if base == "ZipDataset":
        if UNKNOWN in below:
            return UNKNOWN
        finite = [one for one in below if one >= 0]
        return min(finite) if finite else INFINITE
    if base in (
        "MapDataset",
        "ParallelMapDataset",
        "PrefetchDataset",
        "ShuffleDataset",
        "CacheDataset",
        "ScanDataset",
    ):
        return first
    return UNKNOWN


def _or_unknown(value: int | None) -> int:
    return UNKNOWN if value is None else value
