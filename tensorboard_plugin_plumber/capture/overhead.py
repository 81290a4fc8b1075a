"""What one call of a user's function costs beside its kernels, which is all that TensorFlow counts.

Measured once per process, and apart for functions in Python, on a function of a few cheap operations, by the
CPU time of the threads that run it; never fitted to the user's pipeline. The number of operations and of
tensors matters little (docs/model.md). Parallel maps, those fused with a batch among them, count their
calls themselves: their processing time runs from the beginning of the call to its end, and nothing is left over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from tensorboard_plugin_plumber.capture import call_graph, flushed, iterators, threads
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_CALLS = 50
_ROUNDS = 6
# Operators whose processing times hold the calls.
_COUNTING_CALLS = ("Parallel", "MapAndBatch")


_lock = threading.Lock()
# By whether the function is one in Python.
_measured: dict[bool, float] = {}


def is_missing(pipeline: m.Pipeline) -> bool:
    """Whether some operator of the pipeline makes calls that were not measured yet."""
    return any(python not in _measured for _, python in _calling(pipeline))


def calibrate(pipelines: Iterable[m.Pipeline]) -> None:
    """Measures the calls that these pipelines make: 10 to 30 ms of CPU, once per process.

    Call it where nothing waits for it; its own iterators are nobody's pipeline.
    """
    with _lock:
        for pipeline in pipelines:
            for _, python in _calling(pipeline):
                if python not in _measured:
                    _measured[python] = 0.0  # where measuring fails, it is not tried again
                    _measured[python] = _measure(python)


def fill(pipeline: m.Pipeline) -> None:
    """Writes what was measured into the pipeline's running operators."""
    for operator, python in _calling(pipeline):
        operator.call_overhead_s = _measured.get(python, 0.0)


def _calling(pipeline: m.Pipeline) -> list[tuple[m.RunningOperator, bool]]:
    """The operators whose processing times do not hold the calls, and whether Python is called."""
    python = {operator.id for operator in pipeline.operators if operator.function.python}
    return [
        (operator, not python.isdisjoint(operator.operators))
        for operator in pipeline.running
        if operator.calls_function and not operator.type.startswith(_COUNTING_CALLS)
    ]


def _measure(python: bool) -> float:
    """Seconds of one call that the processing time does not contain."""
    before = threads.thread_ids()
    with context.eager_mode(), ops.device(None):
        calls = call_graph.Calls(python=python, batch=_CALLS, batches=_ROUNDS + 2)
        calls.take()  # the first calls warm up
        pool = threads.thread_ids() - before
        model = _model(calls)
        used, processing = [], []
        for _ in range(_ROUNDS):
            used_s, began_s = _used_s(pool), time.perf_counter()
            calls.take()
            wall_s = time.perf_counter() - began_s
            # Threads that somebody else started meanwhile can make it too much, never beyond the wall.
            used.append(min(_used_s(pool) - used_s, wall_s) if pool else wall_s)
            last, model = model, _model(calls)
            processing.append(_processing_s(model) - _processing_s(last))
    flushed.leave_out(model)
    # Each by itself: on a crowded host kernels take longer on the clock, and more so in one round than in another.
    return max(0.0, min(used) - min(processing)) / _CALLS


def _model(calls: call_graph.Calls) -> Any:
    return iterators.parse_model(iterators.read_model(calls.resource))


def _processing_s(model: Any) -> float:
    return float(sum(node.processing_time for node in model.nodes.values())) * 1e-9


def _used_s(pool: Iterable[int]) -> float:
    """CPU seconds so far of the calling thread and of the pool."""
    times = (threads.thread_time(thread_id) for thread_id in pool)
    return time.thread_time() + sum(t.cpu_s for t in times if t is not None)
