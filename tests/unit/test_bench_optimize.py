"""The parts of `make bench-optimize` that can be wrong without anybody noticing."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import optimize, optimize_data
from benchmarks.optimize_families import FAMILIES, Tuning
from benchmarks.optimize_results import (
    AUTOTUNE,
    FIVE,
    FREE,
    LITTLE,
    NAIVE,
    Goal,
    goals,
    outcome_of,
    undecided,
)
from benchmarks.optimize_worker import WAYS

ROOT = Path(__file__).parents[2]
SCALE = 0.001


def measured(
    rate: float, *, setup_s: float = 0.0, first: float | None = None, **setup: Any
) -> dict[str, Any]:
    """What one way gave in one repeat: 100 steps at a rate, half of the cores busy."""

    def turn(at: float) -> dict[str, Any]:
        used = {"cpu_s": 100 / at, "loop_cpu_s": 0.0, "server_cpu_s": 0.0, "foreign_cores": 0.0}
        return {"steps": 100, "seconds": 100 / at, **used}

    said = {
        "changed": False,
        "changes": [],
        "limit": "",
        "phases_s": {},
        "tried": [],
        "warnings": [],
        **setup,
    }
    return {
        "setup": {"seconds": setup_s, **said},
        "first": turn(first) if first is not None else None,
        "turns": [turn(rate)],
        "peak_bytes": 1 << 30,
    }


def test_totals_hold_tracing_and_the_first_epoch() -> None:
    repeats = [{FREE: measured(50.0, setup_s=7.0, first=10.0)}] * 5
    outcome = outcome_of("resnet", FREE, repeats, cores=2)
    assert outcome.rate.value == pytest.approx(50.0)
    assert outcome.first is not None
    assert outcome.first.value == pytest.approx(10.0)
    assert outcome.totals_s[3].value == pytest.approx(7 + 10 + 2 * 2)
    assert outcome.totals_s[10].value == pytest.approx(7 + 10 + 9 * 2)
    assert outcome.share == pytest.approx(0.5)


def test_rates_are_compared_within_a_repeat() -> None:
    # GIVEN a machine that is twice as slow in every other repeat
    slow = [1.0, 0.5, 1.0, 0.5, 1.0, 0.5]
    repeats = [{NAIVE: measured(10 * pace), FREE: measured(20 * pace)} for pace in slow]
    ratio = outcome_of("gnmt", FREE, repeats, cores=2).to_naive
    assert ratio is not None
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((2, 2, 2))


@pytest.mark.parametrize(
    ("rates", "changed", "more"),
    [
        ([1.2] * 5, True, False),  # no loss
        ([0.9] * 5, True, False),  # a loss
        ([0.9, 0.95, 0.98, 1.0, 1.05], True, True),  # who knows
        ([0.9, 0.95, 0.98, 1.0, 1.05], False, False),  # the original itself
    ],
)
def test_more_repeats_follow_where_a_loss_is_possible(rates: list[float], changed: bool, more: bool) -> None:
    repeats = [{NAIVE: measured(1.0), FREE: measured(rate, changed=changed)} for rate in rates]
    assert undecided(repeats, FREE) is more


def goal(found: list[Goal], words: str) -> Goal:
    (one,) = [goal for goal in found if goal.what.startswith(words)]
    return one


def goals_of(rates: dict[str, dict[str, float]]) -> list[Goal]:
    outcomes = []
    for family, of_ways in rates.items():
        repeats = [{way: measured(rate, changed=way == FREE) for way, rate in of_ways.items()}] * 5
        outcomes += [outcome_of(family, way, repeats, cores=2) for way in of_ways]
    return goals(outcomes)


def test_goal_of_the_five_needs_the_mean_and_each() -> None:
    good = {name: {NAIVE: 1.0, AUTOTUNE: 2.0, FREE: 9.0} for name in FIVE}
    assert goal(goals_of(good), "fits").met is True
    assert goal(goals_of({**good, "ssd": {NAIVE: 1.0, AUTOTUNE: 2.0, FREE: 2.2}}), "fits").met is False
    slow = {name: {NAIVE: 1.0, AUTOTUNE: 2.0, FREE: 7.0} for name in FIVE}
    assert goal(goals_of(slow), "fits").met is False
    del good["gnmt"]
    assert goal(goals_of(good), "fits").met is None
    assert goal(goals_of({}), "fits").met is None


def test_goals_of_the_wait_and_of_no_loss() -> None:
    found = goals_of({"latency-20ms": {NAIVE: 1.0, AUTOTUNE: 2.0, FREE: 48.0}})
    assert goal(found, "latency-20ms").met is True
    assert goal(found, "latency-50ms").met is None
    assert goal(found, "no loss").met is True
    assert (
        goal(goals_of({"latency-20ms": {NAIVE: 1.0, AUTOTUNE: 5.0, FREE: 48.0}}), "latency-20ms").met is False
    )
    assert goal(goals_of({"gnmt": {NAIVE: 1.0, AUTOTUNE: 1.0, FREE: 0.9}}), "no loss").met is False
    assert goal(goals_of({"gnmt": {NAIVE: 1.0, AUTOTUNE: 1.0, LITTLE: 0.9}}), "does not fit").met is True


def test_what_stays_below_the_bound_needs_an_explanation() -> None:
    limit = "With the plan the limit is the thread of Batch."
    said, kept = measured(1.0, changed=True, limit=limit), measured(1.0, changed=False, limit=limit)
    idle = measured(
        1.0, changed=True, limit="With the plan the limit is the 2 cores that this process may use."
    )
    for given, met in ((said, True), (kept, False), (idle, False), (measured(1.0, changed=True), False)):
        outcome = outcome_of("gnmt", FREE, [{FREE: given}], cores=2)
        assert outcome.share < 0.9
        assert goal(goals([outcome]), "the five").met is met
    waiting = outcome_of("latency-http", FREE, [{FREE: said}], cores=2)
    assert goal(goals([waiting]), "latency elsewhere").met is False


def test_data_are_the_same_each_time_and_made_once(tmp_path: Path) -> None:
    first = optimize_data.prepare("sentence-pairs", SCALE, tmp_path / "a")
    again = optimize_data.prepare("sentence-pairs", SCALE, tmp_path / "b")
    assert first.name == again.name
    files = sorted(path.name for path in first.iterdir())
    assert len(files) == 8
    assert all((first / name).read_bytes() == (again / name).read_bytes() for name in files)
    (first / files[0]).write_bytes(b"kept")
    assert (optimize_data.prepare("sentence-pairs", SCALE, tmp_path / "a") / files[0]).read_bytes() == b"kept"
    assert optimize_data.prepare("sentence-pairs", 2 * SCALE, tmp_path / "a") != first


def test_every_way_gives_the_elements_of_the_naive_one(tmp_path: Path) -> None:
    data = optimize_data.prepare("sentence-pairs", SCALE, tmp_path)
    naive = elements(lambda tuning: FAMILIES["transformer"].make(data, tuning), Tuning())
    assert naive
    for name, way in WAYS.items():
        found = elements(lambda tuning: FAMILIES["transformer"].make(data, tuning), way.tuning(2))
        assert len(found) == len(naive), name
        for one, other in zip(found, naive, strict=True):
            tf.nest.map_structure(np.testing.assert_array_equal, one, other)


def elements(make: Callable[[Tuning], tf.data.Dataset], tuning: Tuning) -> list[Any]:
    return list(make(tuning).as_numpy_iterator())


@pytest.mark.parametrize("name", FIVE)
def test_each_family_gives_whole_batches(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    assert family.data is not None
    data = optimize_data.prepare(family.data, SCALE, tmp_path)
    found = [leaf for one in family.make(data, Tuning()).take(2) for leaf in tf.nest.flatten(one)]
    for leaf in found:
        assert leaf.shape[0] == family.batch or (family.batch is None and leaf.shape[0])
        if leaf.dtype.is_floating:
            assert np.isfinite(leaf).all()


def test_bench_optimize_measures_saves_and_draws(tmp_path: Path) -> None:
    chosen = ["--smoke", "--only", "gnmt", "--ways", f"{NAIVE},{AUTOTUNE}", "--directory", str(tmp_path)]
    written = ["--json", str(tmp_path / "numbers.json"), "--plot", str(tmp_path / "picture.png")]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.optimize", *chosen, *written],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert {one["way"] for one in numbers["outcomes"]} == {NAIVE, AUTOTUNE}
    assert all(0 < one["rate"]["value"] < math.inf for one in numbers["outcomes"])
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert "NOT met" not in done.stdout
    assert len(json.loads((tmp_path / "gnmt.json").read_text())) == 1


def test_every_pipeline_and_way_exists() -> None:
    assert set(optimize.PIPELINES) == set(FAMILIES)
    assert {way for ways in optimize.PIPELINES.values() for way in ways} == set(WAYS)
