"""Makes a dataset faster: traced, planned, rewritten, proven the same, raced; the faster one is kept.

    trace    a copy runs on its own until its plan is settled (`observed`)
    plan     the model's optimum, as changes of operators
    rewrite  the changes, made on the dataset's own objects (`planned`, `rebuild`); where no cache may stand behind a
             costly map, its function in two halves, too, traced as a pipeline of its own (`ways`)
    prove    both give the same elements (`proof`)
    race     both run by turns, and the faster one stays (`race`)

A plan that is refused, gives other elements or is not as fast as it promised is followed by the next best one: the
same question to the model, with what it relied on most barred.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.answers import Answers
from tensorboard_plugin_plumber.capture.alone import Empty, NoElement
from tensorboard_plugin_plumber.model.analyse import NotAnswerable
from tensorboard_plugin_plumber.model.questions import Barred
from tensorboard_plugin_plumber.report import Report
from tensorboard_plugin_plumber.rewrite import plan_caches, planned
from tensorboard_plugin_plumber.rewrite.attempts import Attempt, Optimized, Verdict, Wishes
from tensorboard_plugin_plumber.rewrite.further import further
from tensorboard_plugin_plumber.rewrite.observed import observed
from tensorboard_plugin_plumber.rewrite.planned import Place
from tensorboard_plugin_plumber.rewrite.proof import prove
from tensorboard_plugin_plumber.rewrite.race import Race, race, warm
from tensorboard_plugin_plumber.rewrite.rebuild import Edits, Refused, copied, rebuilt
from tensorboard_plugin_plumber.rewrite.ways import Way, splits, worth_splitting
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

__all__ = ["Attempt", "Optimized", "Verdict", "Wishes", "in_order", "optimized"]

#: Shares of the whole budget: the trace at most, and of what is left at each attempt its proof and its race.
_TRACE_SHARE = 0.3
_PROOF_SHARE = 0.25
_RACE_SHARE = 0.75
#: Of what is left: for the second trace, of a pipeline that is written another way.
_SECOND_TRACE_SHARE = 0.4
#: Caches are raced with what today's pipeline makes in this share of what is left. They may take as long to fill as
#: this part of the budget, beside it.
_FILL_SHARE = 0.08
_MOST_FILLING = 1.0
#: Of the steps in which caches of those elements fill.
_SURELY_FULL = 1.2
#: No single round is so far off: the worst that was seen, on a crowded host, was 4 times.
_BEYOND_DOUBT = 10.0
#: With less left no further plan is tried.
_LEAST_S = 2.0
#: A plan that reaches less than this of the low end of its prediction has failed, though it may be the faster one.
_HELD = 0.8
#: Faster by less than this is not worth a rewritten pipeline.
_LEAST_GAIN = 0.02


@dataclass(frozen=True)
class _Traced:
    """A pipeline, written one way, with what its trace says."""

    way: Way
    places: Mapping[str, Place]
    pipeline: m.Pipeline
    answers: Answers
    barred: Barred


@dataclass(frozen=True)
class _Tried:
    """A plan that was made, proven and raced."""

    traced: _Traced
    analysis: a.Analysis
    before: float
    after: float
    same: bool | None
    sure: bool

    @property
    def ratio(self) -> float:
        return self.after / self.before

    @property
    def changes(self) -> tuple[a.Change, ...]:
        return (*self.traced.way.changes, *self.analysis.plan.changes)

    def made_in(self, dataset: Any) -> Any:
        """Another dataset of the same pipeline, changed likewise.

        Raises:
          Refused: it cannot be.
        """
        written = self.traced.way.again(dataset)
        return self._changed(written, planned.places_of(written))

    def made(self) -> Any:
        """The dataset that was traced, changed."""
        return self._changed(self.traced.way.dataset, self.traced.places)

    def _changed(self, dataset: Any, places: Mapping[str, Place]) -> Any:
        caches = plan_caches.lasting(self.analysis)
        return rebuilt(dataset, planned.edits_of(self.analysis.plan.changes, places, caches))


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


class _Optimizer:
    def __init__(self, dataset: Any, wishes: Wishes, say: Callable[[str], None]) -> None:
        self._dataset, self._wishes, self._say = dataset, wishes, say
        self._until_s = time.perf_counter() + wishes.budget_s
        self._attempts: list[Attempt] = []
        self._best: _Tried | None = None
        self._before: float | None = None
        self._ordered = True

    def go(self) -> Optimized:
        self._say("tracing it")
        whole_s = self._wishes.trace_s or _TRACE_SHARE * self._wishes.budget_s
        first = self._traced(Way(self._dataset), whole_s)
        self._ordered = in_order(first.pipeline) and not self._wishes.allow_reorder
        self._say("planning")
        plans = self._plans(first)
        best = next(plans, None)
        if self._wishes.epochs is None or self._wishes.epochs > 1:
            self._try_splits(first, best)
        while best is not None and not self._holds():
            self._try(first, best)
            best = next(plans, None)
        self._try_further()
        return self._outcome(first)

    def _traced(self, way: Way, most_s: float) -> _Traced:
        """The pipeline written one way, and its trace."""
        places = planned.places_of(way.dataset)
        recording = observed(copied(way.dataset), most_s=most_s, consumer_rate=self._wishes.consumer_rate)
        pipeline = recording.graph.pipelines[recording.main_pipeline()]
        planned.check_same(places, pipeline.operators)
        calls = planned.out_of_reach(places)
        if not self._wishes.python_threads:
            calls |= _with_python(pipeline.operators)
        return _Traced(way, places, pipeline, Answers(recording), Barred(calls=calls))

    def _try_splits(self, first: _Traced, best: a.Analysis | None) -> None:
        """Tries the ways to write the pipeline in which a costly map is two, and a cache stands between."""
        analysis = best or first.answers.to(self._wishes.what_if(first.barred))
        maps = worth_splitting(analysis)
        if maps:
            self._say("looking for a cut in its functions")
        for way in splits(self._dataset, maps):
            if self._left_s() < 2 * _LEAST_S or self._holds():
                return
            if isinstance(way, str):
                self._attempts.append(Attempt((_split_change(),), float("nan"), Verdict.REFUSED, way))
                continue
            self._say("tracing it with a function in two")
            try:
                traced = self._traced(way, _SECOND_TRACE_SHARE * self._left_s())
                plan = next(self._plans(traced), None)
            except (Refused, Empty, NoElement, NotAnswerable) as error:
                self._attempts.append(Attempt(way.changes, float("nan"), Verdict.REFUSED, str(error)))
                continue
            if plan is not None and any(one.kind == a.CHANGE_KIND_CACHE for one in plan.plan.changes):
                self._try(traced, plan)

    def _try_further(self) -> None:
        """Raises the calls and threads of the plan that is kept, as long as that measures faster."""
        while (best := self._best) is not None and self._left_s() >= 2 * _LEAST_S:
            more = further(best.analysis)
            if more is None:
                return
            self._try(best.traced, more)
            if self._best is best:
                return

    def _plans(self, traced: _Traced) -> Iterator[a.Analysis]:
        """The best plan, and as long as none held what it promised and there is time, the next best."""
        barred, tried = traced.barred, set[str]()
        while True:
            analysis = traced.answers.to(self._wishes.what_if(barred))
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
        if self._best is None or not self._attempts or self._attempts[-1].verdict is not Verdict.KEPT:
            return False
        return self._best.after >= _HELD * self._best.analysis.plan.low

    def _left_s(self) -> float:
        return self._until_s - time.perf_counter()

    def _try(self, traced: _Traced, analysis: a.Analysis) -> None:
        try:
            verdict, why, tried = self._proven_and_raced(traced, analysis)
        except (Refused, Empty) as error:  # passes over a cache's first elements may fill no batch
            verdict, why, tried = Verdict.REFUSED, str(error), None
        if verdict is Verdict.KEPT:
            self._attempts = [
                replace(one, verdict=Verdict.SLOWER, why="another plan measured faster")
                if one.verdict is Verdict.KEPT
                else one
                for one in self._attempts
            ]
            self._best = tried
        changes = (*traced.way.changes, *analysis.plan.changes)
        ratio = tried.ratio if tried is not None else None
        self._attempts.append(Attempt(changes, analysis.plan.predicted_rate, verdict, why, ratio))

    def _proven_and_raced(self, traced: _Traced, analysis: a.Analysis) -> tuple[Verdict, str, _Tried | None]:
        """What becomes of a plan, and why.

        Raises:
          Refused: it cannot be made.
        """
        self._say(f"proving that {_counted(len(analysis.plan.changes))} the elements")
        proof = prove(
            self._dataset if not traced.way.changes else traced.way.dataset,
            rebuilt(traced.way.dataset, _edits(traced, analysis, plan_caches.plain), apart=True),
            in_order=self._ordered,
            budget_s=_PROOF_SHARE * self._left_s(),
        )
        if proof.same is False:
            return Verdict.OTHER_ELEMENTS, proof.reason, None
        self._say("racing both")
        found = self._raced(traced, analysis)
        if found is None:
            return Verdict.REFUSED, "its cache did not fill in the time there was", None
        before, after = found.rates
        tried = _Tried(traced, analysis, before, after, proof.same, _is_surely_faster(found))
        self._before = before
        if not tried.sure or tried.ratio < 1 + _LEAST_GAIN:
            return Verdict.SLOWER, _not_faster(tried), tried
        if self._best is not None and self._best.ratio >= tried.ratio:
            return Verdict.SLOWER, "another plan measured faster", tried
        return Verdict.KEPT, "", tried

    def _raced(self, traced: _Traced, analysis: a.Analysis) -> Race | None:
        """The plan against the original; None where its caches did not fill in time.

        Raises:
          Refused: the plan cannot be made.
        """
        fill_s = _FILL_SHARE * self._left_s()
        caches = plan_caches.brief(analysis, fill_s)
        lane = rebuilt(traced.way.dataset, _edits(traced, analysis, caches), apart=True)
        lanes = [copied(self._dataset), lane]
        if not any(change.kind == a.CHANGE_KIND_CACHE for change in analysis.plan.changes):
            return race(lanes, budget_s=_RACE_SHARE * self._left_s())
        began_s = time.perf_counter()
        endless = int(lane.cardinality()) == tf.data.INFINITE_CARDINALITY
        steps = math.ceil(_SURELY_FULL * analysis.verdict.observed_rate * fill_s) + 1
        most_s = _MOST_FILLING * self._wishes.budget_s
        full = (
            plan_caches.warm(lane, steps=steps, most_s=most_s)
            if endless
            else warm(lane, budget_s=most_s).whole
        )
        filled_s = time.perf_counter() - began_s
        self._until_s += filled_s  # the filling of caches is not of the budget
        if not full:
            return None
        # A race runs each dataset with caches to its end first, which an endless one does not have.
        again_s = 0.0 if endless else filled_s
        return race(lanes, budget_s=_RACE_SHARE * self._left_s() + again_s, fill_s=again_s)

    def _outcome(self, first: _Traced) -> Optimized:
        best, attempts = self._best, tuple(self._attempts)
        analysis = a.Analysis()
        if best is not None:
            analysis.CopyFrom(best.analysis)
            for change in reversed(best.traced.way.changes):
                analysis.plan.changes.insert(0, change)
            analysis.measured.before, analysis.measured.after = best.before, best.after
            if best.same is not None:
                analysis.measured.same_elements = best.same
        else:
            analysis.CopyFrom(first.answers.to(self._wishes.what_if(_everything(first))))
            rate = self._before or analysis.verdict.observed_rate
            analysis.measured.before = analysis.measured.after = rate
            analysis.measured.same_elements = True
        analysis.notes.extend(_note(one) for one in attempts if one.verdict is not Verdict.KEPT)
        if best is not None:
            report = Report(analysis, best.traced.answers.to)
            return Optimized(best.made(), report, first.pipeline, best.changes, attempts, remake=best.made_in)
        report = Report(analysis, first.answers.to)
        return Optimized(self._dataset, report, first.pipeline, (), attempts, _failure(attempts))


def _edits(traced: _Traced, analysis: a.Analysis, cache: Callable[[a.Change], Any]) -> Edits:
    return planned.edits_of(analysis.plan.changes, traced.places, cache)


def _everything(traced: _Traced) -> Barred:
    """Bars against whatever a plan could do."""
    return Barred(
        calls=frozenset(traced.places),
        memory_caches=True,
        file_caches=True,
        threadpool=True,
        unbounded=True,
        prefetch=True,
    )


def _failure(attempts: Sequence[Attempt]) -> str:
    """Why a plan that promised more could not be had; empty where none promised, or where it kept no promise."""
    failed = [one for one in attempts if one.verdict in (Verdict.REFUSED, Verdict.OTHER_ELEMENTS)]
    planned_ones = [one for one in failed if any(c.kind != a.CHANGE_KIND_REWRITE for c in one.changes)]
    return planned_ones[0].why if planned_ones else ""


def _not_faster(tried: _Tried) -> str:
    measured = f"it measured {tried.ratio:.2f} times as fast as the original"
    return f"{measured}, which may be chance" if tried.ratio > 1 and not tried.sure else measured


def _split_change() -> a.Change:
    return a.Change(kind=a.CHANGE_KIND_REWRITE, to=a.Setting(word="split"))


def _is_surely_faster(found: Race) -> bool:
    """Whether the second lane is; one round of slow datasets has no interval, but may leave no doubt."""
    ratio = found.ratios[1]
    return ratio.low > 1.0 or ratio.value >= _BEYOND_DOUBT


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
    return "one change keeps" if changes == 1 else f"{changes} changes keep"


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
