"""Wall time of functions that may wait: core time, exogenous waiting, and waiting for a core or for the interpreter.

Of one pool over some seconds are known the wall time P of all calls of such functions, and of the threads that
made them the core time C and the run-queue time Q. What is left, U = P - C, is exogenous waiting w, waiting for a
core in a call, and waiting G for Python's interpreter lock:

    U = w + phi Q + G + S,      0 <= phi <= 1,

with S core time that TensorFlow's shared threads spent on kernels of these calls while the pool's thread slept. phi is
unknown, for threads also wait for a core between calls. The probes (`capture/gil.py`) look at the threads at random
moments: those asleep on the lock give G, to some 25 % and two standard errors; those blocked in the kernel give B,
an estimate of w itself. Many short waits may hide between probes, so that G may reach the mean wait of a probe
for each time that a call asks for the lock. So w lies between

    L = U - Q - S - G_high    and    H = U - G_low,    and is taken to be    clip(B, L, H).

Without much run-queue time L and H are close, and w is what the clocks say; on a crowded host B decides. Without
probes w = U - Q - S. What is no more than the clocks' noise is nothing.

*A control variate.* Probes come late where a computing thread keeps the core or the lock from them, and then see too
few threads running and too many blocked. How many run on average is known from the clocks, r = (C + Q) / time. With
b_k and r_k the threads seen blocked and running by probe k, B is the mean of b_k + beta (r_k - r), where
beta = -Cov(b, r) / Var(r) in [0, 1] is how many are blocked more for each that runs less. That takes out much of
the noise, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensorboard_plugin_plumber.model.windows import Totals

#: What G is known to, relative to itself, and in standard errors.
LOCK_ERROR = 0.25
DEVIATIONS = 2.0
#: How often one call asks for the lock, at most: at its beginning, and each time it let go of it.
LOCKS_PER_CALL = 6
#: Of the wall time: what no clock resolves.
NOISE = 0.04
#: Fewer probes say nothing.
FEWEST_PROBES = 20
#: They follow each other closely: so many tell as much as one that is independent of the others.
PROBES_ALIKE = 2.0
#: An error of more than this share makes a time uncertain; on a crowded host of more than that.
CLOSE = 0.15
CLOSE_WHEN_CROWDED = 0.25
#: Errors are relative to the time itself, but to no less than this share of the service time.
LEAST = 0.2
#: The host is crowded where this share of the runnable time goes by in the run queue.
CROWDED = 0.05


@dataclass(frozen=True)
class Probes:
    """What the probes of some windows say; pairs are a value with its standard error, in threads on average.

    Attributes:
      seconds: over which they were made.
      occupied: share of the time in which the interpreter lock is held.
      mean_wait_s: of a probe for the lock.
      on_lock: of the pool's threads, those asleep on the lock.
      blocked: those blocked in the kernel on something else.
    """

    seconds: float
    occupied: float
    mean_wait_s: float
    on_lock: tuple[float, float]
    blocked: tuple[float, float]

    @staticmethod
    def of(totals: Totals) -> Probes | None:
        """None where there were too few."""
        asked, looked, seconds = totals["gil_probes"], totals["pool_gil_probes"], totals["active_s"]
        if not (min(asked, looked) >= FEWEST_PROBES and seconds > 0):
            return None
        on_lock = totals["gil_waiting_threads"] / looked
        return Probes(
            seconds=seconds,
            occupied=totals["gil_waits"] / asked,
            mean_wait_s=totals["gil_wait_s"] / asked,
            # At most as a sum of threads that are independently there or not.
            on_lock=(on_lock, math.sqrt(max(on_lock, 1.0 / looked) / looked)),
            blocked=_blocked(totals, looked, seconds),
        )


def _blocked(totals: Totals, probes: float, seconds: float) -> tuple[float, float]:
    """Threads blocked on average, corrected by those seen running, and the standard error."""
    blocked, running = totals["blocked_threads"] / probes, totals["running_threads"] / probes
    covariance = totals["blocked_running"] / probes - blocked * running
    of_running = totals["running_squares"] / probes - running**2
    of_blocked = max(totals["blocked_squares"] / probes - blocked**2, 1.0 / probes)
    known = (totals["pool_cpu_s"] + totals["pool_run_queue_s"]) / seconds
    slope = min(max(-covariance / of_running, 0.0), 1.0) if of_running > 0 else 0.0
    if not math.isfinite(known):
        slope = 0.0
    corrected = blocked + slope * (running - known) if slope > 0 else blocked
    left = of_blocked + 2 * slope * covariance + slope**2 * of_running
    return max(corrected, 0.0), math.sqrt(PROBES_ALIKE * max(left, 0.1 * of_blocked) / probes)


@dataclass(frozen=True)
class Division:
    """Seconds over all calls; intervals as (low, high).

    Attributes:
      cpu, wait: c and w.
      on_lock: G.
      doubt: why the two cannot be trusted to `CLOSE`; empty if they can.
    """

    cpu: float
    wait: float
    on_lock: float
    wait_interval: tuple[float, float]
    doubt: str


def divide(
    wall: float, cpu: float, run_queue: float, shared: float, calls: float, probes: Probes | None
) -> Division:
    """Divides the wall time of all calls.

    Args:
      wall: P, seconds.
      cpu: C, of the threads that made the calls.
      run_queue: Q.
      shared: S.
      calls: how many.
      probes: of the interpreter lock, if there were any.
    """
    left = max(wall - cpu, 0.0)
    crowded = run_queue > CROWDED * max(cpu + run_queue, 1e-12)
    noise = NOISE * wall
    if probes is None:
        low, high, on_lock = max(left - run_queue - shared, 0.0), left, 0.0
        wait = low
        unknown = high - low
    else:
        sampled, error = (value * probes.seconds for value in probes.on_lock)
        lock_low = max(sampled * (1 - LOCK_ERROR) - DEVIATIONS * error, 0.0)
        lock_high = max(
            sampled * (1 + LOCK_ERROR) + DEVIATIONS * error, LOCKS_PER_CALL * calls * probes.mean_wait_s
        )
        low = max(left - run_queue - shared - lock_high, 0.0)
        high = max(left - lock_low, low)
        blocked, error = (value * probes.seconds for value in probes.blocked)
        wait = min(max(blocked, low), high)
        on_lock = min(sampled, left - wait)
        # What the clocks and the probes together leave open, and by how much they contradict each other.
        spread = DEVIATIONS * error
        unknown = min(high - low, 2 * spread) + max(blocked - spread - high, low - blocked - spread, 0.0)
        low, high = max(low, min(blocked - spread, wait)), min(high, max(blocked + spread, wait))
    if wait <= noise:
        wait = low = 0.0
    allowed = (CLOSE_WHEN_CROWDED if crowded else CLOSE) * max(wait, LEAST * (cpu + wait))
    doubt = ""
    if unknown / 2 - noise > allowed:
        doubt = (
            "threads waited for a core, in calls or between them: nobody can tell how much of it in calls"
            if probes is None
            else "what its threads waited for outside, and for a core, could not be told apart"
        )
    return Division(cpu, wait, on_lock, (low, high), doubt)
