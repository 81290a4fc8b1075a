"""Core time, exogenous waiting and contention of functions that may wait, from clocks and simulated probes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tensorboard_plugin_plumber.model.waiting import Division, Probes, divide
from tensorboard_plugin_plumber.model.windows import SCALARS, Totals

SECONDS = 10.0


@dataclass(frozen=True)
class Threads:
    """A pool whose threads are each running, blocked, on the lock or idle, independently from probe to probe.

    Attributes:
      count: threads.
      running, blocked, on_lock: probability of each; idle else.
      missed: share of the probes of a running thread that come late and find it blocked.
    """

    count: int
    running: float = 0.0
    blocked: float = 0.0
    on_lock: float = 0.0
    missed: float = 0.0
    occupied: float = 0.0
    mean_wait_s: float = 0.0

    def totals(self, probes: int, in_queue: float = 0.0) -> Totals:
        """What is recorded of them in 10 s; `in_queue` is the share of the running time without a core."""
        rng = np.random.default_rng(1)
        states = rng.choice(
            4,
            (probes, self.count),
            p=[self.running, self.blocked, self.on_lock, 1 - self.running - self.blocked - self.on_lock],
        )
        late = (states == 0) & (rng.random(states.shape) < self.missed)
        states[late] = 1
        running, blocked, on_lock = ((states == k).sum(axis=1).astype(float) for k in range(3))
        runnable = self.count * self.running * SECONDS
        known = {
            "active_s": SECONDS,
            "pool_cpu_s": runnable * (1 - in_queue),
            "pool_run_queue_s": runnable * in_queue,
            "gil_probes": probes,
            "gil_waits": self.occupied * probes,
            "gil_wait_s": self.mean_wait_s * probes,
            "pool_gil_probes": probes,
            "gil_waiting_threads": on_lock.sum(),
            "blocked_threads": blocked.sum(),
            "running_threads": running.sum(),
            "running_squares": (running**2).sum(),
            "blocked_squares": (blocked**2).sum(),
            "blocked_running": (blocked * running).sum(),
        }
        empty = np.zeros(1)
        return Totals(empty, empty, empty, empty, empty, {name: known.get(name, 0.0) for name in SCALARS})

    def divided(self, probes: int = 400, in_queue: float = 0.0, between_calls: float = 0.0) -> Division:
        """How their time in calls is divided, 1000 calls; `between_calls`: of the run-queue time."""
        totals = self.totals(probes, in_queue)
        cpu, queue = totals["pool_cpu_s"], totals["pool_run_queue_s"]
        outside = self.count * (self.blocked + self.on_lock) * SECONDS
        return divide(cpu + outside + queue * (1 - between_calls), cpu, queue, 0.0, 1000, Probes.of(totals))


def test_on_a_quiet_host_waiting_is_what_the_clocks_leave():
    found = Threads(2, running=0.2, blocked=0.8).divided()
    assert found.cpu == pytest.approx(4)
    assert found.wait == pytest.approx(16, rel=0.02)
    assert not found.doubt


@pytest.mark.parametrize("between_calls", [0.0, 0.5, 1.0])
def test_on_a_crowded_host_probes_tell_waiting_from_the_run_queue(between_calls):
    # GIVEN as much time in the run queue as on cores, nobody knows whether in calls or between them
    found = Threads(4, running=0.5, blocked=0.4).divided(in_queue=0.5, between_calls=between_calls)
    assert found.wait == pytest.approx(16, rel=0.15)
    assert found.cpu == pytest.approx(10)
    assert found.wait_interval[0] <= found.wait <= found.wait_interval[1]


def test_probes_that_come_late_are_corrected_by_what_the_clocks_know():
    # GIVEN a third of the probes of a running thread that only come once it has blocked
    found = Threads(4, running=0.5, blocked=0.5, missed=0.33).divided(in_queue=0.6, between_calls=0.3)
    assert found.wait == pytest.approx(20, rel=0.15)


def test_threads_on_the_interpreter_lock_do_not_wait_for_anything_outside():
    found = Threads(8, running=0.12, on_lock=0.88, occupied=1.0, mean_wait_s=5e-3).divided()
    assert found.wait == 0
    assert found.on_lock == pytest.approx(70.4, rel=0.05)


def test_the_lock_and_a_wait_are_told_apart():
    found = Threads(8, running=0.1, blocked=0.6, on_lock=0.3, occupied=0.8, mean_wait_s=5e-4).divided()
    assert found.wait == pytest.approx(48, rel=0.1)
    assert found.on_lock == pytest.approx(24, rel=0.15)
    assert not found.doubt


def test_a_wait_that_probes_cannot_see_is_believed_on_a_quiet_host():
    # GIVEN functions that wait on a lock of their own, which looks as if their threads had nothing to do
    totals = Threads(2, running=0.2).totals(400)
    found = divide(20.0, totals["pool_cpu_s"], 0.0, 0.0, 1000, Probes.of(totals))
    assert found.wait == pytest.approx(16, rel=0.02)


def test_clocks_and_probes_that_contradict_each_other_are_doubted():
    # GIVEN probes that see twice the waiting that the clocks leave room for
    totals = Threads(2, running=0.1, blocked=0.8).totals(400)
    found = divide(10.0, totals["pool_cpu_s"], 0.0, 0.0, 1000, Probes.of(totals))
    assert "could not be told apart" in found.doubt


def test_few_probes_on_a_crowded_host_are_doubted():
    threads = Threads(1, running=0.5, blocked=0.3)
    assert threads.divided(probes=25, in_queue=0.6).doubt
    assert not threads.divided(probes=1000, in_queue=0.6).doubt


def test_without_probes_the_run_queue_makes_it_doubtful():
    assert not divide(20.0, 4.0, 0.2, 0.0, 1000, None).doubt
    found = divide(20.0, 4.0, 8.0, 0.0, 1000, None)
    assert found.wait_interval == pytest.approx((8, 16))
    assert "nobody can tell" in found.doubt


def test_core_time_of_shared_threads_is_no_waiting():
    # GIVEN kernels that hand half of their work to TensorFlow's other threads, and never block on anything else
    totals = Threads(2, running=0.5).totals(400)
    found = divide(20.0, totals["pool_cpu_s"], 0.0, 10.0, 1000, Probes.of(totals))
    assert found.wait == 0


def test_no_waiting_is_claimed_of_the_time_that_threads_were_seen_on_the_lock():
    # GIVEN a crowded host, and probes that see as many threads blocked as there are
    probes = Probes(SECONDS, occupied=1.0, mean_wait_s=0.0, on_lock=(1.0, 0.01), blocked=(2.0, 0.01))
    found = divide(20.0, 4.0, 12.0, 0.0, 1000, probes)
    assert found.wait == pytest.approx(16 - 0.75 * 10, abs=0.5)
