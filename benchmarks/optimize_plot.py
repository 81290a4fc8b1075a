"""The picture of `optimize.py`: rates over AUTOTUNE's, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.optimize_results import AUTOTUNE, Outcome
from benchmarks.report import Interval

#: Of all bars of one pipeline together, where pipelines stand 1 apart.
_WIDTH = 0.8


def draw(outcomes: Sequence[Outcome], path: Path, title: str) -> None:
    """Draws the steady rates of all ways over AUTOTUNE's, pipeline by pipeline; error bars are 95 % intervals.

    Raises:
      OSError, ValueError: the file cannot be written, or its ending names no kind of picture.
    """
    import matplotlib

    matplotlib.use("Agg")  # no display is needed
    from matplotlib import pyplot

    families = list(dict.fromkeys(one.family for one in outcomes))
    ways = [way for way in dict.fromkeys(one.way for one in outcomes) if way != AUTOTUNE]
    figure, axes = pyplot.subplots(figsize=(1.5 * len(families) + 3, 4.5), layout="constrained")
    width = _WIDTH / max(len(ways), 1)
    for place, way in enumerate(ways):
        bars = {one.family: one.to_autotune for one in outcomes if one.way == way and one.to_autotune}
        at = [families.index(name) + (place + 0.5) * width - _WIDTH / 2 for name in bars]
        heights = [ratio.value for ratio in bars.values()]
        axes.bar(at, heights, width, yerr=_errors(list(bars.values())), capsize=2, label=way)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_xticks(range(len(families)), families, rotation=20, ha="right")
    axes.set_ylabel("steady rate over AUTOTUNE's")
    axes.set_title(title, fontsize=8)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _errors(ratios: Sequence[Interval]) -> np.ndarray:
    """How far the intervals reach below and above, [2, len(ratios)]."""
    reach = [(ratio.value - ratio.low, ratio.high - ratio.value) for ratio in ratios]
    return np.asarray(reach, dtype=float).reshape(-1, 2).T
