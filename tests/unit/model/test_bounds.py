"""Bounds of small networks, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from tensorboard_plugin_plumber.model.bounds import Kind, bounds, data_rate, iterators_beside, predicted_rate
from tensorboard_plugin_plumber.model.network import (
    CACHE_READ_S,
    Choice,
    Consumer,
    Limits,
    Network,
    Operator,
    Settings,
)

PARALLEL_2 = Choice(parallel=True, parallelism=2)
PREFETCHED = Choice(prefetch=True, prefetch_size=2)


def network(*parts, cores=100.0, pool=100, consumer=None, observed=None):
    """A network of (operator, choice) pairs, the root first."""
    operators = tuple(operator for operator, _ in parts)
    settings = Settings(tuple(choice for _, choice in parts), pool)
    return Network(operators, settings, Limits(cores, 1e9, 1e9), consumer or Consumer(), observed)


def smallest(found):
    return bounds(found, found.current)[0]


def test_a_chain_without_threads_adds_up():
    found = network(
        (Operator("batch", None, visits=1, cpu_s=2e-3), Choice()),
        (Operator("map", 0, visits=4, cpu_s=2e-3, pooled=True), Choice()),
    )
    bound = smallest(found)
    assert bound.rate == pytest.approx(100)
    assert (bound.kind, bound.operators) == (Kind.OPERATOR, (1, 0))
    assert bound.shares == pytest.approx((0.8, 0.2))


def test_operators_that_share_a_thread_evenly_bind_as_a_thread():
    found = network(
        (Operator("a", None, visits=1, cpu_s=5e-3), Choice()),
        (Operator("b", 0, visits=1, cpu_s=5e-3), Choice()),
    )
    assert smallest(found).kind is Kind.THREAD


def test_a_prefetch_cuts_a_segment():
    found = network(
        (Operator("a", None, visits=1, cpu_s=4e-3), Choice()),
        (Operator("b", 0, visits=1, cpu_s=6e-3), PREFETCHED),
    )
    assert smallest(found).rate == pytest.approx(1 / 6e-3)


def test_the_root_takes_turns_with_the_consumer():
    found = network(
        (Operator("map", None, visits=1, cpu_s=6e-3), Choice()), consumer=Consumer(step_s=4e-3, turn_s=4e-3)
    )
    assert smallest(found).rate == pytest.approx(100)
    assert smallest(found).takes_turns


def test_a_prefetched_root_meets_the_consumer_only_at_its_own_rate():
    found = network(
        (Operator("map", None, visits=1, cpu_s=6e-3), PREFETCHED), consumer=Consumer(step_s=8e-3, turn_s=8e-3)
    )
    assert smallest(found).kind is Kind.CONSUMER
    assert smallest(found).rate == pytest.approx(125)
    assert data_rate(found, found.current) == pytest.approx(1 / 6e-3)


def test_zip_adds_up_both_inputs():
    found = network(
        (Operator("zip", None, visits=1), Choice()),
        (Operator("left", 0, visits=1, cpu_s=3e-3), Choice()),
        (Operator("right", 0, visits=1, cpu_s=7e-3), Choice()),
    )
    assert smallest(found).rate == pytest.approx(100)
    assert smallest(found).operators == (2, 1)


def test_functions_that_wait_hold_the_pool():
    found = network(
        (
            Operator("map", None, visits=1, wait_s=20e-3, pooled=True),
            Choice(parallel=True, parallelism=16, prefetch=True),
        ),
        pool=2,
    )
    assert smallest(found).kind is Kind.THREADPOOL
    assert smallest(found).rate == pytest.approx(100)


def test_the_pool_at_the_size_of_the_cores_is_the_cores_if_the_functions_compute():
    found = network(
        (
            Operator("map", None, visits=1, cpu_s=20e-3, pooled=True),
            Choice(parallel=True, parallelism=16, prefetch=True),
        ),
        pool=2,
        cores=2,
    )
    assert {bound.kind for bound in bounds(found, found.current) if bound.rate == pytest.approx(100)} == {
        Kind.CPU
    }


def test_the_consumers_cores_are_not_the_pipelines():
    found = network(
        (Operator("map", None, visits=1, cpu_s=15e-3), PREFETCHED),
        cores=2,
        consumer=Consumer(cpu_s=15e-3, other_cores=0.5),
    )
    cpu = next(bound for bound in bounds(found, found.current) if bound.kind is Kind.CPU)
    assert cpu.rate == pytest.approx(1.5 / 30e-3)


def test_a_sequential_interleave_shares_its_thread_with_its_body():
    found = network(
        (Operator("interleave", None, visits=10, cpu_s=1e-4, interleave=True, cycle_length=4), Choice()),
        (Operator("map", 0, in_body=True, visits=10, cpu_s=9e-4), Choice()),
        (Operator("files", 0, visits=0.1, cpu_s=1e-3), Choice()),
    )
    assert smallest(found).rate == pytest.approx(1 / (10e-3 + 1e-4))


def test_the_workers_of_a_parallel_interleave_are_at_most_its_cycle():
    body = (Operator("map", 0, in_body=True, visits=10, cpu_s=1e-3), Choice())
    for calls, rate in ((2, 200), (8, 400)):
        choice = Choice(parallel=True, parallelism=calls)
        found = network(
            (Operator("interleave", None, visits=10, interleave=True, cycle_length=4), choice), body
        )
        assert smallest(found).rate == pytest.approx(rate)


def test_the_workers_of_an_interleave_run_a_body_side_by_side():
    body = (Operator("map", 0, in_body=True, visits=10, wait_s=10e-3, pooled=True), Choice())
    interleave = Operator("interleave", None, visits=10, interleave=True, cycle_length=4)
    for choice, beside in ((Choice(parallel=True, parallelism=8), 4), (PARALLEL_2, 2), (Choice(), 1)):
        assert iterators_beside(network((interleave, choice), body), 1) == beside


def test_what_a_cache_serves_costs_nothing_but_the_read():
    found = network(
        (Operator("batch", None, visits=1, cpu_s=1e-3), PREFETCHED),
        (Operator("map", 0, visits=32, cpu_s=5e-3), Choice(cache=True)),
        (Operator("source", 1, visits=32, cpu_s=1e-3), Choice()),
    )
    assert smallest(found).rate == pytest.approx(1 / (1e-3 + 32 * CACHE_READ_S))


def test_order_costs_where_calls_vary():
    operator = Operator("map", None, visits=1, cpu_s=8e-3, variation=2.0)
    choice = Choice(parallel=True, parallelism=8, prefetch=True)
    ordered = network((operator, choice))
    free = network((Operator("map", None, visits=1, cpu_s=8e-3, variation=2.0, ordered=False), choice))
    assert smallest(ordered).stragglers
    assert predicted_rate(free, free.current) == pytest.approx(1000)
    assert predicted_rate(ordered, ordered.current) < 700


def test_nothing_that_costs_nothing_binds():
    found = network((Operator("range", None, visits=1), PREFETCHED))
    assert math.isinf(predicted_rate(found, found.current))


def test_an_operator_before_its_parent_is_refused():
    with pytest.raises(ValueError, match="parents must come before children"):
        network((Operator("a", 1), Choice()), (Operator("b", 0), Choice()))
