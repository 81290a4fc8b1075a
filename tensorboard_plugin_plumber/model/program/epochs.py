"""The time of a step over E epochs: the first fills the caches, the others are served.

    tau = (1/E) / X_fill + (1 - 1/E) / X_serve

1/X is convex: it is the greatest of its tangents, taken at rates FINENESS apart, which are short of it by at most
``(FINENESS - 1)^2 / 4 / FINENESS`` of itself.
"""

from __future__ import annotations

import math

from tensorboard_plugin_plumber.model.linear import LinearProgram
from tensorboard_plugin_plumber.model.program.scenario import Pace

#: Ratio of the rates of neighbouring tangents.
FINENESS = 1.03


def step_time(lines: LinearProgram, pace: Pace, slowest: float) -> int:
    """A column of at least ``1 / x`` for the x of `pace`, where that is no less than `slowest` (a share)."""
    lowest = min(max(slowest, 1e-9), 1.0)
    time = lines.column(1.0, 1.0 / lowest)
    lines.row({pace.x: -1.0}, -lowest)
    count = math.ceil(math.log(1.0 / lowest) / math.log(FINENESS))
    for n in range(count + 1):
        at = max(FINENESS**-n, lowest)
        # 1/x >= 2/at - x/at^2, times at.
        lines.row({time: -at, pace.x: -1.0 / at}, -2.0)
    return time
