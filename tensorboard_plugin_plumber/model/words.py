"""Numbers and names as sentences say them."""

from __future__ import annotations

import math


def rate(value: float | None) -> str:
    """ "24.3 steps/s"; three significant digits."""
    if value is None or not math.isfinite(value):
        return "an unknown rate"
    return f"{digits(value)} steps/s"


def digits(value: float) -> str:
    """Three significant digits, with thousands kept whole: 0.0312, 24.3, 1,204."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "∞"
    decimals = max(2 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{decimals}f}"


def duration(seconds: float) -> str:
    """ "26.3 ms", "1.4 s", "350 µs"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{digits(seconds / scale)} {unit}"
    return f"{digits(seconds / 1e-6)} µs"


def percent(share: float) -> str:
    """ "64 %"."""
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else "under 1 %"


def size(count: float) -> str:
    """ "3.1 GB"; powers of 1000."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{digits(count / scale)} {unit}"
    return f"{count:.0f} B"


def factor(ratio: float) -> str:
    """ "2.8 times"."""
    return f"{digits(ratio)} times"


def cores(count: float) -> str:
    """ "1 core", "1.9 cores"."""
    rounded = round(count, 1)
    return "1 core" if rounded == 1 else f"{rounded:g} cores"
