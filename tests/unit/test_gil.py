"""Probes of the interpreter lock see who holds it, who wants it, and who sleeps."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tensorboard_plugin_plumber.capture import gil

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what threads wait for")

PROBES = 60


@contextlib.contextmanager
def threads(count: int, work: Callable[[threading.Event], None]) -> Iterator[list[int]]:
    """Threads that work until the block ends, by native id."""
    stop = threading.Event()
    running = [threading.Thread(target=work, args=(stop,), daemon=True) for _ in range(count)]
    for thread in running:
        thread.start()
    try:
        yield [thread.native_id or 0 for thread in running]
    finally:
        stop.set()
        for thread in running:
            thread.join()


def probed(ids: list[int]) -> tuple[gil.LockTimes, gil.PoolOnLock]:
    times, pool = gil.LockTimes(), gil.PoolOnLock()
    for _ in range(PROBES):
        times.probe([(ids, pool)])
    assert times.probes == PROBES
    assert pool.probes > PROBES / 2  # it may take some tries to learn where threads wait for the lock
    return times, pool


def compute(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(1000))


def sleep(stop: threading.Event) -> None:
    while not stop.is_set():
        time.sleep(0.05)


def idle(stop: threading.Event) -> None:
    stop.wait()


def test_python_that_computes_holds_the_lock() -> None:
    with threads(1, compute) as ids:
        times, pool = probed(ids)
    assert times.waits > 0.8 * PROBES
    assert times.wait_s / times.waits > 0.5 * sys.getswitchinterval()
    assert pool.blocked == 0


def test_threads_that_want_the_lock_are_counted() -> None:
    with threads(4, compute) as ids:
        _, pool = probed(ids)
    assert 2 < pool.on_lock / pool.probes < 4
    assert pool.blocked == 0


def test_sleeping_threads_are_blocked_on_something_else() -> None:
    with threads(3, sleep) as ids:
        times, pool = probed(ids)
    assert pool.blocked > 0.8 * 3 * pool.probes
    assert pool.on_lock < 0.1 * pool.probes
    assert times.waits < 0.3 * PROBES


def test_threads_with_nothing_to_do_are_neither() -> None:
    with threads(3, idle) as ids:
        _, pool = probed(ids)
    assert pool.on_lock == pool.blocked == 0


def test_threads_that_are_gone_are_passed_over() -> None:
    with threads(1, idle) as ids:
        pass
    assert gil.probe([ids]) is not None
