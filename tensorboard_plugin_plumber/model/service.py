"""Service times of running operators: core time, exogenous waiting, and their spread.

TensorFlow's processing time p is the *wall* time of an operator's own work. On the threads of the iterator's
pool these things make up that wall time: core time, exogenous waiting (read, sleep, network), and waiting for a
core or for Python's interpreter lock. With C and Q the core and run-queue time of the pool's threads over the same
windows, C / (C + Q) is the share of runnable time that was spent on a core. With p the wall time of all calls, their
overhead included, and rho the share of it that computing functions spend on a core,

* where no function can wait: rho = min(1, C / sum of p) on a crowded host, else 1; c = rho p, w = 0;
* where some may: rho = C / (C + Q) on a crowded host, else 1; those that cannot wait have c = rho p, w = 0; what is
  left of the pool's core and run-queue time belongs to the others, whose wall time `waiting.divide` splits.

Kernels that TensorFlow spreads over threads that all share use core time S beside the pool's. It belongs to the
functions where nothing else in the process could use these threads: C + S then stands for C in rho, and for what is
left to functions that may wait.

Several functions that may wait share core time, waiting and contention in proportion to their wall time. That is
a guess, and each of them has bounds: c of one is at least what the others could not have used if they
computed all the time. Where the bounds are wide it is uncertain.

The time h that holds the interpreter lock is the share of probes that found the lock held, over the calls of Python
functions, and at most c. The stretch of an operator is how long its core time takes on the clock: 1 / rho, less
where kernels of one call run side by side (`Windows.held_s`).

The coefficient of variation follows from pairs of looks: for n independent elements of mean s, p = n s + e with
Var(e) = n s^2 cv^2, so that cv^2 is estimated by (sum of p^2/n - (sum of p)^2 / (sum of n)) / (looks - 1) / s^2. A
crowd lengthens all elements between two looks alike, by a share of r, which adds n r^2 and is taken out.

An operator that hands over what runs elsewhere, on service workers or behind a device, only waits for it.

Nothing here uses the observed rate, so that the self-check stays a check.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tensorboard_plugin_plumber.model.waiting import (
    CLOSE,
    CROWDED,
    LEAST,
    Division,
    Probes,
    divide,
)
from tensorboard_plugin_plumber.model.windows import Array, Totals, Windows
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: Relative spread between looks that contention alone causes here; it says nothing about single elements.
COMMON_SPREAD = 0.10
#: Fewer pairs of looks say nothing of variation, and less of it is not worth a claim.
FEWEST_LOOKS = 8
LEAST_VARIATION = 0.5
#: Without probes: Python calls hold the GIL against each other only if two of them are in flight ...
CALLS_IN_FLIGHT = 1.8
#: ... and their threads together use no more than one core, give or take.
GIL_CORES = (0.7, 1.1)
#: Core time of TensorFlow's shared threads, over that of the pool, from which it counts.
LEAST_SHARED = 0.05
#: Core time of the pool's threads beside kernels and calibrated calls: so much of it, at most, hands over a call; the
#: rest is spent looking for work, which ends once there is enough of it.
HANDOVER_S = 15e-6
#: Operators whose inputs run where nothing can be seen: on a device's side, on workers of a tf.data service.
RUNS_ELSEWHERE = frozenset({"PrefetchToDevice", "CopyToDevice", "DataService"})


@dataclass(frozen=True)
class Service:
    """Per running operator, seconds per element *produced by it*; calls' overhead included."""

    cpu_s: Array
    wait_s: Array
    #: Time that holds the GIL; NaN where unknown.
    gil_s: Array
    #: Waiting for the GIL or for a core, part of neither of the two above.
    contention_s: Array
    #: 90 % intervals, shape (2, operators); NaN where unknown.
    cpu_interval_s: Array
    wait_interval_s: Array
    #: Why `cpu_s` and `wait_s` cannot be trusted to 15 %; empty where they can.
    doubts: tuple[str, ...]
    #: Calls of user functions per element produced.
    calls: Array
    #: The split of some function's time into core time and waiting is uncertain.
    split_unknown: bool
    #: Time on the clock per second of core time: more where the host is crowded, less where the kernels of one
    #: call run side by side.
    stretch: Array
    #: 1 / rho.
    crowding: float
    #: Waiting for a core of the pool's threads between two calls, per call.
    queued_s: float = 0.0
    #: Share of the time in which they could run that the pool's threads waited for a core; 0 if unknown.
    queued_share: float = 0.0


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
    elsewhere = _hands_over(pipeline)
    pooled = np.array([operator.calls_function for operator in pipeline.running]) & ~elsewhere
    waits = pooled & np.array([bool(f and f.may_wait) for f in functions])
    python = pooled & np.array([bool(f and f.python) for f in functions])
    computing = pooled & ~waits
    in_pool, beside = (float((wall * totals.elements)[of].sum()) for of in (pooled, ~pooled & ~elsewhere))
    some_wait = (wall * totals.elements)[waits].sum() > 0
    shared = _shared_s(pipeline, totals, beside)
    held = np.where(totals.time_s > 0, totals.held_s / np.maximum(totals.time_s, 1e-12), 1.0)

    on_core = _share_on_core(totals, in_pool, shared, some_wait)
    others_on_core = _others_on_core(pipeline, totals, beside, on_core)
    parts = _Parts.computed(wall, np.where(pooled, on_core, others_on_core), held)
    parts.receive(elsewhere)
    handover = calls * totals.elements * np.maximum(HANDOVER_S - overhead, 0.0)
    if not some_wait:
        parts.check(computing, totals, shared, float(handover[computing].sum()))
    else:
        own = float((parts.cpu * totals.elements)[computing].sum())
        queued = float(((wall - parts.cpu) * totals.elements)[computing].sum())
        in_calls = float((calls * totals.elements)[waits].sum())
        parts.divide(waits, totals, own, queued, shared, in_calls, float(handover[waits].sum()))
    gil = _gil(python, parts, wall, totals, on_core, pipeline.consumer)
    return Service(
        cpu_s=parts.cpu,
        wait_s=parts.wait,
        gil_s=gil,
        contention_s=np.maximum(wall - parts.cpu - parts.wait, 0.0),
        cpu_interval_s=parts.cpu_interval,
        wait_interval_s=parts.wait_interval,
        doubts=tuple(parts.doubts),
        calls=calls,
        split_unknown=any(parts.doubts[i] for i in np.flatnonzero(waits)),
        stretch=parts.stretch,
        crowding=1.0 / on_core,
        queued_s=_queued_s(totals, in_pool, shared, float((calls * totals.elements)[pooled].sum())),
        queued_share=1.0 - _share_runnable(totals),
    )


def _queued_s(totals: Totals, calls_s: float, shared: float, calls: float) -> float:
    """Run-queue time per call that the calls' wall time has no room for; 0 where the clocks are unknown.

    Args:
      totals: sums over the windows.
      calls_s: wall time of all calls, seconds.
      shared: core time of TensorFlow's shared threads for them, seconds.
      calls: how many.
    """
    core, queue = totals["pool_cpu_s"], totals["pool_run_queue_s"]
    if not math.isfinite(core + queue) or calls <= 0:
        return 0.0
    return max(queue - max(calls_s - core - shared, 0.0), 0.0) / calls


@dataclass
class _Parts:
    """The parts of the wall time of one element, per running operator, seconds."""

    wall: Array
    cpu: Array
    wait: Array
    stretch: Array
    cpu_interval: Array
    wait_interval: Array
    doubts: list[str]

    @classmethod
    def computed(cls, wall: Array, on_core: Array, held: Array) -> _Parts:
        """Those of operators that cannot wait, with `on_core` the share of their time that they have a core."""
        cpu = wall * on_core
        zeros = np.zeros((2, len(wall)))
        return cls(wall, cpu, np.zeros_like(wall), held / on_core, zeros + cpu, zeros, [""] * len(wall))

    def receive(self, elsewhere: npt.NDArray[np.bool_]) -> None:
        """Of operators that hand over what runs elsewhere: they wait for it, and whose core time it is nobody sees."""
        self.cpu[elsewhere] = self.cpu_interval[0, elsewhere] = 0.0
        self.wait[elsewhere] = self.wall[elsewhere]
        self.wait_interval[:, elsewhere] = self.wall[elsewhere]
        self.stretch[elsewhere] = 1.0

    def check(self, computing: Array, totals: Totals, shared: float, handovers: float) -> None:
        """Compares the core time of computing functions with what their threads used, nothing else running on them.

        Args:
          computing: which operators; their core time is in `cpu`.
          totals: sums over the windows.
          shared: core time that TensorFlow's shared threads spent for them, seconds.
          handovers: what handing over their calls costs at most, seconds.
        """
        counted = float((self.cpu * totals.elements)[computing].sum())
        pool = totals["pool_cpu_s"]
        if not np.isfinite(pool) or counted <= 0:
            return
        handed = min(max(pool - counted, 0.0), handovers)
        # Kernels on more threads than the one that calls take no longer on the clock; a handover does.
        core = max(min(pool, counted + handed) + shared, counted + handed)
        self.stretch[computing] = (self.stretch[computing] * counted + handed) / core
        self.cpu[computing] *= core / counted
        ratio = (pool + shared) / core
        self.cpu_interval[:, computing] = self.cpu[computing] * np.array(
            [[min(ratio, 1.0)], [max(ratio, 1.0)]]
        )
        if abs(ratio - 1.0) > CLOSE:
            said = f"its threads used {ratio:.2f} times the core time that its kernels and calls account for"
            for i in np.flatnonzero(computing):
                self.doubts[i] = said

    def divide(
        self,
        waits: Array,
        totals: Totals,
        own: float,
        queued: float,
        shared: float,
        calls: float,
        handovers: float,
    ) -> None:
        """Splits the time of the functions that may wait.

        Args:
          waits: which operators.
          totals: sums over the windows.
          own, queued: core and run-queue time of functions that cannot wait, seconds.
          shared: core time of TensorFlow's shared threads, seconds.
          calls: of the functions that may wait.
          handovers: what handing over these calls costs at most, seconds.
        """
        of_each = (self.wall * totals.elements)[waits]
        wall = float(of_each.sum())
        cpu, queue = totals["pool_cpu_s"] - own, totals["pool_run_queue_s"] - queued
        if not np.isfinite(cpu + queue):
            # Without the threads' clocks nobody can tell core time from waiting: all of it is taken as waiting,
            # which claims no cores, and is marked.
            self._set(
                waits,
                Division(0.0, wall, 0.0, (0.0, wall), "the clocks of threads cannot be read here"),
                wall,
            )
            self.cpu_interval[1, waits] = self.wall[waits]
            return
        cpu = min(cpu, wall + handovers)
        found = divide(wall, max(cpu, 0.0), max(queue, 0.0), shared, calls, Probes.of(totals))
        self._set(waits, _with_shared(found, cpu + shared, wall), wall)
        if waits.sum() > 1:
            self._bound(waits, of_each, found)

    def _set(self, waits: Array, found: Division, wall: float) -> None:
        each = self.wall[waits] / wall
        self.cpu[waits], self.wait[waits] = found.cpu * each, found.wait * each
        self.cpu_interval[:, waits] = found.cpu * each
        self.wait_interval[:, waits] = np.outer(found.wait_interval, each)
        on_queue = wall - found.cpu - found.wait - found.on_lock
        crowded = found.cpu > 0 and on_queue > CROWDED * (found.cpu + on_queue)
        self.stretch[waits] = 1.0 + on_queue / found.cpu if crowded else 1.0
        for i in np.flatnonzero(waits):
            self.doubts[i] = found.doubt

    def _bound(self, waits: Array, of_each: Array, found: Division) -> None:
        """Bounds of each of several functions: what the others could not have used, and what they could."""
        others = of_each.sum() - of_each
        for k, i in enumerate(np.flatnonzero(waits)):
            per_element = self.wall[i] / max(of_each[k], 1e-12)
            low, high = max(found.cpu - others[k], 0.0), min(found.cpu, of_each[k])
            self.cpu_interval[:, i] = low * per_element, high * per_element
            least, most = found.wait_interval
            self.wait_interval[:, i] = (
                max(least - others[k], 0.0) * per_element,
                min(most, of_each[k] - low) * per_element,
            )
            service = self.cpu[i] + self.wait[i]
            allowed = CLOSE * max(self.cpu[i], LEAST * service)
            if (high - low) * per_element > 2 * allowed:
                self.doubts[i] = (
                    "several functions that may wait share their threads: nobody can tell whose core time it is"
                )


def _with_shared(found: Division, cpu: float, wall: float) -> Division:
    """`found` with core time of TensorFlow's shared threads, as far as the calls have room for it.

    Args:
      found: without it.
      cpu: all core time of pool and shared threads that no computing function accounts for, seconds.
      wall: of the calls, seconds.
    """
    return replace(found, cpu=max(found.cpu, min(cpu, wall - found.wait - found.on_lock)))


def _hands_over(pipeline: m.Pipeline) -> npt.NDArray[np.bool_]:
    """Which running operators hand over elements that are made elsewhere."""
    types = {operator.id: operator.type for operator in pipeline.operators}
    return np.array(
        [any(types.get(i) in RUNS_ELSEWHERE for i in running.operators) for running in pipeline.running], bool
    )


def _functions(pipeline: m.Pipeline) -> list[m.UserFunction | None]:
    """The user function that each running operator calls, if any."""
    found: list[m.UserFunction | None] = [None] * len(pipeline.running)
    functions = {o.id: o.function for o in pipeline.operators if o.HasField("function")}
    for r, running in enumerate(pipeline.running):
        if running.calls_function:
            fused = [functions[i] for i in running.operators if i in functions]
            found[r] = fused[0] if len(fused) == 1 else _as_one(fused)
    return found


def _as_one(fused: list[m.UserFunction]) -> m.UserFunction | None:
    """What holds of several functions that one call runs through; None if there are none."""
    if not fused:
        return None
    return m.UserFunction(
        name=fused[0].name,
        python=any(one.python for one in fused),
        may_wait=any(one.may_wait for one in fused),
    )


def _share_on_core(totals: Totals, calls_s: float, shared: float, some_wait: bool) -> float:
    """rho, or 1 where the host is not crowded or the threads' clocks are unknown.

    Args:
      totals: sums over the windows.
      calls_s: wall time of all calls of user functions, overhead included, seconds.
      shared: core time that TensorFlow's shared threads spent for them, seconds: calls wait for it on no queue.
      some_wait: some of the functions may wait.
    """
    core, runnable = totals["pool_cpu_s"], _share_runnable(totals)
    if 1.0 - runnable <= CROWDED:
        return 1.0
    # The run queue also holds threads that are only about to take a call: where nothing else can make a call
    # longer than its core time, the calls' own wall time is the better measure.
    if calls_s <= 0:
        return runnable
    computed = min((core + shared) / calls_s, 1.0)
    # A call that waits too is on a core for a smaller share of its time than of its runnable time.
    return max(runnable, computed) if some_wait else computed


def _share_runnable(totals: Totals) -> float:
    """Share of the time in which they could run that the pool's threads did; 1 if their clocks are unknown."""
    core, queue = totals["pool_cpu_s"], totals["pool_run_queue_s"]
    return float(core / (core + queue)) if np.isfinite(core + queue) and core > 0 else 1.0


def _shared_s(pipeline: m.Pipeline, totals: Totals, others_s: float) -> float:
    """Core time of TensorFlow's shared threads that can only belong to the pipeline's functions, seconds.

    Threads of prefetches and parallel operators count among the shared ones: what runs in them is left out.

    Args:
      pipeline, totals: see `service_times`.
      others_s: processing time of operators that call no function, seconds.
    """
    known = totals["shared_cpu_s"]
    if pipeline.consumer != m.CONSUMER_NONE or not math.isfinite(known):
        return 0.0
    left = known - others_s
    return left if left > LEAST_SHARED * totals["pool_cpu_s"] else 0.0


def _others_on_core(pipeline: m.Pipeline, totals: Totals, others_s: float, on_core: float) -> float:
    """The share of their time that operators without a function have a core, for they run on other threads.

    With nobody behind the pipeline these are the shared ones, and their clocks tell; else as for the pool.

    Args:
      pipeline, totals: see `service_times`.
      others_s: processing time of these operators, seconds.
      on_core: rho of the pool.
    """
    known = totals["shared_cpu_s"]
    if pipeline.consumer != m.CONSUMER_NONE or not math.isfinite(known) or others_s <= 0:
        return on_core
    return min(max(known / others_s, on_core), 1.0)


def _gil(
    python: Array,
    parts: _Parts,
    wall: Array,
    totals: Totals,
    on_core: float,
    consumer: m.Consumer.ValueType,
) -> Array:
    """h per element: 0 for what runs no Python, NaN where it is unknown.

    Without probes it is claimed only where it shows: two Python calls in flight, and one core between them. What
    such calls wait for is the lock, a result of the system and not of the operator: it leaves `wait`.
    """
    gil = np.zeros_like(wall)
    gil[python] = np.nan
    computed = float((parts.cpu * totals.elements)[python].sum())
    active = totals["active_s"]
    if active <= 0 or computed <= 0:
        return gil
    probes = Probes.of(totals)
    if probes is not None:
        holding = probes.occupied * active * on_core
        others = totals["consumer_thread_cpu_s"] if consumer != m.CONSUMER_NONE else 0.0
        if math.isfinite(others):
            holding *= computed / (computed + others)
        gil[python] = parts.cpu[python] * min(holding / computed, 1.0)
        return gil
    in_flight = float((wall * totals.elements)[python].sum()) / active
    if in_flight >= CALLS_IN_FLIGHT and GIL_CORES[0] <= computed / active <= GIL_CORES[1]:
        gil[python] = parts.cpu[python]
        parts.wait[python] = 0.0
        parts.wait_interval[0, python] = 0.0
    return gil


def variation(windows: Windows) -> Array:
    """cv of the service time of single elements of each running operator; NaN where it cannot be told."""
    looks, n, p, squares = windows.spread
    found = np.full(len(looks), np.nan)
    for i in np.flatnonzero((looks >= FEWEST_LOOKS) & (p > 0)):
        mean = p[i] / n[i]
        cv2 = max(squares[i] - p[i] ** 2 / n[i], 0.0) / (looks[i] - 1) / mean**2
        cv2 -= COMMON_SPREAD**2 * n[i] / looks[i]
        found[i] = math.sqrt(cv2) if cv2 > LEAST_VARIATION**2 else np.nan
    return found
