"""What is asked of an optimization, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tensorboard_plugin_plumber.model.questions import Barred, WhatIf
from tensorboard_plugin_plumber.report import Report
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


@dataclass(frozen=True)
class Wishes:
    """What is asked of an optimization; the fields are the arguments of `plumber.optimize`."""

    budget_s: float = 20.0
    memory_fraction: float = 0.5
    memory_bytes: float | None = None
    epochs: float | None = None
    consumer_rate: float | None = None
    allow_reorder: bool = False
    python_threads: bool = True
    #: How long to trace at most; by default a share of the budget.
    trace_s: float | None = None

    def what_if(self, barred: Barred) -> WhatIf:
        """The question for the model."""
        return WhatIf(
            epochs=self.epochs,
            consumer_rate=self.consumer_rate,
            memory_share=self.memory_fraction,
            added_bytes=self.memory_bytes,
            barred=barred,
        )


class Verdict(Enum):
    """What became of a plan."""

    KEPT = "kept"
    #: It cannot be made, or its proof could not be given.
    REFUSED = "refused"
    #: It gave other elements.
    OTHER_ELEMENTS = "other elements"
    #: It measured no faster than the original, or than another plan.
    SLOWER = "slower"


@dataclass(frozen=True)
class Attempt:
    """A plan that was tried.

    Attributes:
      changes: what it changes.
      predicted_rate: steps/s.
      verdict: what became of it.
      why: in one sentence; empty where it was kept.
      ratio: rate over the original's, both measured; None where it was not raced.
    """

    changes: tuple[a.Change, ...]
    predicted_rate: float
    verdict: Verdict
    why: str = ""
    ratio: float | None = None


@dataclass(frozen=True)
class Optimized:
    """What an optimization gave.

    Attributes:
      dataset: the faster dataset; the original itself where nothing was faster.
      report: the analysis of the trace, with the plan that is in force in `dataset` and what was measured.
      pipeline: what was traced, as the user wrote it.
      changes: what of it `dataset` has.
      attempts: the plans that were tried, in order.
      failure: why the original came back although a plan promised more, as a sentence; empty otherwise.
      remake: makes the changes in another dataset of the same pipeline; may raise `rebuild.Refused`.
    """

    dataset: Any
    report: Report
    pipeline: m.Pipeline
    changes: tuple[a.Change, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    failure: str = ""
    remake: Callable[[Any], Any] = field(default=lambda dataset: dataset, repr=False)
