"""Several ways to write one pipeline: each is optimized, and the fastest that gives the same elements is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tensorboard_plugin_plumber.rewrite.optimizer import (
    Attempt,
    Optimized,
    Verdict,
    Wishes,
    in_order,
    optimized,
)
from tensorboard_plugin_plumber.rewrite.proof import prove
from tensorboard_plugin_plumber.rewrite.race import race
from tensorboard_plugin_plumber.rewrite.rebuild import copied

#: Shares of the budget: for the last race, and of each variant's own for its proof.
_RACE_SHARE = 0.25
_PROOF_SHARE = 0.2


def fastest(dataset: Any, variants: Sequence[Any], wishes: Wishes, say: Callable[[str], None]) -> Optimized:
    """The dataset or one of its variants, whichever is the fastest once optimized.

    Args:
      dataset: an eager `tf.data.Dataset`.
      variants: datasets, or functions of no arguments that return one.
      wishes: under which limits; the budget is for all together.
      say: is told what is going on.

    Raises:
      Exception: as `optimized`, for the dataset itself; a variant that fails is an attempt that was refused.
    """
    share_s = wishes.budget_s * (1 - _RACE_SHARE) / (len(variants) + 1)
    first = optimized(dataset, replace(wishes, budget_s=share_s), say)
    ordered = in_order(first.pipeline) and not wishes.allow_reorder
    candidates, attempts = [first], list(first.attempts)
    for number, variant in enumerate(variants, 1):
        say(f"variant {number}: proving that it gives the same elements")
        try:
            other = variant() if callable(variant) else variant
            proof = prove(dataset, other, in_order=ordered, budget_s=_PROOF_SHARE * share_s)
            if not proof.same:
                verdict = Verdict.OTHER_ELEMENTS if proof.same is False else Verdict.REFUSED
                attempts.append(Attempt((), 0.0, verdict, f"variant {number}: {proof.reason}"))
                continue
            left = replace(wishes, budget_s=(1 - _PROOF_SHARE) * share_s)
            candidates.append(optimized(other, left, lambda step, n=number: say(f"variant {n}: {step}")))  # type: ignore[misc]
        except Exception as error:  # of the user's own code, as much as of any rewrite
            attempts.append(Attempt((), 0.0, Verdict.REFUSED, f"variant {number}: {error}"))
    if len(candidates) == 1:
        return replace(first, attempts=tuple(attempts))
    say("racing the variants")
    lanes = [copied(dataset), *(copied(one.dataset) for one in candidates)]
    found = race(lanes, budget_s=_RACE_SHARE * wishes.budget_s)
    sure = [i for i in range(1, len(lanes)) if found.ratios[i].low > 1.0]
    if not sure:
        return replace(first, dataset=dataset, attempts=tuple(attempts))
    best = max(sure, key=lambda i: found.rates[i])
    chosen = candidates[best - 1]
    chosen.report.analysis.measured.before = found.rates[0]
    chosen.report.analysis.measured.after = found.rates[best]
    return replace(chosen, attempts=tuple(attempts))
