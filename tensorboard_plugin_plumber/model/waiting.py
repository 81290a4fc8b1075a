"""Wall time of functions that may wait: core time, exogenous waiting, and waiting for a core or for the interpreter.

Of one pool over some seconds are known the wall time P of all calls of such functions, and of the threads that
made them the core time C and the run-queue time Q. What is left, U = P - C, is exogenous waiting w, waiting for a
core in a call, and waiting G for Python's interpreter lock:

    U = w + phi Q + G + S,      0 <= phi <= 1,

with S core time that TensorFlow's shared threads spent on kernels of these calls while the pool's thread slept. phi is
unknown, for threads also wait for a core between calls. The probes (`capture/gil.py`) look at the threads at random
moments: those asleep on the lock give G, to some 25 % and two standard errors; those blocked in the kernel give B,
an estimate of w itself. Many short waits may hide between probes, so that G may reach the mean wait of a probe
for each time that a call asks for the lock. Together

    L = U - Q - S - G_high - noise,     H = U - G_low,     w = L + 3/4 (clip(B, L, H) - L).

Without much run-queue time L and H are close, and w is what the clocks say; on a crowded host B decides. It leans
towards blocked, as a computing thread keeps the probe from its core: hence 3/4. Without probes w = U - Q - S.
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
#: How far B is believed between L and H.
BELIEF = 0.75
#: Fewer probes say nothing.
FEWEST_PROBES = 20
#: An error of more than this share makes a time uncertain; on a crowded host of more than that.
CLOSE = 0.15
CLOSE_WHEN_CROWDED = 0.25
#: Errors are relative to the time itself, but to no less than this share of the service time.
LEAST = 0.2
#: The host is crowded where this share of the runnable time goes by in the run queue.
CROWDED = 0.05


@dataclass(frozen=True)
class Probes:
    """What the probes of some windows say; thread-seconds where not said otherwise.

    Attributes:
      count: how many looked into the pool's threads.
      occupied: share of the time in which the interpreter lock is held.
      mean_wait_s: of a probe for the lock.
      on_lock: of the pool's threads asleep on the lock, with its standard error.
      blocked: of those blocked in the kernel on something else, with its standard error.
    """

    count: float
    occupied: float
    mean_wait_s: float
    on_lock: tuple[float, float]
    blocked: tuple[float, float]

    @staticmethod
    def of(totals: Totals) -> Probes | None:
        """None where there were too few."""
        asked, looked = totals["gil_probes"], totals["pool_gil_probes"]
        if not min(asked, looked) >= FEWEST_PROBES:
            return None
        seconds = totals["active_s"]

        def estimate(threads: float) -> tuple[float, float]:
            mean = threads / looked
            # At most as a sum of threads that are independently there or not.
            return mean * seconds, math.sqrt(max(mean, 1.0 / looked) / looked) * seconds

        return Probes(
            count=looked,
            occupied=totals["gil_waits"] / asked,
            mean_wait_s=totals["gil_wait_s"] / asked,
            on_lock=estimate(totals["gil_waiting_threads"]),
            blocked=estimate(totals["blocked_threads"]),
        )


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
    cpu = min(cpu, wall) if run_queue <= 0 else cpu
    left = max(wall - cpu, 0.0)
    crowded = run_queue > CROWDED * max(cpu + run_queue, 1e-12)
    noise = NOISE * wall
    if probes is None:
        low, high = max(left - run_queue - shared - noise, 0.0), left
        wait = max(left - run_queue - shared, 0.0)
        wait = wait if wait > noise else 0.0
        on_lock = 0.0
    else:
        sampled, error = probes.on_lock
        lock_low = max(sampled * (1 - LOCK_ERROR) - DEVIATIONS * error, 0.0)
        lock_high = max(
            sampled * (1 + LOCK_ERROR) + DEVIATIONS * error, LOCKS_PER_CALL * calls * probes.mean_wait_s
        )
        low = max(left - run_queue - shared - lock_high - noise, 0.0)
        high = max(left - lock_low, low)
        blocked = min(max(probes.blocked[0], low), high)
        wait = low + BELIEF * (blocked - low)
        on_lock = min(sampled, max(left - wait, 0.0))
        spread = DEVIATIONS * probes.blocked[1] + CLOSE * probes.blocked[0]
        low, high = max(low, min(blocked - spread, wait)), min(high, max(blocked + spread, wait))
    allowed = (CLOSE_WHEN_CROWDED if crowded else CLOSE) * max(wait, LEAST * (cpu + wait))
    doubt = ""
    if probes is None and high - low - noise > allowed:
        doubt = "threads waited for a core, in calls or between them: nobody can tell how much of it in calls"
    elif probes is not None and _disagrees(probes, low, high, allowed):
        doubt = "what the clocks of the threads say and what they were seen to wait for disagree"
    return Division(cpu, wait, on_lock, (low, high), doubt)


def _disagrees(probes: Probes, low: float, high: float, allowed: float) -> bool:
    blocked, error = probes.blocked
    return max(blocked - DEVIATIONS * error - high, low - blocked - DEVIATIONS * error) > allowed
