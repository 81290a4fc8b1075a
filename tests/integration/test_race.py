"""Which of two pipelines is faster is measured by turns, and no lane lives on what it stored in another's turn."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture.alone import Empty
from tensorboard_plugin_plumber.rewrite.lanes import Lane
from tensorboard_plugin_plumber.rewrite.race import race, warm

Dataset = tf.data.Dataset


def waiting(milliseconds: float, calls: int | None = None, elements: int = 10**9) -> Any:
    """Elements that take so long each; a wait, so that the machine's load does not matter."""

    def wait(x: Any) -> Any:
        time.sleep(milliseconds / 1000)
        return x

    # Python is stateful to TensorFlow, which leaves it sequential where no calls are given.
    return Dataset.range(elements).map(
        lambda x: tf.numpy_function(wait, [x], tf.int64), num_parallel_calls=calls
    )


def test_a_faster_pipeline_is_known_soon_and_by_how_much() -> None:
    began_s = time.perf_counter()
    found = race([waiting(10), waiting(10, calls=2), waiting(20)], budget_s=30)

    assert found.decided
    assert time.perf_counter() - began_s < 25
    assert found.ratios[0].low == found.ratios[0].high == 1.0
    twice, half = found.ratios[1:]
    assert twice.low > 1.4
    assert twice.low <= twice.value <= twice.high
    assert half.high < 0.7
    assert found.rates[1] / found.rates[0] == pytest.approx(twice.value, rel=0.3)
    assert found.rounds >= 4
    assert found.fillings == (None, None, None)


@pytest.mark.parametrize("buffer", [tf.data.AUTOTUNE, 30])
def test_a_buffer_that_fills_in_the_others_turn_makes_nothing_faster(buffer: int) -> None:
    """Not even with a prefetch that TensorFlow tunes: it doubles with each turn, also the one that it injects."""
    found = race([waiting(8), waiting(8).prefetch(buffer)], budget_s=6, wanted=0.001)

    assert found.rounds >= 5
    assert 0.85 < found.ratios[1].value < 1.2
    # One call after the other, none shorter than its wait.
    assert max(found.rates) < 1.05 / 0.008


def test_what_is_in_store_when_a_turn_begins_does_not_count() -> None:
    lane = Lane(waiting(5).prefetch(40))
    lane.turn(0.3)
    lane.settle(2.0)  # forty elements lie ready by now

    assert lane.turn(0.3).rate < 1.05 / 0.005


def test_a_lane_goes_on_behind_its_end() -> None:
    lane = Lane(waiting(1, elements=7))

    turn = lane.turn(0.2)

    assert turn.steps > 7
    assert lane.passes >= 1
    assert turn.cpu_s > 0


def test_caches_are_filled_before_the_race() -> None:
    found = race([waiting(5, elements=60), waiting(5, elements=60).cache()], budget_s=10, fill_s=5)

    none, filling = found.fillings
    assert none is None
    assert filling is not None
    assert (filling.steps, filling.whole) == (60, True)
    assert filling.seconds > 60 * 0.005
    assert found.ratios[1].low > 3


def test_a_cache_that_is_not_filled_in_time_is_measured_as_it_fills_and_then_as_it_serves() -> None:
    """By no means both in one number."""
    filling = race([waiting(5, elements=10**6), waiting(5, elements=10**6).cache()], budget_s=4, fill_s=0.2)
    served = race([waiting(5, elements=200), waiting(5, elements=200).cache()], budget_s=12, fill_s=0.2)

    assert filling.fillings[1] is not None
    assert not filling.fillings[1].whole
    assert 0.7 < filling.ratios[1].value < 1.4
    assert served.fillings[1] is not None
    assert not served.fillings[1].whole
    assert served.ratios[1].low > 3


def test_warming_fills_the_datasets_own_cache() -> None:
    calls = []

    def count(x: Any) -> Any:
        calls.append(x)
        return x

    dataset = Dataset.range(30).map(lambda x: tf.numpy_function(count, [x], tf.int64)).cache()

    filling = warm(dataset, budget_s=10)

    assert (filling.steps, filling.whole) == (30, True)
    assert [int(x) for x in dataset] == list(range(30))
    assert len(calls) == 30


def test_one_round_is_run_however_short_the_budget() -> None:
    found = race([waiting(30), waiting(30)], budget_s=0.01)

    assert (found.rounds, found.decided) == (1, False)
    assert (found.ratios[1].low, found.ratios[1].high) == (0.0, np.inf)


def test_nothing_is_no_rate() -> None:
    with pytest.raises(Empty):
        race([Dataset.range(5), Dataset.range(5).filter(lambda x: x > 9)], budget_s=2)


def test_errors_of_the_pipeline_are_the_callers() -> None:
    broken = Dataset.range(5).map(
        lambda x: tf.debugging.check_numerics(tf.math.log(tf.cast(-x, tf.float32)), "bad")
    )

    with pytest.raises(tf.errors.InvalidArgumentError):
        race([Dataset.range(5), broken], budget_s=2)


def test_a_pipeline_without_counters_is_raced_too() -> None:
    options = tf.data.Options()
    options.autotune.enabled = False

    found = race([waiting(10).with_options(options), waiting(10, calls=2).with_options(options)], budget_s=10)

    assert found.ratios[1].low > 1.4
