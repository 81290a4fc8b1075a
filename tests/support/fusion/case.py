"""A pipeline that TensorFlow rewrites, and what must be seen of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tests.support.operators.case import Bench

construction.install()
Dataset = tf.data.Dataset
Source = Callable[[], Any]
Make = Callable[[Source], Any]
CALLS = "calls"


@dataclass(frozen=True)
class Row:
    """One row that must be seen.

    Attributes:
      marker: the comment at its line: its type and, where that stands twice, ":" and a number.
      share: its elements over the calls of the pipeline's own function; None: nobody can count them.
      runs_as: what TensorFlow runs for it; "" where it was dropped.
      joint: markers of all that run as one with it, itself included, downstream first.
      carried_by: marker of the row that has the joint cost, if it is another.
    """

    marker: str
    share: float | None
    runs_as: str
    joint: tuple[str, ...] = ()
    carried_by: str | None = None


@dataclass(frozen=True)
class Injected:
    """An operator that nobody wrote.

    Attributes:
      type: what TensorFlow runs.
      share: as of `Row`.
      hands_to: marker of the row that takes its elements; None at the end of the pipeline.
    """

    type: str
    share: float
    hands_to: str | None = None


@dataclass(frozen=True)
class Case:
    """A pipeline and what must be seen of it.

    Attributes:
      make: takes what makes the counted numbers, and returns the pipeline. Comments name the rows at their lines.
      rows: the user's operators above the numbers, in pre-order.
      numbers: what runs the map that counts; with a share only where it is fused.
      options: of `experimental_optimization`.
    """

    make: Make
    rows: tuple[Row, ...]
    injected: tuple[Injected, ...]
    numbers: Row
    options: dict[str, bool]

    @property
    def name(self) -> str:
        return self.make.__name__

    def dataset(self, bench: Bench) -> Any:
        options = tf.data.Options()
        for name, value in self.options.items():
            setattr(options.experimental_optimization, name, value)
        return self.make(functools.partial(numbers, bench)).with_options(options)


CASES: list[Case] = []
COUNTED = Row("Map:numbers", 1, "Map")


def pipeline(*rows: Row | Injected, counted: Row = COUNTED, **options: bool) -> Callable[[Make], Make]:
    """Adds a function's pipeline to the table."""

    def add(make: Make) -> Make:
        written = tuple(row for row in rows if isinstance(row, Row))
        injected = tuple(row for row in rows if isinstance(row, Injected))
        CASES.append(Case(make, written, injected, counted, options))
        return make

    return add


def numbers(bench: Bench) -> Any:
    """Endless numbers, each counted by a Python function: so this map is stateful, and stays a map."""
    return Dataset.range(1 << 40).map(bench.counted(CALLS))  # Map:numbers, Range:numbers
