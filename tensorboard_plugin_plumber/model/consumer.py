"""What can be known of the consumer, and what follows for the wait (docs/model.md, "The consumer").

The gap between requests is the *host's* time. It is the consumer's own time g only if the consumer has
finished its work when it asks again. An asynchronous device lets the host ask at once, so that a short gap
proves nothing; a gap that fills the step proves that the consumer binds, whoever it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensorboard_plugin_plumber.model.windows import SCALARS, Totals, Windows
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: Training is called input-bound from this share of the step spent waiting.
WAIT_THRESHOLD = 0.10
#: A gap that fills this share of the step proves that the consumer binds.
PROOF_SHARE = 0.95
#: Steps whose gaps were seen, or that were synchronised, without which nothing is claimed.
FEWEST_STEPS = 5
#: A step that waits for longer counts as one that waits, seconds.
WAIT_S = 1e-3
#: Where single waits cannot be seen, their mean still bounds the share of long ones: this little is said.
SMALL_SHARE = 0.01


@dataclass(frozen=True)
class ConsumerEstimate:
    """g and the wait, as far as they can be known; None where they cannot."""

    #: g as uncontended as it could be had, s/step: predictions use it.
    step_s: float | None
    #: 1 - (sum of gaps) / (sum of step times), contention included.
    wait_fraction: float | None
    input_bound: bool | None
    #: Mean host time between requests, s/step.
    turn_s: float
    #: Mean time from request to request, s/step.
    period_s: float | None
    #: Share of steps that waited over 1 ms.
    waits_over_1ms: float | None
    #: Plumber iterated, nobody trained.
    absent: bool = False
    #: Why it is unknown, in words; empty if it is known.
    caveat: str = ""
    #: CPU time of the thread that consumes, s/step.
    thread_cpu_s: float | None = None


def estimate_consumer(
    pipeline: m.Pipeline, windows: Windows, totals: Totals, rate: float | None, given_rate: float | None
) -> ConsumerEstimate:
    """The consumer of `pipeline`. `given_rate` (steps/s), from the user, overrules all that was measured."""
    steps, joined = totals["steps"], totals["joined_steps"]
    turn = totals["gap_s"] / joined if joined > 0 else 0.0
    period = totals["step_s"] / joined if joined > 0 else (1.0 / rate if rate else None)
    over = _waits_over_1ms(totals, turn, period)
    absent = pipeline.consumer == m.CONSUMER_NONE
    thread = _thread_cpu_s(windows)

    def known(step_s: float, wait: float, own_over: float | None = over) -> ConsumerEstimate:
        wait = min(max(wait, 0.0), 1.0)
        bound = wait >= WAIT_THRESHOLD
        return ConsumerEstimate(step_s, wait, bound, turn, period, own_over, thread_cpu_s=thread)

    def unknown(caveat: str) -> ConsumerEstimate:
        return ConsumerEstimate(None, None, None, turn, period, None, absent, caveat, thread)

    if given_rate is not None:
        return known(1.0 / given_rate, 1.0 - (rate or 0.0) / given_rate, None)
    if absent:
        return unknown(
            "Plumber ran the pipeline on its own: whether a training step waits for it depends on the step."
        )
    if steps < FEWEST_STEPS:
        return unknown("Too few steps were seen.")
    if pipeline.consumer == m.CONSUMER_ASYNCHRONOUS:
        count = totals["synchronised_steps"]
        if count < FEWEST_STEPS:
            return unknown(
                "The step runs on a device, and too few steps were synchronised to know how long it takes."
            )
        g = totals["synchronised_s"] / count
        return known(g, 1.0 - g * (rate or 0.0), None)
    if joined < FEWEST_STEPS or period is None:
        return unknown("The gaps between requests could not be seen.")
    filled = turn / period if period else 0.0
    if pipeline.consumer == m.CONSUMER_SYNCHRONOUS:
        low = windows.last.gap_low_s if windows.last.HasField("gap_low_s") else turn
        return known(min(low, turn) or turn, 1.0 - filled)
    if filled >= PROOF_SHARE:
        return known(turn, 1.0 - filled)
    return unknown(
        "Nobody can see from outside whether this loop waits for its device before it asks for the next element; "
        'say consumer="synchronous" or give the consumer\'s rate to know.'
    )


def _waits_over_1ms(totals: Totals, turn_s: float, period_s: float | None) -> float | None:
    """Share of steps that wait over 1 ms.

    Where single waits cannot be seen (several steps in one call, a loop inside a tf.function) Markov's inequality
    holds: no more than (mean wait) / 1 ms of them. Said only where that is next to nothing.
    """
    seen = totals["waits_seen"]
    if seen > 0:
        return totals["waits_over_1ms"] / seen
    if totals["joined_steps"] < FEWEST_STEPS or period_s is None:
        return None
    most = max(period_s - turn_s, 0.0) / WAIT_S
    return most if most <= SMALL_SHARE else None


def _thread_cpu_s(windows: Windows) -> float | None:
    """CPU time per step of the thread that consumes, over the windows in which it is known."""
    cpu, steps = (windows.scalars[:, SCALARS.index(name)] for name in ("consumer_thread_cpu_s", "steps"))
    known = np.isfinite(cpu)
    total_s, total_steps = float(cpu[known].sum()), float(steps[known].sum())
    # A clock that has only begun stands at zero.
    return total_s / total_steps if total_s > 0 and total_steps > 0 else None
