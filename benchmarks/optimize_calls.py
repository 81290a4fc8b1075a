"""`plumber.optimize` as `optimize_worker.py` calls it, with what it did and how long each phase took."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import tensorboard_plugin_plumber as plumber
from benchmarks.optimize_worker import Setup, Tried
from tensorboard_plugin_plumber import optimizing
from tensorboard_plugin_plumber.rewrite import optimizer

#: What `optimize` says that it is doing -> the phase. Filling a plan's caches is a part of its race.
_PHASES = {
    "tracing": "trace",
    "planning": "plan",
    "looking for a cut": "split",
    "proving": "prove",
    "racing": "race",
}


@dataclass(frozen=True)
class Result:
    """The dataset, and how it came to be."""

    dataset: Any
    setup: Setup


def optimized(make: Callable[[], Any], memory_bytes: int | None, budget_s: float) -> Result:
    """What `optimize` makes of a dataset.

    Args:
      make: the dataset as written.
      memory_bytes, budget_s: as for `plumber.optimize`.
    """
    begin = time.perf_counter()
    with _clocked() as phases, _warnings() as warnings:
        written = make()
        found = plumber.optimize(written, memory_bytes=memory_bytes, budget_s=budget_s, return_report=True)
    seconds = time.perf_counter() - begin
    tried = tuple(
        Tried(tuple(_kind(change) for change in one.changes), one.verdict.value, one.why)
        for one in found.attempts
    )
    if found.report is None:
        return Result(found.dataset, Setup(seconds, phases_s=phases, warnings=tuple(warnings)))
    plan = found.report.to_dict()["plan"]
    changed = found.dataset is not written
    return Result(
        found.dataset,
        Setup(
            seconds,
            True,
            phases,
            changed,
            tuple(f"{one['kind']} {one['operator'] or ''} → {one['to']}" for one in plan["changes"])
            if changed
            else (),
            tried,
            plan["then_bottleneck"]["sentence"],
            plan["predicted_rate"] if changed else None,
            tuple(warnings),
        ),
    )


def _kind(change: Any) -> str:
    from tensorboard_plugin_plumber.schema import analysis_pb2 as a

    return a.ChangeKind.Name(change.kind).removeprefix("CHANGE_KIND_").lower()


@contextlib.contextmanager
def _warnings() -> Iterator[list[str]]:
    """What Plumber warns of while it is active."""
    found: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    listener, logger = Listener(logging.WARNING), logging.getLogger(plumber.__name__)
    logger.addHandler(listener)
    try:
        yield found
    finally:
        logger.removeHandler(listener)


@contextlib.contextmanager
def _clocked() -> Iterator[dict[str, float]]:
    """The time of each phase while it is active, seconds; `rewrite` is a part of `prove` and `race`."""
    phases = {**dict.fromkeys(_PHASES.values(), 0.0), "other": 0.0, "rewrite": 0.0}

    @contextlib.contextmanager
    def progress(what: str) -> Iterator[Callable[[str], None]]:
        now, since = "", time.perf_counter()

        def say(step: str) -> None:
            nonlocal now, since
            then = time.perf_counter()
            if now:
                phases[now] += then - since
            now, since = (
                next((phase for words, phase in _PHASES.items() if step.startswith(words)), "other"),
                then,
            )

        try:
            yield say
        finally:
            if now:
                phases[now] += time.perf_counter() - since

    def rebuilt(*args: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        try:
            return make(*args, **options)
        finally:
            phases["rewrite"] += time.perf_counter() - begin

    make = optimizer.rebuilt
    with (
        mock.patch.object(optimizing, "progress", progress),
        mock.patch.object(optimizer, "rebuilt", rebuilt),
    ):
        yield phases
