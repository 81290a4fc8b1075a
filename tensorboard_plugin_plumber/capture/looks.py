"""The iterators that one session follows, and the looks at them."""

from __future__ import annotations

import collections
import time

from tensorboard_plugin_plumber.capture.consumer import Phase
from tensorboard_plugin_plumber.capture.following import FollowedIterator
from tensorboard_plugin_plumber.capture.poller import Pace
from tensorboard_plugin_plumber.capture.registry import PipelineRegistry

_STEPS_PER_GAP = 10


class Looks:
    """Looks at the iterators of a session, again and again.

    Args:
      kind: "fit", "trace" or "diagnose".
      registry: finds the pipelines of the iterators.
    """

    def __init__(self, kind: str, registry: PipelineRegistry) -> None:
        self._kind = kind
        self._registry = registry
        self._pace = Pace()
        self._made: collections.deque[FollowedIterator] = collections.deque()
        self._followed: list[FollowedIterator] = []

    def follow(self, iterator: FollowedIterator) -> None:
        """One more iterator, from the next look on; takes no lock."""
        self._made.append(iterator)

    def take(self, phase: Phase | None) -> None:
        """Looks once at each iterator; called with the session's lock held.

        Args:
          phase: the one that the training is in, or just left.
        """
        began_cpu_s, described_cpu_s = time.thread_time(), self._registry.describing_cpu_s
        self._take_in()
        grown, changes, may_have_children = 0.0, 0, False
        for iterator in list(self._followed):
            gone = iterator.gone  # read first: what is set later is for the next look
            before = iterator.changes
            steps = self._look_at(iterator, phase)
            # A clock of its own holds ten times as many steps as the model holds gaps.
            grown = max(grown, steps if iterator.clock is None else steps / _STEPS_PER_GAP)
            if iterator.pipeline is None or iterator.pipeline.has_children:
                changes += iterator.changes - before
                may_have_children = may_have_children or not iterator.ignored
            if gone:
                self._followed.remove(iterator)
                if iterator.pipeline is not None:
                    iterator.pipeline.leave(iterator)
        # Describing must not slow the pace; and the look after it finds everything cold.
        described = self._registry.describing_cpu_s > described_cpu_s
        self._pace.looked(
            time.perf_counter(),
            steps=grown,
            new_children=changes > 0,
            may_have_children=may_have_children,
            cost_s=None if described else time.thread_time() - began_cpu_s,
        )

    def period_s(self, now_s: float, spent_s: float) -> float:
        """Seconds until the next look.

        Args:
          now_s: `perf_counter`.
          spent_s: CPU time of the poller so far, seconds.
        """
        return self._pace.period_s(now_s, spent_s)

    def await_ends(self, patience_s: float) -> None:
        """Returns when no iterator is being dropped by another thread at this moment, or patience ends."""
        until_s = time.perf_counter() + patience_s
        while any(one.is_ending for one in (*self._followed, *self._made.copy())):
            if time.perf_counter() > until_s:
                return
            time.sleep(0.002)

    def let_go(self) -> None:
        """Forgets all iterators."""
        for iterator in [*self._followed, *self._made.copy()]:
            iterator.let_go()

    def _take_in(self) -> None:
        while self._made:
            iterator = self._made.popleft()
            self._pace.begin(time.perf_counter(), again=self._registry.knows(iterator.dataset()))
            self._followed.append(iterator)

    def _look_at(self, iterator: FollowedIterator, phase: Phase | None) -> int:
        """Looks at one iterator; returns how many elements it delivered since the last look."""
        if iterator.ignored:
            return 0
        look = iterator.read()
        if iterator.without_model and not self._counts_steps(iterator, phase):
            return 0
        now_s = time.perf_counter()
        if iterator.pipeline is None:
            if not look.used:
                return 0
            self._registry.assign(iterator)
            if iterator.pipeline is None:
                return 0
        iterator.add_up(now_s, phase)
        return look.grown

    def _counts_steps(self, iterator: FollowedIterator, phase: Phase | None) -> bool:
        """Whether an iterator without counters is the one that Keras takes this phase's steps from.

        That is the first that was made in the phase (at its end Keras makes one more, which it will
        not use), else, with an endless dataset, the last one made before.
        """
        if self._kind != "fit" or phase is None or phase.role != iterator.role:
            return self._kind != "fit"
        if phase.steps == 0:
            return False
        if phase.counted_by is None:
            candidates = [f for f in self._followed if f.without_model and f.role == phase.role]
            made_in_it = [f for f in candidates if f.made_in is phase]
            phase.counted_by = made_in_it[0] if made_in_it else candidates[-1]
        return phase.counted_by is iterator
