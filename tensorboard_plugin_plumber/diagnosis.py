"""`plumber.diagnose`: runs a dataset on its own for a few seconds and says what binds it."""

from __future__ import annotations

import os
from typing import Any

from tensorboard_plugin_plumber.answers import Answers
from tensorboard_plugin_plumber.capture.alone import run_alone, without_warm_up
from tensorboard_plugin_plumber.capture.files import open_writer
from tensorboard_plugin_plumber.capture.sink import MemorySink, Sink
from tensorboard_plugin_plumber.capture.storage import StorageSink
from tensorboard_plugin_plumber.report import Report
from tensorboard_plugin_plumber.rewrite.rebuild import Refused, copied, has_memory_cache
from tensorboard_plugin_plumber.tracing import checked_rate


def diagnose(ds: Any, *, seconds: float = 5, consumer_rate: float | None = None) -> Report:
    """Runs a dataset with nothing behind it, and analyses what was counted.

    A finite dataset is begun again at its end; the first moments are left out. What runs is a copy of
    the same operators, functions and seeds: the dataset itself shuffles later as if nothing had been
    (unless it has a memory cache, which is filled only once). The loop in which
    this runs is nobody's consumer: whether training waits can only be said with `consumer_rate`.

    Args:
      ds: a `tf.data.Dataset`. Where its autotune is off, a copy with autotune is run.
      seconds: how long to run it.
      consumer_rate: what the consumer could take, steps/s, if known.

    Returns:
      The report; `.text()` is for people, `.to_dict()` is the object that `--json` prints, `.what_if(cores=8)`
      is the report with other limits.

    Raises:
      TypeError, ValueError: an argument makes no sense.
      Empty, NoElement (of `capture.alone`): the dataset gave nothing in this time.
      NotAnswerable (of `model.analyse`): too little was counted.
    """
    sink = MemorySink()
    _run(ds, sink, "diagnose", seconds, consumer_rate)
    answers = Answers(without_warm_up(sink.recording()))
    return Report(answers.to(), answers.to)


def record(ds: Any, log_dir: str | os.PathLike[str], *, seconds: float = 5) -> int:
    """Runs a dataset with nothing behind it, and records it below `log_dir`.

    Args:
      ds, seconds: as for `diagnose`.
      log_dir: as for `trace`.

    Returns:
      How many elements it gave.

    Raises:
      OSError: nothing can be written there.
      TypeError, ValueError, Empty, NoElement: as for `diagnose`.
    """
    return _run(ds, open_writer(log_dir), "trace", seconds, None)


def _run(ds: Any, sink: Sink, kind: str, seconds: float, consumer_rate: float | None) -> int:
    if not hasattr(ds, "element_spec") or not hasattr(ds, "options"):
        raise TypeError(f"ds is a {type(ds).__name__}, not a tf.data.Dataset")
    if not seconds > 0:
        raise ValueError(f"seconds={seconds!r}: must be greater than zero")
    if consumer_rate is not None:
        consumer_rate = checked_rate("consumer_rate", consumer_rate)
    recorded = StorageSink(sink, measure=True)
    return run_alone(_untouched(ds), recorded, kind=kind, seconds=seconds, consumer_rate=consumer_rate)


def _untouched(ds: Any) -> Any:
    """A copy to run in the dataset's place: its shuffles would go on to their next epochs.

    The dataset itself where a cache of it would be filled twice, or where it cannot be made again.
    """
    if has_memory_cache(ds):
        return ds
    try:
        return copied(ds)
    except Refused:
        return ds
