"""Service times of running operators: core time, exogenous waiting, and their spread.

TensorFlow's processing time p is the *wall* time of an operator's own work. On the threads of the iterator's
pool three things make up that wall time: core time, exogenous waiting (read, sleep, network) and waiting for a
core. With C and Q the core and run-queue time of the pool's threads over the same windows, C / (C + Q) is the
share of runnable time that was spent on a core. With p the wall time of all calls, their overhead included, and
rho the share of it that computing functions spend on a core,

* where no function can wait: rho = min(1, C / sum of p) on a crowded host, else 1; c = rho p, w = 0;
* where some may: rho = C / (C + Q) on a crowded host, else 1; those that cannot wait have c = rho p, w = 0; the
  others share what is left of the pool's core time in proportion to their wall time,
  c = (C - rho sum of the others' p) of it, and w = p - c / rho.

The stretch of an operator is how long its core time takes on the clock: 1 / rho, less where kernels of one call run
side by side (`Windows.held_s`).

Neither uses the observed rate, so that the self-check stays a check.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tensorboard_plugin_plumber.model.windows import Array, Totals, Windows
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: Below this share of runnable time in the run queue the host is not crowded and wall time stands for itself.
CROWDED = 0.05
#: Relative spread between windows that contention alone causes here; it says nothing about single elements.
COMMON_SPREAD = 0.10
#: Fewer windows say nothing of variation, and less of it is not worth a claim.
FEWEST_WINDOWS = 8
LEAST_VARIATION = 0.5
#: Python calls hold the GIL against each other only if two of them are in flight.
CALLS_IN_FLIGHT = 1.8
#: ... and their threads together use no more than one core, give or take.
GIL_CORES = 1.1


@dataclass(frozen=True)
class Service:
    """Per running operator, seconds per element *produced by it*; calls' overhead included."""

    cpu_s: Array
    wait_s: Array
    #: Time that holds the GIL; NaN where unknown.
    gil_s: Array
    #: Calls of user functions per element produced.
    calls: Array
    #: The split of a function's time into core time and waiting could not be measured.
    split_unknown: bool
    #: Time on the clock per second of core time: more where the host is crowded, less where the kernels of one
    #: call run side by side.
    stretch: Array
    #: 1 / rho.
    crowding: float


def calls_per_element(pipeline: m.Pipeline, totals: Totals) -> Array:
    """Calls of the user's function per element that the running operator produced.

    A map or a filter is called once per element of its input; an interleave too, which then yields many.
    """
    calls = np.zeros(len(pipeline.running))
    for i, operator in enumerate(pipeline.running):
        if not operator.calls_function or totals.elements[i] <= 0:
            continue
        inputs = [
            j
            for j, other in enumerate(pipeline.running)
            if other.HasField("parent") and other.parent == i and not other.in_body
        ]
        calls[i] = sum(totals.elements[j] for j in inputs) / totals.elements[i] if inputs else 1.0
    return calls


def service_times(pipeline: m.Pipeline, totals: Totals) -> Service:
    """Split each running operator's time per element into core time and exogenous waiting."""
    functions = _functions(pipeline)
    calls = calls_per_element(pipeline, totals)
    overhead = np.array([operator.call_overhead_s for operator in pipeline.running])
    with np.errstate(divide="ignore", invalid="ignore"):
        wall = np.where(totals.seen > 0, totals.time_s / np.maximum(totals.seen, 1e-12), 0.0)
    wall = wall + calls * overhead
    total = wall * totals.elements
    pooled = np.array([operator.calls_function for operator in pipeline.running])
    waits = np.array([bool(f and f.may_wait) for f in functions])

    on_core = _share_on_core(totals, float(total[pooled].sum()), bool((pooled & waits).any()))
    cpu = wall * on_core
    wait = np.zeros_like(wall)
    computing, waiting = pooled & ~waits, pooled & waits
    unknown = False
    if waiting.any() and total[waiting].sum() > 0:
        pool_cpu = totals["pool_cpu_s"]
        if np.isfinite(pool_cpu):
            left = float(
                np.clip(pool_cpu - (total * on_core)[computing].sum(), 0.0, total[waiting].sum() * on_core)
            )
            share = left / total[waiting].sum()
            cpu[waiting] = wall[waiting] * share
            wait[waiting] = np.maximum(wall[waiting] * (1.0 - share / on_core), 0.0)
            unknown = int(waiting.sum()) > 1
        else:
            # Without the threads' clocks nobody can tell core time from waiting: all of it is taken as waiting,
            # which claims no cores, and is marked.
            cpu[waiting], wait[waiting], unknown = 0.0, wall[waiting], True
    gil = np.full_like(wall, np.nan)
    python = np.array([bool(f and f.python) for f in functions])
    _mark_gil(python, cpu, wait, gil, wall, totals)
    held = np.where(totals.time_s > 0, totals.held_s / np.maximum(totals.time_s, 1e-12), 1.0)
    return Service(cpu, wait, gil, calls, unknown, held / on_core, 1.0 / on_core)


def _functions(pipeline: m.Pipeline) -> list[m.UserFunction | None]:
    """The user function that each running operator calls, if any."""
    found: list[m.UserFunction | None] = [None] * len(pipeline.running)
    functions = {o.id: o.function for o in pipeline.operators if o.HasField("function")}
    for r, running in enumerate(pipeline.running):
        if running.calls_function:
            found[r] = next((functions[i] for i in running.operators if i in functions), None)
    return found


def _share_on_core(totals: Totals, calls_s: float, some_wait: bool) -> float:
    """rho, or 1 where the host is not crowded or the threads' clocks are unknown.

    Args:
      totals: sums over the windows.
      calls_s: wall time of all calls of user functions, overhead included, seconds.
      some_wait: some of the functions may wait.
    """
    core, queue = totals["pool_cpu_s"], totals["pool_run_queue_s"]
    if not np.isfinite(core + queue) or core <= 0:
        return 1.0
    runnable = core / (core + queue)
    if 1.0 - runnable <= CROWDED:
        return 1.0
    # The run queue also holds threads that are only about to take a call: where nothing else can make a call
    # longer than its core time, the calls' own wall time is the better measure.
    if calls_s <= 0:
        return runnable
    computed = min(core / calls_s, 1.0)
    # A call that waits too is on a core for a smaller share of its time than of its runnable time.
    return max(runnable, computed) if some_wait else computed


def _mark_gil(python: Array, cpu: Array, wait: Array, gil: Array, wall: Array, totals: Totals) -> None:
    """Claim the GIL only where it shows: two Python calls in flight, and one core between them.

    What such calls wait for is the GIL, a result of the system and not of the operator: it leaves `wait`.
    """
    active = totals["active_s"]
    if not python.any() or active <= 0:
        return
    elements = totals.elements
    in_flight = float((wall * elements)[python].sum()) / active
    cores = float((cpu * elements)[python].sum()) / active
    if in_flight >= CALLS_IN_FLIGHT and 0.7 <= cores <= GIL_CORES:
        gil[python] = cpu[python]
        wait[python] = 0.0


def variation(windows: Windows) -> Array:
    """cv of each running operator's service time from short windows; NaN where it cannot be told.

    For n independent elements of mean s, Var(p) = n s^2 cv^2. Windows also differ by what all elements of one
    share (a crowded host); that part, up to COMMON_SPREAD, is taken out before anything is claimed.
    """
    n, p = windows.seen, windows.time_s
    found = np.full(n.shape[1], np.nan)
    for i in range(n.shape[1]):
        used = n[:, i] > 0
        if used.sum() < FEWEST_WINDOWS or p[:, i].sum() <= 0:
            continue
        counts = n[used, i]
        mean = p[used, i].sum() / counts.sum()
        relative = float(np.var(p[used, i] / (counts * mean), ddof=1))
        cv2 = counts.mean() * (relative - COMMON_SPREAD**2)
        found[i] = math.sqrt(cv2) if cv2 > LEAST_VARIATION**2 else np.nan
    return found
