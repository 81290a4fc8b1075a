"""Lines of a history as paths of an SVG; pure geometry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 300.0
HEIGHT = 60.0
#: Points of one line that a page shows: more are closer than its pixels.
MOST_POINTS = 600


@dataclass(frozen=True)
class Chart:
    """One quantity over time.

    Attributes:
      path: SVG path data in a box of WIDTH by HEIGHT, 0 at the bottom; broken where nothing is known.
      highest: index of the point with the largest value.
      last: index of the newest point that has a value.
    """

    path: str
    highest: int
    last: int


def chart(times_s: Sequence[float], values: Sequence[float | None]) -> Chart | None:
    """The line through the values that are known; None if there are fewer than two."""
    known = [i for i, value in enumerate(values) if value is not None and math.isfinite(value)]
    if len(known) < 2:
        return None
    highest = max(known, key=lambda i: (_number(values[i]), i))
    top = max(_number(values[highest]), 1e-300)
    begin, span = times_s[known[0]], max(times_s[known[-1]] - times_s[known[0]], 1e-9)
    parts, pen_down = [], False
    for i in _shown(len(values)):
        value = values[i]
        if value is None or not math.isfinite(value):
            pen_down = False
            continue
        x = min(max((times_s[i] - begin) / span, 0.0), 1.0) * WIDTH
        y = HEIGHT * (1 - min(max(value / top, 0.0), 1.0))
        parts.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
        pen_down = True
    return Chart("".join(parts), highest, known[-1])


def _shown(count: int) -> range:
    return range(0, count, max(1, math.ceil(count / MOST_POINTS)))


def _number(value: float | None) -> float:
    return value if value is not None else 0.0
