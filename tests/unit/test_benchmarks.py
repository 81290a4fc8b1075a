"""The parts of the benchmarks that can be wrong without anybody noticing."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import cases, predict, solve_time
from benchmarks.predict_settings import Edit, build
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


def test_settings_are_made_by_hand_at_the_named_functions() -> None:
    def double(x: tf.Tensor) -> tf.Tensor:
        return 2 * x

    def other(x: tf.Tensor) -> tf.Tensor:
        return x + 1

    def make() -> tf.data.Dataset:
        return tf.data.Dataset.range(6).map(double).map(other)

    edit = Edit(calls={"other": 3}, prefetch={"double": 2}, cache="double", pool=5)
    dataset = build(make, edit)
    assert list(dataset.as_numpy_iterator()) == [1, 3, 5, 7, 9, 11]
    assert dataset.options().threading.private_threadpool_size == 5
    chain = [dataset]
    while inputs := chain[-1]._inputs():
        chain += inputs
    kinds = [type(one).__name__.strip("_").removesuffix("Dataset") for one in chain]
    assert kinds == ["Options", "ParallelMap", "Prefetch", "Cache", "Map", "Range"]
    assert str(edit) == "other 3, prefetch double 2, cache double, pool 5"
    with pytest.raises(ValueError, match="no function is called decode"):
        build(make, Edit(cache="decode"))


def test_predictions_that_are_not_from_before_the_measurement_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "chain"
    place.mkdir()
    promised = {
        "predicted_at": 1.0,
        "predictions": [{"setting": "as written", "rate": 12.0, "constraint": "cpu"}],
    }
    (place / "predictions.json").write_text(json.dumps(promised))
    known = predict.fingerprint(place / "predictions.json")
    measured = {"predictions_sha256": known, "measured_from": 2.0, "rates": {"as written": [9.0, 10.0, 30.0]}}
    (place / "measured.json").write_text(json.dumps(measured))
    (outcome,) = predict.outcomes_of(["chain"], tmp_path)
    assert outcome.ratio == pytest.approx(1.2)
    assert outcome.spread == pytest.approx(2.1)
    (place / "measured.json").write_text(json.dumps({**measured, "measured_from": 0.5}))
    with pytest.raises(RuntimeError, match="not those from before"):
        predict.outcomes_of(["chain"], tmp_path)
    (place / "measured.json").write_text(json.dumps(measured))
    (place / "predictions.json").write_text(json.dumps({**promised, "what": "changed"}))
    with pytest.raises(RuntimeError, match="not those from before"):
        predict.outcomes_of(["chain"], tmp_path)


def test_bench_predict_predicts_and_measures(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.predict", "--smoke", "--only", "chain"]
    options = ["--json", str(tmp_path / "numbers.json"), "--directory", str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*command, *options], cwd=root, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads((tmp_path / "numbers.json").read_text())["outcomes"]
    settings = {one["setting"] for one in outcomes}
    assert {"as written", "first 2, second 2", "prefetch first 2"} <= settings
    assert all(0 < one["ratio"] < math.inf for one in outcomes)
    assert "p50" in done.stdout
