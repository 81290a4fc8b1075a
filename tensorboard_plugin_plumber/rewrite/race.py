"""Which of several datasets is faster, measured by turns against the noise of the machine.

All run on the same machine, one at a time, in rounds of one turn each whose order is that of ABBA, so that what drifts
meets all of them alike. Of each round only the ratio of its rates counts; the interval is Student's over the rounds'
logarithms, with what is usual counted in. The race ends as soon as it is decided.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from tensorboard_plugin_plumber.capture import iterators
from tensorboard_plugin_plumber.capture.alone import Empty
from tensorboard_plugin_plumber.capture.survey import Survey
from tensorboard_plugin_plumber.model.intervals import Interval
from tensorboard_plugin_plumber.rewrite.lanes import Lane, Turn

# A turn's length, seconds: what is shorter shows the scheduler's noise; longer ones leave too few rounds.
_SHORTEST_S, _LONGEST_S = 0.1, 1.0
# Elements that a turn should hold; rounds that the budget should be enough for, and what a turn takes with all that
# does not count, in its own lengths.
_STEPS, _ROUNDS, _WHOLE_TURN = 8, 8, 2.0
_LEAST_ROUNDS = 5
# Deviation of one round's logarithm as usual on a quiet machine, and of how many rounds it stands for: a few rounds
# may agree by luck (1.035 [1.023, 1.048] was found of a pipeline and itself, in four).
_USUAL, _AS_GOOD_AS = 0.03, 3
# A race is looked at after each round: what ends it early is held to more than what is reported.
_DECIDED, _REPORTED = 0.99, 0.95
# Of the budget: for the caches of one lane.
_FILLING = 0.25


@dataclass(frozen=True)
class Filling:
    """What it took to fill the caches of a dataset.

    Attributes:
      steps, seconds: of the pass that filled them.
      whole: the pass went to its end, so that they serve from now on.
    """

    steps: int
    seconds: float
    whole: bool


@dataclass(frozen=True)
class Race:
    """What was measured.

    Attributes:
      rates: steps/s of each dataset, the median over the rounds.
      ratios: of each rate to the first one's, with an interval of 95 %; infinitely wide after one round.
      rounds: that counted.
      decided: whether each differs from the first, or by how much to `wanted`, was settled before the time was over.
      cpu_s: of the whole process per step of each, the median.
      fillings: of each dataset that has caches, before the race; None of the others.
    """

    rates: tuple[float, ...]
    ratios: tuple[Interval, ...]
    rounds: int
    decided: bool
    cpu_s: tuple[float, ...]
    fillings: tuple[Filling | None, ...]


def warm(dataset: Any, *, budget_s: float) -> Filling:
    """Runs a dataset to its end once, so that its caches serve the iterators after it.

    Args:
      dataset: an eager `tf.data.Dataset`; what fills is its own cache.
      budget_s: it is left where it is when the time is over, and then its caches are empty again.

    Raises:
      Exception: what the dataset raises.
    """
    began_s = time.perf_counter()
    with iterators.seen_only_by():
        iterator = iter(dataset)
    steps = 0
    for _ in iterator:
        steps += 1
        if time.perf_counter() - began_s > budget_s:
            return Filling(steps, time.perf_counter() - began_s, False)
    return Filling(steps, time.perf_counter() - began_s, True)


def has_cache(dataset: Any) -> bool:
    """Whether a cache stands in the pipeline."""
    survey = Survey()
    survey.look_at(dataset)
    return any(type(one).__name__ == "CacheDataset" for one in survey.order)


def race(
    datasets: Sequence[Any], *, budget_s: float, wanted: float = 0.03, fill_s: float | None = None
) -> Race:
    """Measures datasets against the first of them.

    They are iterated themselves, from their beginnings and again and again, with nothing behind them: give copies of
    those whose state matters. Caches are filled first and their filling is reported apart; where that takes too
    long the lane is measured as it fills.

    Args:
      datasets: two or more.
      budget_s: for all of it, the filling of caches included; one round is always run.
      wanted: enough is known of a ratio once its interval is no wider than this part of it to either side.
      fill_s: for the caches of one dataset, at most; None: a quarter of the budget.

    Raises:
      Empty (of `capture.alone`): one has no element.
      Exception: what one of them raises.
    """
    until_s = time.perf_counter() + budget_s
    fill_s = _FILLING * budget_s if fill_s is None else fill_s
    fillings = tuple(warm(one, budget_s=fill_s) if has_cache(one) else None for one in datasets)
    if any(one is not None and one.whole and one.steps == 0 for one in fillings):
        raise Empty("the dataset has no element")
    filling = {index for index, one in enumerate(fillings) if one is not None and not one.whole}
    lanes = [Lane(one, whole_passes=index in filling) for index, one in enumerate(datasets)]
    seconds = _turn_s(lanes, until_s)
    order = random.sample(range(len(lanes)), len(lanes))
    rounds: list[list[Turn]] = []
    while True:
        began_s = time.perf_counter()
        turns: dict[int, Turn] = {}
        for index in order:
            turns[index] = lanes[index].turn(seconds)
            lanes[index].settle(seconds)
        order.reverse()
        rounds.append([turns[index] for index in range(len(lanes))])
        served = {index for index in filling if lanes[index].passes}
        if served:  # from here on it is another pipeline
            filling -= served
            rounds.clear()
            continue
        # As long as a cache fills, nothing is decided: a lane that fills is as slow as one without.
        decided = not filling and len(rounds) >= _LEAST_ROUNDS and _is_decided(rounds, wanted)
        now_s = time.perf_counter()
        if decided or now_s + (now_s - began_s) > until_s:
            return _outcome(rounds, decided, fillings)


def _turn_s(lanes: Sequence[Lane], until_s: float) -> float:
    """How long a turn should be, by a first one of each lane."""
    slowest = min(one.turn(_SHORTEST_S).rate for one in lanes)
    for one in lanes:
        one.settle(_SHORTEST_S)
    affordable_s = (until_s - time.perf_counter()) / (_WHOLE_TURN * _ROUNDS * len(lanes))
    return max(_SHORTEST_S, min(_STEPS / slowest, affordable_s, _LONGEST_S))


def _is_decided(rounds: list[list[Turn]], wanted: float) -> bool:
    """Whether each lane is surely another than the first, or its ratio is known as well as wanted."""
    sure, told = _ratios(rounds, _DECIDED), _ratios(rounds, _REPORTED)
    return all(
        one.low > 1.0 or one.high < 1.0 or (other.high - other.low) / (2 * other.value) <= wanted
        for one, other in zip(sure[1:], told[1:], strict=True)
    )


def _ratios(rounds: list[list[Turn]], confidence: float) -> tuple[Interval, ...]:
    """Of each lane's rate to the first one's."""
    logs = np.log([[turn.rate for turn in one] for one in rounds])
    logs = logs - logs[:, :1]
    count, found = len(rounds), [Interval.exactly(1.0)]
    for column in logs[:, 1:].T:
        middle = float(np.mean(column))
        if count < 2:
            found.append(Interval(math.exp(middle), 0.0, math.inf))
            continue
        freedom = count - 1 + _AS_GOOD_AS
        squares = (count - 1) * float(np.var(column, ddof=1)) + _AS_GOOD_AS * _USUAL**2
        half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * math.sqrt(squares / freedom / count)
        found.append(Interval(*(math.exp(x) for x in (middle, middle - half, middle + half))))
    return tuple(found)


def _outcome(rounds: list[list[Turn]], decided: bool, fillings: tuple[Filling | None, ...]) -> Race:
    rates = np.median([[turn.rate for turn in one] for one in rounds], axis=0)
    cpu_s = np.median([[turn.cpu_s / turn.steps for turn in one] for one in rounds], axis=0)
    return Race(
        tuple(map(float, rates)),
        _ratios(rounds, _REPORTED),
        len(rounds),
        decided,
        tuple(map(float, cpu_s)),
        fillings,
    )
