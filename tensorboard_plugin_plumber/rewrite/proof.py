"""Whether a rewritten pipeline gives the same as the original: its form, and its elements to the last bit.

What runs are copies in which chance is held still (`held`): the original's shuffles do not go on, its caches are not
filled. Both are read in turns and should agree element by element, in two passes where these may differ. Where no
order was promised, elements are counted instead: as many of each, and of batches as many of each example.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture import iterators
from tensorboard_plugin_plumber.rewrite import form
from tensorboard_plugin_plumber.rewrite.digests import NotTold
from tensorboard_plugin_plumber.rewrite.held import Held, held, plainly_cached, unordered_functions
from tensorboard_plugin_plumber.rewrite.held_functions import CannotHold
from tensorboard_plugin_plumber.rewrite.readings import (
    END,
    Counted,
    Limit,
    Reading,
    count_in_turns,
    read_in_turns,
)

IN_ORDER, AS_MULTISETS, FORM_ONLY = "in order", "as multisets", "form only"
MOST_ELEMENTS = 10_000
# Of the budget, by when the first pass is over, and both: the rest is there to look into a difference.
_FIRST_PASS, _PASSES = 0.45, 0.7
# Bytes that a copy's cache in memory may keep.
_MOST_CACHED_BYTES = 256e6
_NOT_TWICE = "the original does not give the same twice, so that nothing can be compared"


@dataclass(frozen=True)
class Proof:
    """What was found.

    Attributes:
      same: None where it could not be told.
      elements: of each pipeline that were compared, over all passes.
      how: "in order", "as multisets", or "form only": element spec, cardinality, options and randomness.
      reason: why not, or why it could not be told, in one sentence; empty if they are the same.
      whole: both were read to their ends.
      held: what draws at random, and was made to draw the same in both.
    """

    same: bool | None
    elements: int
    how: str
    reason: str
    whole: bool = False
    held: tuple[str, ...] = ()


def prove(
    original: Any, rewritten: Any, *, in_order: bool, budget_s: float, most_elements: int = MOST_ELEMENTS
) -> Proof:
    """Compares two pipelines; neither is touched.

    Args:
      original, rewritten: eager `tf.data.Dataset`s.
      in_order: the order of the elements must be kept, where the original promises one.
      budget_s: how long it may take, but for the elements that are being made when the time is over.
      most_elements: that are compared in one pass; finite data of no more is compared whole, time permitting.
    """
    until_s = time.perf_counter() + budget_s
    reason = form.difference(original, rewritten, in_order=in_order)
    if reason:
        return Proof(False, 0, FORM_ONLY, reason)
    with tf.init_scope(), iterators.seen_only_by():
        try:
            original, rewritten = plainly_cached(original), plainly_cached(rewritten)
            forms = form.Form(original), form.Form(rewritten)
            if forms[1].changing_draws() < forms[0].changing_draws():
                return Proof(False, 0, FORM_ONLY, "what was random in each epoch is now the same in all")
            for one in forms:
                if one.writes:
                    raise CannotHold(f"it was not run, for it {one.writes}")
            compared = _Comparison(original, rewritten, forms, until_s, most_elements)
            return compared.go(in_order=in_order and forms[0].is_ordered)
        except (form.NotDescribed, CannotHold, NotTold) as error:
            return Proof(None, 0, FORM_ONLY, str(error))


@dataclass(frozen=True)
class _Difference:
    """Where two pipelines part: in which pass, from 1, and how, in words."""

    in_pass: int
    words: str


@dataclass(frozen=True)
class _Agreement:
    """How far two pipelines agree, element by element.

    Attributes:
      elements: over all passes.
      whole: each pass went to the end.
      difference: where it ended; None where it did not end by one.
    """

    elements: int
    whole: bool
    difference: _Difference | None


class _Comparison:
    """Of the elements of two pipelines.

    Args:
      original, rewritten, forms: the pipelines, and what is known of each.
      until_s: by `time.perf_counter`.
      most: elements of one pass.

    Raises:
      CannotHold: one of them cannot be copied, or should not be run so.
    """

    def __init__(
        self, original: Any, rewritten: Any, forms: tuple[form.Form, form.Form], until_s: float, most: int
    ) -> None:
        self._original, self._rewritten = original, rewritten
        self._began_s, self._until_s, self._most = time.perf_counter(), until_s, most
        self._passes = 2 if any(one.varies for one in forms) else 1
        self._unordered = unordered_functions(original)
        self._copies = self._held(original), self._held(rewritten)
        if any(one.may_stall for one in self._copies) and any(one.is_endless for one in forms):
            raise CannotHold("with its draws held still a filter might drop all of its endless elements")
        self._draws = self._copies[0].draws

    def go(self, *, in_order: bool) -> Proof:
        """Compares them.

        Args:
          in_order: the order counts.
        """
        agreed = self._agreement(*self._copies)
        found = agreed.difference
        if found is None:
            return self._proof(True, agreed.elements, IN_ORDER, whole=agreed.whole)
        words = f"in pass {found.in_pass} {found.words}"
        if not in_order:
            return self._as_multisets(words)
        if self._repeats_itself():
            return self._proof(False, agreed.elements, IN_ORDER, words)
        return self._proof(None, agreed.elements, IN_ORDER, _NOT_TWICE)

    def _held(self, dataset: Any) -> Held:
        return held(dataset, unordered=self._unordered)

    def _proof(
        self, same: bool | None, elements: int, how: str, reason: str = "", whole: bool = False
    ) -> Proof:
        return Proof(same, elements, how, reason, whole, self._draws)

    def _agreement(self, one: Held, other: Held) -> _Agreement:
        """Reads two copies by turns, as far as they agree."""
        caches = one.caches or other.caches
        elements, whole = 0, True
        for number in range(self._passes):
            last = number + 1 == self._passes
            left, right = Reading(one.dataset), Reading(other.dataset)
            words = read_in_turns(left, right, self._limit(_PASSES if last else _FIRST_PASS, caches=caches))
            elements += min(left.elements, right.elements)
            if words:
                return _Agreement(elements, False, _Difference(number + 1, words))
            whole = whole and left.ended is not None
            # What was not filled serves nothing; and behind an error a prefetch may go on, and fill a cache without
            # the element that failed.
            if (caches and not whole) or left.ended not in (None, END):
                break
        return _Agreement(elements, whole, None)

    def _limit(self, share: float, *, caches: bool) -> Limit:
        until_s = self._began_s + share * (self._until_s - self._began_s)
        return Limit(self._most, until_s, _MOST_CACHED_BYTES if caches else float("inf"))

    def _repeats_itself(self) -> bool:
        """Whether two more copies of the original agree, as far as they are read in the time that is left."""
        return self._agreement(self._held(self._original), self._held(self._original)).difference is None

    def _as_multisets(self, words: str) -> Proof:
        """Compares how many of each element there are, or of each example where all elements are batches.

        Args:
          words: where they part, in order.
        """
        copies = self._held(self._original), self._held(self._rewritten)
        before, after = (Counted(Reading(one.dataset)) for one in copies)
        limit = self._limit(1.0, caches=any(one.caches for one in copies))
        whole = count_in_turns((before, after), limit)
        elements = min(before.reading.elements, after.reading.elements)
        if _as_many(before, after):
            return self._proof(True, elements, AS_MULTISETS, whole=whole)
        if not whole:
            reason = f"the first {elements:,} are not the same elements, and the ends were not reached"
            return self._proof(None, elements, AS_MULTISETS, reason)
        if before.reading.ended != END or after.reading.ended != END:
            return self._proof(None, elements, AS_MULTISETS, "an error was raised, and no order was promised")
        again = Counted(Reading(self._held(self._original).dataset))
        count_in_turns((again,), replace(limit, until_s=math.inf))
        if not _as_many(before, again):
            return self._proof(None, elements, AS_MULTISETS, _NOT_TWICE)
        if _are_padded(self._original.element_spec):
            reason = "other batches of what is padded to the longest of each cannot be compared"
            return self._proof(None, elements, AS_MULTISETS, reason)
        return self._proof(False, elements, AS_MULTISETS, f"other elements were given ({words})")


def _as_many(one: Counted, other: Counted) -> bool:
    if one.reading.ended != other.reading.ended:
        return False
    if one.elements == other.elements:
        return True
    return one.examples is not None and one.examples == other.examples


def _are_padded(spec: Any) -> bool:
    """Whether examples of a batch may have been made as long as the longest of it."""
    shapes = (getattr(one, "shape", None) for one in tf.nest.flatten(spec))
    return any(shape is not None and shape.rank and None in shape.as_list()[1:] for shape in shapes)
