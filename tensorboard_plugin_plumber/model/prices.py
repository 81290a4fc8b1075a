"""What one more core, more memory or faster storage would bring: the difference of two solves.

The dual prices of the program with its integers fixed would say nothing where the truth is a quarter more: what a
resource is worth shows only once everything may be decided anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.network import Limits, Network
from tensorboard_plugin_plumber.model.optimum import greatest_rate

#: Share of memory, and of storage's speed, that is priced.
SHARE = 0.1
#: A gain below this is nothing.
LEAST_GAIN = 0.005


class Resource(Enum):
    """What may be bought; the values are those of `prices.resource`."""

    CORES = "cores"
    MEMORY = "memory"
    STORAGE = "storage"


@dataclass(frozen=True)
class Price:
    """More of one resource, and what it brings."""

    resource: Resource
    #: How much more: cores, bytes, or bytes/s.
    amount: float
    #: The greatest rate with it, steps/s over all epochs.
    rate: float
    #: That over the greatest rate without it, less 1.
    gain: float

    @property
    def sentence(self) -> str:
        """ "One more core: +8 %", "10 % more memory: nothing"."""
        what = {
            Resource.CORES: "One more core",
            Resource.MEMORY: f"{words.percent(SHARE)} more memory",
            Resource.STORAGE: f"{words.percent(SHARE)} faster storage",
        }[self.resource]
        brings = f"+{words.percent(self.gain)}" if self.gain >= LEAST_GAIN else "nothing"
        return f"{what}: {brings}"


def prices(network: Network, *, most: float = math.inf, k_max: int | None = None) -> list[Price]:
    """The prices of cores, memory and, where its curve is known, storage.

    Args:
      network: the pipeline, with the settings in force.
      most: no rate beyond this is of use, steps/s.
      k_max: as in `optimum.optimise`.

    Raises:
      SolverError: HiGHS found no solution.
    """
    base = greatest_rate(network, k_max=k_max)
    found = []
    for resource in Resource:
        bought = _more(network.limits, resource)
        if bought is None:
            continue
        limits, amount = bought
        rate = greatest_rate(replace(network, limits=limits), known=base, k_max=k_max)
        gain = min(rate, most) / min(base, most) - 1 if base > 0 else 0.0
        found.append(Price(resource, amount, min(rate, most), gain))
    return found


def _more(limits: Limits, resource: Resource) -> tuple[Limits, float] | None:
    """The limits with more of `resource`, and how much more; None where nobody knows how much there is."""
    if resource is Resource.CORES:
        return replace(limits, cores=limits.cores + 1), 1.0
    if resource is Resource.MEMORY:
        more = SHARE * limits.memory_bytes
        free = limits.memory_free_bytes + limits.memory_share * more
        return replace(limits, memory_bytes=limits.memory_bytes + more, memory_free_bytes=free), more
    if limits.storage is None:
        return None
    return replace(limits, storage=limits.storage.scaled(1 + SHARE)), SHARE * limits.storage.points[-1][1]
