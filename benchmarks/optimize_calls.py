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
from tensorboard_plugin_plumber.rewrite import optimizer

#: Phase -> the functions of `rewrite.optimizer` whose time is its.
_PHASES = {
    "trace": ("observed",),
    "plan": ("Answers.to",),
    "rewrite": ("rebuilt",),
    "prove": ("prove",),
    "race": ("race",),
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
    """Adds up the time of each phase while it is active, seconds."""
    phases = dict.fromkeys(_PHASES, 0.0)
    with contextlib.ExitStack() as patches:
        for phase, names in _PHASES.items():
            for name in names:
                *owners, last = name.split(".")
                owner = getattr(optimizer, owners[0]) if owners else optimizer
                timed = _timed(getattr(owner, last), phase, phases)
                patches.enter_context(mock.patch.object(owner, last, timed))
        yield phases


def _timed(function: Callable[..., Any], phase: str, phases: dict[str, float]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            phases[phase] += time.perf_counter() - begin

    return call
