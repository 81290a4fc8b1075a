"""Linear forms over the columns of a program, each {column: coefficient}."""

from __future__ import annotations

from collections.abc import Mapping

Form = Mapping[int, float]


def plus(*terms: Form) -> dict[int, float]:
    """The sum of linear forms."""
    total: dict[int, float] = {}
    for term in terms:
        for column, value in term.items():
            total[column] = total.get(column, 0.0) + value
    return total


def times(factor: float, term: Form) -> dict[int, float]:
    """`factor` times a linear form."""
    return {column: factor * value for column, value in term.items()}
