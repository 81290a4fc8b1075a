"""The optimum against exhaustive search by an evaluator that shares no code with it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tensorboard_plugin_plumber.model import optimum
from tensorboard_plugin_plumber.model.bounds import Kind, epochs_rate, predicted_rate
from tensorboard_plugin_plumber.model.network import (
    Choice,
    Consumer,
    Limits,
    Network,
    Operator,
    Settings,
    StorageCurve,
)
from tensorboard_plugin_plumber.model.optimum import optimise
from tests.support import reference
from tests.support.networks import realistic, rich, small

K_MAX = 3
QUICK = range(60)
SWEEP = range(1000, 1600)
#: ... with storage, file caches, functions that may leave the pool, and epochs.
RICH = range(40)
#: What the tangents of 1/X in `program.epochs` may be short by.
CUTS = 1e-3


def check_against_exhaustive_search(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    every = reference.search(network, K_MAX)
    best = max(found.rate for found in every)
    near = [found for found in every if found.rate >= best * (1 - optimum.RATE_TOLERANCE) * (1 - 1e-7)]
    fewest = min(found.changes for found in near)

    # The plan, sized: as fast, with as few changes, within memory, nothing undone.
    plan = optimise(network, k_max=K_MAX)
    assert plan.rate == pytest.approx(reference.rate(network, plan.settings), rel=1e-9)
    assert plan.epochs_rate == pytest.approx(reference.mean_rate(network, plan.settings), rel=1e-9)
    assert best * (1 - optimum.RATE_TOLERANCE) * (1 - CUTS) <= plan.epochs_rate <= best * (1 + 1e-6)
    assert plan.changes == reference.changes(network, plan.settings) == fewest
    assert reference.memory(network, plan.settings) <= reference.memory_limit(network)
    assert any(plan.settings == found.settings for found in every), "the plan is none that may be chosen"

    # Before it is sized: fewest threads, then least memory.
    fewest_threads = min(found.threads for found in near if found.changes == fewest)
    lean = [found for found in near if found.changes == fewest and found.threads == fewest_threads]
    with monkeypatch.context() as patch:
        patch.setattr(optimum, "with_headroom", lambda network, freedoms, settings, rate, k_max: settings)
        unsized = optimise(network, k_max=K_MAX).settings
    if fewest:
        assert reference.threads(unsized) == fewest_threads
        assert reference.memory(network, unsized) <= min(found.memory for found in lean) * 1.01 + 1e-6


@pytest.mark.parametrize("seed", QUICK)
def test_the_optimum_is_the_one_of_exhaustive_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_against_exhaustive_search(small(seed, k_max=K_MAX), monkeypatch)


@pytest.mark.parametrize("seed", RICH)
def test_storage_file_caches_and_epochs_are_in_the_optimum(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_against_exhaustive_search(rich(seed, k_max=K_MAX), monkeypatch)


@pytest.mark.parametrize("seed", RICH)
def test_any_settings_are_predicted_as_the_reference_does(seed: int) -> None:
    network = rich(seed, k_max=K_MAX)
    every = reference.search(network, K_MAX)
    for found in random.Random(seed).sample(every, min(20, len(every))):
        for filling in (False, True):
            assert predicted_rate(network, found.settings, filling=filling) == pytest.approx(
                reference.rate(network, found.settings, filling=filling), rel=1e-9
            )
        assert epochs_rate(network, found.settings) == pytest.approx(found.rate, rel=1e-9)


def test_the_rich_sweep_meets_what_it_is_for() -> None:
    plans = [(network := rich(seed, k_max=K_MAX), optimise(network, k_max=K_MAX)) for seed in RICH]
    choices = [choice for _, plan in plans for choice in plan.settings.choices]
    assert any(choice.file_cache for choice in choices)
    assert any(choice.cache for choice in choices)
    assert {plan.bounding.kind for _, plan in plans} >= {Kind.STORAGE, Kind.CPU, Kind.OPERATOR}
    # Epochs change the answer: caches that many epochs would pay for are left out for few.
    assert any(
        optimise(replace(network, epochs=None), k_max=K_MAX).settings != plan.settings
        for network, plan in plans
        if network.epochs is not None
    )


def test_the_sweep_meets_every_kind_of_plan_and_of_bound() -> None:
    # GIVEN the networks of the quick sweep
    plans = [(network := small(seed, k_max=K_MAX), optimise(network, k_max=K_MAX)) for seed in QUICK]
    # THEN every decision is taken somewhere, and every kind of bound binds somewhere
    taken = set()
    for network, plan in plans:
        taken |= {"pool"} if plan.settings.threadpool_size > network.current.threadpool_size else set()
        for old, new in zip(network.current.choices, plan.settings.choices, strict=True):
            taken |= {"parallel"} if new.parallel and not old.parallel else set()
            taken |= {"raised"} if old.parallel and new.parallelism > old.parallelism else set()
            taken |= {"prefetch"} if new.prefetch and not old.prefetch else set()
            taken |= {"cache"} if new.cache and not old.cache else set()
    assert taken == {"pool", "parallel", "raised", "prefetch", "cache"}
    assert {plan.bounding.kind for _, plan in plans} >= {Kind.CPU, Kind.THREAD, Kind.OPERATOR, Kind.CONSUMER}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SWEEP)
def test_the_optimum_is_the_one_of_exhaustive_search_at_length(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_against_exhaustive_search(small(seed, k_max=K_MAX), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 900))
def test_storage_file_caches_and_epochs_are_in_the_optimum_at_length(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_against_exhaustive_search(rich(seed, k_max=K_MAX), monkeypatch)


MAP = Operator("map", 0, visits=4, cpu_s=10e-3, may_parallel=True, pooled=True, element_bytes=1e3)
READ = Operator("read", 1, visits=4, wait_s=1e-4)
BATCH = Operator("batch", None, visits=1, cpu_s=1e-3, element_bytes=4e3)
PREFETCHED = Choice(prefetch=True, prefetch_size=4)


def chain(
    *operators: Operator,
    choices: tuple[Choice, ...] | None = None,
    cores: float = 8,
    pool: int = 8,
    free: float = 1e9,
    consumer: Consumer | None = None,
) -> Network:
    """All sequential but for TensorFlow's own prefetch at the end, unless `choices` say otherwise."""
    return Network(
        operators,
        Settings(choices or (PREFETCHED, *(Choice() for _ in operators[1:])), threadpool_size=pool),
        Limits(cores=cores, memory_bytes=2 * free, memory_free_bytes=free),
        consumer or Consumer(),
    )


def test_a_costly_sequential_map_becomes_parallel_with_headroom() -> None:
    # GIVEN a map of 40 ms a step, and a consumer that takes 10 ms
    network = chain(BATCH, MAP, READ, consumer=Consumer(step_s=10e-3))
    plan = optimise(network)
    # THEN the one change is its parallelism, sized for 1.15 times the consumer's rate: 4.6 calls and its reads
    assert plan.changes == 1
    assert plan.settings.choices[1] == Choice(parallel=True, parallelism=5)
    assert plan.rate == pytest.approx(100)
    assert plan.data_rate > plan.rate
    assert plan.bounding.kind is Kind.CONSUMER


def test_no_headroom_is_asked_for_beyond_the_cores() -> None:
    plan = optimise(chain(BATCH, MAP, READ, cores=4, pool=4))
    # 4 cores carry 97.6 steps/s of 41 ms; 1.15 times as many calls would have nowhere to run.
    assert plan.bounding.kind is Kind.CPU
    assert plan.settings.choices[1].parallelism == 4


def test_what_autotune_rules_is_left_to_it() -> None:
    # GIVEN a map that AUTOTUNE has not raised yet
    choices = (PREFETCHED, Choice(parallel=True, parallelism=1, autotuned=True), Choice())
    plan = optimise(chain(BATCH, MAP, READ, choices=choices))
    # THEN it is predicted at the best it may come to, and nothing is to be changed
    assert plan.changes == 0
    assert plan.settings.choices[1].autotuned
    assert plan.settings.choices[1].parallelism == 8


WAITING = replace(MAP, cpu_s=1e-4, wait_s=50e-3)
TUNED = Choice(parallel=True, parallelism=2, autotuned=True)


@pytest.mark.parametrize("may_parallel", [True, False])
def test_autotune_goes_as_far_as_the_pool_that_waiting_needs(may_parallel: bool) -> None:
    # GIVEN a map that sleeps, AUTOTUNEd in a pool of 2, and a consumer that could take 100 steps/s
    waiting = replace(WAITING, may_parallel=may_parallel)
    choices = (PREFETCHED, TUNED, Choice())
    plan = optimise(
        chain(BATCH, waiting, READ, choices=choices, cores=2, pool=2, consumer=Consumer(step_s=10e-3))
    )
    # THEN the pool is the one change, sized for 1.15 times that rate, and AUTOTUNE does the rest
    assert plan.changes == 1
    assert plan.settings.choices[1].autotuned
    assert plan.settings.choices[1].parallelism == plan.settings.threadpool_size == 24
    assert plan.rate == pytest.approx(100)


def test_autotune_is_overruled_where_the_pool_does_not_lead_it() -> None:
    # GIVEN the same map in the unbounded pool, where AUTOTUNE stops at the cores
    choices = (PREFETCHED, TUNED, Choice())
    waiting = replace(WAITING, unbounded=True)
    plan = optimise(
        chain(BATCH, waiting, READ, choices=choices, cores=2, pool=2, consumer=Consumer(step_s=10e-3))
    )
    assert plan.changes == 1
    assert not plan.settings.choices[1].autotuned
    assert plan.settings.choices[1].parallelism == 24
    assert plan.settings.threadpool_size == 2


@pytest.mark.parametrize("stretch", [1.0, 1.04, 1.3, 3.0])
@pytest.mark.parametrize("choice", [Choice(), Choice(parallel=True, parallelism=2), TUNED])
def test_what_computes_is_given_no_more_threads_than_cores(stretch: float, choice: Choice) -> None:
    # GIVEN operators that only compute, on 2 cores that other processes want, too
    crowded = tuple(
        replace(each, cpu_s=each.service_s, wait_s=0, stretch=stretch) for each in (BATCH, MAP, READ)
    )
    plan = optimise(chain(*crowded, choices=(PREFETCHED, choice, Choice()), cores=2, pool=2))
    # THEN more threads than cores are not believed to take cores from the others
    assert plan.settings.choices[1].parallelism <= 2
    assert plan.settings.threadpool_size == 2
    assert plan.changes == (0 if choice.parallel else 1)


def test_threads_that_wait_are_given_on_a_crowded_host_too() -> None:
    crowded = replace(MAP, cpu_s=1e-3, wait_s=20e-3, stretch=1.3)
    plan = optimise(chain(BATCH, crowded, READ, choices=(PREFETCHED, TUNED, Choice()), cores=2, pool=2))
    assert plan.changes == 1
    assert plan.settings.threadpool_size > 16


def test_a_pool_above_the_cores_keeps_what_it_carries_on_a_crowded_host() -> None:
    # GIVEN 8 calls on 2 cores, each stretched by the other 7: the cores are used up
    busy = replace(MAP, stretch=4.0)
    choices = (PREFETCHED, Choice(parallel=True, parallelism=8), Choice())
    network = chain(BATCH, busy, choices=choices[:2], cores=2, pool=8)
    assert predicted_rate(network, network.current) == pytest.approx(2 / 41e-3)
    assert optimise(network).changes == 0


def test_the_cache_stands_where_it_serves_most_and_fits() -> None:
    # GIVEN a decode whose output fits into memory and a batch whose output would not
    decode = replace(MAP, may_cache=True, cache_bytes=5e8)
    batch = replace(BATCH, may_cache=True, cache_bytes=5e9)
    plan = optimise(chain(batch, decode, replace(READ, may_cache=True, cache_bytes=1e8), cores=1, pool=1))
    assert [choice.cache for choice in plan.settings.choices] == [False, True, False]
    assert plan.memory_bytes <= 1e9
    assert plan.rate > 500


def test_a_cache_of_the_users_stays_and_no_other_joins_its_path() -> None:
    cached = tuple(replace(each, may_cache=True, cache_bytes=1e6) for each in (BATCH, MAP, READ))
    choices = (PREFETCHED, Choice(), Choice(cache=True))
    plan = optimise(chain(*cached, choices=choices))
    assert [choice.cache for choice in plan.settings.choices] == [False, False, True]


def test_nothing_is_changed_where_nothing_may_be() -> None:
    # GIVEN operators that allow no decision at all
    fixed = tuple(
        replace(each, may_parallel=False, may_prefetch=False, pooled=False) for each in (BATCH, MAP, READ)
    )
    network = chain(*fixed, choices=(Choice(), Choice(), Choice()), consumer=Consumer(turn_s=5e-3))
    plan = optimise(network)
    assert plan.settings == network.current
    assert plan.changes == 0
    assert plan.rate == pytest.approx(predicted_rate(network, network.current))


def test_nothing_is_changed_where_others_hold_all_cores() -> None:
    network = chain(BATCH, MAP, READ, cores=2, consumer=Consumer(other_cores=2.5))
    plan = optimise(network)
    assert plan.settings == network.current
    assert plan.rate == 0


SLEEPER = replace(MAP, cpu_s=1e-4, wait_s=50e-3, may_unbounded=True)


def test_a_function_leaves_the_pool_where_the_pool_may_not_grow_enough() -> None:
    # GIVEN a map that sleeps in 8 calls, and a pool of 2 that may grow to 4 at most
    choices = (PREFETCHED, Choice(parallel=True, parallelism=8), Choice())
    network = chain(BATCH, SLEEPER, READ, choices=choices, pool=2)
    plan = optimise(network, k_max=4)
    # THEN its calls get threads of their own, and nothing else is changed
    assert plan.settings.choices[1].unbounded
    assert (plan.changes, plan.settings.threadpool_size) == (1, 2)
    assert plan.rate == pytest.approx(8 / (4 * 50.2e-3), rel=1e-3)


def test_a_larger_pool_is_preferred_to_functions_that_leave_it() -> None:
    choices = (PREFETCHED, Choice(parallel=True, parallelism=8), Choice())
    plan = optimise(chain(BATCH, SLEEPER, READ, choices=choices, pool=2))
    assert not plan.settings.choices[1].unbounded
    assert plan.settings.threadpool_size >= 8


def cacheable(*, memory: float, disk: float, epochs: float | None = None) -> Network:
    """A costly map whose 10 GB might be cached, in memory or on disk."""
    costly = replace(
        MAP,
        element_bytes=1e6,
        may_cache=True,
        cache_bytes=1e10,
        file_cache_bytes=1e10,
        may_parallel=False,
        may_prefetch=False,
    )
    network = chain(BATCH, costly, READ, free=memory)
    return replace(network, epochs=epochs, limits=replace(network.limits, disk_free_bytes=disk))


def test_a_file_cache_is_taken_where_memory_has_no_room() -> None:
    plan = optimise(cacheable(memory=1e9, disk=2e10))
    assert [choice.file_cache for choice in plan.settings.choices] == [False, True, False]
    # 4 elements of 1 MB are read at 0.6 ns a byte, behind a batch of 1 ms
    assert plan.rate == pytest.approx(1 / (4 * (1e-6 + 0.6e-3) + 1e-3), rel=1e-3)
    assert plan.memory_bytes == 0


@pytest.mark.parametrize(("memory", "disk"), [(2e10, 2e10), (2e10, 0.0)])
def test_memory_is_preferred_where_it_has_room(memory: float, disk: float) -> None:
    plan = optimise(cacheable(memory=memory, disk=disk))
    assert plan.settings.choices[1] == Choice(cache=True)


def test_no_cache_is_taken_that_fits_nowhere() -> None:
    plan = optimise(cacheable(memory=1e9, disk=1e9))
    assert not any(choice.serves for choice in plan.settings.choices)


@pytest.mark.parametrize(("epochs", "cached"), [(1.0, False), (2.0, True), (None, True)])
def test_a_cache_pays_from_the_second_epoch_on(epochs: float | None, cached: bool) -> None:
    plan = optimise(cacheable(memory=1e9, disk=2e10, epochs=epochs))
    assert plan.settings.choices[1].file_cache is cached
    if epochs == 2:
        # the first epoch writes 4 MB a step at 280 MB/s beside the work, the second reads
        first = 41e-3 + 4e-4 + 4e6 / 280e6 + 4e-6
        assert plan.epochs_rate == pytest.approx(2 / (first + 1 / plan.rate), rel=1e-3)


def test_a_cache_that_costs_more_to_write_than_it_saves_waits_for_more_epochs() -> None:
    # GIVEN a map of 1 ms an element whose megabyte takes 3.6 ms to write
    def cached(epochs: float) -> bool:
        network = cacheable(memory=1e9, disk=2e10, epochs=epochs)
        cheap = replace(network.operators[1], cpu_s=1e-3)
        network = replace(network, operators=(network.operators[0], cheap, network.operators[2]))
        return optimise(network).settings.choices[1].file_cache

    assert not cached(3)
    assert cached(100)


def test_storage_binds_and_more_readers_help() -> None:
    # GIVEN files that one reader gets 10 MB/s of, and four 25 MB/s, with steps of 1 MB
    files = Operator("interleave", 0, visits=10, cycle_length=4, interleave=True, may_parallel=True)
    record = Operator("record", 1, in_body=True, visits=10, cpu_s=1e-4, read_bytes=1e5, may_prefetch=False)
    network = chain(BATCH, files, record)
    curve = StorageCurve(((1, 1e7), (4, 2.5e7)))
    network = replace(network, limits=replace(network.limits, storage=curve))
    assert predicted_rate(network, network.current) == pytest.approx(10)
    # THEN the plan reads with four at a time, although one thread could do the work
    plan = optimise(network)
    assert plan.settings.choices[1] == Choice(parallel=True, parallelism=4)
    assert plan.rate == pytest.approx(25)
    assert plan.bounding.kind is Kind.STORAGE


def test_a_parallel_interleave_goes_no_further_than_its_cycle() -> None:
    files = Operator("interleave", 0, visits=4, cycle_length=3, interleave=True, may_parallel=True)
    record = Operator("record", 1, in_body=True, visits=4, wait_s=10e-3, may_prefetch=False)
    plan = optimise(chain(BATCH, files, record))
    assert plan.settings.choices[1] == Choice(parallel=True, parallelism=3)
    assert plan.rate == pytest.approx(75)


@pytest.mark.parametrize("seed", range(6))
def test_thirty_operators_are_planned_within_memory(seed: int) -> None:
    network = realistic(30, seed=seed)
    plan = optimise(network)
    assert plan.rate > 10 * predicted_rate(network, network.current)
    assert plan.rate == pytest.approx(reference.rate(network, plan.settings))
    assert reference.memory(network, plan.settings) <= reference.memory_limit(network)
    assert plan.changes <= 8


@pytest.mark.slow
def test_three_hundred_operators_are_planned_within_memory() -> None:
    network = realistic(300)
    plan = optimise(network)
    assert plan.rate > 10 * predicted_rate(network, network.current)
    assert reference.memory(network, plan.settings) <= reference.memory_limit(network)
