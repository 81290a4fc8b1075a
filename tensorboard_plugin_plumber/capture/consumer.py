"""How the consumer spends its steps: its own time between requests, and the rest, which is waiting.

The model of an iterator keeps the last 100 gaps, each from the end of one request to the start
of the next, oldest first and without numbers; one of ten seconds or more is never stored. The
first request has none. So after r requests were begun, r - 1 gaps were stored.
"""

from __future__ import annotations

import collections
import statistics
import threading
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensorboard_plugin_plumber.capture import threads

_WINDOW = 100
_MICROSECONDS = 1e-6
# A gap is a pause (a checkpoint, a validation in the user's own loop) beyond both of these.
PAUSE_S = 1.0
_PAUSE_FACTOR = 20.0
# A step that waits for longer waits: the measure of the fleet study that the project's paper stands on.
WAIT_S = 1e-3
_RECENT_GAPS = 500
_LOW_QUANTILE = 0.1
# A step that takes so much longer than those before it was none.
_SLOW_STEP = 2.0
# The first step traces; with fewer than so many there is no usual one.
_FEW_STEPS = 5


class StepClock:
    """When each step began; written by the training thread, read by the poller.

    Holds the last 4096 steps; a step costs well under a microsecond.
    """

    _SIZE = 4096

    def __init__(self) -> None:
        self._begins = array("d", bytes(8 * self._SIZE))
        self.count = 0
        # Steps that the device finished, begin to end, with nothing else in flight.
        self.synchronised: collections.deque[int] = collections.deque(maxlen=256)

    def begin(self) -> None:
        """A step begins."""
        self._begins[self.count % self._SIZE] = time.perf_counter()
        self.count += 1

    def began_at(self, step: int) -> float | None:
        """Time at which a step began, `time.perf_counter` seconds; None if it is not held."""
        if step < 0 or not self.count - self._SIZE // 2 < step + 1 <= self.count:
            return None
        return self._begins[step % self._SIZE]


@dataclass
class Phase:
    """A stretch of steps of one kind, without validation or a checkpoint between them.

    Attributes:
      role: "train", "validation" or "predict".
      first_step: index of its first step in the clock.
      requests_per_step: elements that one step takes.
      ended_s: `perf_counter` of its end; None while it goes on.
      counted_by: the iterator whose steps these are, where only the clock can count them.
      thread_id: native id of the thread that runs the steps.
      thread_time: what that thread had used when the phase began.
    """

    role: str
    clock: StepClock
    first_step: int
    requests_per_step: int = 1
    ended_s: float | None = None
    counted_by: object = None
    thread_id: int = field(default_factory=threading.get_native_id)
    thread_time: threads.ThreadTime | None = None

    def __post_init__(self) -> None:
        if self.thread_time is None:
            self.thread_time = threads.thread_time(self.thread_id)

    @property
    def began_s(self) -> float | None:
        """`perf_counter` of its first step; None before that, and long after it."""
        return self.clock.began_at(self.first_step) if self.clock.count > self.first_step else None

    def end(self, now_s: float) -> None:
        """No step follows; the second call and those after it change nothing.

        What Keras does after the last step (making the next iterator may take a second) is no step.
        """
        if self.ended_s is not None:
            return
        self.ended_s = now_s
        began_s, last_s = self.began_s, self.clock.began_at(self.clock.count - 1)
        if self.steps > _FEW_STEPS and began_s is not None and last_s is not None:
            usual_s = (last_s - began_s) / (self.steps - 1)
            if now_s - last_s > _SLOW_STEP * usual_s:
                self.ended_s = last_s + usual_s

    @property
    def steps(self) -> int:
        """Steps begun so far."""
        return self.clock.count - self.first_step


@dataclass(frozen=True)
class Gaps:
    """The gaps that were stored since the last look.

    Attributes:
      gaps_s: oldest first, seconds.
      first_request: number of the request that came after the first of them, from 1.
      complete: none between them is missing.
      requests: requests begun so far.
    """

    gaps_s: Sequence[float]
    first_request: int
    complete: bool
    requests: int


class GapReader:
    """Tells which gaps of an iterator are new, and numbers them."""

    def __init__(self) -> None:
        self._last: list[int] = []
        self._delivered = 0
        # Gaps that went by, those included that were never stored.
        self._passed = 0

    def read(self, stored_us: Sequence[int], delivered: int) -> Gaps:
        """Takes what the model holds.

        Args:
          stored_us: `gap_times` of the model, µs.
          delivered: the root's element count in the same model.
        """
        stored = list(stored_us)
        new = self._count_new(stored, delivered - self._delivered)
        complete = new is not None
        if new is None:
            new = len(stored)
            self._passed = max(self._passed, delivered - 1 - new)
        first = self._passed + 2
        self._passed += new
        # As many requests as elements were begun, or one more.
        if self._passed < delivered - 1:
            complete = False
            self._passed = delivered - 1
        elif self._passed > delivered:
            self._passed = delivered
        self._last, self._delivered = stored, delivered
        gaps = [us * _MICROSECONDS for us in stored[len(stored) - new :]]
        return Gaps(gaps, first, complete, self._passed + 1)

    def _count_new(self, stored: list[int], grown: int) -> int | None:
        """How many of `stored` are new; None if there is no telling, or more are.

        Args:
          stored: all that the model holds.
          grown: how many elements were delivered since the last look.
        """
        if len(stored) < _WINDOW:
            return len(stored) - len(self._last)
        for new in (grown, grown - 1, grown + 1):
            kept = _WINDOW - new
            if 0 < kept <= len(self._last) and stored[:kept] == self._last[len(self._last) - kept :]:
                return new
        return None


class ThreadMeter:
    """What the thread that consumes has used, over the time in which it took steps.

    Attributes:
      total: None before anything is known.
    """

    def __init__(self) -> None:
        self.total: threads.ThreadTime | None = None
        self._thread_id: int | None = None
        self._last: threads.ThreadTime | None = None

    def begin(self, thread_id: int, time: threads.ThreadTime | None) -> None:
        """Steps follow.

        Args:
          thread_id: native id of the thread that takes them.
          time: its times now.
        """
        self._thread_id, self._last = thread_id, time
        if time is not None and self.total is None:
            # From here on it is known: a sample that comes before the next look holds its beginning.
            self.total = threads.ThreadTime(0.0, 0.0)

    def take(self, thread_id: int, *, counts: bool) -> None:
        """Steps were taken since the last call.

        Args:
          thread_id: native id of the thread that took them.
          counts: nothing but steps, no pause.
        """
        now = threads.thread_time(thread_id)
        last = self._last if thread_id == self._thread_id else None
        if counts and now is not None and last is not None and self.total is not None:
            total = self.total
            self.total = threads.ThreadTime(
                total.cpu_s + max(now.cpu_s - last.cpu_s, 0.0),
                total.run_queue_s + max(now.run_queue_s - last.run_queue_s, 0.0),
            )
        self.begin(thread_id, now)


class ConsumerMeter:
    """Sums over the steps of one pipeline; all of it only ever grows.

    Attributes:
      elements_per_request: root elements that go with one gap: as many as devices, where a
        strategy's devices each take one.
      thread: of the consumer.
    """

    def __init__(self) -> None:
        self.elements_per_request = 1
        self.thread = ThreadMeter()
        self.active_s = 0.0
        self.joined_steps = 0
        self.gap_s = 0.0
        self.step_s = 0.0
        self._all_gaps_s = 0.0
        self.waits_over_1ms = 0
        self.waits_seen = 0
        self.synchronised_steps = 0
        self.synchronised_s = 0.0
        self._recent: collections.deque[float] = collections.deque(maxlen=_RECENT_GAPS)
        self._median_s: float | None = None

    def gap_low_s(self) -> float | None:
        """The gap that a tenth of the recent ones stay under: what the consumer needs undisturbed."""
        if len(self._recent) < 10:
            return None
        low = sorted(self._recent)[int(len(self._recent) * _LOW_QUANTILE)]
        return low / self.elements_per_request

    def is_pause(self, gap_s: float) -> bool:
        """Whether the consumer did something else than a step in this gap."""
        return gap_s > PAUSE_S and (self._median_s is None or gap_s > _PAUSE_FACTOR * self._median_s)

    def take_gaps(self, gaps_s: Sequence[float]) -> None:
        """Remembers gaps that are no pauses."""
        self._recent.extend(gaps_s)
        if gaps_s:
            self._median_s = statistics.median(list(self._recent)[-_WINDOW:])

    def join(self, steps: int, gap_s: float, step_s: float) -> None:
        """Adds requests whose gaps and times belong together."""
        self.joined_steps += steps * self.elements_per_request
        self._all_gaps_s += gap_s
        self.step_s += step_s
        # Gaps and step times come from different clocks, and a short look may catch one step more or less:
        # only over all of them is a gap longer than the step noise.
        self.gap_s = min(self._all_gaps_s, self.step_s)

    def join_synchronised(self, gap_s: float) -> None:
        """Adds a step in whose gap the device did all of its work."""
        self.synchronised_steps += self.elements_per_request
        self.synchronised_s += gap_s

    def see_waits(self, steps: int, over_1ms: int) -> None:
        """Adds steps whose single waits are known.

        Args:
          steps: how many.
          over_1ms: of these, how many waited for longer than that.
        """
        self.waits_seen += steps
        self.waits_over_1ms += over_1ms


class StepJoin:
    """Joins an iterator's gaps with the times of single steps, within one phase.

    Attributes:
      first_element_s: `perf_counter` when the iterator's first element was there, if it came in this phase.
      paused: a pause ended at the last look.

    Args:
      meter: takes the sums.
      phase: its clock tells the steps' times; one request per step.
      delivered: the iterator's elements before the phase.
    """

    def __init__(self, meter: ConsumerMeter, phase: Phase, delivered: int) -> None:
        self._meter = meter
        self._phase = phase
        # Request number less step index.
        self._offset = delivered + 1 - phase.first_step
        self._active_until_s: float | None = None
        self._pauses_s = 0.0
        self.first_element_s: float | None = None
        self.paused = False

    @property
    def ended(self) -> bool:
        """Whether no step of the phase follows."""
        return self._phase.ended_s is not None

    def take(self, now_s: float, gaps: Gaps, delivered: int) -> None:
        """Joins what can be joined.

        Args:
          now_s: `perf_counter` of the look.
          gaps: those stored since the last look.
          delivered: elements so far; the gaps tell all that is needed.
        """
        clock = self._phase.clock
        steps: list[float] = []
        self.paused = False
        for request, gap_s in enumerate(gaps.gaps_s, gaps.first_request):
            step = request - 1 - self._offset
            if step < self._phase.first_step:
                continue
            begin, end = clock.began_at(step), clock.began_at(step + 1)
            if request == 2 and end is not None:
                self.first_element_s = end - gap_s
            if self._meter.is_pause(gap_s):
                self._pauses_s += gap_s
                self.paused = True
                continue
            steps.append(gap_s)
            if begin is None or end is None:
                continue
            self._meter.join(1, gap_s, end - begin)
            self._meter.see_waits(1, int(end - begin - gap_s > WAIT_S))
            if step in clock.synchronised:
                self._meter.join_synchronised(gap_s)
        self._meter.take_gaps(steps)
        self.advance(now_s)

    def advance(self, now_s: float) -> None:
        """Counts the time up to the last step's beginning, or to the phase's end, as active.

        Not up to now: whether this is a step or a pause, only the next gap tells.
        """
        phase = self._phase
        if self._active_until_s is None:
            self._active_until_s = phase.began_s
        until_s = phase.ended_s if phase.ended_s is not None else phase.clock.began_at(phase.clock.count - 1)
        if self._active_until_s is None or until_s is None:
            return
        elapsed = max(0.0, min(until_s, now_s) - self._active_until_s)
        self._active_until_s += elapsed
        pause = min(self._pauses_s, elapsed)
        self._pauses_s -= pause
        self._meter.active_s += elapsed - pause


class WindowJoin:
    """Joins an iterator's gaps with the time between two looks, where single steps cannot be seen.

    An error of one step at either end of a stretch without pauses, none between.

    Attributes:
      paused: a pause ended at the last look.

    Args:
      meter: takes the sums.
      since_s: `perf_counter` from which on the iterator was consumed.
      delivered: its elements before that.
    """

    def __init__(self, meter: ConsumerMeter, since_s: float, delivered: int) -> None:
        self._meter = meter
        # Of the last look that found something new.
        self._since_s = since_s
        self._delivered = delivered
        self._step_s: float | None = None
        # Time of looks that found an element, but no gap yet.
        self._unjoined_s = 0.0
        # The time up to the first element is no step's: filling a shuffle buffer is in it.
        self._joinable = False
        self.paused = False

    def take(self, now_s: float, gaps: Gaps, delivered: int) -> None:
        """Takes one look.

        Args:
          now_s: `perf_counter` of the look.
          gaps: those stored since the last look.
          delivered: elements so far.
        """
        new = delivered - self._delivered
        if not gaps.gaps_s and new == 0:
            return  # waiting or pausing: the next gap tells which
        elapsed = now_s - self._since_s
        pauses = [gap for gap in gaps.gaps_s if self._meter.is_pause(gap)]
        steps = [gap for gap in gaps.gaps_s if not self._meter.is_pause(gap)]
        self._meter.take_gaps(steps)
        active = max(0.0, elapsed - sum(pauses))
        too_long = not gaps.complete and len(gaps.gaps_s) < _WINDOW
        if too_long and self._step_s is not None:
            # A gap too long to be stored: of this time no more was steps than usually is.
            active = min(active, max(1, new) * self._step_s)
        self._meter.active_s += active
        self.paused = bool(pauses) or too_long
        if not self._joinable or self.paused:
            self._unjoined_s = 0.0
        else:
            # A look between an element and the end of its gap finds no gap: its time belongs to the next one's.
            self._unjoined_s += elapsed
            if steps:
                # Where more went by than are stored, the stored ones stand for all.
                count = len(steps) if gaps.complete else max(new, len(steps))
                self._meter.join(count, sum(steps) * count / len(steps), self._unjoined_s)
                self._step_s = self._unjoined_s / count
                self._unjoined_s = 0.0
        self._joinable = True
        self._since_s = now_s
        self._delivered = delivered

    def finish(self, ended_s: float, gaps: Gaps, delivered: int) -> None:
        """The last look, at an iterator that is gone.

        Args:
          ended_s: `perf_counter` when it was dropped; that may be long after its last element.
          gaps, delivered: as for `take`.
        """
        new = delivered - self._delivered
        elapsed = ended_s - self._since_s
        if self._step_s is not None:
            elapsed = min(elapsed, (new + 1) * _SLOW_STEP * self._step_s)
        if new > 0:
            self.take(self._since_s + elapsed, gaps, delivered)
