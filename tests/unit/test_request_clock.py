"""The times of single requests, noted around `next`, and what they are joined to."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import request_clock
from tensorboard_plugin_plumber.capture.consumer import ConsumerMeter, Gaps
from tensorboard_plugin_plumber.capture.request_clock import RequestClock, RequestJoin


class Iterator:
    """What a clock can be attached to."""

    _plumber_note_request: Any = None

    def answer(self, began_s: float, ended_s: float) -> None:
        self._plumber_note_request((began_s, ended_s))


def gaps(requests: int) -> Gaps:
    return Gaps([], 2, True, requests)


def joined(*requests: tuple[float, float], looks: int = 1) -> tuple[ConsumerMeter, RequestJoin]:
    """A meter after looks at requests, each (begin, end)."""
    iterator, meter = Iterator(), ConsumerMeter()
    join = RequestJoin(meter, RequestClock(iterator), 0)
    size = -(-len(requests) // looks)
    for first in range(0, len(requests), size):
        for request in requests[first : first + size]:
            iterator.answer(*request)
        join.take(requests[-1][1], gaps(first + size), min(first + size, len(requests)))
    return meter, join


# A first element after 0.5 s; waits of 0, 2 and 0.5 ms; the consumer takes 4 ms.
REQUESTS = [(0.0, 0.5), (0.504, 0.504), (0.508, 0.510), (0.514, 0.5145), (0.5185, 0.5185)]


@pytest.mark.parametrize("looks", [1, 2, 5])
def test_each_step_has_its_own_wait_however_often_one_looks(looks: int) -> None:
    meter, join = joined(*REQUESTS, looks=looks)

    assert join.first == (0.0, 0.5)
    assert (meter.waits_seen, meter.waits_over_1ms) == (3, 1)
    assert meter.joined_steps == 3
    assert meter.gap_s == pytest.approx(0.012)
    assert meter.step_s == pytest.approx(0.0145)
    assert meter.active_s == pytest.approx(0.5185)


def test_a_pause_is_neither_active_nor_joined() -> None:
    meter, join = joined((0.0, 0.1), (0.11, 0.12), (0.13, 0.14), (5.14, 5.15), (5.16, 5.17))

    assert join.paused
    assert meter.joined_steps == 2
    assert meter.active_s == pytest.approx(0.16)


def test_the_fleets_measure_is_exact_where_gaps_alone_tell_of_means() -> None:
    # GIVEN 1000 steps of which every tenth waits for 20 ms, in one look
    requests, now_s = [], 0.0
    for step in range(1001):
        wait_s = 0.02 if step % 10 == 5 else 0.0
        requests.append((now_s, now_s + wait_s))
        now_s += wait_s + 0.001

    meter, _ = joined(*requests)

    assert (meter.waits_seen, meter.waits_over_1ms) == (999, 100)


def test_requests_that_were_not_kept_are_not_made_up() -> None:
    # GIVEN more requests between two looks than are kept, with a pause among those that are lost
    iterator, meter = Iterator(), ConsumerMeter()
    join = RequestJoin(meter, RequestClock(iterator), 0)
    for step in range(20):
        iterator.answer(0.01 * step, 0.01 * step + 0.001)
    join.take(0.2, gaps(20), 20)
    for step in range(5000):
        iterator.answer(3.2 + 0.01 * step, 3.2 + 0.01 * step + 0.001)
    join.take(60.0, gaps(5020), 5020)

    # THEN no gap spans what was lost, and of the time in between no more than steps take is active
    assert join.sees_all
    assert meter.joined_steps == 18 + request_clock._TAIL - 1
    assert meter.gap_s / meter.joined_steps == pytest.approx(0.009)
    assert meter.active_s == pytest.approx(50.2, abs=0.05)


def test_elements_taken_without_next_are_noticed() -> None:
    iterator, meter = Iterator(), ConsumerMeter()
    join = RequestJoin(meter, RequestClock(iterator), 0)
    iterator.answer(0.0, 0.1)
    join.take(0.1, gaps(1), 1)
    assert join.sees_all

    join.take(0.2, gaps(50), 50)

    assert not join.sees_all


def test_threads_that_ask_at_once_are_noticed() -> None:
    meter, join = joined((0.0, 0.1), (0.05, 0.2), (0.15, 0.3))

    assert not join.sees_all
    assert meter.joined_steps == 0


def test_the_thread_that_asks_is_known_even_when_it_changes() -> None:
    clock = request_clock.attach(iterator := iter(tf.data.Dataset.range(10)))
    assert clock is not None
    next(iterator)
    assert clock.thread_id == threading.get_native_id()
    clock.take()

    other: list[int] = []

    def take() -> None:
        next(iterator)
        other.append(threading.get_native_id())

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()

    assert clock.thread_id == other[0]
    assert len(clock.take().times_s) == 1


def test_tracing_is_no_request() -> None:
    clock = request_clock.attach(iterator := iter(tf.data.Dataset.range(10)))
    assert clock is not None

    @tf.function
    def step() -> tf.Tensor:
        return next(iterator)

    assert [int(step()) for _ in range(3)] == [0, 1, 2]
    assert len(clock.take().times_s) == 0


def test_the_end_is_no_request_and_a_stopped_clock_notes_nothing() -> None:
    clock = request_clock.attach(iterator := iter(tf.data.Dataset.range(3)))
    assert clock is not None
    assert [int(x) for x in iterator] == [0, 1, 2]
    assert len(clock.take().times_s) == 3

    clock.stop()
    with pytest.raises(StopIteration):
        next(iterator)
    assert len(clock.take().times_s) == 0


def test_a_request_costs_next_to_nothing() -> None:
    noting, iterator = request_clock.noting(lambda self: None), Iterator()
    clock = RequestClock(iterator)
    began_s = time.perf_counter()
    for _ in range(10_000):
        noting(iterator)
    cost_s = (time.perf_counter() - began_s) / 10_000

    assert len(clock.take().times_s) == request_clock._TAIL
    # Some microseconds even on a crowded machine.
    assert cost_s < 20e-6
