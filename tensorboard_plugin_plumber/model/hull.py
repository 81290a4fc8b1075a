"""The least concave function that is nowhere below some points."""

from __future__ import annotations

from collections.abc import Iterable

Point = tuple[float, float]


def concave_hull(points: Iterable[Point]) -> list[Point]:
    """Its corners: those of the points between which it is linear.

    Args:
      points: (x, y), x ascending.
    """
    corners: list[Point] = []
    for point in points:
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) <= _slope(corners[-1], point):
            del corners[-1]
        corners.append(point)
    return corners


def _slope(left: Point, right: Point) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
