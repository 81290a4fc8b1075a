"""How long the first element of an iterator takes: first calls, the fill of buffers, the first files."""

from __future__ import annotations

import collections
import os
import sys
import threading
from dataclasses import dataclass, field

from tensorboard_plugin_plumber.schema import measurement_pb2 as m

# Starts that a sample names one by one.
_LATEST = 20
# Where a thread's Python stands while TensorFlow runs an operation for it.
_EXECUTING = tuple(
    os.path.join("tensorflow", "python", *parts)
    for parts in (("eager", "execute.py"), ("ops", "gen_dataset_ops.py"))
)


def is_executing(thread: int) -> bool:
    """Whether a thread waits for TensorFlow at this moment, and does not trace or run Python.

    Args:
      thread: its `threading.get_ident()`.
    """
    frame = sys._current_frames().get(thread)
    return frame is not None and frame.f_code.co_filename.endswith(_EXECUTING)


class EpochStarts:
    """The first elements of all iterators of one pipeline."""

    def __init__(self) -> None:
        self._count = 0
        self._delay_s = 0.0
        self._latest: collections.deque[tuple[int, float, float]] = collections.deque(maxlen=_LATEST)

    def add(self, asked_s: float, came_s: float) -> None:
        """An iterator delivered its first element.

        Args:
          asked_s: `perf_counter` when it was first asked.
          came_s: `perf_counter` when its first element was there.
        """
        delay_s = max(came_s - asked_s, 0.0)
        self._count += 1
        self._delay_s += delay_s
        self._latest.append((self._count, delay_s, came_s))

    def fill(self, sample: m.PipelineSample, now_s: float, elapsed_s: float) -> None:
        """Writes all of it into a sample.

        Args:
          now_s: `perf_counter`.
          elapsed_s: time since the session began at `now_s`.
        """
        sample.epochs_started = self._count
        sample.epoch_start_delay_s = self._delay_s
        for epoch, delay_s, came_s in self._latest:
            sample.epoch_starts.add(epoch=epoch, delay_s=delay_s, elapsed_s=elapsed_s - (now_s - came_s))


@dataclass
class FirstElement:
    """What the looks tell of the first element of one iterator, where nothing tells exactly.

    Attributes:
      thread: `threading.get_ident()` of the thread that made the iterator, which as a rule consumes it.
      idle_s: `perf_counter` of the last look at which it had not been asked; of its making before that.
      empty_s: of the last look at which it had delivered nothing.
      came_s: of its first element, an estimate; None before that.
    """

    idle_s: float
    empty_s: float = 0.0
    came_s: float | None = None
    thread: int = field(default_factory=threading.get_ident)

    def nothing_yet(self, now_s: float, *, works: bool) -> None:
        """A look found no element.

        Args:
          now_s: `perf_counter`.
          works: something in the pipeline has made an element.
        """
        self.empty_s = now_s
        # A slow source makes nothing for a while: but then the consumer waits inside TensorFlow.
        if not works and not is_executing(self.thread):
            self.idle_s = now_s

    def came(self, now_s: float, gaps_s: float) -> None:
        """A look found elements; harmless when called again.

        Args:
          now_s: `perf_counter`.
          gaps_s: sum of the gaps between requests so far: the first element came before them.
        """
        if self.came_s is None:
            self.came_s = max(now_s - gaps_s, self.empty_s, self.idle_s)
