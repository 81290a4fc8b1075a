"""Numbering of gaps, and what they are joined with."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorboard_plugin_plumber.capture.consumer import (
    ConsumerMeter,
    GapReader,
    Gaps,
    Phase,
    StepClock,
    StepJoin,
    ThreadMeter,
    WindowJoin,
)


@given(
    looks=st.lists(st.integers(0, 60), min_size=1, max_size=30),
    in_request=st.booleans(),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=100, deadline=None)
def test_each_gap_is_read_once_and_numbered(looks: list[int], in_request: bool, seed: int) -> None:
    # GIVEN a consumer, and looks at it less than a hundred steps apart
    gaps = [(seed * 7919 + i * i * 31) % 100_003 for i in range(2000)]
    reader, delivered, read = GapReader(), 1, {}

    for steps in looks:
        delivered += steps
        stored = gaps[: delivered if in_request else delivered - 1][-100:]
        found = reader.read(stored, delivered)
        for request, gap_s in enumerate(found.gaps_s, found.first_request):
            assert request not in read
            read[request] = gap_s

    # THEN every gap was read once, under the number of the request that came after it
    count = delivered if in_request else delivered - 1
    assert read == {i + 2: pytest.approx(gaps[i] * 1e-6) for i in range(count)}


def test_looks_too_far_apart_say_so() -> None:
    reader = GapReader()
    reader.read(list(range(100)), 101)

    found = reader.read(list(range(900, 1000)), 1001)

    assert not found.complete
    assert len(found.gaps_s) == 100
    assert found.requests == 1001


def test_a_gap_that_was_too_long_to_be_stored_is_noticed() -> None:
    reader = GapReader()
    reader.read([10, 10, 10], 4)

    # WHEN ten seconds go by before the next request, which stores nothing
    assert not reader.read([10, 10, 10], 5).complete

    # THEN the numbers of later gaps are right again
    later = reader.read([10, 10, 10, 20], 6)
    assert later.complete
    assert later.first_request == 6


def clock_of(begins: list[float]) -> StepClock:
    clock = StepClock()
    for begin in begins:
        clock.begin()
        clock._begins[clock.count - 1] = begin
    return clock


def test_steps_are_joined_with_their_own_gaps() -> None:
    # GIVEN steps of 10 ms of which the consumer takes 4, but for one that waits for 20 ms more
    begins = [0.0, 0.01, 0.02, 0.05, 0.06]
    meter = ConsumerMeter()
    join = StepJoin(meter, Phase("train", clock_of(begins), 0), 0)

    join.take(0.06, Gaps([0.004] * 4, 2, True, 5), 5)

    assert meter.joined_steps == 4
    assert meter.gap_s == pytest.approx(0.016)
    assert meter.step_s == pytest.approx(0.06)
    assert (meter.waits_seen, meter.waits_over_1ms) == (4, 4)
    assert meter.active_s == pytest.approx(0.06)


def test_a_pause_is_neither_active_nor_joined() -> None:
    begins = [0.0, 0.01, 0.02, 5.03, 5.04]
    meter = ConsumerMeter()
    join = StepJoin(meter, Phase("train", clock_of(begins), 0), 0)

    join.take(5.04, Gaps([0.004, 0.004, 5.004, 0.004], 2, True, 5), 5)

    assert meter.joined_steps == 3
    assert meter.active_s == pytest.approx(0.036)


def test_the_first_gap_of_a_later_epoch_belongs_to_no_step() -> None:
    # GIVEN an endless iterator that gave 3 elements in the epoch before
    clock = clock_of([0.0, 0.01, 0.02, 9.0, 9.01])
    meter = ConsumerMeter()

    StepJoin(meter, Phase("train", clock, 3), 3).take(9.02, Gaps([0.5, 0.004], 4, True, 5), 5)

    assert meter.joined_steps == 1
    assert meter.gap_s == pytest.approx(0.004)


def test_windows_without_single_steps() -> None:
    meter = ConsumerMeter()
    join = WindowJoin(meter, 0.0, 0)

    # The first window holds the wait for the first element.
    join.take(5.0, Gaps([0.001] * 9, 2, True, 10), 10)
    join.take(5.1, Gaps([0.001] * 10, 11, True, 20), 20)
    # Nothing new: it waits, or pauses.
    join.take(5.2, Gaps([], 21, True, 20), 20)
    # It waited: the gap is short.
    join.take(5.3, Gaps([0.001] * 10, 21, True, 30), 30)

    assert meter.joined_steps == 20
    assert meter.step_s == pytest.approx(0.3)
    assert meter.gap_s == pytest.approx(0.02)
    assert meter.active_s == pytest.approx(5.3)


def test_looks_more_frequent_than_steps_lose_no_time() -> None:
    # GIVEN steps of 100 ms, of which the consumer takes 50, and looks that find an element before its gap
    meter = ConsumerMeter()
    join = WindowJoin(meter, 0.0, 0)
    join.take(0.02, Gaps([], 2, True, 1), 1)
    for step in range(1, 11):
        join.take(0.1 * step, Gaps([0.05], step + 1, True, step + 1), step)
        join.take(0.1 * step + 0.06, Gaps([], step + 2, True, step + 1), step + 1)

    assert meter.joined_steps == 10
    assert meter.step_s == pytest.approx(1.0, abs=0.1)
    assert meter.gap_s == pytest.approx(0.5)


def test_a_pause_between_windows_is_left_out() -> None:
    meter = ConsumerMeter()
    join = WindowJoin(meter, 0.0, 0)
    join.take(0.1, Gaps([0.001] * 9, 2, True, 10), 10)
    join.take(0.2, Gaps([0.001] * 10, 11, True, 20), 20)

    # WHEN ten seconds and more go by that no gap tells of
    join.take(20.25, Gaps([0.001] * 4, 22, False, 25), 25)

    assert meter.joined_steps == 10
    assert meter.active_s == pytest.approx(0.25)


def test_two_devices_take_two_elements_per_gap() -> None:
    meter = ConsumerMeter()
    meter.elements_per_request = 2
    meter.take_gaps([0.004] * 20)
    meter.join(20, 0.08, 0.2)

    assert meter.joined_steps == 40
    assert meter.gap_low_s() == pytest.approx(0.002)


def test_a_step_costs_next_to_nothing() -> None:
    clock = StepClock()
    began = time.perf_counter()
    for _ in range(10_000):
        clock.begin()

    # Some microseconds even on a crowded machine.
    assert (time.perf_counter() - began) / 10_000 < 20e-6


def test_the_first_element_of_an_iterator_is_told_by_the_second_step() -> None:
    # GIVEN a first element that takes 0.8 s, and steps of 10 ms of which the consumer takes 4
    join = StepJoin(ConsumerMeter(), Phase("train", clock_of([0.0, 0.804, 0.814]), 0), 0)

    join.take(0.82, Gaps([0.004, 0.004], 2, True, 3), 3)

    assert join.first_element_s == pytest.approx(0.8)


def test_an_iterator_of_the_epoch_before_has_no_first_element() -> None:
    join = StepJoin(ConsumerMeter(), Phase("train", clock_of([0.0, 0.01, 9.0, 9.01]), 2), 2)

    join.take(9.02, Gaps([0.5, 0.004], 3, True, 4), 4)

    assert join.first_element_s is None


def test_the_consumers_thread_is_metered_while_it_takes_steps() -> None:
    def burn() -> None:
        until_s = time.thread_time() + 0.05
        while time.thread_time() < until_s:
            pass

    meter, thread_id = ThreadMeter(), threading.get_native_id()
    meter.take(thread_id, counts=True)
    if meter._last is None:
        pytest.skip("the kernel does not count the time of threads")
    assert meter.total is not None
    assert meter.total.cpu_s == 0
    for counts in (True, False, True):  # the second one is a pause
        burn()
        meter.take(thread_id, counts=counts)

    assert meter.total.cpu_s == pytest.approx(0.1, rel=0.3)


def test_a_phase_knows_what_its_thread_had_used_before_it() -> None:
    phase = Phase("train", StepClock(), 0)

    assert phase.thread_id == threading.get_native_id()
    if phase.thread_time is not None:
        assert phase.thread_time.cpu_s == pytest.approx(time.thread_time(), abs=0.5)
