"""Makes a dataset faster: traced, planned, rewritten, proven the same, raced; the faster one is kept.

    trace    a copy runs on its own until its plan is settled (`observed`)
    plan     the model's optimum, as changes of operators
    rewrite  the changes, made on the dataset's own objects (`planned`, `rebuild`)
    prove    both give the same elements (`proof`)
    race     both run by turns, and the faster one stays (`race`)

A plan that is refused, gives other elements or is not as fast as it promised is followed by the next best one: the
same question to the model, with what it relied on most barred.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from tensorboard_plugin_plumber.answers import Answers
from tensorboard_plugin_plumber.model.questions import Barred, WhatIf
from tensorboard_plugin_plumber.report import Report
from tensorboard_plugin_plumber.rewrite import planned
from tensorboard_plugin_plumber.rewrite.observed import observed
from tensorboard_plugin_plumber.rewrite.planned import Place
from tensorboard_plugin_plumber.rewrite.proof import prove
from tensorboard_plugin_plumber.rewrite.race import race
from tensorboard_plugin_plumber.rewrite.rebuild import Edits, Refused, copied, rebuilt
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: Shares of the whole budget: the trace at most, and of what is left at each attempt its proof and its race.
_TRACE_SHARE = 0.35
_PROOF_SHARE = 0.25
_RACE_SHARE = 0.75
#: With less left no further plan is tried.
_LEAST_S = 2.0
#: A plan that reaches less than this of the low end of its prediction has failed, though it may be the faster one.
_HELD = 0.8
#: Faster by less than this is not worth a rewritten pipeline.
_LEAST_GAIN = 0.02


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
      pipeline: what was traced.
      changes: what of it `dataset` has.
      attempts: the plans that were tried, in order.
      failure: why the original came back although a plan promised more, as a sentence; empty otherwise.
    """

    dataset: Any
    report: Report
    pipeline: m.Pipeline
    changes: tuple[a.Change, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    failure: str = ""


@dataclass(frozen=True)
class _Tried:
    """A plan that was made, proven and raced."""

    analysis: a.Analysis
    edits: Callable[[], Edits]
    before: float
    after: float
    same: bool | None
    sure: bool

    @property
    def ratio(self) -> float:
        return self.after / self.before


@dataclass
class _Log:
    """The attempts so far."""

    attempts: list[Attempt] = field(default_factory=list)
    best: _Tried | None = None
    before: float | None = None


def optimized(dataset: Any, wishes: Wishes, say: Callable[[str], None]) -> Optimized:
    """The dataset made faster, or as it is.

    Args:
      dataset: an eager `tf.data.Dataset`; nothing of it is changed, and no state of its operators advances.
      wishes: under which limits.
      say: is told what is going on.

    Raises:
      Refused: the pipeline cannot be copied, or read, and so not even be traced.
      Empty, NoElement (of `capture.alone`): it gave nothing in this time.
      NotAnswerable (of `model.analyse`): too little was counted.
      Exception: what the dataset itself raises.
    """
    return _Optimizer(dataset, wishes, say).go()


def edits_of(changes: Iterable[a.Change], places: Mapping[str, Place]) -> Edits:
    """The edits that make the changes of a plan.

    Raises:
      Refused: one of them cannot be made.
    """
    return planned.edits_of(changes, places, lambda change: "")


class _Optimizer:
    def __init__(self, dataset: Any, wishes: Wishes, say: Callable[[str], None]) -> None:
        self._dataset, self._wishes, self._say = dataset, wishes, say
        self._until_s = time.perf_counter() + wishes.budget_s
        self._log = _Log()

    def go(self) -> Optimized:
        places = planned.places_of(self._dataset)
        barred = Barred(calls=planned.out_of_reach(places), file_caches=True)
        self._say("tracing it")
        recording = observed(
            copied(self._dataset),
            most_s=self._wishes.trace_s or _TRACE_SHARE * self._wishes.budget_s,
            consumer_rate=self._wishes.consumer_rate,
        )
        pipeline = recording.graph.pipelines[recording.main_pipeline()]
        planned.check_same(places, pipeline.operators)
        if not self._wishes.python_threads:
            barred = replace(barred, calls=barred.calls | _with_python(pipeline.operators))
        self._say("planning")
        answers = Answers(recording)
        for analysis in self._plans(answers, barred):
            self._try(analysis, places, ordered=in_order(pipeline) and not self._wishes.allow_reorder)
        return self._outcome(answers, barred, pipeline)

    def _plans(self, answers: Answers, barred: Barred) -> Iterator[a.Analysis]:
        """The best plan, and as long as none held what it promised and there is time, the next best."""
        tried: set[str] = set()
        while True:
            analysis = answers.to(self._wishes.what_if(barred))
            changes = analysis.plan.changes
            if not changes:
                return
            name = "\n".join(f"{one.operator} {one.kind} {one.to}" for one in changes)
            if name not in tried:
                tried.add(name)
                yield analysis
            less = _less(barred, changes)
            if less is None or self._holds() or self._left_s() < _LEAST_S:
                return
            barred = less

    def _holds(self) -> bool:
        """Whether the last plan that was tried reached what it promised."""
        best, attempts = self._log.best, self._log.attempts
        if best is None or not attempts or attempts[-1].verdict is not Verdict.KEPT:
            return False
        return best.after >= _HELD * best.analysis.plan.low

    def _left_s(self) -> float:
        return self._until_s - time.perf_counter()

    def _try(self, analysis: a.Analysis, places: Mapping[str, Place], *, ordered: bool) -> None:
        plan = analysis.plan

        def edits() -> Edits:
            return edits_of(plan.changes, places)

        try:
            verdict, why, tried = self._proven_and_raced(analysis, edits, ordered=ordered)
        except Refused as error:
            verdict, why, tried = Verdict.REFUSED, str(error), None
        ratio = tried.ratio if tried is not None else None
        if verdict is Verdict.KEPT:
            self._log.attempts = [
                replace(one, verdict=Verdict.SLOWER, why="another plan measured faster")
                if one.verdict is Verdict.KEPT
                else one
                for one in self._log.attempts
            ]
            self._log.best = tried
        self._log.attempts.append(
            Attempt(tuple(plan.changes), plan.predicted_rate, verdict, why, ratio),
        )

    def _proven_and_raced(
        self, analysis: a.Analysis, edits: Callable[[], Edits], *, ordered: bool
    ) -> tuple[Verdict, str, _Tried | None]:
        """What becomes of a plan, and why.

        Raises:
          Refused: it cannot be made.
        """
        self._say(f"proving that {_counted(len(analysis.plan.changes))} keep the elements")
        proof = prove(
            self._dataset,
            rebuilt(self._dataset, edits(), apart=True),
            in_order=ordered,
            budget_s=_PROOF_SHARE * self._left_s(),
        )
        if proof.same is False:
            return Verdict.OTHER_ELEMENTS, proof.reason, None
        self._say("racing both")
        found = race(
            [copied(self._dataset), rebuilt(self._dataset, edits(), apart=True)],
            budget_s=_RACE_SHARE * self._left_s(),
        )
        before, after = found.rates
        tried = _Tried(analysis, edits, before, after, proof.same, found.ratios[1].low > 1.0)
        self._log.before = before
        if not tried.sure or tried.ratio < 1 + _LEAST_GAIN:
            return Verdict.SLOWER, f"it measured {tried.ratio:.2f} times as fast as the original", tried
        best = self._log.best
        if best is not None and best.ratio >= tried.ratio:
            return Verdict.SLOWER, "another plan measured faster", tried
        return Verdict.KEPT, "", tried

    def _outcome(self, answers: Answers, barred: Barred, pipeline: m.Pipeline) -> Optimized:
        best, attempts = self._log.best, tuple(self._log.attempts)
        if best is not None:
            analysis = a.Analysis()
            analysis.CopyFrom(best.analysis)
            analysis.measured.before, analysis.measured.after = best.before, best.after
            if best.same is not None:
                analysis.measured.same_elements = best.same
            dataset = rebuilt(self._dataset, best.edits())
        else:
            nothing = replace(barred, memory_caches=True, threadpool=True, unbounded=True, prefetch=True)
            calls = frozenset(one.id for one in answers.to().operators)
            analysis = answers.to(self._wishes.what_if(replace(nothing, calls=calls)))
            rate = self._log.before or analysis.verdict.observed_rate
            analysis.measured.before = analysis.measured.after = rate
            analysis.measured.same_elements = True
            dataset = self._dataset
        analysis.notes.extend(_note(one) for one in attempts if one.verdict is not Verdict.KEPT)
        failed = [one for one in attempts if one.verdict in (Verdict.REFUSED, Verdict.OTHER_ELEMENTS)]
        failure = failed[0].why if best is None and failed else ""
        changes = tuple(best.analysis.plan.changes) if best is not None else ()
        return Optimized(dataset, Report(analysis, answers.to), pipeline, changes, attempts, failure)


def _less(barred: Barred, changes: Sequence[a.Change]) -> Barred | None:
    """The bars with one more, against what these changes rely on most; None if there is no less to do."""
    kinds = {change.kind for change in changes}
    if a.CHANGE_KIND_CACHE in kinds:
        return replace(barred, memory_caches=True, file_caches=True)
    if a.CHANGE_KIND_THREADPOOL in kinds:
        return replace(barred, threadpool=True)
    if a.CHANGE_KIND_UNBOUNDED in kinds:
        return replace(barred, unbounded=True)
    if a.CHANGE_KIND_PREFETCH in kinds and len(kinds) > 1:
        return replace(barred, prefetch=True)
    return None


def _with_python(operators: Sequence[m.Operator]) -> frozenset[str]:
    """Ids of the operators whose calls run Python, in the bodies of their functions too."""
    found = {one.id for one in operators if one.function.python}
    for one in reversed(operators):
        if one.in_body and one.id in found and one.parent:
            found.add(one.parent)
    return frozenset(found)


def in_order(pipeline: m.Pipeline) -> bool:
    """Whether the original gives its elements in one order."""
    return all(one.deterministic for one in pipeline.running if one.HasField("num_parallel_calls"))


def _counted(changes: int) -> str:
    return "one change" if changes == 1 else f"{changes} changes"


def _note(attempt: Attempt) -> str:
    kinds = (
        a.ChangeKind.Name(one.kind)
        .removeprefix("CHANGE_KIND_")
        .lower()
        .replace("unbounded", "unbounded pool")
        for one in attempt.changes
    )
    what = ", ".join(dict.fromkeys(kinds))
    return f"A plan was tried and not kept ({what}): {attempt.why}."
