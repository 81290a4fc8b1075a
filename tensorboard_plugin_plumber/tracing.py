"""`plumber.trace`: records every dataset that is iterated inside a `with` block."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Iterator
from numbers import Real

from tensorboard_plugin_plumber.capture import guard
from tensorboard_plugin_plumber.capture.files import open_writer
from tensorboard_plugin_plumber.capture.session import CaptureSession
from tensorboard_plugin_plumber.capture.sink import LazySink
from tensorboard_plugin_plumber.capture.storage import StorageSink
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_logger = logging.getLogger("tensorboard_plugin_plumber")

SYNCHRONOUS = "synchronous"


@contextlib.contextmanager
def trace(log_dir: str | os.PathLike[str], *, consumer: str | float | None = None) -> Iterator[None]:
    """Records the tf.data pipelines of any loop, for TensorBoard and `plumber report`.

    What goes wrong in recording is one warning; the block runs on.

    Args:
      log_dir: the run's log directory, as TensorBoard's `--logdir` or below it.
      consumer: "synchronous" if the loop's own work is done when it asks for the next element, so
        that the time between requests is its own; or the rate that it could take, steps/s. By
        default nothing is assumed: from outside nobody can see whether a device is still busy.

    Raises:
      TypeError, ValueError: `consumer` is neither.
    """
    relation, rate = _parse_consumer(consumer)
    session = None
    with guard.protect("begin to record"):
        session = CaptureSession(
            kind="trace",
            sink=StorageSink(LazySink(functools.partial(open_writer, log_dir))),
            consumer=relation,
            consumer_rate=rate,
            adopt=True,
        )
        session.start()
    try:
        yield
    finally:
        if session is not None:
            session.stop()
    if session is not None and session.saw_nothing:
        _logger.warning(
            "Plumber saw no dataset iterated in this block, and recorded none. Of a tf.function it sees the "
            "datasets that are made outside of it, in functions that are called for the first time in this "
            "block, or that get their dataset as an argument."
        )


def _parse_consumer(consumer: str | float | None) -> tuple[m.Consumer.ValueType, float | None]:
    if consumer is None:
        return m.CONSUMER_UNKNOWN, None
    if consumer == SYNCHRONOUS:
        return m.CONSUMER_SYNCHRONOUS, None
    if isinstance(consumer, str):
        raise ValueError(f'consumer={consumer!r}: say "{SYNCHRONOUS}", or a rate in steps/s')
    return m.CONSUMER_UNKNOWN, checked_rate("consumer", consumer)


def checked_rate(name: str, rate: float) -> float:
    """The rate as a float.

    Args:
      name: the argument's, for the message.
      rate: steps/s, greater than zero and finite.

    Raises:
      TypeError, ValueError: it is not.
    """
    if not isinstance(rate, Real) or isinstance(rate, bool):
        raise TypeError(f"{name}={rate!r}: a rate in steps/s is a number")
    if not 0 < rate < float("inf"):
        raise ValueError(f"{name}={rate!r}: a rate in steps/s is greater than zero")
    return float(rate)
