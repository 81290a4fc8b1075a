"""Places in which a pipeline of the table may stand, and the tree that must be seen then."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tests.support.operators.case import Bench, Case, Row, comment_lines

Dataset = tf.data.Dataset


@dataclass(frozen=True)
class Placed:
    """A pipeline of the table in its context.

    Attributes:
      dataset: the whole.
      rows: that must be seen; the outer ones first, markers of theirs end in ":outer".
      lines: by marker.
      steps: elements to draw; None: all.
    """

    dataset: Any
    rows: tuple[Row, ...]
    lines: dict[str, tuple[str, int]]
    steps: int | None = None


def alone(case: Case, bench: Bench) -> Placed:
    return Placed(case.make(bench), case.rows, _lines(case), case.steps)


def in_an_interleave(case: Case, bench: Bench) -> Placed:
    numbers = Dataset.range(3)  # Range:outer
    dataset = numbers.interleave(  # Interleave:outer
        lambda _: _ended(case, bench), cycle_length=2
    )
    # TensorFlow rewrites nothing within functions.
    inner = tuple(replace(row, runs_as=None) for row in _times(_ended_rows(case), 3))
    outer = (Row("Interleave:outer", None, False, _root(inner)), Row("Range:outer", 0, False, 3))
    return Placed(dataset, _below(outer, inner, 0, in_body=True), _lines(case, in_an_interleave))


def behind_a_zip(case: Case, bench: Bench) -> Placed:
    numbers = Dataset.range(1 << 30)  # Range:outer
    dataset = Dataset.zip((_ended(case, bench), numbers))  # Zip:outer
    inner = _ended_rows(case)
    rows = _below((Row("Zip:outer", None, False, _root(inner)),), inner, 0)
    return Placed(dataset, (*rows, Row("Range:outer", 0, False, _root(inner))), _lines(case, behind_a_zip))


def shuffled_and_repeated(case: Case, bench: Bench) -> Placed:
    dataset = _ended(case, bench).shuffle(4).repeat(3)  # Shuffle:outer, Repeat:outer
    inner = _times(_ended_rows(case), 3)
    count = _root(inner)
    outer = (
        Row("Repeat:outer", None, False, count, runs_as="ShuffleAndRepeat"),
        Row("Shuffle:outer", 0, False, count, runs_as="ShuffleAndRepeat"),
    )
    return Placed(dataset, _below(outer, inner, 1), _lines(case, shuffled_and_repeated))


def before_a_batch(case: Case, bench: Bench) -> Placed:
    counted = bench.counted("outer")
    ones = _ended(case, bench).map(lambda *_: counted(tf.constant(1)))  # Map:outer
    dataset = ones.batch(2)  # Batch:outer
    inner = _ended_rows(case)
    count = _root(inner)
    batches = -(-count // 2) if isinstance(count, int) else None
    outer = (
        Row("Batch:outer", None, False, batches, runs_as="MapAndBatch"),
        Row("Map:outer", 0, False, count, runs_as="MapAndBatch"),
    )
    return Placed(dataset, _below(outer, inner, 1), _lines(case, before_a_batch))


CONTEXTS: dict[str, Callable[[Case, Bench], Placed]] = {
    context.__name__: context
    for context in (alone, in_an_interleave, behind_a_zip, shuffled_and_repeated, before_a_batch)
}


def _ended(case: Case, bench: Bench) -> Any:
    dataset = case.make(bench)
    return dataset if case.steps is None else dataset.take(case.steps)  # Take:outer


def _ended_rows(case: Case) -> tuple[Row, ...]:
    if case.steps is None:
        return case.rows
    return _below((Row("Take:outer", None, False, case.steps),), case.rows, 0)


def _below(
    outer: tuple[Row, ...], inner: tuple[Row, ...], parent: int, *, in_body: bool = False
) -> tuple[Row, ...]:
    """The rows with others put above them: the root of the inner ones hands its elements to `outer[parent]`."""
    shifted = tuple(
        replace(row, parent=parent, in_body=in_body)
        if row.parent is None
        else replace(row, parent=row.parent + len(outer))
        for row in inner
    )
    return (*outer, *shifted)


def _times(rows: tuple[Row, ...], times: int) -> tuple[Row, ...]:
    """The rows of a pipeline that runs several times; what functions count themselves stays as it is."""
    return tuple(
        replace(row, elements=row.elements * times) if isinstance(row.elements, int) else row for row in rows
    )


def _root(rows: tuple[Row, ...]) -> int | str | None:
    return rows[0].elements


def _lines(case: Case, context: Callable[..., Any] | None = None) -> dict[str, tuple[str, int]]:
    found = {}
    for function in (case.make, context, _ended):
        if function is not None:
            path = inspect.getsourcefile(function) or ""
            found.update({marker: (path, line) for marker, line in comment_lines(function).items()})
    return found
