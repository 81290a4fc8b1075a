"""When single requests began and ended, where a loop asks for elements in Python.

`fit` tells when its steps begin; of any other loop only the gaps between requests are known, and of those the
last hundred. So while a trace goes on, `next` notes the time before and after itself, for a microsecond or two
per element. A loop inside a tf.function asks without Python, and is not seen here.
"""

from __future__ import annotations

import collections
import itertools
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any

from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.eager import context

from tensorboard_plugin_plumber.capture.consumer import PAUSE_S, WAIT_S, ConsumerMeter, Gaps
from tensorboard_plugin_plumber.capture.once import Once

# Of an iterator: what is called with the begin and end of each of its requests.
_ATTRIBUTE = "_plumber_note_request"
# Requests that are kept between two looks.
_SIZE = 1024
# Of more than that, those that are looked at.
_TAIL = 256
# Requests that are under way, or answered and not noted yet.
_IN_FLIGHT = 2


@dataclass(frozen=True)
class Noted:
    """The requests since the last look that were kept, oldest first.

    Attributes:
      times_s: begin and end of each, `time.perf_counter`.
      complete: none before them was lost.
    """

    times_s: list[tuple[float, float]]
    complete: bool


class RequestClock:
    """When each request of one iterator began and ended; noted by the thread that asks, taken by the poller.

    Args:
      iterator: an `OwnedIterator`; held weakly.

    Attributes:
      thread_id: native id of the thread that asked about last; None before the first request.
    """

    def __init__(self, iterator: Any) -> None:
        self.thread_id: int | None = None
        self._iterator = weakref.ref(iterator)
        self._notes: collections.deque[tuple[float, float]] = collections.deque(maxlen=_SIZE)
        self._call(self._note_thread)

    def take(self) -> Noted:
        """What was noted since the last call."""
        count = len(self._notes)
        if count >= _SIZE:
            # Steps as short as these are all alike: some tell enough of them.
            taken = list(self._notes)[-_TAIL:]
            self._notes.clear()
        else:
            taken = [self._notes.popleft() for _ in range(count)]
        self._call(self._note_thread)
        return Noted(taken, count < _SIZE)

    def stop(self) -> None:
        """Notes nothing more."""
        self._call(None)

    def _note_thread(self, request: tuple[float, float]) -> None:
        """Notes the first request after a look, and from which thread it came; those after it cost less."""
        if not context.executing_eagerly():
            return  # the tracing of a loop that will run without Python
        self.thread_id = threading.get_native_id()
        self._notes.append(request)
        self._call(self._notes.append)

    def _call(self, note: Any) -> None:
        iterator = self._iterator()
        if iterator is not None:
            setattr(iterator, _ATTRIBUTE, note)


def attach(iterator: Any) -> RequestClock | None:
    """A clock for the requests that are made of an `OwnedIterator` from now on; None where there can be none."""
    if not hasattr(iterator_ops.OwnedIterator, "_next_internal"):
        return None
    _install()
    return RequestClock(iterator)


@Once
def _install() -> None:
    iterator = iterator_ops.OwnedIterator
    setattr(iterator, _ATTRIBUTE, None)
    iterator._next_internal = noting(iterator._next_internal)


def noting(original: Any) -> Any:
    """`original`, a method that asks for an element, and the note of its time."""
    now_s = time.perf_counter

    def _next_internal(self: Any) -> Any:
        note = self._plumber_note_request
        if note is None:
            return original(self)
        began_s = now_s()
        element = original(self)
        note((began_s, now_s()))
        return element

    return _next_internal


class RequestJoin:
    """Joins the gaps of an iterator with the times of its steps, both from its own clock.

    Args:
      meter: takes the sums.
      clock: of the iterator.
      delivered: its elements before the clock.

    Attributes:
      first: `perf_counter` when the first request began, and when it was answered; None before that.
      paused: a pause ended at the last look.
      sees_all: False: elements are taken without `next`, or by several threads, and the clock tells nothing.
    """

    def __init__(self, meter: ConsumerMeter, clock: RequestClock, delivered: int) -> None:
        self._meter = meter
        self._clock = clock
        self._noted = delivered
        # The last request that was looked at.
        self._last: tuple[float, float] | None = None
        self._step_s: float | None = None
        # The time up to the first element is no step's: filling a shuffle buffer is in it.
        self._skip_step = False
        self.first: tuple[float, float] | None = None
        self.paused = False
        self.sees_all = True
        self._requests = 0

    def take(self, now_s: float, gaps: Gaps, delivered: int) -> None:
        """Joins what was asked since the last look.

        Args:
          now_s, gaps: as for `WindowJoin.take`; the clock tells all that is needed.
          delivered: elements so far, to know whether the clock has seen all requests.
        """
        noted = self._clock.take()
        times = noted.times_s
        self.paused = False
        self._noted = delivered if not noted.complete else self._noted + len(times)
        self.sees_all = self._noted >= delivered - _IN_FLIGHT
        if not times or not self.sees_all:
            return
        if self._last is None and noted.complete:
            self.first = times[0]
            self._skip_step = True
        if self._last is not None and noted.complete:
            times.insert(0, self._last)
        self._join(times)
        if self._last is not None and not noted.complete:
            # Requests that went by unseen were steps, as far as these usually last.
            unseen = max(gaps.requests - self._requests - len(times), 0)
            self._meter.active_s += min(times[0][0] - self._last[0], unseen * (self._step_s or 0.0))
        self._requests = gaps.requests
        self._last = times[-1]

    def _join(self, times: list[tuple[float, float]]) -> None:
        # Plain lists: from a thread that slept, each call of numpy's costs as much as ten steps here.
        own = [after[0] - before[1] for before, after in itertools.pairwise(times)]
        if not own:
            return
        if min(own) < 0:
            self.sees_all = False  # several threads ask at once
            return
        waits = [end - begin for begin, end in times[:-1]]
        pauses_s = 0.0
        if max(own) > PAUSE_S:
            pauses = [gap_s > PAUSE_S and self._meter.is_pause(gap_s) for gap_s in own]
            self.paused = any(pauses)
            pauses_s = sum(itertools.compress(own, pauses))
        else:
            pauses = [False] * len(own)
        gaps = [gap_s for gap_s, pause in zip(own, pauses, strict=True) if not pause]
        self._meter.active_s += times[-1][0] - times[0][0] - pauses_s
        self._meter.take_gaps(gaps)
        waits = [wait_s for wait_s, pause in zip(waits, pauses, strict=True) if not pause]
        if self._skip_step:
            self._skip_step = False
            if not pauses[0]:
                del gaps[0], waits[0]
        if gaps:
            gap_s, wait_s = sum(gaps), sum(waits)
            self._meter.join(len(gaps), gap_s, gap_s + wait_s)
            self._meter.see_waits(len(waits), sum(one > WAIT_S for one in waits))
            self._step_s = (gap_s + wait_s) / len(gaps)

    def finish(self, ended_s: float, gaps: Gaps, delivered: int) -> None:
        """The last look, at an iterator that is gone.

        Args:
          ended_s: `perf_counter` when it was dropped; that may be long after its last element.
          gaps, delivered: as for `take`.
        """
        self.take(ended_s, gaps, delivered)
        if not self.sees_all:
            return
        # The last element's own step has no other end.
        if self._step_s is not None and self._last is not None:
            self._meter.active_s += max(min(ended_s - self._last[0], self._step_s), 0.0)
