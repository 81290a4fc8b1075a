"""`plumber.optimize` as a decorator, with a saved plan, with variants, and where it must step aside."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber import optimizing
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.rewrite.saved_plan import save, saved
from tests.integration.test_optimize import BUDGET_S, kinds, measured, seconds, wait, waiting, warnings
from tests.support.digests import elements

__all__ = ["warnings"]  # a fixture
Dataset = tf.data.Dataset


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a dataset was traced."""
    counted: Counter[str] = Counter()
    real = optimizing.optimized

    def counting(*args: Any) -> Any:
        counted["traces"] += 1
        return real(*args)

    monkeypatch.setattr(optimizing, "optimized", counting)
    return counted


def test_a_decorated_function_is_traced_once_per_distinct_arguments(traces: Counter[str]) -> None:
    @plumber.optimize(budget_s=BUDGET_S)
    def make(length: int, names: list[str]) -> Any:
        """Makes it."""
        return waiting(length)

    assert make.__doc__ == "Makes it."
    first = make(300, ["a"])
    assert traces["traces"] == 1
    # WHEN it is called with equal arguments, THEN the plan is made in the new dataset
    second = make(300, ["a"])
    assert traces["traces"] == 1
    assert second is not first
    plain = waiting(300)
    assert seconds(second, 40) < seconds(plain, 40) / 5
    assert elements(second.take(10)) == elements(plain.take(10))


def test_a_bare_decorator_and_other_arguments(traces: Counter[str]) -> None:
    made = Counter[str]()

    @plumber.optimize
    def make(length: int) -> Any:
        made["calls"] += 1
        return Dataset.range(length)

    assert elements(make(5)) == elements(Dataset.range(5))
    make(6)
    make(5)
    assert traces["traces"] == 2
    assert made["calls"] == 3


def test_a_pipeline_that_is_another_one_is_traced_again(traces: Counter[str]) -> None:
    functions = [lambda x: x + 1, lambda x: x + tf.random.uniform([], 0, 5, tf.int64)]

    @plumber.optimize(budget_s=4)
    def make() -> Any:
        return Dataset.range(1000).map(functions[traces["traces"]]).batch(10)

    make()
    make()  # now it draws at random: what was legal before may not be
    assert traces["traces"] == 2


@pytest.mark.parametrize("wrong", [3, "dataset", [1, 2], {"a": 1}])
def test_anything_else_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="Dataset"):
        plumber.optimize(wrong)
    with pytest.raises(TypeError, match="Dataset"):
        plumber.optimize(budget_s=4)(wrong)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"budget_s": 0}, ValueError),
        ({"budget_s": "long"}, TypeError),
        ({"memory_fraction": 1.5}, ValueError),
        ({"memory_bytes": -1}, ValueError),
        ({"epochs": 0.5}, ValueError),
        ({"consumer_rate": float("inf")}, ValueError),
        ({"service": "grpc://localhost:1"}, ValueError),
        ({"variants": [3]}, TypeError),
        ({"plan": "/nowhere/plan.json"}, OSError),
        ({"plan": 3}, TypeError),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_errors(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        plumber.optimize(Dataset.range(3), **options)


def test_what_returns_no_dataset_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="returned a int"):
        plumber.optimize(lambda: 3)()


def test_while_a_graph_is_built_the_original_comes_back_with_one_warning(
    warnings: list[str], traces: Counter[str]
) -> None:
    @plumber.optimize
    def make() -> Any:
        return Dataset.range(4)

    @tf.function
    def total() -> Any:
        return make().reduce(tf.constant(0, tf.int64), lambda a, b: a + b)

    assert int(total()) == 6
    assert len(warnings) == 1
    assert "graph" in warnings[0]
    assert traces["traces"] == 0


def test_inside_distribute_datasets_from_function_the_original_comes_back(
    warnings: list[str], traces: Counter[str]
) -> None:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])

    distributed = strategy.distribute_datasets_from_function(
        lambda context: plumber.optimize(Dataset.range(4).batch(2))
    )

    assert next(iter(distributed)).numpy().tolist() == [0, 1]
    assert len(warnings) == 1
    assert "distribute" in warnings[0]
    assert traces["traces"] == 0


def test_a_saved_plan_is_made_without_a_trace(tmp_path: Path, traces: Counter[str]) -> None:
    # GIVEN a plan that was found for the pipeline and saved
    dataset = waiting()
    found = plumber.optimize(dataset, budget_s=BUDGET_S, return_report=True)
    report = found.report
    assert report is not None
    traces.clear()
    plan = tmp_path / "plan.json"
    pipeline = describe(dataset, role="diagnose").pipeline
    save(saved(report.analysis, pipeline), plan)

    # WHEN the same lines build it again
    again = plumber.optimize(waiting(), budget_s=BUDGET_S, plan=plan, return_report=True)

    # THEN it is as fast, and was not traced
    assert kinds(again) == kinds(found) >= {"parallelism", "threadpool"}
    assert measured(again)["after"] > 5 * measured(again)["before"]
    assert measured(again)["same_elements"] is True
    assert traces["traces"] == 0


def test_a_saved_plan_of_another_pipeline_is_refused_with_one_warning(
    tmp_path: Path, warnings: list[str]
) -> None:
    dataset = Dataset.range(8).map(lambda x: x + 1)
    report = plumber.diagnose(dataset, seconds=2)
    plan = tmp_path / "plan.json"
    save(saved(report.analysis, describe(dataset, role="diagnose").pipeline), plan)
    other = Dataset.range(8).map(lambda x: x + 1).batch(2)

    assert plumber.optimize(other, plan=plan) is other
    assert len(warnings) == 1


def test_the_fastest_variant_that_gives_the_same_is_kept() -> None:
    def one_by_one() -> Any:
        return Dataset.range(400).map(wait)

    def other_elements() -> Any:
        return Dataset.range(400).map(lambda x: x + 1)

    def without_waiting() -> Any:
        return Dataset.range(400).map(lambda x: x)

    dataset = one_by_one()
    found = plumber.optimize(
        dataset,
        budget_s=25,
        python_threads=False,
        variants=[other_elements, without_waiting],
        return_report=True,
    )

    assert elements(found.dataset) == elements(Dataset.range(400))
    assert measured(found)["after"] > 5 * measured(found)["before"]
    assert any("variant 1" in one.why for one in found.attempts)
