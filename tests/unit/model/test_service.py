"""Core time and exogenous waiting, recovered from wall time and the pool's clocks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tensorboard_plugin_plumber.model.service import service_times, variation
from tensorboard_plugin_plumber.model.windows import windows_of
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.recordings import Cost, Run, chain

COMPUTES = m.UserFunction(name="decode")
WAITS = m.UserFunction(name="fetch", may_wait=True)
PYTHON = m.UserFunction(name="python", may_wait=True, python=True)


def split(costs, run):
    recording = chain(costs, run)
    windows = windows_of(recording.graph.pipelines[0], 0, recording.samples)
    return service_times(recording.graph.pipelines[0], windows.total())


def test_a_computing_function_costs_its_wall_time_and_the_overhead_of_its_call():
    found = split([Cost("Map", 1, 9e-3, function=COMPUTES, overhead_s=1e-3)], Run(rate=100, pool_cores=1.0))
    assert found.cpu_s[0] == pytest.approx(10e-3)
    assert found.wait_s[0] == 0


def test_a_crowded_host_inflates_wall_time_and_is_taken_out():
    # GIVEN calls of 10 ms of core time that the run queue stretches to 20 ms
    found = split([Cost("Map", 1, 20e-3, function=COMPUTES)], Run(rate=50, pool_cores=0.5, pool_queue=0.5))
    assert found.cpu_s[0] == pytest.approx(10e-3)
    assert found.wait_s[0] == 0
    assert found.stretch == pytest.approx([2])


def test_a_sleeping_function_waits_for_what_the_pool_did_not_compute():
    found = split([Cost("Map", 1, 20e-3, function=WAITS)], Run(rate=50, pool_cores=0.1))
    assert found.cpu_s[0] == pytest.approx(2e-3)
    assert found.wait_s[0] == pytest.approx(18e-3)


def test_a_computing_and_a_waiting_function_share_the_pool():
    costs = [Cost("Map", 1, 10e-3, function=COMPUTES), Cost("Map", 1, 30e-3, function=WAITS)]
    found = split(costs, Run(rate=20, pool_cores=20 * 15e-3))
    assert found.cpu_s == pytest.approx([10e-3, 5e-3])
    assert found.wait_s == pytest.approx([0, 25e-3])
    assert not found.split_unknown


def test_two_waiting_functions_cannot_be_told_apart():
    costs = [Cost("Map", 1, 10e-3, function=WAITS), Cost("Map", 1, 30e-3, function=WAITS)]
    assert split(costs, Run(rate=20, pool_cores=0.1)).split_unknown


def test_without_the_threads_clocks_the_split_is_marked_unknown():
    found = split([Cost("Map", 1, 20e-3, function=WAITS)], Run(rate=50))
    assert found.split_unknown
    assert found.cpu_s[0] == 0


def test_python_calls_that_share_one_core_wait_for_the_interpreter():
    # GIVEN two calls in flight, 10 ms of Python each, stretched to 20 ms by the lock
    cost = Cost("ParallelMap", 1, 20e-3, function=PYTHON, parallelism=2)
    found = split([cost], Run(rate=100, pool_cores=1.0))
    assert found.gil_s[0] == pytest.approx(10e-3)
    assert found.wait_s[0] == 0


def test_kernels_side_by_side_cannot_hold_a_call_longer_than_it_lasts():
    # GIVEN calls one at a time, of 10 ms, with two kernels of 8 ms beside each other
    found = split([Cost("Map", 1, 16e-3, function=COMPUTES)], Run(rate=100, pool_cores=1.6))
    assert found.cpu_s[0] == pytest.approx(16e-3)
    assert found.cpu_s[0] * found.stretch[0] == pytest.approx(10e-3)


def test_one_python_call_at_a_time_shows_nothing_of_the_interpreter():
    found = split([Cost("Map", 1, 10e-3, function=PYTHON)], Run(rate=100, pool_cores=1.0))
    assert math.isnan(found.gil_s[0])


def test_calls_are_counted_at_the_input():
    # GIVEN a batch of 32 fused with its map
    costs = [Cost("MapAndBatch", 1, 32e-3, function=COMPUTES, overhead_s=1e-4), Cost("Range", 32, 0)]
    found = split(costs, Run(rate=10, pool_cores=0.4))
    assert found.calls[0] == pytest.approx(32)
    assert found.cpu_s[0] == pytest.approx(32e-3 + 32e-4)


def looks_at(n, times, looks=40):
    """Windows whose looks saw `n` elements each, of the service times that `times(n)` draws."""
    recording = chain([Cost("ParallelMap", 1, 1e-3, parallelism=8)], Run(rate=n, seconds=40))
    windows = windows_of(recording.graph.pipelines[0], 0, recording.samples)
    p = np.array([times(n).sum() for _ in range(looks)]) * 1e9
    sums = np.array([[looks], [looks * n], [p.sum()], [(p**2 / n).sum()]], float)
    return replace(windows, spread=sums)


@pytest.mark.parametrize("n", [1, 5, 50])
def test_variation_of_single_elements_is_recovered_from_looks(n):
    rng = np.random.default_rng(0)
    found = variation(looks_at(n, lambda n: rng.lognormal(0, 1.0, n), looks=300))
    assert found[0] == pytest.approx(math.sqrt(math.e - 1), rel=0.25)


def test_noise_that_all_elements_share_is_not_called_variation():
    rng = np.random.default_rng(0)
    found = variation(looks_at(200, lambda n: np.full(n, 1e-3 * rng.normal(1.0, 0.07))))
    assert math.isnan(found[0])


def test_few_looks_say_nothing_of_variation():
    rng = np.random.default_rng(0)
    assert math.isnan(variation(looks_at(5, rng.standard_exponential, looks=7))[0])


def shared(cores):
    """Core time of TensorFlow's shared threads, per second, in every sample."""

    def change(second, record):
        record.host.shared_cpu_s = cores * second

    return change


def test_time_that_shared_threads_compute_for_a_call_is_no_waiting_for_a_core():
    # GIVEN calls that compute all the time, some of it on shared threads, and a run queue of threads between calls
    costs = [Cost("Map", 1, 10e-3, function=COMPUTES), Cost("Map", 1, 10e-3, function=WAITS)]
    run = Run(rate=50, pool_cores=0.8, pool_queue=0.2, consumer=m.CONSUMER_NONE, change=shared(0.2))
    found = split(costs, run)
    assert found.cpu_s == pytest.approx([10e-3, 10e-3])
    assert found.stretch == pytest.approx([1, 1])


def test_shared_threads_compute_for_functions_that_may_wait_too():
    # GIVEN calls of 10 and 30 ms that compute all the time, 12 ms of the latter on shared threads
    costs = [Cost("Map", 1, 10e-3, function=COMPUTES), Cost("Map", 1, 30e-3, function=WAITS)]
    run = Run(rate=20, pool_cores=20 * 28e-3, consumer=m.CONSUMER_NONE, change=shared(20 * 12e-3))
    found = split(costs, run)
    assert found.cpu_s == pytest.approx([10e-3, 30e-3])
    assert found.wait_s == pytest.approx([0, 0])


def test_what_prefetches_and_readers_compute_is_not_the_functions():
    # GIVEN a reader of 4 ms that runs in a thread of a parallel map, which counts among the shared ones
    costs = [Cost("ParallelMap", 1, 5e-3, function=COMPUTES, parallelism=2), Cost("TFRecord", 1, 4e-3)]
    run = Run(rate=100, pool_cores=0.5, consumer=m.CONSUMER_NONE, change=shared(0.4))
    assert split(costs, run).cpu_s == pytest.approx([5e-3, 4e-3])


@pytest.mark.parametrize("kind", ["DataService", "CopyToDevice", "PrefetchToDevice"])
def test_what_runs_elsewhere_is_waited_for(kind):
    # GIVEN an operator that hands over elements of a service worker, or of an iterator behind a device
    found = split(
        [Cost("Map", 1, 2e-3, function=COMPUTES), Cost(kind, 1, 8e-3)], Run(rate=100, pool_cores=0.2)
    )
    assert found.cpu_s == pytest.approx([2e-3, 0])
    assert found.wait_s == pytest.approx([0, 8e-3])


def test_handing_over_a_call_costs_core_time_and_looking_for_work_does_not():
    # GIVEN calls of 100 microseconds whose threads compute 60 more between them, on a host that nobody crowds
    cost = Cost("ParallelMap", 1, 100e-6, function=COMPUTES, parallelism=1)
    found = split([cost], Run(rate=5000, pool_cores=5000 * 160e-6))
    assert found.cpu_s[0] == pytest.approx(115e-6)
    assert found.cpu_s[0] * found.stretch[0] == pytest.approx(115e-6)
    assert "its threads used" in found.doubts[0]
    # AND no more than there is
    assert split([cost], Run(rate=5000, pool_cores=5000 * 104e-6)).cpu_s[0] == pytest.approx(104e-6)


def test_a_calibrated_call_holds_its_handover():
    cost = Cost("Map", 1, 100e-6, function=COMPUTES, overhead_s=20e-6)
    assert split([cost], Run(rate=5000, pool_cores=5000 * 160e-6)).cpu_s[0] == pytest.approx(120e-6)


def test_functions_that_may_wait_have_not_computed_longer_than_their_calls():
    # GIVEN reads from the page cache: 200 microseconds that compute, and threads that look for work after each
    cost = Cost("Map", 1, 200e-6, function=WAITS)
    found = split([cost], Run(rate=3000, pool_cores=3000 * 290e-6))
    assert found.cpu_s[0] == pytest.approx(215e-6)
    assert found.wait_s[0] == 0


def test_readers_have_cores_as_their_own_threads_say():
    # GIVEN a pool that the run queue holds up, and a reader whose thread hardly waits for a core
    costs = [Cost("ParallelMap", 1, 20e-3, function=COMPUTES, parallelism=2), Cost("TFRecord", 1, 10e-3)]
    run = Run(rate=50, pool_cores=0.5, pool_queue=0.5, consumer=m.CONSUMER_NONE, change=shared(50 * 9e-3))
    assert split(costs, run).cpu_s == pytest.approx([10e-3, 9e-3])
    # BUT where others use these threads too, nobody knows
    run = replace(run, consumer=m.CONSUMER_SYNCHRONOUS)
    assert split(costs, run).cpu_s == pytest.approx([10e-3, 5e-3])


def test_a_little_time_of_shared_threads_is_nobodys():
    # GIVEN calls of 10 ms on a crowded host, and threads that hand them out for 2 % of that
    run = Run(rate=50, pool_cores=0.25, pool_queue=0.25, consumer=m.CONSUMER_NONE, change=shared(0.01))
    assert split([Cost("Map", 1, 10e-3, function=WAITS)], run).cpu_s[0] == pytest.approx(5e-3)


def test_what_calls_have_no_room_for_is_waiting_between_them():
    # GIVEN 30 microseconds of run queue for each call, of which its wall time holds 10
    cost = Cost("ParallelMap", 1, 60e-6, function=COMPUTES, parallelism=2)
    run = Run(rate=10_000, pool_cores=10_000 * 50e-6, pool_queue=10_000 * 30e-6)
    assert split([cost], run).queued_s == pytest.approx(20e-6)
    assert split([cost], Run(rate=10_000)).queued_s == 0
