"""`plumber.PlumberCallback`: records the input pipelines of Keras's fit, evaluate and predict."""

from __future__ import annotations

import functools
import os
import weakref
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture import device, guard
from tensorboard_plugin_plumber.capture.files import open_writer
from tensorboard_plugin_plumber.capture.session import CaptureSession
from tensorboard_plugin_plumber.capture.sink import LazySink
from tensorboard_plugin_plumber.capture.storage import StorageSink
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.tracing import checked_rate

# Of so many steps one is synchronised with the device, begin to end.
_STEPS_PER_SYNCHRONISED = 50


class PlumberCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Records the tf.data pipelines of `fit`, for TensorBoard and `plumber report`.

        model.fit(dataset, callbacks=[plumber.PlumberCallback("logs/run1")])

    Training and validation are told apart, epochs are put together. What goes wrong in recording
    is one warning; training goes on.

    Args:
      log_dir: the run's log directory, as TensorBoard's `--logdir` or below it.
      consumer_rate: what the model could take if it never waited, steps/s, if known.

    Raises:
      TypeError, ValueError: an argument makes no sense.
    """

    # Without this, Keras would fetch the logs from the device at each step for our sake.
    async_safe = True
    # The same for Keras 2 (tf-keras), which also asks each callback whether it wants to hear of batches. Asked here,
    # because its models take this class whichever Keras it was derived from.
    _supports_tf_logs = True

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return True

    def _implements_predict_batch_hooks(self) -> bool:
        return True

    def __init__(self, log_dir: str | os.PathLike[str], *, consumer_rate: float | None = None) -> None:
        super().__init__()
        self._log_dir = os.fspath(log_dir)
        self._consumer_rate = None if consumer_rate is None else checked_rate("consumer_rate", consumer_rate)
        self._session: CaptureSession | None = None
        # The hook that began the session, and will end it: "train", "test" or "predict".
        self._owner = ""
        self._synchronise: device.Synchronise | None = None
        self._until_synchronised = 0
        self._when_dropped: weakref.finalize[..., PlumberCallback] | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins a session; one that an interrupted fit left open ends first."""
        self._stop("", final=False)
        self._start("train")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Steps of training follow."""
        self._begin_phase("train")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """A step begins."""
        session = self._session
        if session is None:
            return
        if self._synchronise is not None:
            self._synchronise_some(session)
        session.clock.begin()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """No step of training follows for now."""
        self._end_phase()

    def on_train_end(self, logs: Any = None) -> None:
        """Ends the session."""
        self._stop("train")

    def on_test_begin(self, logs: Any = None) -> None:
        """Steps of validation follow, within fit or alone."""
        self._start("test")
        self._begin_phase("validation")

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        """A step of validation begins."""
        if self._session is not None:
            self._session.clock.begin()

    def on_test_end(self, logs: Any = None) -> None:
        """Validation is over."""
        self._end_phase()
        self._stop("test")

    def on_predict_begin(self, logs: Any = None) -> None:
        """Steps of prediction follow."""
        self._start("predict")
        self._begin_phase("predict")

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        """A step of prediction begins."""
        if self._session is not None:
            self._session.clock.begin()

    def on_predict_end(self, logs: Any = None) -> None:
        """Prediction is over."""
        self._end_phase()
        self._stop("predict")

    def _start(self, owner: str) -> None:
        if self._session is not None:
            return
        with guard.protect("begin to record"):
            asynchronous = device.is_asynchronous(self.model)
            session = CaptureSession(
                kind="fit",
                sink=StorageSink(LazySink(functools.partial(open_writer, self._log_dir))),
                consumer=m.CONSUMER_ASYNCHRONOUS if asynchronous else m.CONSUMER_SYNCHRONOUS,
                consumer_rate=self._consumer_rate,
            )
            try:
                session.start()
            except Exception:
                session.stop(final=False)
                raise
            self._synchronise = device.synchronise() if asynchronous else None
            self._until_synchronised = _STEPS_PER_SYNCHRONISED
            self._session, self._owner = session, owner
            # A fit that was interrupted never says that it ended; dropping the callback does.
            self._when_dropped = weakref.finalize(self, session.stop, final=False)
            self._when_dropped.atexit = False

    def _stop(self, owner: str, *, final: bool = True) -> None:
        """Ends the session if `owner` began it; "" ends any."""
        session = self._session
        if session is None or owner not in ("", self._owner):
            return
        self._session = None
        if self._when_dropped is not None:
            self._when_dropped.detach()  # it holds the session
            self._when_dropped = None
        with guard.protect("end recording"):
            session.end_phase()
            session.stop(final=final)

    def _begin_phase(self, role: str) -> None:
        if self._session is not None:
            with guard.protect("follow an epoch"):
                self._session.begin_phase(role, requests_per_step=_steps_per_execution(self.model))

    def _end_phase(self) -> None:
        if self._session is not None:
            with guard.protect("follow an epoch"):
                self._session.end_phase()

    def _synchronise_some(self, session: CaptureSession) -> None:
        """Waits for the device before one step in fifty, and again after it."""
        self._until_synchronised -= 1
        if self._until_synchronised > 0:
            return
        with guard.protect("synchronise with the device"):
            assert self._synchronise is not None
            self._synchronise()
            if self._until_synchronised == 0:
                return
            # The step before this one ran from an idle device to an idle device.
            session.clock.synchronised.append(session.clock.count - 1)
            self._until_synchronised = _STEPS_PER_SYNCHRONISED
            return
        self._synchronise = None


def _steps_per_execution(model: Any) -> int:
    steps = getattr(model, "steps_per_execution", 1)
    try:
        return max(1, int(steps))
    except (TypeError, ValueError):
        return 1
