"""A plan that was found elsewhere, or before, made in a dataset: proven and raced like any other, but not traced."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.report import Report
from tensorboard_plugin_plumber.rewrite.attempts import Attempt, Optimized, Verdict, Wishes
from tensorboard_plugin_plumber.rewrite.optimizer import in_order
from tensorboard_plugin_plumber.rewrite.proof import prove
from tensorboard_plugin_plumber.rewrite.race import race
from tensorboard_plugin_plumber.rewrite.rebuild import Refused, copied
from tensorboard_plugin_plumber.rewrite.saved_plan import Mismatch, SavedPlan, made_in
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

_PROOF_SHARE = 0.3


def with_plan(
    saved: SavedPlan,
    dataset: Any,
    wishes: Wishes,
    say: Callable[[str], None],
    *,
    again: Callable[[], Any] | None = None,
) -> Optimized:
    """The dataset with a saved plan in force; as it is where it gives other elements, or is surely slower.

    Args:
      saved: the plan.
      dataset: an eager `tf.data.Dataset`.
      wishes: under which limits.
      say: is told what is going on.
      again: builds the same dataset once more, so that what stands in functions' bodies can be changed.

    Raises:
      Mismatch (of `saved_plan`): its pipeline is not the one that the plan was made for.
      Refused (of `rebuild`): a change cannot be made.
      Exception: what the dataset itself raises.
    """
    until_s = time.perf_counter() + wishes.budget_s
    pipeline = describe(dataset, role="diagnose").pipeline
    made = made_in(
        saved,
        dataset,
        again=again,
        memory_share=wishes.memory_fraction,
        memory_bytes=wishes.memory_bytes,
    )
    analysis = a.Analysis(notes=made.notes, pipeline=pipeline.id, pipeline_label=pipeline.label)
    if not made.changes:
        return Optimized(dataset, Report(analysis), pipeline)
    analysis.plan.changes.extend(made.changes)
    for name, value in (("predicted_rate", saved.predicted_rate), ("low", saved.low), ("high", saved.high)):
        if value is not None:
            setattr(analysis.plan, name, value)
    say("proving that the plan keeps the elements")
    proof = prove(
        dataset,
        made.dataset,
        in_order=in_order(pipeline) and not wishes.allow_reorder,
        budget_s=_PROOF_SHARE * wishes.budget_s,
    )
    verdict, why, ratio = Verdict.OTHER_ELEMENTS, proof.reason, None
    if proof.same is not False:
        say("racing both")
        found = race([copied(dataset), copied(made.dataset)], budget_s=until_s - time.perf_counter())
        ratio = found.ratios[1].value
        analysis.measured.before, analysis.measured.after = found.rates
        if proof.same is not None:
            analysis.measured.same_elements = proof.same
        slower = found.ratios[1].high < 1.0
        verdict = Verdict.SLOWER if slower else Verdict.KEPT
        why = f"it measured {ratio:.2f} times as fast as the original" if slower else ""
    attempt = Attempt(made.changes, saved.predicted_rate or float("nan"), verdict, why, ratio)
    if verdict is Verdict.KEPT:
        return Optimized(
            made.dataset,
            Report(analysis),
            pipeline,
            made.changes,
            (attempt,),
            remake=lambda other: _made_again(saved, other, wishes, len(made.changes)),
        )
    del analysis.plan.changes[:]
    return Optimized(dataset, Report(analysis), pipeline, (), (attempt,), f"the saved plan was undone: {why}")


def _made_again(saved: SavedPlan, dataset: Any, wishes: Wishes, changes: int) -> Any:
    try:
        made = made_in(saved, dataset, memory_share=wishes.memory_fraction, memory_bytes=wishes.memory_bytes)
    except Mismatch as error:
        raise Refused(str(error)) from error
    if len(made.changes) < changes:  # what stands in a function's body needs the code that builds it
        raise Refused("; ".join(made.notes) or "not all of the plan can be made again")
    return made.dataset
