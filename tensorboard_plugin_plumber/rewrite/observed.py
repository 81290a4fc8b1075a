"""A dataset traced on its own until its times are known closely enough, and no longer."""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np

from tensorboard_plugin_plumber.capture.alone import run_alone, without_warm_up
from tensorboard_plugin_plumber.capture.sink import MemorySink
from tensorboard_plugin_plumber.capture.storage import StorageSink
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording

#: First calls and buffers that fill come first, and the split of core time from waiting takes some seconds of probes.
_LEAST_S = 3.0
_LEAST_SAMPLES = 9
#: Parts of the windows that must agree, and how closely: below the model's own doubt of 10 %.
_PARTS = 3
_TIGHT = 0.06
#: Operators that take less of all the time than this do not count.
_LEAST_SHARE = 0.1


def observed(dataset: Any, *, most_s: float, consumer_rate: float | None = None) -> Recording:
    """The recording of a dataset that ran with nothing behind it.

    Nothing is solved meanwhile: on the cores and under the interpreter's lock of the process that it would be about,
    a solve makes every Python function look slower than it is.

    Args:
      dataset: a copy of the user's, which advances: its shuffles go on to their next epochs.
      most_s: for how long it runs at most.
      consumer_rate: what the user says that the consumer could take, steps/s.

    Raises:
      Empty, NoElement (of `capture.alone`): the dataset gave nothing in this time.
      Exception: what the dataset itself raises.
    """
    sink = MemorySink()
    importlib.import_module("cvxpy")  # takes a second, which is not to be one of the dataset's
    began_s = time.perf_counter()

    def enough() -> bool:
        if time.perf_counter() - began_s < _LEAST_S or len(sink.samples) < _LEAST_SAMPLES:
            return False
        return is_tight(without_warm_up(sink.recording()).samples)

    run_alone(
        dataset,
        StorageSink(sink, measure=True),
        kind="diagnose",
        seconds=most_s,
        consumer_rate=consumer_rate,
        enough=enough,
    )
    return without_warm_up(sink.recording())


def is_tight(samples: tuple[m.SampleRecord, ...]) -> bool:
    """Whether the rate of the only pipeline, and the times of the operators that take time, are known closely."""
    parts = [record.pipelines[0] for record in samples if record.pipelines]
    if len(parts) < _LEAST_SAMPLES - 2 or any(
        len(part.operators) != len(parts[-1].operators) for part in parts
    ):
        return False
    steps = np.diff([part.steps for part in parts])
    if not _is_close(np.diff([part.active_s for part in parts]), steps):
        return False
    spent = np.diff([[one.processing_time_ns for one in part.operators] for part in parts], axis=0)
    made = np.diff([[one.elements for one in part.operators] for part in parts], axis=0)
    whole = spent.sum()
    return all(
        _is_close(spent[:, i], made[:, i])
        for i in range(spent.shape[1])
        if whole > 0 and spent[:, i].sum() >= _LEAST_SHARE * whole
    )


def _is_close(spent: np.ndarray[Any, Any], made: np.ndarray[Any, Any]) -> bool:
    """Whether each third of the windows says the same of the time of one element.

    Not the spread over windows: what one of them cuts off at its end the next one has at its beginning.
    """
    whole = made.sum()
    if whole <= 0 or spent.sum() <= 0:
        return bool(whole > 0)
    thirds = zip(np.array_split(spent, _PARTS), np.array_split(made, _PARTS), strict=True)
    mean = spent.sum() / whole
    return all(n.sum() > 0 and abs(t.sum() / n.sum() / mean - 1) <= _TIGHT for t, n in thirds)
