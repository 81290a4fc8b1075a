"""The threads of an iterator's private pool, and what the kernel counts of them.

tf.data's threads have no useful names, but the native threads that appear while an iterator is
made are its pool. Linux only; elsewhere nothing is known, and that is said.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tensorboard_plugin_plumber.capture import procfs

_TASKS = "/proc/self/task"
_NANOSECONDS = 1e-9
# Of what the threads of a pool did on average.
_NOTICEABLE = 0.1


@dataclass(frozen=True)
class ThreadTime:
    """Seconds that threads have run, and waited for a core while they could have."""

    cpu_s: float
    run_queue_s: float


def thread_ids() -> frozenset[int]:
    """Native ids of this process's threads; empty where they cannot be listed."""
    try:
        return frozenset(int(name) for name in os.listdir(_TASKS))
    except OSError:
        return frozenset()


def thread_time(thread_id: int) -> ThreadTime | None:
    """Times of one thread of this process; None if it ended or cannot be read."""
    try:
        cpu_ns, run_queue_ns, _ = procfs.read(f"{_TASKS}/{thread_id}/schedstat").split()
    except (OSError, ValueError):
        return None
    return ThreadTime(int(cpu_ns) * _NANOSECONDS, int(run_queue_ns) * _NANOSECONDS)


def times_of(ids: Iterable[int]) -> dict[int, ThreadTime]:
    """Times of those of the threads that run and can be read."""
    times = ((thread_id, thread_time(thread_id)) for thread_id in ids)
    return {thread_id: time for thread_id, time in times if time is not None}


def main_thread_time() -> ThreadTime | None:
    """Times of the interpreter's main thread; None where they cannot be read."""
    native_id = threading.main_thread().native_id
    return None if native_id is None else thread_time(native_id)


class PoolTimes:
    """Sums the times of threads that come and go, such as those of a pipeline's pools."""

    def __init__(self) -> None:
        self._last: dict[int, ThreadTime] = {}
        self._idle: set[int] = set()
        self._known = False
        self._ended_cpu_s = 0.0
        self._ended_run_queue_s = 0.0

    @property
    def ids(self) -> frozenset[int]:
        """The threads that are followed now."""
        return frozenset(self._last)

    @property
    def working(self) -> frozenset[int]:
        """Those of `ids` that did a noticeable part of the work between the last two updates.

        The first iterator of a process brings threads with it that are nobody's pool.
        """
        return frozenset(self._last) - self._idle

    def add(self, ids: Iterable[int]) -> None:
        """Follows more threads; what they did before counts too: they are new."""
        for thread_id in ids:
            self._last.setdefault(thread_id, ThreadTime(0.0, 0.0))

    def update(self) -> None:
        """Reads all threads that still run: about 10 µs each."""
        worked: dict[int, float] = {}
        for thread_id, last in list(self._last.items()):
            now = thread_time(thread_id)
            if now is not None and now.cpu_s >= last.cpu_s:  # else it ended, or its id is another's now
                self._known = True
                self._last[thread_id] = now
                worked[thread_id] = now.cpu_s - last.cpu_s
        least = _NOTICEABLE * sum(worked.values()) / max(len(worked), 1)
        self._idle = {thread_id for thread_id, cpu_s in worked.items() if cpu_s < least}

    def finish(self, ids: Iterable[int], last: Mapping[int, ThreadTime]) -> None:
        """The threads of a pool have ended: follows them no more, what they did stays.

        Args:
          ids: of the pool's threads.
          last: their times when they were about to end; where it lacks one, its last update counts.
        """
        for thread_id in ids:
            before = self._last.pop(thread_id, None)
            if before is not None:
                self._known = self._known or thread_id in last
                time = last.get(thread_id, before)
                self._ended_cpu_s += time.cpu_s
                self._ended_run_queue_s += time.run_queue_s

    def total(self) -> ThreadTime | None:
        """Sums at the last update; None if no thread could ever be read."""
        if not self._known:
            return None
        return ThreadTime(
            self._ended_cpu_s + sum(t.cpu_s for t in self._last.values()),
            self._ended_run_queue_s + sum(t.run_queue_s for t in self._last.values()),
        )


@dataclass(frozen=True)
class ProcessTimes:
    """All threads of the process so far.

    Attributes:
      shared: on which TensorFlow runs kernels for everybody: those that are neither a pool's nor Python's.
      run_queue_s: Σ over all threads of the time they waited for a core.
    """

    shared: ThreadTime
    run_queue_s: float


class ProcessClock:
    """Reads all threads of the process: some 25 µs for each."""

    def __init__(self) -> None:
        self._shared = PoolTimes()
        self._others = PoolTimes()

    def read(self, pools: Iterable[int]) -> ProcessTimes | None:
        """Times so far, of threads that have ended too; None where they cannot be read.

        Args:
          pools: the threads of all pools that are followed.
        """
        alive = thread_ids()
        python = {thread.native_id for thread in threading.enumerate()}
        own = alive & (frozenset(i for i in python if i is not None) | frozenset(pools))
        for times, wanted in ((self._others, own), (self._shared, alive - own)):
            times.finish(times.ids - wanted, {})
            times.add(wanted)
            times.update()
        shared, others = self._shared.total(), self._others.total()
        if shared is None or others is None:
            return None
        return ProcessTimes(shared, shared.run_queue_s + others.run_queue_s)
