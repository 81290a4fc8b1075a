"""Time that nothing explains: TensorFlow counts the work of operators, not every wait inside of them.

A SleepDataset, a slow open of a remote file: they show in no counter, only as a rate far below every bound with
cores that idle. Where readers open one file at a time, that is where it most likely happens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensorboard_plugin_plumber.model.estimate import Estimate
from tensorboard_plugin_plumber.model.network import Network

#: With the observed rate below this share of the smallest bound, something is not counted.
EXPLAINED = 0.5
#: With more of its cores in use than this share, the process computes something that is not counted.
BUSY = 0.5
READERS = frozenset({"TFRecord", "TextLine", "FixedLengthRecord", "Csv", "CSV"})


@dataclass(frozen=True)
class Uncounted:
    """Waiting outside of what is counted.

    Attributes:
      step_s: of each step, seconds.
      period_s: seconds per step.
      cores: cores in use by the process.
      reader: position of the interleave or flat map that opens one file at a time.
    """

    step_s: float
    period_s: float
    cores: float
    reader: int


def uncounted_wait(estimate: Estimate, bound_rate: float) -> Uncounted | None:
    """The waiting that nothing explains, where a reader is likely to be its place; else None.

    Args:
      bound_rate: the smallest bound of the data side, steps/s.
    """
    network, rate = estimate.network, estimate.network.observed_rate
    nobody_else = estimate.consumer.absent or estimate.consumer.input_bound
    if not nobody_else or not rate or not math.isfinite(bound_rate) or rate > EXPLAINED * bound_rate:
        return None
    cores = estimate.process_cpu_s * rate
    if cores > BUSY * network.limits.cores:
        return None
    reader = _opens_one_at_a_time(estimate, network)
    if reader is None:
        return None
    return Uncounted(1 / rate - 1 / bound_rate, 1 / rate, cores, reader)


def _opens_one_at_a_time(estimate: Estimate, network: Network) -> int | None:
    parallel = [choice.parallel for choice in network.current.choices]
    for i, operator in enumerate(network.operators):
        if not operator.interleave or parallel[i] or any(parallel[j] for j in network.enclosing[i]):
            continue
        if any(estimate.written[j].type in READERS for j in network.below(i)):
            return i
    return None
