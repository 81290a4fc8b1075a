"""TensorFlow's own counters of elements by kind of operator, which it keeps for monitoring.

A node of the model adds its elements to them when it is dropped, and all nodes do now and then. No Python function
reads them; the C++ function that hands out a counter is declared in the headers that TensorFlow installs for custom
operators, and its mangled name tells its arguments. Where it is not found under that name there are no counts.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard_plugin_plumber.capture.align import normal

_COUNTER = (
    "_ZN10tensorflow7metrics24GetTFDataElementsCounterERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
)
# What a counter is in memory was looked up in the headers of these.
_VERSIONS = ("2.17.", "2.18.", "2.19.", "2.20.", "2.21.")
_LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
# Nodes whose elements are counted. What is not among them is estimated.
_NAMES = re.findall(
    r"\w+",
    """
    Root Range TensorSlice FromTensor Tensor Generator Random TFRecord TFRecordV2 TextLine FixedLengthRecord
    FixedLengthRecordV2 CSV CSVV2 SparseTensorSlice MatchingFiles Map ParallelMap ParallelMapV2 MapAndBatch Filter
    ParallelFilter Batch BatchV2 ParallelBatch PaddedBatch PaddedBatchV2 Unbatch Rebatch RebatchV2 FlatMap Interleave
    ParallelInterleaveV2 ParallelInterleaveV3 ParallelInterleaveV4 GroupByWindow GroupByReducer Window SlidingWindow
    Shuffle ShuffleV2 ShuffleV3 ShuffleAndRepeat ShuffleAndRepeatV2 Repeat FiniteRepeat ForeverRepeat EmptyRepeat
    Take FiniteTake EmptyTake Skip FiniteSkip EmptySkip TakeWhile Shard Zip Concatenate DirectedInterleave Prefetch
    Cache MemoryCache FileCache Scan Unique IgnoreErrors DenseToSparseBatch Sampling Options AssertCardinality
    ParseExample ParseExampleV2
    """,
)

_left_out: collections.Counter[str] = collections.Counter()


class _String(ctypes.Structure):
    """A `std::string` of libstdc++, as long as nobody writes to it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("capacity", ctypes.c_size_t),
        ("_rest", ctypes.c_size_t),
    )


def flushed() -> Mapping[str, int] | None:
    """Elements so far in this process, by kind of operator as in `align.normal`; None where they cannot be had."""
    # Several times per iterator: each microsecond counts.
    found = {kind: cell.value for kind, cell in _single_cells().items()}
    for kind, cells in _shared_cells().items():
        found[kind] = sum(cell.value for cell in cells)
    for kind, left_out in _left_out.items():
        if kind in found:
            found[kind] -= left_out
    return found or None


def leave_out(model: Any) -> None:
    """Takes no account any more of what an iterator has made, which is about to be dropped.

    Args:
      model: its last `tensorflow.data.model.ModelProto`; none of its nodes were dropped before.
    """
    for node in model.nodes.values():
        _left_out[normal(node.name)] += node.num_elements


@functools.cache
def _single_cells() -> Mapping[str, ctypes.c_int64]:
    """Of kinds with one name."""
    names = collections.Counter(kind for kind, _ in _cells())
    return {kind: cell for kind, cell in _cells() if names[kind] == 1}


@functools.cache
def _shared_cells() -> Mapping[str, tuple[ctypes.c_int64, ...]]:
    """Of kinds with several names."""
    found: dict[str, tuple[ctypes.c_int64, ...]] = {}
    for kind, cell in _cells():
        if kind not in _single_cells():
            found[kind] = (*found.get(kind, ()), cell)
    return found


@functools.cache
def _cells() -> tuple[tuple[str, ctypes.c_int64], ...]:
    if sys.platform != "linux":
        return ()
    counter_of = _counter_of()
    if counter_of is None:
        return ()
    found = []
    for name in _NAMES:
        encoded = ctypes.create_string_buffer(name.encode())
        string = _String(ctypes.addressof(encoded), len(name), len(name), 0)
        address = counter_of(ctypes.byref(string))
        if address:  # counters are never dropped; one is nothing but its value
            found.append((normal(name), ctypes.c_int64.from_address(address)))
    return tuple(found)


def _counter_of() -> ctypes._NamedFuncPointer | None:
    import tensorflow as tf

    if not tf.__version__.startswith(_VERSIONS):
        return None
    folder = Path(tf.__file__).parent
    for library in _LIBRARIES:
        try:
            function: ctypes._NamedFuncPointer = getattr(ctypes.CDLL(str(folder / library)), _COUNTER)
        except (OSError, AttributeError):
            continue
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_void_p
        return function
    return None
