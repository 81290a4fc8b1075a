"""A number with the ends between which it should lie (90 % or more), and how such numbers combine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

#: Half-width of an interval in standard deviations.
WIDTH = 1.96
#: What is usual counts as much as the spread of so many windows.
_AS_GOOD_AS = 4.0


@dataclass(frozen=True)
class Interval:
    """`low` <= `value` <= `high`; `high` may be infinite, all of them >= 0."""

    value: float
    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Interval:
        """A number that is known."""
        return cls(value, value, value)

    @classmethod
    def around(cls, value: float, deviation: float) -> Interval:
        """A number with a standard deviation."""
        return cls(value, max(value - WIDTH * deviation, 0.0), value + WIDTH * deviation)

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.value + other.value, self.low + other.low, self.high + other.high)

    def __mul__(self, other: Interval) -> Interval:
        high = 0.0 if 0.0 in (self.high, other.high) else self.high * other.high
        return Interval(self.value * other.value, self.low * other.low, high)

    def map(self, function: Any) -> Interval:
        """A growing function of it."""
        return Interval(*(x if math.isinf(x) else function(x) for x in (self.value, self.low, self.high)))

    def within(self, low: float, high: float) -> Interval:
        """The same, cut off where it is known to end."""
        return Interval(*(min(max(x, low), high) for x in (self.value, self.low, self.high)))


def smallest(intervals: Sequence[Interval]) -> Interval:
    """The smallest of some numbers."""
    return Interval(
        min(i.value for i in intervals), min(i.low for i in intervals), min(i.high for i in intervals)
    )


def deviation_of_ratio(
    above: npt.ArrayLike, below: npt.ArrayLike, *, seen: float, whole: float, usual: float
) -> float:
    """Standard deviation of Σ above / Σ below as an estimate of the same ratio over a whole pass.

    The windows' spread tells it (Cochran, Sampling Techniques, 1977, ratio estimates) where there are three or
    more, and the less the fewer units they hold: before that, single units are taken to vary by `usual` times their
    mean.

    Args:
      above: per window.
      below: per window.
      seen: units, of `below`, that the estimate rests on.
      whole: units in a whole pass, infinite if unknown.
      usual: coefficient of variation of single units where the windows cannot tell.
    """
    a, b = np.asarray(above, float), np.asarray(below, float)
    used = (a > 0) | (b > 0)
    a, b = a[used], b[used]
    if seen <= 0 or len(b) == 0 or b.sum() <= 0:
        return math.inf
    ratio = a.sum() / b.sum()
    left = max(1.0 - seen / whole, 0.0)
    alone = usual * ratio / math.sqrt(seen)
    if len(b) >= 3:
        rest = a - ratio * b
        in_windows = math.sqrt(float(rest @ rest) * len(b) / (len(b) - 1)) / float(b.sum())
        # The estimate rests on more units than the windows hold. With few windows their spread is itself a guess.
        told = in_windows * math.sqrt(min(float(b.sum()) / seen, 1.0)) * (1.0 + 1.0 / (len(b) - 1))
        known = min(float(b.sum()), len(b)) - 1.0
        alone = math.sqrt(
            (max(known, 0.0) * told**2 + _AS_GOOD_AS * alone**2) / (max(known, 0.0) + _AS_GOOD_AS)
        )
    return float(alone * math.sqrt(left))


def share(hits: float, draws: float, whole: float, spread: float = 1.0) -> Interval:
    """How many of `whole` units a filter lets through, from `hits` of the `draws` it has seen so far.

    What was seen is known; the rest is predicted with the binomial's deviation, the doubt about the share
    included. Beyond one whole pass only the part of the last one that is not whole is in doubt.

    Args:
      spread: how much more the windows differ than single draws would, squared; at least 1.
    """
    if draws <= 0:
        return Interval(whole, 0.0, whole)
    p = min(hits / draws, 1.0)
    doubtful = (hits + 1.0) / (draws + 2.0)
    variance = doubtful * (1.0 - doubtful) * max(spread, 1.0)
    if math.isinf(whole):
        return Interval(math.inf, 0.0, math.inf)
    if draws <= whole:
        rest = whole - draws
        deviation = math.sqrt(rest * variance * whole / draws)
        found = Interval.around(hits + rest * p, deviation)
        return found.within(hits, hits + rest)
    rest = draws % whole if whole > 0 else 0.0
    deviation = whole / draws * math.sqrt(rest * variance * max(1.0 - rest / whole, 0.0)) if whole else 0.0
    return Interval.around(whole * p, deviation).within(0.0, whole)
