"""Prices and sizes against the differences of exhaustive searches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorboard_plugin_plumber.model.network import (
    Choice,
    Consumer,
    Limits,
    Network,
    Operator,
    Settings,
    StorageCurve,
)
from tensorboard_plugin_plumber.model.prices import Price, Resource, prices
from tensorboard_plugin_plumber.model.sizing import sentence, size_for
from tests.support import reference
from tests.support.networks import rich

K_MAX = 3
MOST_CORES = 12


def best(network: Network) -> float:
    return max(found.rate for found in reference.search(network, K_MAX))


def with_more(network: Network, resource: Resource) -> Network:
    limits = network.limits
    if resource is Resource.CORES:
        return replace(network, limits=replace(limits, cores=limits.cores + 1))
    if resource is Resource.MEMORY:
        free = limits.memory_free_bytes + 0.1 * limits.memory_bytes * limits.memory_share
        return replace(network, limits=replace(limits, memory_free_bytes=free))
    assert limits.storage is not None
    faster = StorageCurve(tuple((readers, 1.1 * rate) for readers, rate in limits.storage.points))
    return replace(network, limits=replace(limits, storage=faster))


def check_prices(seed: int) -> set[Resource]:
    """Every price is the difference of two searches; returns what was worth something."""
    network = rich(seed, k_max=K_MAX, most=120)
    found = prices(network, k_max=K_MAX)
    assert {price.resource for price in found} >= {Resource.CORES, Resource.MEMORY}
    assert (network.limits.storage is not None) == any(p.resource is Resource.STORAGE for p in found)
    for price in found:
        truth = best(with_more(network, price.resource)) / best(network)
        # Over epochs, tangents of 1/X stand for it: 0.02 % off.
        assert 1 + price.gain == pytest.approx(truth, rel=1e-3)
    return {price.resource for price in found if price.gain > 0.01}


def check_sizes(seed: int) -> None:
    network = rich(seed, k_max=K_MAX, most=120)
    # Between the rates that there are, so that a rounding decides nothing.
    wanted = best(network) * (0.3, 0.71, 0.973, 1.21, 1.53, 2.51)[seed % 6]
    sizing = size_for(network, wanted, k_max=K_MAX)
    limits = network.limits
    enough = [
        cores
        for cores in range(1, MOST_CORES + 1)
        if best(replace(network, limits=replace(limits, cores=cores))) >= wanted
    ]
    assert sizing.cores == (enough[0] if enough else None) or (not enough and sizing.cores > MOST_CORES)
    roomy = replace(network, limits=replace(limits, memory_free_bytes=1e15))
    held = [found.memory for found in reference.search(roomy, K_MAX) if found.rate >= wanted]
    assert (sizing.memory_bytes is None) == (not held)
    if held:
        assert min(held) * (1 - 1e-9) <= sizing.memory_bytes <= min(held) * 1.01 + 1e-6


def test_every_price_is_the_difference_of_two_exhaustive_searches() -> None:
    worth = set().union(*(check_prices(seed) for seed in range(30)))
    assert worth == set(Resource)


@pytest.mark.parametrize("seed", range(12))
def test_cores_and_memory_are_the_least_of_exhaustive_search(seed: int) -> None:
    check_sizes(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_prices_and_sizes_are_those_of_exhaustive_search_at_length(seed: int) -> None:
    check_prices(seed)
    check_sizes(seed)


def computing(cores: float, *, step_s: float | None = None) -> Network:
    """A map of 40 ms of core time per step that may become parallel; 16 calls at most."""
    return Network(
        (
            Operator("batch", None, visits=1, cpu_s=1e-3),
            Operator("map", 0, visits=4, cpu_s=10e-3, may_parallel=True, pooled=True),
        ),
        Settings((Choice(prefetch=True, prefetch_size=2), Choice()), threadpool_size=16),
        Limits(cores, 1e9, 1e9),
        Consumer(step_s=step_s),
    )


def test_prices_say_what_they_are_in_words() -> None:
    cores, memory = prices(computing(4))
    assert cores.sentence == "One more core: +25 %"
    assert cores.rate == pytest.approx(5 / 41e-3)
    assert memory.sentence == "10 % more memory: nothing"
    assert Price(Resource.STORAGE, 1e7, 110, 0.04).sentence == "10 % faster storage: +4 %"


def test_nothing_is_worth_anything_where_the_consumer_binds() -> None:
    assert {price.sentence for price in prices(computing(8, step_s=20e-3))} == {
        "One more core: nothing",
        "10 % more memory: nothing",
    }


def test_a_wanted_rate_takes_cores() -> None:
    sizing = size_for(computing(2), 200)
    # 8.2 cores of work a second
    assert (sizing.cores, sizing.memory_bytes, sizing.reachable) == (9, None, True)
    assert sentence(computing(2), sizing) == "200 steps/s takes 9 cores with today's memory."


def test_what_cannot_be_reached_is_said() -> None:
    network = computing(2, step_s=10e-3)
    assert "the training step itself takes 10.0 ms" in sentence(network, size_for(network, 200))
    sequential = replace(
        network,
        consumer=Consumer(),
        operators=tuple(replace(o, may_parallel=False) for o in network.operators),
    )
    sizing = size_for(sequential, 200)
    assert not sizing.reachable
    assert sentence(sequential, sizing) == (
        "Neither more cores nor more memory reach 200 steps/s; the most there can be is 25.0 steps/s."
    )


def test_no_wanted_rate_is_no_question() -> None:
    with pytest.raises(ValueError, match="positive"):
        size_for(computing(2), 0)
