"""A daemon thread that looks at the iterators, as often as it must and as seldom as it can."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Fast at first: where children may come and go, they are seen while everything is new.
_FIRST_S = 2.0
# Elsewhere for the first steps only; and at the beginning of each later epoch, which may be short.
_AGAIN_S = 0.3
_FIRST_PERIOD_S = 0.03
_FIRST_SHARE = 0.006
# While children come and go: what is made up of those nobody saw rests on those that looks find.
_CLOSE_PERIOD_S = 0.03
_CLOSE_SHARE = 0.002
# With each of the first samples: what a look and a sample need is warm for both then.
_FAR_PERIOD_S = 1.0
# The model holds the last 100 gaps: a look every 50 steps misses none.
_STEPS_PER_LOOK = 50
_SHORTEST_PERIOD_S = 0.02
_LONGEST_PERIOD_S = 5.0
# Of a core, for the looks; samples and what is done once come on top.
_SHARE = 0.0015
# Of a core, for all that the thread does. Beyond that the looks take half of their shares until it is made up for.
_WHOLE_SHARE = 0.003
# Iterators that come in quick succession are looked at together.
_BETWEEN_WAKES_S = 0.1
# Of the looks find new children.
_BUSY_CHILDREN = 0.3
_SMOOTHING = 0.2
_FALLING = 0.5


class Pace:
    """Chooses the time between looks."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self._fast_until_s = self._first_until_s = 0.0
        self._may_have_children = True
        self._new_children = 0.0
        self._steps_per_s = 0.0
        self._cost_s = 0.0
        self._looked_s: float | None = None

    def begin(self, now_s: float, *, again: bool = False) -> None:
        """Something new is followed.

        Args:
          now_s: `perf_counter`.
          again: it is one more iterator of a pipeline that is known.
        """
        self._fast_until_s = max(self._fast_until_s, now_s + _AGAIN_S)
        if not again:
            self._first_until_s = now_s + _FIRST_S

    def looked(
        self, now_s: float, *, steps: float, new_children: bool, may_have_children: bool, cost_s: float | None
    ) -> None:
        """A look was taken.

        Args:
          now_s: `perf_counter` of the look.
          steps: root elements since the last look of which the model holds the gaps, of the fastest pipeline.
          new_children: operators have come or gone since the last look whose counts rest on looks.
          may_have_children: such operators may come, or nobody knows yet.
          cost_s: CPU time that the look took; None if it was no usual one.
        """
        if self._looked_s is not None and now_s > self._looked_s:
            rate = steps / (now_s - self._looked_s)
            # From nothing it would take many looks, and the gaps between them would be gone.
            self._steps_per_s += (_SMOOTHING if self._steps_per_s else 1.0) * (rate - self._steps_per_s)
        self._looked_s = now_s
        self._may_have_children = may_have_children
        self._new_children += _SMOOTHING * (new_children - self._new_children)
        if cost_s is None:
            return
        # Some looks find everything cold, and cost ten times as much as those that follow.
        smoothing = _SMOOTHING if cost_s > self._cost_s else _FALLING
        self._cost_s += smoothing * (cost_s - self._cost_s) if self._cost_s else cost_s

    def period_s(self, now_s: float, spent_s: float = 0.0) -> float:
        """Seconds until the next look.

        Args:
          now_s: `perf_counter`.
          spent_s: CPU time of the thread so far, seconds.
        """
        fast = now_s < self._fast_until_s or (self._may_have_children and now_s < self._first_until_s)
        close = self._new_children > _BUSY_CHILDREN
        period = _FIRST_PERIOD_S if fast else _CLOSE_PERIOD_S if close else _FAR_PERIOD_S
        if self._steps_per_s > 0:
            period = min(period, max(_SHORTEST_PERIOD_S, _STEPS_PER_LOOK / self._steps_per_s))
        share = _FIRST_SHARE if fast else _CLOSE_SHARE if close else _SHARE
        if not fast and spent_s > _WHOLE_SHARE * (now_s - self._began_s):
            share /= 2
        return min(_LONGEST_PERIOD_S, max(period, self._cost_s / share))


class Poller:
    """Calls `tick` in a thread of its own until `stop`.

    Args:
      tick: takes a look and returns the seconds until the next; a negative number ends the thread.
      fail: called with what `tick` raised; the thread ends then.
    """

    def __init__(self, tick: Callable[[], float], fail: Callable[[BaseException], None]) -> None:
        self._tick = tick
        self._fail = fail
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._cpu_s = 0.0
        self._thread = threading.Thread(target=self._run, name="plumber-poller", daemon=True)

    @property
    def cpu_s(self) -> float:
        """CPU time of the thread so far, seconds."""
        return self._cpu_s

    def start(self) -> None:
        """Begins to call `tick`."""
        self._thread.start()

    def wake(self) -> None:
        """Has the next look taken soon; callable from anywhere but the garbage collector."""
        self._wake.set()

    def stop(self, patience_s: float) -> bool:
        """Ends the thread and waits for it; harmless in the thread itself and before `start`.

        Args:
          patience_s: how long to wait for a look that is being taken.

        Returns:
          Whether no look is being taken any more.
        """
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(patience_s)
            return not self._thread.is_alive()
        return True

    def _run(self) -> None:
        try:
            period_s = 0.0
            while period_s >= 0:
                looked_s = time.perf_counter()
                if self._wake.wait(period_s):
                    self._stop.wait(looked_s + min(period_s, _BETWEEN_WAKES_S) - time.perf_counter())
                self._wake.clear()
                if self._stop.is_set():
                    return
                period_s = self._tick()
                self._cpu_s = time.thread_time()
        except Exception as error:
            self._fail(error)
