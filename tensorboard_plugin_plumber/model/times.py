"""Times of one element of an operator as written, and the row that shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensorboard_plugin_plumber.model.service import Service
from tensorboard_plugin_plumber.model.windows import Array, Totals
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

Interval = tuple[float, float]


@dataclass(frozen=True)
class Times:
    """Seconds per element, summed over the running operators whose cost the operator carries.

    Attributes:
      cpu_s, wait_s, contention_s: core time, exogenous waiting, waiting for a core or the interpreter lock.
      cpu_interval_s, wait_interval_s: what is known of the first two, (low, high).
      doubt: why these cannot be trusted to 15 %; empty if they can.
      stretch: time on the clock per second of core time.
      gil_s: core time that holds the interpreter lock; None where unknown.
      variation: coefficient of variation of the service time; None where unknown.
    """

    cpu_s: float = 0.0
    wait_s: float = 0.0
    contention_s: float = 0.0
    cpu_interval_s: Interval = (0.0, 0.0)
    wait_interval_s: Interval = (0.0, 0.0)
    doubt: str = ""
    stretch: float = 1.0
    gil_s: float | None = 0.0
    variation: float | None = None

    @classmethod
    def of(
        cls, carried: Sequence[int], produced: float, totals: Totals, service: Service, spread: Array
    ) -> Times:
        """Those of an operator.

        Args:
          carried: the running operators.
          produced: elements of the operator as written.
          totals, service, spread: over the windows, by running operator.
        """
        if not carried or produced <= 0:
            return cls()
        chosen = list(carried)
        elements = totals.elements[chosen] / produced

        def per_element(of_running: Array) -> float:
            return float(of_running[chosen] @ elements)

        def interval(of_running: Array) -> Interval:
            return per_element(of_running[0]), per_element(of_running[1])

        cpu = per_element(service.cpu_s)
        gil = per_element(service.gil_s)
        costliest = max(chosen, key=lambda r: float(totals.time_s[r]))
        return cls(
            cpu_s=cpu,
            wait_s=per_element(service.wait_s),
            contention_s=per_element(service.contention_s),
            cpu_interval_s=interval(service.cpu_interval_s),
            wait_interval_s=interval(service.wait_interval_s),
            doubt=service.doubts[costliest],
            stretch=per_element(service.cpu_s * service.stretch) / cpu if cpu > 0 else 1.0,
            gil_s=gil if math.isfinite(gil) else None,
            variation=None if math.isnan(spread[costliest]) else float(spread[costliest]),
        )


def show_times(row: a.OperatorRow, times: Times, relative_spread: float) -> None:
    """Writes the times into the operator's row.

    Args:
      row: of the operator.
      times: its own.
      relative_spread: half-width of the 90 % interval of its time per element over the windows, relative to it; NaN
        where it is unknown.
    """
    row.cpu_s, row.wait_s, row.contention_s = times.cpu_s, times.wait_s, times.contention_s
    if times.gil_s is not None:
        row.gil_s = times.gil_s
    if times.variation is not None:
        row.variation = times.variation
    row.uncertain, row.uncertain_why = bool(times.doubt), times.doubt
    spread = min(relative_spread, 1.0) if math.isfinite(relative_spread) else math.nan
    low, high = np.array([times.cpu_interval_s, times.wait_interval_s]).T * np.array(
        [[1 - spread], [1 + spread]]
    )
    if np.isfinite(low).all():
        row.cpu_low_s, row.wait_low_s = low
        row.cpu_high_s, row.wait_high_s = high
