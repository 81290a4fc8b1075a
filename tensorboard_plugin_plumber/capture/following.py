"""One iterator that a session follows: reads its model, and adds what it finds to its pipeline."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tensorboard_plugin_plumber.capture import iterators
from tensorboard_plugin_plumber.capture.align import align
from tensorboard_plugin_plumber.capture.autotune import autotune_of
from tensorboard_plugin_plumber.capture.consumer import GapReader, Gaps, Phase, StepJoin, WindowJoin
from tensorboard_plugin_plumber.capture.counters import IteratorCounters
from tensorboard_plugin_plumber.capture.epochs import FirstElement
from tensorboard_plugin_plumber.capture.flushed import flushed
from tensorboard_plugin_plumber.capture.pipeline import FollowedPipeline
from tensorboard_plugin_plumber.capture.request_clock import RequestClock, RequestJoin
from tensorboard_plugin_plumber.capture.threads import ThreadTime

# A pipeline counts as live for so long after its last element.
_LIVE_S = 5.0
# After so many requests the gap behind the first one has been stored, if it ever will.
_FEW_REQUESTS = 4


class Handle(Protocol):
    """Reads the model of one iterator, see `iterators.Handle`."""

    @property
    def is_dropped(self) -> bool: ...
    def read(self) -> bytes | None: ...
    def detach(self) -> None: ...


class Requests:
    """The iterator of a strategy's device, whose gaps tell of the consumer of a hidden pipeline.

    Args:
      iterator: an `OwnedIterator` on a device.
    """

    def __init__(self, iterator: Any) -> None:
        self._seen: bytes | None = None
        self._at_end: bytes | None = None
        self._handle = iterators.Handle(iterator, self._keep)

    def read(self) -> Any:
        """The model, or the last one that there was; None before the first."""
        with contextlib.suppress(iterators.NoModel):
            # While another thread drops the iterator there is neither a model nor yet the one at its end.
            self._seen = self._handle.read() or self._seen
        content = self._at_end or self._seen
        return None if content is None else iterators.parse_model(content)

    def detach(self) -> None:
        """Forgets the iterator."""
        self._handle.detach()

    def _keep(self, content: bytes | None) -> None:
        self._at_end = content


@dataclass
class Look:
    """What one look at an iterator found.

    Attributes:
      used: it has delivered elements in this session.
      grown: elements since the last look.
    """

    used: bool
    grown: int = 0


@dataclass(eq=False)
class FollowedIterator:
    """One iterator for as long as the user keeps it, and one look longer.

    Attributes:
      role: of the pipeline it belongs to, from the phase in which it was made.
      dataset: weakly.
      thread_ids: native ids of the threads of its pool; empty if unknown.
      before_session: it may have delivered elements before the session.
      requests: where its gaps are read instead, of a pipeline behind a boundary.
      devices: how many take its elements in turn.
      through_boundary: a strategy's device fetches from it.
      iterated_by: as in `boundary.Pass`; empty where Python iterates.
      whole: as in `boundary.Pass`.
      clock: of its single requests, where there is one.
      ended_s: `perf_counter` when it was gone.
      last_content: its last model, once it is gone.
      last_times: of the threads of its pool, once it is gone.
      without_model: autotune is off.
      made_in: the phase in which it was made.
      changes: how often operators had come or gone at a look.
      flushed_at_start: `flushed.flushed` when it was made.
      flushed_at_end: likewise, once it is gone.
      last_dataset: the dataset, from the iterator's death to the last look: it may be all that is left.
    """

    role: str
    dataset: weakref.ref[Any]
    thread_ids: frozenset[int]
    before_session: bool = False
    requests: Requests | None = None
    devices: int = 1
    through_boundary: bool = False
    iterated_by: str = ""
    whole: bool = True
    clock: RequestClock | None = None
    handle: Handle | None = None
    gone: bool = False
    ended_s: float = 0.0
    last_content: bytes | None = None
    last_times: Mapping[int, ThreadTime] = field(default_factory=dict)
    last_dataset: Any = None
    pipeline: FollowedPipeline | None = None
    counters: IteratorCounters | None = None
    ignored: bool = False
    without_model: bool = False
    made_in: Phase | None = None
    changes: int = 0
    flushed_at_start: Mapping[str, int] | None = field(default_factory=flushed)
    flushed_at_end: Mapping[str, int] | None = None
    _first: FirstElement = field(default_factory=lambda: FirstElement(time.perf_counter()))
    _first_said: bool = False
    _model: Any = None
    _flushed: Mapping[str, int] | None = None
    _asked: Any = None
    _base_model: Any = None
    _base_flushed: Mapping[str, int] | None = None
    _base: int = 0
    _delivered: int = 0
    # Elements of what the gaps are read from: the same iterator, or a device's.
    _requested: int = 0
    _before_phase: int = 0
    _gaps: GapReader = field(default_factory=GapReader)
    _phase: Phase | None = None
    _join: StepJoin | WindowJoin | RequestJoin | None = None
    # Of the last look at which requests were joined.
    _clocked_s: float = 0.0
    _mapping: dict[int, int] = field(default_factory=dict)
    _mapped_ids: tuple[int, int] = (0, 0)
    _fills_said: set[int] = field(default_factory=set)

    @property
    def steps(self) -> int:
        """Elements delivered in this session."""
        return self._delivered - self._base

    @property
    def is_ending(self) -> bool:
        """Whether another thread is just dropping it: its last model is about to come."""
        return not self.gone and self.handle is not None and self.handle.is_dropped

    def new_fill(self, index: int) -> bool:
        """Whether the cache at `index` began to fill since this was last asked."""
        assert self.counters is not None
        if index in self._fills_said or not self.counters.caches()[index].filling_nodes:
            return False
        self._fills_said.add(index)
        return True

    def read(self) -> Look:
        """Reads the model; nothing is added up yet."""
        assert self.handle is not None
        content = self.last_content if self.gone else self._read_alive()
        if content is None:
            return Look(used=self.without_model)
        self._flushed = self.flushed_at_end if self.gone else flushed()
        self._model = model = iterators.parse_model(content)
        delivered = _root_elements(model)
        if self.before_session and self.pipeline is None and self._base_model is None:
            self._base_model, self._base, self._base_flushed = model, delivered, self._flushed
            self._delivered = self._requested = delivered
            self._gaps.read(model.gap_times, delivered)
        if delivered == self._base:
            self._first.nothing_yet(time.perf_counter(), works=_works(model))
        if self.requests is None:
            return Look(used=delivered > self._base, grown=delivered - self._delivered)
        # A strategy's iterators fetch ahead before anybody asks, and Keras takes one element of each
        # dataset to build the model: it is used once a device has asked twice.
        self._asked = self.requests.read()
        used = self._asked is not None and _root_elements(self._asked) > 1
        return Look(used=used, grown=delivered - self._delivered)

    def attach(self, pipeline: FollowedPipeline) -> None:
        """The pipeline is known; from now on `add_up` may be called."""
        self.pipeline = pipeline
        self.last_dataset = None
        pipeline.join(self)
        pipeline.meter.elements_per_request = self.devices
        if self.without_model:
            return
        self.counters = IteratorCounters(
            pipeline.layout, self._base_flushed if self.before_session else self.flushed_at_start
        )
        if self._base_model is not None:
            self.counters.observe(self._base_model, self._map(self._base_model))
            self.counters.start_here(self._base_model, self._mapping)
            self._base_model = None

    def add_up(self, now_s: float, phase: Phase | None) -> None:
        """Adds what the last `read` found to the pipeline.

        Args:
          now_s: `perf_counter` at about the time of `read`.
          phase: the one that the training is in, or just left.
        """
        assert self.pipeline is not None
        if phase is not None and phase.role != self.role:
            phase = None
        if self.without_model:
            self._add_steps(now_s, phase)
            return
        model, self._model = self._model, None
        if model is None or self.counters is None:
            return
        self.counters.observe(model, self._map(model), now_s, self._flushed)
        self.pipeline.autotune = autotune_of(model) or self.pipeline.autotune
        delivered = max(self._delivered, _root_elements(model))
        if delivered > self._delivered:
            self.pipeline.live_until_s = now_s + _LIVE_S
        self._delivered = delivered
        asked = model if self.requests is None else self._asked
        if asked is None:
            return  # its requests are not known yet
        requested = max(self._requested, _root_elements(asked))
        gaps = self._gaps.read(asked.gap_times, requested)
        if requested > self._requested:
            self._enter(phase)
        if self._join is None:
            return
        self._take_requests(self._join, now_s, gaps, requested)
        if isinstance(self._join, RequestJoin) and not self._join.sees_all:
            # What its clock missed since the last look counts as well.
            self._join = WindowJoin(self.pipeline.meter, self._clocked_s, self._requested)
            self._take_requests(self._join, now_s, gaps, requested)
        self._clocked_s = now_s
        if requested > self._requested:
            self._take_thread()
        self._requested = requested
        self._first.came(now_s, sum(gaps.gaps_s))
        self._say_first(gaps.requests)

    def let_go(self) -> None:
        """Forgets the iterator itself."""
        if self.handle is not None:
            self.handle.detach()
        if self.requests is not None:
            self.requests.detach()
        if self.clock is not None:
            self.clock.stop()

    def _read_alive(self) -> bytes | None:
        assert self.handle is not None
        if self.without_model:
            return None
        try:
            return self.handle.read()
        except iterators.NoModel:
            self.without_model = True
            return None

    def _enter(self, phase: Phase | None) -> None:
        """Sees to it that steps are joined with the phase they happen in."""
        assert self.pipeline is not None
        meter = self.pipeline.meter
        if phase is None:
            if self._join is None:
                self._clocked_s = self._first.idle_s
                self._join = (
                    RequestJoin(meter, self.clock, self._requested)
                    if self.clock is not None
                    else WindowJoin(meter, self._clocked_s, self._requested)
                )
        elif phase is not self._phase:
            self._phase = phase
            began_s = phase.began_s
            if began_s is not None:
                self._first.idle_s = max(self._first.idle_s, began_s)
            if phase.requests_per_step == 1:
                self._join = StepJoin(meter, phase, self._requested)
            else:
                self._join = WindowJoin(meter, began_s or self._first.idle_s, self._requested)
            meter.thread.begin(phase.thread_id, phase.thread_time)

    def _take_requests(
        self, join: StepJoin | WindowJoin | RequestJoin, now_s: float, gaps: Gaps, requested: int
    ) -> None:
        if self.gone and not isinstance(join, StepJoin):
            join.finish(self.ended_s, gaps, requested)
        else:
            join.take(now_s, gaps, requested)

    def _take_thread(self) -> None:
        """Adds what the thread that consumes has used."""
        assert self.pipeline is not None
        assert self._join is not None
        clock = self.clock.thread_id if self.clock is not None else None
        thread_id = self._phase.thread_id if self._phase is not None else clock
        if thread_id is not None:
            self.pipeline.meter.thread.take(thread_id, counts=not self._join.paused)

    def _say_first(self, requests: int) -> None:
        """Tells the pipeline how long the first element took, once that is known as well as it can be.

        Args:
          requests: made so far.
        """
        if self._first_said or self._base > 0:
            return
        join, asked_s, came_s = self._join, self._first.idle_s, self._first.came_s
        if isinstance(join, RequestJoin) and join.first is not None:
            asked_s, came_s = join.first
        elif isinstance(join, StepJoin) and join.first_element_s is not None:
            came_s = join.first_element_s
        elif self.requests is not None:
            return  # a strategy fetches ahead before anybody asks
        elif isinstance(join, StepJoin) and requests < _FEW_REQUESTS and not self.gone and not join.ended:
            return  # the beginning of the second step will tell it exactly
        assert self.pipeline is not None
        assert came_s is not None
        self._first_said = True
        self.pipeline.starts.add(asked_s, came_s)

    def _add_steps(self, now_s: float, phase: Phase | None) -> None:
        """Autotune is off: only Keras's own steps are known."""
        assert self.pipeline is not None
        if phase is None or not phase.steps:
            return
        if phase is not self._phase:
            self._phase = phase
            self._before_phase = self._delivered
            self._join = StepJoin(self.pipeline.meter, phase, 0)
        grown = self._before_phase + phase.steps * phase.requests_per_step - self._delivered
        if grown > 0:
            self.pipeline.live_until_s = now_s + _LIVE_S
        self._delivered += grown
        if isinstance(self._join, StepJoin):
            self._join.advance(now_s)

    def _map(self, model: Any) -> dict[int, int]:
        """Node ids to running operators; again only when nodes have come or gone."""
        assert self.pipeline is not None
        # Ids are counted up, and never given again: where no new one was given and none is gone, all are the same.
        ids = (model.id_counter, len(model.nodes))
        if ids != self._mapped_ids:
            self._mapping = align(self.pipeline.description, model, self._mapping)
            self._mapped_ids = ids
            self.changes += 1
        return self._mapping


def _root_elements(model: Any) -> int:
    return int(model.nodes[model.output].num_elements) if model.output in model.nodes else 0


def _works(model: Any) -> bool:
    return any(node.num_elements for node in model.nodes.values())
