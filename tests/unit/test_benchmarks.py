"""The parts of the benchmarks that can be wrong without anybody noticing."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks import cases, solve_time
from benchmarks.report import bootstrap, table


def test_cases_are_drawn_by_the_commit_alone() -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    there = cases.numbers()
    assert len(there) == 27
    assert cases.drawn(commit) == random.Random(commit).sample(sorted(there), 8)


def test_bootstrap_gives_the_median_and_an_interval_around_it() -> None:
    values = np.random.default_rng(1).normal(1.0, 0.01, 25).tolist()
    interval = bootstrap(values)
    assert interval.value == pytest.approx(float(np.median(values)))
    assert 0.98 < interval.low < interval.value < interval.high < 1.02


def test_table_is_markdown() -> None:
    assert table(["a", "bb"], [[1, 2], ["long", 3]]) == "\n".join(
        ["| a    | bb |", "| ---- | -- |", "| 1    | 2  |", "| long | 3  |"]
    )


def test_solve_time_solves_pipelines_of_the_size_it_says() -> None:
    assert len(solve_time.network(30, 0).operators) == 30
    measured = solve_time.measure(operators=8, networks=2)
    assert measured.solves == 2
    assert 0 < measured.median_s.value <= measured.worst_s
