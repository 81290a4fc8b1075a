"""The efficiency of an ordered window against an element-by-element simulation of its own."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from tensorboard_plugin_plumber.model.ordered import cuts, eta, throughput


def simulated(times: list[float], k: int, batch_size: int = 1) -> float:
    """Efficiency of k calls: a call starts when one is free and at most k results, or the batches that TensorFlow
    holds, are outstanding; results, or whole batches, leave in order."""
    outstanding = k if batch_size == 1 else min(math.ceil(k / batch_size) + 1, 16)
    free = [0.0] * k
    delivered: list[float] = []
    for first in range(0, len(times) - batch_size + 1, batch_size):
        gate = delivered[-outstanding] if len(delivered) >= outstanding else 0.0
        last = delivered[-1] if delivered else 0.0
        for time in times[first : first + batch_size]:
            finish = max(heapq.heappop(free), gate) + time
            heapq.heappush(free, finish)
            last = max(last, finish)
        delivered.append(last)
    warm = len(delivered) // 10
    calls = (len(delivered) - warm) * batch_size
    mean = sum(times) / len(times)
    return calls * mean / (delivered[-1] - delivered[warm - 1]) / k


def exponential(rng: random.Random) -> float:
    return rng.expovariate(1.0)


def stragglers(rng: random.Random) -> float:
    return 20.0 if rng.random() < 0.05 else 1.0


def coefficient_of_variation(times: list[float]) -> float:
    mean = sum(times) / len(times)
    return math.sqrt(sum((each - mean) ** 2 for each in times) / len(times)) / mean


def test_constant_times_lose_nothing() -> None:
    assert eta(8, 0.0) == eta(8, None) == 1.0


@pytest.mark.parametrize(("law", "measured"), [(exponential, 0.48), (stragglers, 0.29)])
def test_it_is_what_was_measured_on_tensorflow_with_eight_calls(
    law: Callable[[random.Random], float], measured: float
) -> None:
    rng = random.Random(1)
    times = [law(rng) for _ in range(40_000)]
    cv = coefficient_of_variation(times)
    assert eta(8, cv) == pytest.approx(measured, rel=0.1)
    assert simulated(times, 8) == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize("cv", [0.3, 1.0, 1.8])
@pytest.mark.parametrize(
    ("k", "batch_size"), [(1, 1), (5, 1), (20, 1), (100, 1), (8, 4), (8, 8), (8, 32), (32, 8)]
)
def test_the_table_is_what_a_simulation_of_lognormal_times_gives(cv: float, k: int, batch_size: int) -> None:
    rng = random.Random(k)
    sigma2 = math.log1p(cv**2)
    times = [rng.lognormvariate(-sigma2 / 2, math.sqrt(sigma2)) for _ in range(25_000)]
    assert eta(k, cv, batch_size) == pytest.approx(simulated(times, k, batch_size), rel=0.1)


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("cv", [0.2, 0.7, 1.3, 8.0])
def test_throughput_is_concave_and_never_falls(cv: float, batch_size: int) -> None:
    values = [0.0, *throughput(160, cv, batch_size)]
    gains = [right - left for left, right in pairwise(values)]
    assert values[1] == pytest.approx(1.0)
    assert min(gains) >= -1e-12
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(gains))


@pytest.mark.parametrize("cv", [None, 0.4, 1.0])
@pytest.mark.parametrize("k_max", [1, 2, 7, 64])
def test_the_cuts_are_exact_at_whole_numbers(cv: float | None, k_max: int) -> None:
    lines = cuts(k_max, cv)
    for k, value in enumerate(throughput(k_max, cv), start=1):
        assert min(slope * k + intercept for slope, intercept in lines) == pytest.approx(value)


def test_large_batches_lose_next_to_nothing() -> None:
    assert eta(8, 0.5, 32) > 0.98
    assert eta(8, 0.5, 4096) > 0.98


def test_no_calls_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        eta(0, 1.0)
