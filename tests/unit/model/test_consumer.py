"""The consumer rule: a short gap proves nothing about an asynchronous device."""

from __future__ import annotations

import pytest

from tensorboard_plugin_plumber.model.consumer import estimate_consumer
from tensorboard_plugin_plumber.model.windows import windows_of
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.recordings import Cost, Run, chain


def consumer(run, given=None):
    recording = chain([Cost("Map", 1, 1e-3)], run)
    pipeline = recording.graph.pipelines[0]
    windows = windows_of(pipeline, 0, recording.samples)
    return estimate_consumer(pipeline, windows, windows.total(), run.rate, given)


def test_a_synchronous_consumer_waits_for_what_the_gaps_leave():
    found = consumer(Run(rate=20, gap_s=10e-3))
    assert found.wait_fraction == pytest.approx(0.8)
    assert found.input_bound is True
    assert found.step_s == pytest.approx(10e-3)


def test_predictions_use_the_uncontended_gap_and_the_wait_does_not():
    found = consumer(Run(rate=20, gap_s=10e-3, gap_low_s=4e-3))
    assert found.wait_fraction == pytest.approx(0.8)
    assert found.step_s == pytest.approx(4e-3)


@pytest.mark.parametrize("gap_s", [0.02e-3, 0.3e-3, 40e-3])
def test_a_short_gap_of_an_unknown_loop_proves_nothing(gap_s):
    found = consumer(Run(rate=20, gap_s=gap_s, consumer=m.CONSUMER_UNKNOWN))
    assert (found.step_s, found.wait_fraction, found.input_bound) == (None, None, None)
    assert "synchronous" in found.caveat


def test_a_gap_that_fills_the_step_proves_that_the_consumer_binds():
    found = consumer(Run(rate=20, gap_s=49e-3, consumer=m.CONSUMER_UNKNOWN))
    assert found.input_bound is False
    assert found.step_s == pytest.approx(49e-3)


def test_a_device_is_known_by_synchronised_steps_only():
    # GIVEN a device that is busy 45 of each 50 ms while the host's gap is 0.02 ms
    unknown = consumer(Run(rate=20, gap_s=0.02e-3, consumer=m.CONSUMER_ASYNCHRONOUS))
    known = consumer(Run(rate=20, gap_s=0.02e-3, consumer=m.CONSUMER_ASYNCHRONOUS, synchronised_s=45e-3))
    assert unknown.input_bound is None
    assert known.wait_fraction == pytest.approx(0.1)


def test_a_given_rate_overrules():
    found = consumer(Run(rate=20, gap_s=0.02e-3, consumer=m.CONSUMER_UNKNOWN), given=80.0)
    assert found.wait_fraction == pytest.approx(0.75)
    assert found.input_bound is True


def test_plumber_itself_is_no_consumer():
    found = consumer(Run(rate=20, gap_s=0.1e-3, consumer=m.CONSUMER_NONE))
    assert found.absent
    assert found.input_bound is None


def test_the_share_of_long_waits_is_counted_where_single_steps_are_seen():
    def see(second, record):
        record.pipelines[0].waits_seen = 20 * second
        record.pipelines[0].waits_over_1ms = 5 * second

    assert consumer(Run(rate=20, gap_s=10e-3, change=see)).waits_over_1ms == pytest.approx(0.25)


def test_without_single_steps_only_a_mean_wait_of_next_to_nothing_bounds_the_share():
    # GIVEN waits of 5 µs a step, of which at most 0.5 % can be over 1 ms; and waits of 1 ms, which say nothing
    small = consumer(Run(rate=20, gap_s=50e-3 - 5e-6))
    large = consumer(Run(rate=20, gap_s=49e-3))

    assert small.waits_over_1ms == pytest.approx(0.005)
    assert large.waits_over_1ms is None


def test_the_consuming_threads_time_is_of_the_windows_in_which_it_is_known():
    def know(second, record):
        if second > 5:
            record.pipelines[0].consumer_thread_cpu_s = 0.02 * 20 * second

    assert consumer(Run(rate=20, gap_s=10e-3, change=know)).thread_cpu_s == pytest.approx(0.02)
    assert consumer(Run(rate=20, gap_s=10e-3)).thread_cpu_s is None
