"""What a session adds up of one dataset in one role, over all of its iterators."""

from __future__ import annotations

import re
import weakref
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from tensorboard_plugin_plumber.capture.consumer import ConsumerMeter
from tensorboard_plugin_plumber.capture.counters import Layout
from tensorboard_plugin_plumber.capture.counts import Count, Now, as_message
from tensorboard_plugin_plumber.capture.describe import Description
from tensorboard_plugin_plumber.capture.edges import rests_on_looks
from tensorboard_plugin_plumber.capture.epochs import EpochStarts
from tensorboard_plugin_plumber.capture.gil import PoolOnLock
from tensorboard_plugin_plumber.capture.passes import WholePasses, read_to_end
from tensorboard_plugin_plumber.capture.threads import PoolTimes
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

if TYPE_CHECKING:
    from tensorboard_plugin_plumber.capture.following import FollowedIterator

# Before so many root elements, first calls are all that was counted.
_FEW_ELEMENTS = 20
# An upper guess at the cost of a call, to tell where measuring it is worth while.
_TYPICAL_CALL_S = 20e-6
_MATTERS = 0.02
_CACHE = re.compile(r"(Memory|File)Cache")
# Operators that may leave some of their input unread at the end of a pass.
_STOPS_EARLY = re.compile(r"(Finite)?Take|TakeWhile|Zip|DirectedInterleave")


class FollowedPipeline:
    """One dataset in one role, over all of its iterators.

    Args:
      index: into `GraphRecord.pipelines`.
      description: of the dataset; its message goes into the graph record.
      dataset: weakly, to know it again.

    Attributes:
      layout: of its iterators' counters.
      has_children: operators of it may come and go, and how much these did rests on looks.
    """

    def __init__(self, index: int, description: Description, dataset: weakref.ref[Any]) -> None:
        self.index = index
        self.description = description
        self.message = m.Pipeline()
        self.message.CopyFrom(description.pipeline)
        self.dataset = dataset
        # What tells a dataset that was built by the same lines, see `likeness_of`.
        self.likeness: Hashable | None = None
        self.meter = ConsumerMeter()
        self.starts = EpochStarts()
        self.pool = PoolTimes()
        self.on_lock = PoolOnLock()
        self.layout = Layout(self.message.running, {root for roots in description.bodies for root in roots})
        self.has_children = rests_on_looks(self.layout.places)
        self.may_wait = any(operator.function.may_wait for operator in self.message.operators)
        # As the iterator that was looked at last has it.
        self.autotune: m.Autotune | None = None
        self.iterators = 0
        self.live_until_s = 0.0
        self._followed: list[FollowedIterator] = []
        self._ended_steps = 0.0
        self._ended = [Count() for _ in self.message.running]
        # What iterators counted that were read to their end.
        self._whole = WholePasses(len(self.message.running))
        self._now = [Now() for _ in self.message.running]
        self._cache_states: dict[int, str] = {}
        self._cache_fills: dict[int, int] = {}
        self._written = [0.0] * len(self.message.running)

    def join(self, iterator: FollowedIterator) -> None:
        """An iterator delivered its first element."""
        self.iterators += 1
        self._followed.append(iterator)
        self.pool.add(iterator.thread_ids)

    def leave(self, iterator: FollowedIterator) -> None:
        """An iterator is gone: its counts stay."""
        if iterator not in self._followed:
            return
        self._take_now(iterator)
        self._followed.remove(iterator)
        self.pool.finish(iterator.thread_ids, iterator.last_times)
        self._ended_steps += iterator.steps
        if iterator.counters is None:
            return
        counts = iterator.counters.counts()
        self._ended = [a + b for a, b in zip(self._ended, counts, strict=True)]
        if self._is_whole(iterator, counts):
            self._whole.add(counts)

    def note_parameters(self) -> None:
        """Puts AUTOTUNE's parameters into the message as they are first known; there they stay for good."""
        for iterator in self._followed:
            self._take_now(iterator)
        for running, now in zip(self.message.running, self._now, strict=True):
            if not running.parameters:
                running.parameters.extend(one.message() for one in now.parameters)

    def calls_matter(self) -> bool:
        """Whether what calls cost beside their kernels can be as much as a fiftieth of all work."""
        counts = self._sum(self._counts_of_each())
        calls = sum(
            count.seen * (op.batch_size or 1)
            for count, op, bodies in zip(counts, self.message.running, self.description.bodies, strict=True)
            # An interleave calls its function once per input, not per element.
            if op.calls_function and not bodies
        )
        work_s = sum(count.processing_ns for count in counts) * 1e-9
        return counts[0].seen >= _FEW_ELEMENTS and calls * _TYPICAL_CALL_S > _MATTERS * work_s

    def sample(self, now_s: float, elapsed_s: float) -> m.PipelineSample:
        """Everything so far.

        Args:
          now_s: `perf_counter`.
          elapsed_s: time since the session began.
        """
        of_each = self._counts_of_each()
        counts = self._sum(of_each)
        for iterator in self._followed:
            self._take_now(iterator)
        # What was made up may turn out a little less at a later look: counters never fall.
        self._written = [max(c.elements, w) for c, w in zip(counts, self._written, strict=True)]
        meter = self.meter
        sample = m.PipelineSample(
            pipeline=self.index,
            iterators=self.iterators,
            operators=[
                as_message(count, elements, now)
                for count, elements, now in zip(counts, self._written, self._now, strict=True)
            ],
            steps=self._ended_steps + sum(iterator.steps for iterator in self._followed),
            active_s=meter.active_s,
            joined_steps=meter.joined_steps,
            gap_s=meter.gap_s,
            step_s=meter.step_s,
            waits_over_1ms=meter.waits_over_1ms,
            waits_seen=meter.waits_seen,
            synchronised_steps=meter.synchronised_steps,
            synchronised_s=meter.synchronised_s,
            cache_states=self._states_of_caches(),
            live=now_s < self.live_until_s,
            autotune=self.autotune,
        )
        self.starts.fill(sample, now_s, elapsed_s)
        if meter.thread.total is not None:
            sample.consumer_thread_cpu_s = meter.thread.total.cpu_s
            sample.consumer_thread_run_queue_s = meter.thread.total.run_queue_s
        self._fill_passes(sample, of_each)
        low = meter.gap_low_s()
        if low is not None:
            sample.gap_low_s = low
        pool = self.pool.total()
        if pool is not None:
            sample.pool_cpu_s = pool.cpu_s
            sample.pool_run_queue_s = pool.run_queue_s
        if self.on_lock.probes:
            sample.gil_probes = self.on_lock.probes
            sample.gil_waiting_threads = self.on_lock.on_lock
            sample.blocked_threads = self.on_lock.blocked
            sample.running_threads = self.on_lock.running
            sample.running_squares = self.on_lock.running_squares
            sample.blocked_squares = self.on_lock.blocked_squares
            sample.blocked_running = self.on_lock.blocked_running
        return sample

    def _states_of_caches(self) -> dict[int, str]:
        """States as they were seen; a cache whose serving is too short to be seen was filled by a whole pass."""
        states = dict(self._cache_states)
        if not self._whole.passes or self.iterators < 2:
            return states
        for index, running in enumerate(self.message.running):
            filling = _CACHE.match(running.type) and states.get(index, "filling") == "filling"
            if filling and not self._may_stop_early(index):
                states[index] = "serving"
        return states

    def _may_stop_early(self, index: int) -> bool:
        """Whether a whole pass may leave some of an operator's output unread."""
        running = self.message.running[index]
        while running.HasField("parent"):
            running = self.message.running[running.parent]
            if _STOPS_EARLY.match(running.type):
                return True
        return False

    def _fill_passes(self, sample: m.PipelineSample, of_each: Mapping[FollowedIterator, list[Count]]) -> None:
        """Says what whole passes counted, those of iterators that are kept beyond their end included."""
        whole = self._whole.copy()
        for iterator, counts in of_each.items():
            if self._is_whole(iterator, counts):
                whole.add(counts)
        sample.passes = whole.passes
        for operator, elements in zip(sample.operators, whole.elements(), strict=True):
            operator.pass_elements = elements

    def _is_whole(self, iterator: FollowedIterator, counts: list[Count]) -> bool:
        """Whether an iterator was read from its beginning to its end."""
        if iterator.counters is None or iterator.before_session:
            return False
        return counts[0].seen > 0 and read_to_end(self.description, iterator.counters.alive(), counts)

    def _counts_of_each(self) -> dict[FollowedIterator, list[Count]]:
        """Counts of the iterators that are alive and have any."""
        return {one: one.counters.counts() for one in self._followed if one.counters is not None}

    def _sum(self, of_each: Mapping[FollowedIterator, list[Count]]) -> list[Count]:
        """Counts of all iterators, the ended ones included."""
        total = self._ended
        for counts in of_each.values():
            total = [a + b for a, b in zip(total, counts, strict=True)]
        return total

    def _take_now(self, iterator: FollowedIterator) -> None:
        if iterator.counters is None:
            return
        self._now = list(iterator.counters.now())
        for index, watch in iterator.counters.caches().items():
            state = watch.state
            if iterator.new_fill(index):
                self._cache_fills[index] = self._cache_fills.get(index, 0) + 1
            if state == "filling" and self._cache_fills.get(index, 0) > 1:
                # An earlier iterator filled it, too, and this one begins again.
                state = "never completes"
            if state is not None:
                self._cache_states[index] = state
