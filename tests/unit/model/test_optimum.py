"""The optimum against exhaustive search by an evaluator that shares no code with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorboard_plugin_plumber.model import optimum
from tensorboard_plugin_plumber.model.bounds import Kind, predicted_rate
from tensorboard_plugin_plumber.model.network import Choice, Consumer, Limits, Network, Operator, Settings
from tensorboard_plugin_plumber.model.optimum import optimise
from tests.support.networks import realistic, small
from tests.support import reference

K_MAX = 3
QUICK = range(60)
SWEEP = range(1000, 1600)


def check_against_exhaustive_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network = small(seed, k_max=K_MAX)
    every = reference.search(network, K_MAX)
    best = max(found.rate for found in every)
    near = [found for found in every if found.rate >= best * (1 - optimum.RATE_TOLERANCE) * (1 - 1e-7)]
    fewest = min(found.changes for found in near)

    # The plan, sized: as fast, with as few changes, within memory, nothing undone.
    plan = optimise(network, k_max=K_MAX)
    assert plan.rate == pytest.approx(reference.rate(network, plan.settings), rel=1e-9)
    assert best * (1 - optimum.RATE_TOLERANCE) * (1 - 1e-6) <= plan.rate <= best * (1 + 1e-6)
    assert plan.changes == reference.changes(network, plan.settings) == fewest
    assert reference.memory(network, plan.settings) <= reference.memory_limit(network)
    assert any(plan.settings == found.settings for found in every), "the plan is none that may be chosen"

    # Before it is sized: fewest threads, then least memory.
    fewest_threads = min(found.threads for found in near if found.changes == fewest)
    lean = [found for found in near if found.changes == fewest and found.threads == fewest_threads]
    with monkeypatch.context() as patch:
        patch.setattr(optimum, "_sized", lambda network, freedoms, settings, rate, k_max: settings)
        unsized = optimise(network, k_max=K_MAX).settings
    if fewest:
        assert reference.threads(unsized) == fewest_threads
        assert reference.memory(network, unsized) <= min(found.memory for found in lean) * 1.01 + 1e-6


@pytest.mark.parametrize("seed", QUICK)
def test_the_optimum_is_the_one_of_exhaustive_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_against_exhaustive_search(seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SWEEP)
def test_the_optimum_is_the_one_of_exhaustive_search_at_length(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_against_exhaustive_search(seed, monkeypatch)
