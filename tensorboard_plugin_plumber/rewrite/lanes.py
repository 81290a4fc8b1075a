"""One dataset in a race: an iterator that is kept from turn to turn, and what it holds in store.

While another lane has its turn, this one's buffers fill, and the next elements cost it nothing: with a prefetch that
TensorFlow tunes the more with every turn, for it doubles whenever it was full and ran empty (a lane of 84 elements/s
was measured at 340 in its eighth turn of half a second). So what is in store when a turn begins is taken first and
does not count; a store that would take much of a turn is thrown away with its iterator; and behind a turn nobody
begins before the buffers are full again, for filling them takes cores.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tensorflow.core.framework import model_pb2

from tensorboard_plugin_plumber.capture import iterators
from tensorboard_plugin_plumber.capture.alone import Empty

# Kinds of operators that work ahead of requests.
_ASYNCHRONOUS = (
    model_pb2.NodeClass.ASYNC_INTERLEAVE_MANY,
    model_pb2.NodeClass.ASYNC_KNOWN_RATIO,
    model_pb2.NodeClass.ASYNC_UNKNOWN_RATIO,
)
# Of a turn's elements: a larger store is thrown away, if a new iterator's first element takes no longer than a turn.
_MOST_STORED = 0.5
# Of a turn: what a new iterator gives does not count for so long; others wait for so long that buffers are full.
_WARM_UP, _MOST_SETTLING = 0.25, 1.0
_LOOK_S, _LOOKS = 0.01, 3


@dataclass(frozen=True)
class Turn:
    """What one turn measured.

    Attributes:
      steps: elements that counted.
      seconds: from the arrival of the last element that did not count to the arrival of the last that did.
      cpu_s: of the whole process, in the same time.
    """

    steps: int
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        """Steps/s."""
        return self.steps / self.seconds


class Lane:
    """A dataset that is iterated again and again, in turns.

    Args:
      dataset: an eager `tf.data.Dataset`; it is iterated itself.
      whole_passes: each iterator is read to its end, for a cache fills that would be empty again.

    Attributes:
      passes: how often it was read to its end.
    """

    def __init__(self, dataset: Any, *, whole_passes: bool = False) -> None:
        self._dataset = dataset
        self._whole_passes = whole_passes
        self._iterator: Any = None
        self._taken = 0
        self._start_s = 0.0
        self._last: Turn | None = None
        self.passes = 0

    def turn(self, seconds: float) -> Turn:
        """Takes elements for so long, but one at least, behind those that do not count.

        Raises:
          Empty: it has no element.
          Exception: what the dataset raises.
        """
        self._discard(seconds)
        steps, cpu_s, began_s = 0, time.process_time(), time.perf_counter()
        now_s = began_s
        while steps == 0 or now_s - began_s < seconds:
            self.take()
            steps += 1
            now_s = time.perf_counter()
        self._last = Turn(steps, max(now_s - began_s, 1e-9), time.process_time() - cpu_s)
        return self._last

    def settle(self, seconds: float) -> None:
        """Waits, for so long at most, until its buffers no longer fill."""
        step_s = self._last.seconds / self._last.steps if self._last is not None else 0.0
        until_s = time.perf_counter() + _MOST_SETTLING * seconds
        stored, since_s = self._stored(), time.perf_counter()
        while stored is not None and (now_s := time.perf_counter()) < until_s:
            if now_s - since_s > max(_LOOKS * _LOOK_S, 2 * step_s):
                return
            time.sleep(_LOOK_S)
            before, stored = stored, self._stored()
            if stored != before:
                since_s = now_s

    def take(self) -> None:
        """Takes one element, of the next pass where one has ended."""
        if self._iterator is None:
            self._begin()
        try:
            next(self._iterator)
        except StopIteration:
            if self._taken == 0:
                raise Empty("the dataset has no element") from None
            self.passes += 1
            self._begin()
            try:
                next(self._iterator)
            except StopIteration:
                raise Empty("the dataset has no element") from None
        self._taken += 1

    def _begin(self) -> None:
        self._iterator = None  # its threads end before the next ones begin
        with iterators.seen_only_by():
            self._iterator = iter(self._dataset)
        self._taken = 0

    def _discard(self, seconds: float) -> None:
        """Takes what does not count."""
        stored = self._stored() or 0.0
        most = _MOST_STORED * self._last.steps if self._last is not None else 0.0
        too_much = stored > max(most, 1.0) and self._start_s < seconds
        if self._iterator is None or (too_much and not (self._whole_passes and self.passes == 0)):
            self._begin()
        began_s = time.perf_counter()
        if self._taken == 0:
            self.take()
            self._start_s = time.perf_counter() - began_s
            while time.perf_counter() - began_s - self._start_s < _WARM_UP * seconds:
                self.take()
            return
        taken = 0
        while taken <= stored and time.perf_counter() - began_s < seconds:
            self.take()
            taken += 1

    def _stored(self) -> float | None:
        """Elements of the root that could be made of what its buffers hold; None where nobody counts."""
        if self._iterator is None:
            return None
        try:
            model = iterators.parse_model(iterators.read_model(self._iterator._iterator_resource))
        except (iterators.NoModel, iterators.Gone):
            return None
        stored = (
            one.buffered_elements * self._taken / max(one.num_elements, 1)
            for one in model.nodes.values()
            if one.node_class in _ASYNCHRONOUS
        )
        return float(sum(stored))
