"""One session of capture: follows iterators, adds up their counters, and hands records to a sink.

Three kinds of threads meet here. Threads that make and drop iterators only append to a queue; the
training thread marks phases, and at their ends takes a look; the poller does the rest. One lock
guards the sums; what the garbage collector may call at any moment never takes it.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from tensorboard_plugin_plumber.capture import (
    guard,
    hidden,
    iterators,
    keras_inputs,
    overhead,
    request_clock,
    sources,
    threads,
)
from tensorboard_plugin_plumber.capture.boundary import Pass
from tensorboard_plugin_plumber.capture.consumer import Phase, StepClock
from tensorboard_plugin_plumber.capture.flushed import flushed
from tensorboard_plugin_plumber.capture.following import FollowedIterator, Requests
from tensorboard_plugin_plumber.capture.looks import Looks
from tensorboard_plugin_plumber.capture.poller import Poller
from tensorboard_plugin_plumber.capture.recorder import Recorder
from tensorboard_plugin_plumber.capture.registry import PipelineRegistry, PipelineSettings
from tensorboard_plugin_plumber.capture.sink import Sink
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_FIRST_INTERVAL_S = 1.0
# A log directory that hangs must not keep training from ending.
_PATIENCE_S = 10.0
# For iterators that other threads are just dropping.
_ENDS_S = 0.5
# Probes of the interpreter lock at each look; likewise, and the time between looks, where nobody trains meanwhile.
_LOCK_PROBES = 2
_LOCK_PROBES_ALONE = 5
_LOCK_PERIOD_ALONE_S = 0.05


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
        self._adopt = adopt
        self._only_own = only_own
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._registry = PipelineRegistry(PipelineSettings(kind, consumer, consumer_rate, amend))
        self._looks = Looks(kind, self._registry)
        self._recorder = Recorder(kind, sink, interval_s)
        self._phase: Phase | None = None
        self._lock_probes = _LOCK_PROBES_ALONE if consumer == m.CONSUMER_NONE else _LOCK_PROBES
        self._poller = Poller(self._tick, self.fail)
        self._quiet = False
        self._stopped = False
        self._at_exit: Callable[[], None] | None = None
        self._stop_listening: Callable[[], None] | None = None
        # Iterators of a strategy's devices that this thread has made for the boundary to come.
        self._on_devices = _OnDevices()

    # Called by the user's threads.

    def start(self) -> None:
        """Begins to follow iterators.

        Raises:
          Exception: whatever keeps it from beginning; the caller protects training from it.
        """
        self._recorder.begin()
        # TensorFlow registered its own exit handlers first: ours runs before them.
        self._at_exit = _stopper(weakref.ref(self))
        atexit.register(self._at_exit)
        if self._only_own:
            iterators.install()
        else:
            iterators.add_observer(self, adopt=self._adopt)
            self._stop_listening = hidden.listen(self._pass_began)
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
            self._looks.let_go()
            return
        with guard.protect("finish recording"):
            self._looks.await_ends(_ENDS_S)
            with self._lock:
                if not self._quiet:
                    self._mark_phase_end()
                    self._looks.take(self._phase)
            self._look_up_files()
            with self._lock:
                if not self._quiet:
                    self._write(last=True, final=final)
            self._recorder.send()
        self._close()

    @property
    def saw_nothing(self) -> bool:
        """After `stop`: it followed no pipeline, and nothing went wrong."""
        return not self._quiet and not self._registry.pipelines

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
                self._looks.take(phase)
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
                # Nobody else tells when the steps of a user's own loop begin.
                clock=request_clock.attach(made.iterator) if self._kind == "trace" else None,
                # Known from its options: asking for a model that is not there has TensorFlow log a line.
                without_model=_autotune_is_off(made.dataset),
                made_in=self._phase,
            ),
            made.dataset,
            made.iterator,
        )

    def _pass_began(self, one: Pass) -> None:
        """Called in the thread that made a strategy's iterators, or in one of TensorFlow's for graphs."""
        on_devices = [it for ref in self._on_devices.iterators if (it := ref()) is not None]
        self._on_devices.iterators.clear()
        if self._is_idle():
            return
        followed = FollowedIterator(
            # Keras's own loop never iterates like that.
            self._role() if one.iterated_by == "strategy" or self._kind != "fit" else "trace",
            weakref.ref(one.source),
            one.thread_ids,
            requests=Requests(on_devices[0]) if on_devices else None,
            devices=max(1, len(on_devices)),
            through_boundary=one.iterated_by == "strategy",
            iterated_by=one.iterated_by,
            whole=one.whole,
            without_model=_autotune_is_off(one.source),
        )
        self._follow(followed, one.source, one)

    def _follow(self, followed: FollowedIterator, dataset: Any, iterator: Any) -> None:
        """Follows one more iterator.

        Args:
          followed: with nothing known yet.
          dataset: held by the handle's callback, and so exactly as long as the iterator holds it.
          iterator: what has the iterator's resource.
        """

        def at_end(content: bytes | None) -> None:
            followed.last_content = content
            followed.flushed_at_end = flushed()
            followed.last_times = threads.times_of(followed.thread_ids)
            if followed.pipeline is None:
                followed.last_dataset = dataset
            followed.ended_s = time.perf_counter()
            followed.gone = True

        followed.handle = iterators.Handle(iterator, at_end, has_model=not followed.without_model)
        if followed.before_session:
            followed.read()  # where it stands now is where its counting begins
        self._looks.follow(followed)
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
            self._looks.take(self._phase)
            now_s = time.perf_counter()
            sample_due = self._recorder.is_due(now_s)
            # The first window begins behind the very first elements.
            if sample_due or (self._registry.pipelines and not self._recorder.has_samples):
                self._write()
        self._recorder.send()
        self._look_up_files()
        if sample_due:
            self._calibrate()
        period_s = self._recorder.fitting(self._looks.period_s(now_s, self._poller.cpu_s))
        with guard.protect("probe the interpreter lock"):
            probed = self._recorder.probe_lock(self._registry.pipelines, self._lock_probes)
            if probed and self._lock_probes == _LOCK_PROBES_ALONE:
                period_s = min(period_s, _LOCK_PERIOD_ALONE_S)
        return period_s

    def _look_up_files(self) -> None:
        """Asks, once per pipeline, for the sizes of its files; without the lock, for it takes a while."""
        for pipeline in self._registry.without_files():
            files = sources.sources_of(pipeline.description.readings)
            with self._lock:
                self._registry.found_files(pipeline, files)

    def _calibrate(self) -> None:
        """Measures, once per process, what calls cost; without the lock, for it takes a while."""
        wanted = self._registry.uncalibrated()
        if not wanted:
            return
        with guard.protect("calibrate the cost of calls"):
            overhead.calibrate([p.message for p in wanted])
        with self._lock:
            self._registry.calibrated(wanted)

    def _write(self, *, last: bool = False, final: bool = False) -> None:
        """Makes a sample ready to be sent, after the graph if that has changed."""
        pipelines = self._registry.pipelines
        if not pipelines:
            return
        if self._registry.changed:
            self._recorder.make_graph(pipelines)
            self._registry.changed = False
        self._recorder.make_sample(pipelines, poller_cpu_s=self._poller.cpu_s, last=last, final=final)

    def _role(self) -> str:
        """Role of what is iterated now."""
        if self._kind != "fit":
            return self._kind
        if self._phase is not None:
            return self._phase.role
        return "train" if keras_inputs.makes_an_epoch() else "trace"

    def _mark_phase_end(self) -> None:
        if self._phase is not None:
            self._phase.end(time.perf_counter())

    def _stop_observing(self) -> None:
        iterators.remove_observer(self)
        if self._stop_listening is not None:
            self._stop_listening()

    def _close(self) -> None:
        self._looks.let_go()
        self._recorder.close()

    def _is_idle(self) -> bool:
        return self._quiet or self._stopped or self._is_other_process()

    def _is_other_process(self) -> bool:
        """Whether this is a fork of the process that records: it has no poller, and must not write."""
        return os.getpid() != self._process_id


def _autotune_is_off(dataset: Any) -> bool:
    """Whether the options say so; by what Python keeps of them: `options()` asks an operator, for 0.2 ms."""
    options = getattr(dataset, "_options_attr", None) or dataset.options()
    return options.autotune.enabled is False


class _OnDevices(threading.local):
    def __init__(self) -> None:
        self.iterators: list[weakref.ref[Any]] = []


def _stopper(session: weakref.ref[CaptureSession]) -> Callable[[], None]:
    def stop() -> None:
        alive = session()
        if alive is not None:
            alive.stop(final=False)

    return stop
