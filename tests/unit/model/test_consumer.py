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
