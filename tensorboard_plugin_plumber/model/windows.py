"""Windows: differences between successive samples of one pipeline, in one stationary state.

Counters are cumulative, so a window is the difference of two snapshots and nothing from before the first
snapshot (tracing, first calls, the fill of a shuffle buffer) is ever averaged in. Windows of different states
(other parallelism in force, a cache that filled and now serves) are never averaged either: only the last
state's are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tensorboard_plugin_plumber.schema import measurement_pb2 as m

Array = npt.NDArray[np.float64]

#: Windows that a recording is cut into, at most: enough for intervals, few enough to hold several steps each.
MOST_WINDOWS = 40
#: A change of state is believed, and what came before it left out, if the new state lasted for this many samples.
STATE_SAMPLES = 4

#: Columns of `Windows.scalars`.
SCALARS = (
    "steps",
    "active_s",
    "elapsed_s",
    "joined_steps",
    "gap_s",
    "step_s",
    "waits_over_1ms",
    "waits_seen",
    "synchronised_steps",
    "synchronised_s",
    "pool_cpu_s",
    "pool_run_queue_s",
    "process_cpu_s",
    "host_cpu_s",
    "consumer_thread_cpu_s",
    "shared_cpu_s",
    "read_bytes",
    "storage_read_bytes",
    "gil_probes",
    "gil_waits",
    "gil_wait_s",
    "pool_gil_probes",
    "gil_waiting_threads",
    "blocked_threads",
    "running_threads",
    "running_squares",
    "blocked_squares",
    "blocked_running",
)

#: Columns of `Windows.spread`.
SPREAD = ("spread_looks", "spread_elements", "spread_time_ns", "spread_squares_ns2")


@dataclass(frozen=True)
class Totals:
    """Sums over some windows of one pipeline; arrays have one entry per running operator."""

    elements: Array
    seen: Array
    time_s: Array
    held_s: Array
    bytes: Array
    scalars: dict[str, float]
    #: Bytes that sources read; NaN for what reads none, or nobody knows how much.
    read_bytes: Array = field(default_factory=lambda: np.empty(0))

    def __getitem__(self, name: str) -> float:
        return self.scalars[name]


@dataclass(frozen=True)
class Windows:
    """W windows over R running operators: arrays are (W, R), `scalars` is (W, len(SCALARS)).

    `scalars` holds NaN where a quantity was not measured. `last` is the newest sample of the pipeline.
    """

    elements: Array
    seen: Array
    time_s: Array
    #: `time_s`, but never more than the operator's calls can last: its kernels may run side by side within one
    #: call, and TensorFlow adds their times up.
    held_s: Array
    bytes: Array
    #: Bytes that sources read; NaN for what reads none, or nobody knows how much.
    read_bytes: Array
    scalars: Array
    #: Sums over all windows from which the spread of single elements follows, (len(SPREAD), R), in ns and ns².
    spread: Array
    #: In force now, per running operator; NaN where the operator has none.
    parallelism: Array
    last: m.PipelineSample

    def __len__(self) -> int:
        return len(self.scalars)

    def total(self, weights: npt.ArrayLike | None = None) -> Totals:
        """Sums, each window counted `weights` times (a bootstrap sample); all once by default."""
        w = np.ones(len(self)) if weights is None else np.asarray(weights, float)
        return Totals(
            elements=w @ self.elements,
            seen=w @ self.seen,
            time_s=w @ self.time_s,
            held_s=w @ self.held_s,
            bytes=w @ self.bytes,
            scalars=dict(zip(SCALARS, (w @ self.scalars).tolist(), strict=True)),
            read_bytes=w @ self.read_bytes,
        )

    @cached_property
    def alternate(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Weights that pick every other quarter of the windows: one half to fit on, the other to check against.

        Quarters, not single windows: elements come in bursts, and what one window has too many of the next one
        lacks.
        """
        quarter = max(len(self) // 4, 1)
        even = (np.arange(len(self)) // quarter % 2 == 0).astype(float)
        return even, 1.0 - even


def windows_of(pipeline: m.Pipeline, index: int, samples: tuple[m.SampleRecord, ...]) -> Windows | None:
    """The windows of the pipeline at `index` of the graph record; None if no sample saw a step of it."""
    seen = [
        (record, part)
        for record in samples
        for part in record.pipelines
        if part.pipeline == index and part.steps > 0
    ]
    clocked = [(record, part) for record, part in seen if part.HasField("pool_cpu_s")]
    if len(clocked) > len(seen) // 2:  # the threads' clocks start a little later than the counters
        seen = clocked
    if not seen:
        return None
    stationary = _last_state(seen)
    chosen = _thin(stationary)
    if len(chosen) < 2:
        chosen = [_before(*chosen[0]), chosen[0]]
    count = len(pipeline.running)
    tables = {
        name: np.array([_column(part, name, count) for _, part in chosen])
        for name in ("elements", "elements_seen", "processing_time_ns", "bytes_produced", *SPREAD)
    }
    scalars = np.diff(
        np.array([[*_scalars(record, part), *_probes(record, part)] for record, part in chosen]), axis=0
    )
    parallelism = _in_force([part for _, part in stationary], count)
    time_s = _differences(tables["processing_time_ns"]) * 1e-9
    most = scalars[:, [SCALARS.index("elapsed_s")]] * _calls(pipeline, parallelism)
    # Without a function there are no kernels side by side: what is too long was estimated too long.
    plain = np.array([not operator.calls_function for operator in pipeline.running])
    time_s = np.where(plain, np.minimum(time_s, most), time_s)
    return Windows(
        elements=_differences(tables["elements"]),
        seen=_differences(tables["elements_seen"]),
        time_s=time_s,
        held_s=np.minimum(time_s, most),
        bytes=_differences(tables["bytes_produced"]),
        read_bytes=_differences(_read_bytes([part for _, part in chosen], count)),
        scalars=scalars,
        spread=np.array([_differences(tables[name]).sum(axis=0) for name in SPREAD]),
        parallelism=parallelism,
        last=seen[-1][1],
    )


_Seen = tuple[m.SampleRecord, m.PipelineSample]


def _before(record: m.SampleRecord, part: m.PipelineSample) -> _Seen:
    """What a sample before the pipeline's first element would have held.

    For a pipeline so short that one sample saw all of it (a validation): its only window holds the warm-up too,
    and one window is never more than tentative.
    """
    earlier = m.SampleRecord(elapsed_s=record.elapsed_s - part.active_s, host=record.host)
    unread = m.PipelineSample(
        pipeline=part.pipeline, operators=[m.OperatorCounters() for _ in part.operators]
    )
    if part.HasField("pool_cpu_s"):
        unread.pool_cpu_s = unread.pool_run_queue_s = 0.0
    if part.HasField("consumer_thread_cpu_s"):
        unread.consumer_thread_cpu_s = 0.0
    return earlier, unread


def _differences(table: Array) -> Array:
    """Differences along time. Estimates of dropped children may be revised downwards: never below zero."""
    return np.maximum(np.diff(table, axis=0), 0.0)


def _column(part: m.PipelineSample, name: str, count: int) -> list[float]:
    values = [float(getattr(counters, name)) for counters in part.operators]
    return values + [0.0] * (count - len(values))


def _read_bytes(parts: list[m.PipelineSample], count: int) -> Array:
    """What sources had read; what is not known of the first samples yet is put at what is known first."""
    table = np.full((len(parts), count), np.nan)
    for row, part in zip(table, parts, strict=True):
        for i, counters in enumerate(part.operators):
            if counters.HasField("read_bytes"):
                row[i] = counters.read_bytes
    for column in table.T:
        known = np.isfinite(column)
        if known.any():
            column[~known] = column[known][0]
    return table


def _scalars(record: m.SampleRecord, part: m.PipelineSample) -> list[float]:
    known = part.HasField("pool_cpu_s") and part.HasField("pool_run_queue_s")
    return [
        part.steps,
        part.active_s,
        record.elapsed_s,
        part.joined_steps,
        part.gap_s,
        part.step_s,
        part.waits_over_1ms,
        part.waits_seen,
        part.synchronised_steps,
        part.synchronised_s,
        part.pool_cpu_s if known else float("nan"),
        part.pool_run_queue_s if known else float("nan"),
        record.host.process_cpu_s,
        record.host.host_cpu_s if record.host.HasField("host_cpu_s") else float("nan"),
        part.consumer_thread_cpu_s if part.HasField("consumer_thread_cpu_s") else float("nan"),
        record.host.shared_cpu_s if record.host.HasField("shared_cpu_s") else float("nan"),
        record.host.read_bytes if record.host.HasField("read_bytes") else float("nan"),
        record.host.storage_read_bytes if record.host.HasField("storage_read_bytes") else float("nan"),
    ]


def _probes(record: m.SampleRecord, part: m.PipelineSample) -> list[float]:
    """Of the interpreter lock: 0 before the first one."""
    host = record.host
    return [
        host.gil_probes,
        host.gil_waits,
        host.gil_wait_s,
        part.gil_probes,
        part.gil_waiting_threads,
        part.blocked_threads,
        part.running_threads,
        part.running_squares,
        part.blocked_squares,
        part.blocked_running,
    ]


def _state(part: m.PipelineSample) -> dict[str, object]:
    state: dict[str, object] = {f"cache {i}": word for i, word in part.cache_states.items()}
    for i, counters in enumerate(part.operators):
        if counters.HasField("parallelism"):
            state[f"parallelism {i}"] = round(counters.parallelism)
    return state


def _last_state(seen: list[_Seen]) -> list[_Seen]:
    """The samples since the last change of state, if they are enough to stand alone."""
    kept = list(reversed(seen))
    last = _state(kept[0][1])
    for position, (_, part) in enumerate(kept):
        state = _state(part)
        differs = any(last.setdefault(name, value) != value for name, value in state.items())
        if differs:
            return list(reversed(kept[:position])) if position > STATE_SAMPLES else seen
    return seen


def _thin(seen: list[_Seen]) -> list[_Seen]:
    """Samples between which the pipeline moved, at most MOST_WINDOWS + 1 of them, spread by steps."""
    first, last = seen[0][1].steps, seen[-1][1].steps
    least = max((last - first) / MOST_WINDOWS, 1.0)
    chosen = [seen[0]]
    for entry in seen[1:]:
        if entry[1].steps - chosen[-1][1].steps >= least:
            chosen.append(entry)
    return chosen


def _calls(pipeline: m.Pipeline, parallelism: Array) -> Array:
    """Calls of each running operator that may last at a time; without limit where bodies run side by side."""
    found = np.where(np.isfinite(parallelism), parallelism, 1.0)
    inside = [False] * len(found)
    for i, operator in enumerate(pipeline.running):  # parents come first
        if not operator.HasField("parent"):
            continue
        above = operator.parent
        inside[i] = operator.in_body or inside[above]
        beside = _is_asynchronous(pipeline, above) or _is_asynchronous(pipeline, i)
        if np.isinf(found[above]) or (inside[i] and beside):
            found[i] = np.inf
    return found


def _is_asynchronous(pipeline: m.Pipeline, i: int) -> bool:
    """Whether the running operator makes its elements in threads of its own."""
    operator = pipeline.running[i]
    return operator.HasField("num_parallel_calls") or operator.type.startswith("Prefetch")


def _in_force(parts: list[m.PipelineSample], count: int) -> Array:
    found = np.full(count, np.nan)
    for part in parts:
        for i, counters in enumerate(part.operators):
            if counters.HasField("parallelism"):
                found[i] = counters.parallelism
    return found
