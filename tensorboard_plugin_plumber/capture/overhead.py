"""What one call of a user's function costs beside its kernels, which is all that TensorFlow counts.

Measured once per process and kind of operator, on a function of a few cheap operations, by the
CPU time of the threads that run it; never fitted to the user's pipeline. The number of operations and of
tensors matters little next to the kind (docs/model.md). Parallel maps count their
calls themselves: their processing time runs from the beginning of the call to its end, and nothing is left over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture import flushed, iterators, threads
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_CALLS = 50
_ROUNDS = 6
_OPERATIONS = 4


@dataclass(frozen=True)
class _Kind:
    """What the cost of a call depends on."""

    family: str  # "sequential" or "batch"
    python: bool


_lock = threading.Lock()
_measured: dict[_Kind, float] = {}


def is_missing(pipeline: m.Pipeline) -> bool:
    """Whether some operator of the pipeline is of a kind that was not measured yet."""
    return any(kind not in _measured for _, kind in _calling(pipeline))


def calibrate(pipelines: Iterable[m.Pipeline]) -> None:
    """Measures the kinds that these pipelines need: about 20 ms of CPU for each, once per process.

    Call it where nothing waits for it; its own iterators are nobody's pipeline.
    """
    with _lock:
        for pipeline in pipelines:
            for _, kind in _calling(pipeline):
                if kind not in _measured:
                    _measured[kind] = 0.0  # where measuring fails, it is not tried again
                    _measured[kind] = _measure(kind)


def fill(pipeline: m.Pipeline) -> None:
    """Writes what was measured into the pipeline's running operators."""
    for operator, kind in _calling(pipeline):
        operator.call_overhead_s = _measured.get(kind, 0.0)


def _calling(pipeline: m.Pipeline) -> list[tuple[m.RunningOperator, _Kind]]:
    python = {operator.id for operator in pipeline.operators if operator.function.python}
    return [
        (operator, _Kind(family, not python.isdisjoint(operator.operators)))
        for operator in pipeline.running
        if operator.calls_function and (family := _family(operator.type))
    ]


def _family(running_type: str) -> str:
    """Empty where processing times hold the calls already."""
    if "MapAndBatch" in running_type:
        return "batch"
    return "" if running_type.startswith("Parallel") else "sequential"


def _measure(kind: _Kind) -> float:
    """Seconds of one call that the processing time does not contain."""
    with iterators.seen_only_by():
        before = threads.thread_ids()
        iterator = iter(_dataset(kind))
        next(iterator)  # the first call traces and warms up
        pool = threads.thread_ids() - before
        handle = iterators.Handle(iterator, lambda _: None)
        used, processing = [], []
        for _ in range(_ROUNDS):
            processing_s, used_s, began_s = _processing_s(handle), _used_s(pool), time.perf_counter()
            next(iterator)
            wall_s = time.perf_counter() - began_s
            # Threads that somebody else started meanwhile can make it too much, never beyond the wall.
            used.append(min(_used_s(pool) - used_s, wall_s) if pool else wall_s)
            processing.append(_processing_s(handle) - processing_s)
        flushed.leave_out(_model(handle))
        handle.detach()
    # Each by itself: on a crowded host kernels take longer on the clock, and more so in one round than in another.
    return max(0.0, min(used) - min(processing)) / _CALLS


def _dataset(kind: _Kind) -> Any:
    function = _python if kind.python else _native
    options = tf.data.Options()
    options.autotune.enabled = True
    options.autotune.cpu_budget = 1
    # As written: nothing fused, nothing run ahead.
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_and_batch_fusion = kind.family == "batch"
    options.threading.private_threadpool_size = 1
    dataset = tf.data.Dataset.range(_CALLS * (_ROUNDS + 2))
    return dataset.map(function).batch(_CALLS).with_options(options)


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _native(x: Any) -> Any:
    # Tracing what TensorFlow's dispatch and overloads add would cost as much as all the rest.
    y = tf.raw_ops.Cast(x=x, DstT=tf.float32)
    for _ in range(_OPERATIONS):
        y = tf.raw_ops.Sin(x=y)
    return y, x


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _python(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(lambda value: value, [x], tf.int64), ())


def _processing_s(handle: iterators.Handle) -> float:
    return float(sum(node.processing_time for node in _model(handle).nodes.values())) * 1e-9


def _model(handle: iterators.Handle) -> Any:
    content = handle.read()
    assert content is not None
    return iterators.parse_model(content)


def _used_s(pool: Iterable[int]) -> float:
    """CPU seconds so far of the calling thread and of the pool."""
    times = (threads.thread_time(thread_id) for thread_id in pool)
    return time.thread_time() + sum(t.cpu_s for t in times if t is not None)
