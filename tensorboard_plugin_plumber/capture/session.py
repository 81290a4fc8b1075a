"""One session of capture: follows iterators, adds up their counters, and hands records to a sink.

Three kinds of threads meet here. Threads that make and drop iterators only append to a queue; the
training thread marks phases, and at their ends takes a look; the poller does the rest. One lock
guards the sums; what the garbage collector may call at any moment never takes it.
"""

from __future__ import annotations

import atexit
import collections
import os
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from tensorboard_plugin_plumber._version import __version__
from tensorboard_plugin_plumber.capture import guard, host, iterators, overhead, threads
from tensorboard_plugin_plumber.capture.boundary import Boundary, install_boundary
from tensorboard_plugin_plumber.capture.consumer import Phase, StepClock
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.capture.following import FollowedIterator, FollowedPipeline, Requests
from tensorboard_plugin_plumber.capture.poller import Pace, Poller
from tensorboard_plugin_plumber.events import layout
from tensorboard_plugin_plumber.events.metadata import FORMAT_VERSION
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording

_FIRST_INTERVAL_S = 1.0
# The interval doubles every so many samples: a week of them stays small.
_SAMPLES_PER_INTERVAL = 1000
# A program that builds new pipelines again and again would grow the graph without end.
_MAX_PIPELINES = 32
# CPU that describing new datasets may take: so much at once, and then this share of the time. A loop that makes
# a new dataset for every step gets only some of them described.
_DESCRIBING_S = 1.0
_DESCRIBING_SHARE = 0.01
# A log directory that hangs must not keep training from ending.
_PATIENCE_S = 10.0


class Sink(Protocol):
    """Takes records, from one thread at a time."""

    def write_graph(self, record: m.GraphRecord) -> None: ...
    def write_sample(self, record: m.SampleRecord) -> None: ...
    def close(self) -> None: ...


class MemorySink:
    """Keeps records in memory."""

    def __init__(self) -> None:
        self.graphs: list[m.GraphRecord] = []
        self.samples: list[m.SampleRecord] = []

    def write_graph(self, record: m.GraphRecord) -> None:
        """Keeps a graph record."""
        self.graphs.append(record)

    def write_sample(self, record: m.SampleRecord) -> None:
        """Keeps a sample record."""
        self.samples.append(record)

    def close(self) -> None:
        """There is nothing to close."""

    def recording(self) -> Recording:
        """What was recorded so far."""
        return Recording(
            run=".",
            host=f"{layout.host_name()}-{layout.worker_index()}",
            graph=self.graphs[-1] if self.graphs else m.GraphRecord(format_version=FORMAT_VERSION),
            samples=tuple(self.samples),
        )


class CaptureSession:
    """Follows the iterators of this process from `start` to `stop`.

    Args:
      kind: "fit", "trace" or "diagnose".
      sink: takes the records; closed by `stop`.
      consumer: how the consumer relates to its requests.
      consumer_rate: what the user says that the consumer could take, steps/s.
      adopt: also follow iterators that were made before `start`.
      only_own: follow only iterators that are made inside `iterators.seen_only_by(session)`.
      interval_s: time between the first samples, seconds.
      amend: changes what is written of a pipeline, once, when it is found.
    """

    def __init__(
        self,
        *,
        kind: str,
        sink: Sink,
        consumer: m.Consumer.ValueType,
        consumer_rate: float | None = None,
        adopt: bool = False,
        only_own: bool = False,
        interval_s: float = _FIRST_INTERVAL_S,
        amend: Callable[[m.Pipeline], None] | None = None,
    ) -> None:
        self.clock = StepClock()
        self._kind = kind
        self._sink = sink
        self._consumer = consumer
        self._consumer_rate = consumer_rate
        self._adopt = adopt
        self._only_own = only_own
        self._interval_s = interval_s
        self._amend = amend
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._made: collections.deque[FollowedIterator] = collections.deque()
        self._followed: list[FollowedIterator] = []
        self._pipelines: list[FollowedPipeline] = []
        self._phase: Phase | None = None
        self._outgoing: collections.deque[m.GraphRecord | m.SampleRecord] = collections.deque()
        self._graph_changed = False
        self._graph_sequence = 0
        self._sample_sequence = 0
        self._next_sample_s = 0.0
        self._pace = Pace()
        # Of the present look, which must not slow the pace, and of all so far.
        self._describing_cpu_s = 0.0
        self._described_cpu_s = 0.0
        self._poller = Poller(self._tick, self.fail)
        self._sampler = host.HostSampler()
        self._quiet = False
        self._stopped = False
        self._started_s = 0.0
        self._session = m.Session()
        self._host = m.Host()
        self._at_exit: Callable[[], None] | None = None
        self._uninstall_boundary: Callable[[], None] | None = None
        # Iterators of a strategy's devices that this thread has made for the boundary to come.
        self._on_devices = _OnDevices()

    # Called by the user's threads.

    def start(self) -> None:
        """Begins to follow iterators.

        Raises:
          Exception: whatever keeps it from beginning; the caller protects training from it.
        """
        self._started_s = time.perf_counter()
        self._session = m.Session(
            id=uuid.uuid4().hex,
            kind=self._kind,
            start_time_s=time.time(),
            plumber_version=__version__,
            tensorflow_version=tf.__version__,
            program=os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "",
        )
        self._host = host.describe_host(_accelerators())
        self._next_sample_s = self._started_s + self._interval_s
        # TensorFlow registered its own exit handlers first: ours runs before them.
        self._at_exit = _stopper(weakref.ref(self))
        atexit.register(self._at_exit)
        if self._only_own:
            iterators.install()
        else:
            iterators.add_observer(self, adopt=self._adopt)
            self._uninstall_boundary = install_boundary(self._boundary_opened)
        self._poller.start()

    def stop(self, *, final: bool = True) -> None:
        """Takes a last look, writes the last sample and closes the sink; harmless when called again.

        Args:
          final: training ended in order.
        """
        if self._stopped:
            return
        self._stopped = True
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)
        self._stop_observing()
        if self._is_other_process():
            return
        if not self._poller.stop(_PATIENCE_S):
            guard.warn("finish recording", TimeoutError("the log directory does not answer"))
            self._let_go()
            return
        with guard.protect("finish recording"):
            with self._lock:
                if not self._quiet:
                    self._mark_phase_end()
                    self._look()
                    self._write(final=final)
            self._send()
        self._close()

    @property
    def saw_nothing(self) -> bool:
        """After `stop`: it followed no pipeline, and nothing went wrong."""
        return not self._quiet and not self._pipelines

    def begin_phase(self, role: str, *, requests_per_step: int = 1) -> None:
        """Steps of one role follow: those of an epoch, or of an evaluation.

        Args:
          role: "train", "validation" or "predict".
          requests_per_step: elements that each step takes.
        """
        self.end_phase()
        self._phase = Phase(role, self.clock, self.clock.count, requests_per_step)

    def end_phase(self) -> None:
        """No step follows for now: what was counted so far belongs to the phase that ends."""
        phase = self._phase
        if phase is None:
            return
        self._mark_phase_end()
        if phase.steps and not self._is_idle():
            with guard.protect("look at the end of an epoch"), self._lock:
                self._look()
        self._phase = None

    def iterator_made(self, made: iterators.Made) -> None:
        """Called in the thread that made an iterator."""
        if self._is_idle():
            return
        if made.on_device:
            # Its pipeline is hidden; a boundary follows, unless one could not be made.
            self._on_devices.iterators.append(weakref.ref(made.iterator))
            return
        self._follow(
            FollowedIterator(
                self._role(),
                weakref.ref(made.dataset),
                made.thread_ids,
                made.before_session,
                # Known from its options: asking for a model that is not there has TensorFlow log a line.
                without_model=made.dataset.options().autotune.enabled is False,
                made_in=self._phase,
            ),
            made.dataset,
            made.iterator,
        )

    def _boundary_opened(self, dataset: Any, boundary: Boundary) -> None:
        """Called in the thread that made the iterators of a strategy's devices."""
        on_devices = [it for ref in self._on_devices.iterators if (it := ref()) is not None]
        self._on_devices.iterators.clear()
        if self._is_idle():
            return
        followed = FollowedIterator(
            self._role(),
            weakref.ref(boundary.source),
            thread_ids=frozenset(),
            requests=Requests(on_devices[0]) if on_devices else None,
            devices=max(1, len(on_devices)),
            through_boundary=True,
        )
        self._follow(followed, boundary.source, boundary)

    def _follow(self, followed: FollowedIterator, dataset: Any, iterator: Any) -> None:
        """Follows one more iterator.

        Args:
          followed: with nothing known yet.
          dataset: held by the handle's callback, and so exactly as long as the iterator holds it.
          iterator: what has the iterator's resource.
        """

        def at_end(content: bytes | None) -> None:
            followed.last_content = content
            followed.last_times = threads.times_of(followed.thread_ids)
            if followed.pipeline is None:
                followed.last_dataset = dataset
            followed.ended_s = time.perf_counter()
            followed.gone = True

        followed.handle = iterators.Handle(iterator, at_end, has_model=not followed.without_model)
        if followed.before_session:
            followed.read()  # where it stands now is where its counting begins
        self._made.append(followed)
        self._poller.wake()

    def fail(self, error: BaseException) -> None:
        """Something went wrong: one warning, and the session goes quiet."""
        if self._quiet:
            return
        self._quiet = True
        guard.warn("go on recording", error)
        self._stop_observing()
        self._close()

    # Called by the poller, or with the lock held.

    def _tick(self) -> float:
        """One look; returns the seconds until the next, negative for no more."""
        if self._is_idle():
            return -1.0
        with self._lock:
            if self._is_idle():
                return -1.0
            self._look()
            now_s = time.perf_counter()
            sample_due = now_s >= self._next_sample_s
            if sample_due:
                interval_s = self._interval_s * 2 ** (self._sample_sequence // _SAMPLES_PER_INTERVAL)
                self._next_sample_s = max(self._next_sample_s + interval_s, now_s + interval_s / 2)
                self._write(final=False)
            elif self._sample_sequence == 0 and self._pipelines:
                self._write(final=False)  # the first window begins behind the very first elements
        self._send()
        if sample_due:
            self._calibrate()
        return self._pace.period_s(now_s)

    def _look(self) -> None:
        began_cpu_s = time.thread_time()
        self._describing_cpu_s = 0.0
        while self._made:
            made = self._made.popleft()
            known = any(p.dataset() is made.dataset() for p in self._pipelines)
            self._pace.begin(time.perf_counter(), again=known)
            self._followed.append(made)
        grown, changes = 0, 0
        for iterator in list(self._followed):
            gone = iterator.gone  # read first: what is set later is for the next look
            before = iterator.changes
            grown = max(grown, self._look_at(iterator))
            changes += iterator.changes - before
            if gone:
                self._followed.remove(iterator)
                if iterator.pipeline is not None:
                    iterator.pipeline.leave(iterator)
        now_s = time.perf_counter()
        self._pace.looked(
            now_s,
            steps=grown,
            new_children=changes > 0,
            cost_s=time.thread_time() - began_cpu_s - self._describing_cpu_s,
        )

    def _look_at(self, iterator: FollowedIterator) -> int:
        """Looks at one iterator; returns how many elements it delivered since the last look."""
        if iterator.ignored:
            return 0
        look = iterator.read()
        if iterator.without_model and not self._counts_steps(iterator):
            return 0
        now_s = time.perf_counter()
        if iterator.pipeline is None:
            if not look.used:
                return 0
            self._assign(iterator)
            if iterator.pipeline is None:
                return 0
        iterator.add_up(now_s, self._phase)
        return look.grown

    def _counts_steps(self, iterator: FollowedIterator) -> bool:
        """Whether an iterator without counters is the one that Keras takes this phase's steps from.

        That is the first that was made in the phase (at its end Keras makes one more, which it will
        not use), else, with an endless dataset, the last one made before.
        """
        phase = self._phase
        if self._kind != "fit" or phase is None or phase.role != iterator.role:
            return self._kind != "fit"
        if phase.steps == 0:
            return False
        if phase.counted_by is None:
            candidates = [f for f in self._followed if f.without_model and f.role == phase.role]
            made_in_it = [f for f in candidates if f.made_in is phase]
            phase.counted_by = made_in_it[0] if made_in_it else candidates[-1]
        return phase.counted_by is iterator

    def _assign(self, iterator: FollowedIterator) -> None:
        """Finds the pipeline of an iterator, or describes it; ignores it where that fails."""
        dataset = iterator.dataset() or iterator.last_dataset
        if dataset is None:
            iterator.ignored = True
            return
        for pipeline in self._pipelines:
            if pipeline.dataset() is dataset and pipeline.message.role == iterator.role:
                iterator.attach(pipeline)
                return
        elapsed_s = time.perf_counter() - self._started_s
        if self._described_cpu_s > _DESCRIBING_S + _DESCRIBING_SHARE * elapsed_s:
            guard.warn(
                "follow every dataset", RuntimeError("new ones come faster than they can be described")
            )
            iterator.ignored = True
            return
        began_cpu_s = time.thread_time()
        try:
            found = self._describe(dataset, iterator)
        except Exception as error:
            guard.warn("describe a pipeline", error)
            found = None
        cost_s = time.thread_time() - began_cpu_s
        self._describing_cpu_s += cost_s
        self._described_cpu_s += cost_s
        if found is None:
            iterator.ignored = True
        else:
            iterator.attach(found)

    def _describe(self, dataset: Any, iterator: FollowedIterator) -> FollowedPipeline | None:
        """A new pipeline, or the one that an equal dataset had that is gone; None if there are too many."""
        description = describe(dataset, role=iterator.role)
        same = [p for p in self._pipelines if p.description.pipeline.id == description.pipeline.id]
        for pipeline in same:
            # Strategies build an equal dataset for each of their iterators.
            if pipeline.dataset() is None or iterator.through_boundary:
                pipeline.dataset = iterator.dataset
                return pipeline
        if len(self._pipelines) >= _MAX_PIPELINES:
            guard.warn(
                "follow more pipelines", RuntimeError(f"{_MAX_PIPELINES} are followed in this session")
            )
            return None
        pipeline = FollowedPipeline(len(self._pipelines), description, iterator.dataset)
        message = pipeline.message
        if same:  # built by the same lines, and alive at the same time
            message.id = f"{message.id}-{len(same) + 1}"
            message.label = f"{message.label} ({len(same) + 1})"
        message.consumer = self._consumer
        if self._kind == "fit" and iterator.role == "trace":
            message.consumer = m.CONSUMER_UNKNOWN  # not Keras's own loop
        if self._consumer_rate is not None:
            message.consumer_rate = self._consumer_rate
        message.has_counters = not iterator.without_model
        message.through_boundary = iterator.through_boundary
        if iterator.thread_ids and not message.threadpool_size:
            message.threadpool_size = len(iterator.thread_ids)
        if self._amend is not None:
            self._amend(message)
        overhead.fill(message)
        self._pipelines.append(pipeline)
        self._graph_changed = True
        return pipeline

    def _calibrate(self) -> None:
        """Measures, once per process, what calls cost; without the lock, for it takes a while."""
        wanted = [p for p in self._pipelines if overhead.is_missing(p.message) and p.calls_matter()]
        if not wanted:
            return
        with guard.protect("calibrate the cost of calls"):
            overhead.calibrate([p.message for p in wanted])
        with self._lock:
            for pipeline in wanted:
                overhead.fill(pipeline.message)
            self._graph_changed = True

    def _write(self, *, final: bool) -> None:
        """Makes a sample ready to be sent, after the graph if that has changed."""
        if not self._pipelines:
            return
        for pipeline in self._pipelines:
            # With each sample, so that the pool's time and the counters are of the same moment.
            pipeline.pool.update()
        now_s = time.perf_counter()
        if self._graph_changed:
            self._outgoing.append(
                m.GraphRecord(
                    format_version=FORMAT_VERSION,
                    session=self._session,
                    host=self._host,
                    pipelines=[p.message for p in self._pipelines],
                    sequence=self._graph_sequence,
                )
            )
            self._graph_changed = False
            self._graph_sequence += 1
        if self._sample_sequence == 0 and final:
            # It was over before the first look: the beginning, at which nothing was counted yet, makes
            # the second sample that a difference needs.
            self._write_sample(m.SampleRecord(wall_time_s=self._session.start_time_s))
        self._write_sample(
            m.SampleRecord(
                wall_time_s=time.time(),
                elapsed_s=now_s - self._started_s,
                host=self._sampler.sample(self._poller.cpu_s),
                pipelines=[p.sample(now_s) for p in self._pipelines],
                final=final,
            )
        )

    def _write_sample(self, sample: m.SampleRecord) -> None:
        sample.format_version = FORMAT_VERSION
        sample.session_id = self._session.id
        sample.sequence = self._sample_sequence
        self._sample_sequence += 1
        self._outgoing.append(sample)

    def _send(self) -> None:
        """Hands to the sink what is ready; without the lock, for disks and networks may take long."""
        while self._outgoing:
            record = self._outgoing.popleft()
            if isinstance(record, m.GraphRecord):
                self._sink.write_graph(record)
            else:
                self._sink.write_sample(record)

    def _role(self) -> str:
        """Role of what is iterated now."""
        if self._kind != "fit":
            return self._kind
        return self._phase.role if self._phase is not None else "trace"

    def _mark_phase_end(self) -> None:
        if self._phase is not None:
            self._phase.end(time.perf_counter())

    def _stop_observing(self) -> None:
        iterators.remove_observer(self)
        if self._uninstall_boundary is not None:
            self._uninstall_boundary()

    def _close(self) -> None:
        self._let_go()
        with guard.protect("close the event file"):
            self._sink.close()

    def _let_go(self) -> None:
        for iterator in [*self._followed, *self._made]:
            if iterator.handle is not None:
                iterator.handle.detach()
            if iterator.requests is not None:
                iterator.requests.detach()

    def _is_idle(self) -> bool:
        return self._quiet or self._stopped or self._is_other_process()

    def _is_other_process(self) -> bool:
        """Whether this is a fork of the process that records: it has no poller, and must not write."""
        return os.getpid() != self._process_id


class _OnDevices(threading.local):
    def __init__(self) -> None:
        self.iterators: list[weakref.ref[Any]] = []


def _stopper(session: weakref.ref[CaptureSession]) -> Callable[[], None]:
    def stop() -> None:
        alive = session()
        if alive is not None:
            alive.stop(final=False)

    return stop


def _accelerators() -> list[str]:
    """Names like "GPU:0". Physical devices: listing logical ones would initialise them."""
    with guard.protect("list accelerators"):
        return [
            device.name.removeprefix("/physical_device:")
            for device in tf.config.list_physical_devices()
            if device.device_type != "CPU"
        ]
    return []
