"""Runs a dataset on its own for a while, with nothing behind it that could slow it down."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture import iterators
from tensorboard_plugin_plumber.capture.session import CaptureSession
from tensorboard_plugin_plumber.capture.sink import Sink
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording

# Slow pipelines get up to twice the time for so many elements.
_MIN_ELEMENTS = 3
_EXTENSION = 2.0
# For the element that is being made when the time is over.
_GRACE_S = 5.0
# Enough windows even in a short run.
_SAMPLES = 20
_SHORTEST_INTERVAL_S = 0.25
# How often `enough` is asked.
_BETWEEN_QUESTIONS_S = 0.25
# Share of the samples that belong to the warm-up: first calls, buffers that fill.
_WARM_UP = 0.2
_LEAST_SAMPLES = 5


class Empty(Exception):
    """The dataset has no element."""


class NoElement(Exception):
    """The dataset made no element in the time it was given."""


def run_alone(
    dataset: Any,
    sink: Sink,
    *,
    kind: str,
    seconds: float,
    consumer_rate: float | None = None,
    enough: Callable[[], bool] | None = None,
) -> int:
    """Iterates a dataset from its beginning, again and again, and records it.

    The iteration happens in a thread of its own, so that an element that never comes cannot hold
    the caller for longer than a few times `seconds`.

    Args:
      dataset: a `tf.data.Dataset`; where its autotune is off, a copy with autotune is run, for there
        are no counters without, and that is noted.
      sink: takes the records, and is closed.
      kind: the session's, "trace" or "diagnose".
      seconds: how long.
      consumer_rate: what the user says that the consumer could take, steps/s.
      enough: asked from time to time, in the calling thread; the run ends where it says so.

    Returns:
      How many elements it gave.

    Raises:
      Empty, NoElement: see there.
      Exception: what the dataset itself raises.
    """
    had_autotune = dataset.options().autotune.enabled is not False
    if not had_autotune:
        options = tf.data.Options()
        options.autotune.enabled = True
        dataset = dataset.with_options(options)

    def amend(pipeline: m.Pipeline) -> None:
        pipeline.autotune_enabled = had_autotune

    session = CaptureSession(
        kind=kind,
        sink=sink,
        consumer=m.CONSUMER_NONE,
        consumer_rate=consumer_rate,
        only_own=True,
        interval_s=max(_SHORTEST_INTERVAL_S, min(1.0, seconds / _SAMPLES)),
        amend=amend,
    )
    run = _Run(dataset, session, seconds, enough or _never)
    session.start()
    try:
        return run.go()
    finally:
        session.stop()


def without_warm_up(recording: Recording) -> Recording:
    """The recording of a run alone from where it runs steadily, as far as enough is left."""
    samples = recording.samples
    spare = max(0, min(round(len(samples) * _WARM_UP), len(samples) - _LEAST_SAMPLES))
    return dataclasses.replace(recording, samples=samples[spare:])


def _never() -> bool:
    return False


class _Run:
    """The iteration, in a daemon thread."""

    def __init__(
        self, dataset: Any, session: CaptureSession, seconds: float, enough: Callable[[], bool]
    ) -> None:
        self._dataset = dataset
        self._session = session
        self._seconds = seconds
        self._enough = enough
        self._stop = threading.Event()
        self._done = threading.Event()
        self._elements = 0
        self._error: BaseException | None = None

    def go(self) -> int:
        """Returns the number of elements when the time is over."""
        threading.Thread(target=self._work, name="plumber-run", daemon=True).start()
        began_s = time.perf_counter()
        try:
            while not self._done.wait(
                min(_BETWEEN_QUESTIONS_S, max(0.0, began_s + self._seconds - time.perf_counter()))
            ):
                if time.perf_counter() - began_s >= self._seconds or self._enough():
                    break
            while (
                not self._done.is_set()
                and self._elements < _MIN_ELEMENTS
                and time.perf_counter() - began_s < _EXTENSION * self._seconds
            ):
                self._done.wait(self._seconds / 10)
        finally:
            self._stop.set()
        self._done.wait(max(_GRACE_S, self._seconds))
        if self._error is not None:
            raise self._error
        if self._elements == 0:
            raise NoElement(
                f"the dataset made no element in {time.perf_counter() - began_s:.0f} s; give it longer"
            )
        return self._elements

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                before = self._elements
                self._iterate()
                if self._elements == before and not self._stop.is_set():
                    raise Empty("the dataset has no element")
        except Exception as error:
            self._error = error
        finally:
            # TensorFlow hangs at the interpreter's end where a Python pipeline is still held.
            del self._dataset
            self._done.set()

    def _iterate(self) -> None:
        with iterators.seen_only_by(self._session):
            iterator = iter(self._dataset)
        for _ in iterator:
            self._elements += 1
            if self._stop.is_set():
                break
