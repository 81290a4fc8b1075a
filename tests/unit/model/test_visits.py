"""Workers of a parallel interleave that visit iterators with something asynchronous inside, against measured rates."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tensorboard_plugin_plumber.model.network import Choice, Limits, Network, Operator, Settings
from tensorboard_plugin_plumber.model.plan import reached_rate
from tensorboard_plugin_plumber.model.visits import visited_rate

CALL_S = 0.0105


def interleave(workers, iterators, calls, *, call_s=CALL_S, prefetch=0, ordered=True):
    """A map that waits inside an interleave of so many workers (0: sequential) and iterators."""
    operators = (
        Operator(
            id="interleave", parent=None, visits=1.0, interleave=True, cycle_length=iterators, ordered=ordered
        ),
        Operator(id="map", parent=0, in_body=True, visits=1.0, wait_s=call_s),
    )
    choices = (
        Choice(parallel=workers > 0, parallelism=max(workers, 1), prefetch=True, prefetch_size=2),
        Choice(parallel=calls > 0, parallelism=max(calls, 1), prefetch=prefetch > 0, prefetch_size=prefetch),
    )
    settings = Settings(choices, 128)
    return Network(operators, settings, Limits(2.0, 8e9, 4e9)), settings


# Elements per second that were measured (docs/model.md, "Bodies").
@pytest.mark.parametrize(
    ("workers", "iterators", "calls", "call_s", "measured"),
    [
        (1, 6, 1, CALL_S, 136),
        (1, 6, 2, CALL_S, 271),
        (2, 6, 1, CALL_S, 231),
        (2, 6, 2, CALL_S, 496),
        (2, 6, 4, CALL_S, 1879),
        (4, 6, 1, CALL_S, 558),
        (4, 6, 2, CALL_S, 1148),
        (4, 6, 4, CALL_S, 2144),
        (0, 6, 1, CALL_S, 576),
        (0, 6, 2, CALL_S, 1150),
        (0, 6, 4, CALL_S, 1937),
        (2, 8, 4, 0.040, 793),
        (2, 8, 2, 0.040, 137),
        (4, 4, 2, 0.040, 193),
    ],
)
def test_rates_are_those_that_were_measured(workers, iterators, calls, call_s, measured):
    network, settings = interleave(workers, iterators, calls, call_s=call_s)
    assert reached_rate(network, settings) == pytest.approx(measured, rel=0.25)


def test_a_prefetch_inside_has_results_ready_for_a_visit():
    # GIVEN as many results ready as a visit takes: all iterators work, as was measured
    network, settings = interleave(2, 4, 4, call_s=0.040, prefetch=4)
    assert reached_rate(network, settings) == pytest.approx(391, rel=0.05)


def test_out_of_order_workers_stay_longer():
    network, settings = interleave(2, 8, 4, call_s=0.040, ordered=False)
    assert reached_rate(network, settings) == pytest.approx(363, rel=0.25)
    network, settings = interleave(2, 4, 2, call_s=0.040, ordered=False)
    assert reached_rate(network, settings) == pytest.approx(96, rel=0.3)


@pytest.mark.parametrize(("workers", "calls"), [(0, 1), (6, 1), (2, 0), (2, 3)])
def test_no_worker_waits_without_need(workers, calls):
    # GIVEN a sequential interleave; a worker for each iterator; work on the worker's own thread; results ready
    assert visited_rate(*interleave(workers, 6, calls)) == math.inf


@pytest.mark.parametrize(("visits", "measured"), [(8, 12_900), (32, 1_540)])
def test_a_new_prefetch_costs_each_element_a_handover(visits, measured):
    # GIVEN elements of a cache, of which so many make a step (measured: examples of 80 kB, lines of text)
    operators = (
        Operator(id="batch", parent=None, visits=1.0, cpu_s=30e-6),
        Operator(id="map", parent=0, visits=visits, cpu_s=1e-3),
    )
    today = Settings((Choice(prefetch=True), Choice(cache=True)), 2)
    network = Network(operators, today, Limits(2.0, 8e9, 4e9))
    settings = Settings((Choice(prefetch=True), Choice(cache=True, prefetch=True, prefetch_size=2)), 2)
    assert reached_rate(network, settings) == pytest.approx(measured, rel=0.75)
    assert reached_rate(network, settings) < reached_rate(network, today)
    # BUT what a prefetch in force costs was measured already
    assert visited_rate(replace(network, current=settings), settings) == math.inf


@pytest.mark.parametrize(
    ("calls", "queued_s", "expected"),
    [(1, 30e-6, 1 / 60e-6), (2, 30e-6, 2 / 90e-6), (4, 30e-6, 4 / 90e-6), (1, 90e-6, 2 / 150e-6)],
)
def test_calls_that_wait_for_a_core_hold_their_slots(calls, queued_s, expected):
    # GIVEN two calls of 60 microseconds at a time, each of which waits before it begins; one alone hardly does
    operators = (Operator(id="map", parent=None, visits=1.0, cpu_s=60e-6, queued_s=queued_s),)
    today = Settings((Choice(parallel=True, parallelism=2, prefetch=True),), 8)
    network = Network(operators, today, Limits(16.0, 8e9, 4e9))
    settings = Settings((Choice(parallel=True, parallelism=calls, prefetch=True),), 8)
    assert reached_rate(network, settings) == pytest.approx(min(expected, 50_000))
