"""Totals of operators whose instances come and go, made of what looks at them showed.

A *life* is one instance of a subtree that TensorFlow makes and drops: a child of interleave or flat_map, or what
stands below a repeat for one epoch. Looks find long lives more often than short ones, so each life is weighted by the
inverse of the probability that it was found (Horvitz and Thompson). Looks are τ apart; a life lasts L, and is a old
when a look first finds it, where an operator i of it has counted x(a) elements. With

    X̂_i = Σ_lives [ φ x(a) + (x_last - x(a)) ],     φ = τ / min(τ, a),

E[X̂_i] = X_i for every L if x(a) = X a / L, that is, if a life does its work evenly. For L ≥ τ the age a is uniform in
(0, τ): the first term is worth τ/L of X, and the growth up to the last look L - τ on average. For L < τ the life is
found with probability L/τ, and counts as τ/L of itself. A life's age is not known. It is what its own work took, and
what it waited until it was asked:

    a = W + g y,     W = Σ over its operators (processing time + overhead of the calls),

with y the elements that it handed on, and g the wait for each: Σ τ · (lives at a look) is the time that all lives of
one place lasted, so g is this less Σ W, over all that they handed on.

As a is rough, only ratios of the sums are used. Exact are the counts of the consumer that survived; from it down, for
each operator i with consumer j,

    E_i = R_i (E_j + h_j) + h_i,     R_i = X̂_i / X̂_j, both over the same lives, 1 where one input makes one output,

where h is what lies between the two in the lives of now, and is left out of the ratio: a batch half full, a child half
read, what a shuffle holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorboard_plugin_plumber.capture.edges import Edge, Place

# Epochs of one sequence are alike: from so many on, the furthest ones tell how much each operator does in one.
_ALIKE = 5
# So small a part that went unseen is like what was seen.
_LITTLE = 0.2


@dataclass
class Sums:
    """Of one running operator, over all of its instances that were ever found.

    Attributes:
      elements: X̂, weighted by life.
      processing_ns: processing time of these elements, with the same weights.
      bytes_produced: likewise.
      paired: X̂ over the looks at which the consumer was seen, without what is held between the two.
      paired_consumer: X̂ of the consumer over the same looks.
      found: elements without weights: what was really seen; and likewise
      found_paired, found_consumer: of `paired` and `paired_consumer`.
      early: elements in lives that were found with no more than three of them.
      early_consumer: the consumer's in the same lives.
      ahead: Σ over lives that handed something on: elements more than the consumer's; of a concatenate's first
        input: its elements, in lives that had reached the second.
      ahead_lives: so many lives.
      most: the most elements in one life.
      finds: looks that found more of them.
    """

    elements: float = 0.0
    processing_ns: float = 0.0
    bytes_produced: float = 0.0
    paired: float = 0.0
    paired_consumer: float = 0.0
    found: float = 0.0
    found_paired: float = 0.0
    found_consumer: float = 0.0
    early: float = 0.0
    early_consumer: float = 0.0
    ahead: float = 0.0
    ahead_lives: int = 0
    most: int = 0
    finds: int = 0


@dataclass
class Held:
    """Of one running operator, over the instances that live now.

    Attributes:
      inputs: elements of it that its consumer has taken and not yet handed on.
      buffered: in the operator's own buffer.
    """

    inputs: float = 0.0
    buffered: float = 0.0


def totals(
    where: Sequence[Place],
    sums: Sequence[Sums],
    held: Sequence[Held],
    fills: Mapping[int, float],
    births: Mapping[int, float],
    begun: Mapping[int, float],
    lives: Mapping[int, float],
) -> list[float]:
    """Elements E_i by running operator.

    Args:
      where: of the operators.
      sums: of the looks so far.
      held: in the lives of now.
      fills: by index of a cache that was filled once: elements of one pass of it; infinite if it has not served.
      births: by index: elements that are known, because each began a life or because sums tell.
      begun: by index: elements that no look can find, because they were being made.
      lives: by root of lives: how many there were, where that is known.
    """
    elements: list[float] = []
    size: list[float] = []  # bytes of all elements
    for i, (place, own, now) in enumerate(zip(where, sums, held, strict=True)):
        above, consumer = (
            (elements[place.consumer], sums[place.consumer]) if place.consumer >= 0 else (0.0, own)
        )
        if i in births:
            total = births[i]
        elif place.edge is Edge.BODY:
            total = _of_body(place, own, where, sums, above + held[place.consumer].buffered)
        elif place.edge is Edge.ONE_TO_ONE:
            total = above + now.inputs
        elif place.edge is Edge.CACHE:
            total = _below_cache(place, own, consumer, above, fills)
        elif own.found_consumer > 0 and place.edge is not Edge.ROOT:
            # Where the ratio is steady, the consumer also tells of what was dropped before it.
            seen = own.found_consumer if place.steady else consumer.found
            total = found = own.found_paired if place.steady else own.found
            if above > seen:
                total += _of_unseen(i, found, above - seen, where, sums, size, elements, begun, lives)
            total += now.inputs if place.steady else 0.0
        else:
            total = own.elements
        elements.append(total)
        size.append(_bytes(place, own, consumer, size, total))
    _from_windows(where, elements)
    return elements


def _of_unseen(
    i: int,
    found: float,
    unseen: float,
    where: Sequence[Place],
    sums: Sequence[Sums],
    size: Sequence[float],
    elements: Sequence[float],
    begun: Mapping[int, float],
    lives: Mapping[int, float],
) -> float:
    """Elements of an operator that belong to those of its consumer that were not seen."""
    place, own = where[i], sums[i]
    above, consumer = elements[place.consumer], sums[place.consumer]
    if place.copied and own.bytes_produced and size[place.consumer]:
        return max(0.0, size[place.consumer] * own.elements / own.bytes_produced - found)
    if place.edge is Edge.SKIP and own.ahead_lives and place.life in lives:
        return unseen + unseen / above * own.ahead / own.ahead_lives * lives[place.life]
    if place.edge is Edge.CONCATENATE and (share := _share(i, where, sums)) is not None:
        return max(0.0, above * share - found)
    if where[place.life].comes_again and own.ahead_lives >= _ALIKE and consumer.most:
        return max(0.0, above * own.most / consumer.most - found)
    if unseen < _LITTLE * above:
        return unseen * found / (above - unseen)  # most was seen: the rest is taken to be like it
    missed = begun.get(i, 0.0) * unseen / above
    of_consumer = missed * own.early_consumer / own.early if own.early else 0.0
    if not own.early or of_consumer >= unseen:
        missed = of_consumer = 0.0
    # What no formula tells: what the weights add to what was seen stands for the rest.
    extra, extra_consumer = own.paired - own.found_paired, own.paired_consumer - own.found_consumer
    if extra_consumer <= 0 or extra < 0:
        extra, extra_consumer = own.paired, own.paired_consumer
    return missed + extra / extra_consumer * (unseen - of_consumer)


def _of_body(place: Place, own: Sums, where: Sequence[Place], sums: Sequence[Sums], above: float) -> float:
    """What a function's body hands on: all, or its part where each input gets one of several bodies."""
    bodies = where[place.consumer].bodies
    if len(bodies) == 1:
        return above
    unseen = max(0.0, above - sum(sums[body].found for body in bodies))
    return own.found + unseen * own.elements / max(sum(sums[body].elements for body in bodies), 1.0)


def _share(index: int, where: Sequence[Place], sums: Sequence[Sums]) -> float | None:
    """Part of a concatenate's elements that an input makes, where all epochs are alike; None if unknown."""
    place = where[index]
    if not (place.life and where[place.life].comes_again):
        return None
    first, second = [i for i, one in enumerate(where) if one.consumer == place.consumer]
    if not sums[first].ahead_lives or not sums[second].most:
        return None
    by_first = sums[first].ahead / sums[first].ahead_lives
    # Of k looks at random moments the furthest is short of the end by a (k + 1)th, on average.
    by_second = sums[second].most * (1.0 + 1.0 / max(sums[second].finds, 1))
    share = by_first / (by_first + by_second)
    return share if index == first else 1.0 - share


def _bytes(place: Place, own: Sums, consumer: Sums, size: Sequence[float], total: float) -> float:
    if place.edge is Edge.ROOT or not consumer.bytes_produced:
        return own.bytes_produced
    if place.edge is Edge.BODY or place.comes_again:
        return size[place.consumer]
    if place.edge is Edge.ONE_TO_ONE and own.elements:
        # It may be gone, and the consumer still hand on what it holds.
        return total * own.bytes_produced / own.elements
    return size[place.consumer] * own.bytes_produced / consumer.bytes_produced


def _below_cache(place: Place, own: Sums, cache: Sums, above: float, fills: Mapping[int, float]) -> float:
    if place.consumer in fills:
        return max(own.elements, min(above, fills[place.consumer]))
    # One that only serves took nothing; of several, some fill, and some serve.
    return own.elements / cache.elements * above if cache.elements else own.elements


def _from_windows(where: Sequence[Place], elements: list[float]) -> None:
    """What reads the windows of a group_by_window gets all that went into them."""
    for i, place in enumerate(where):
        if place.window_of is None:
            continue
        at = i
        while True:
            elements[at] = elements[place.window_of]
            if where[at].edge is not Edge.ONE_TO_ONE:
                break
            at = where[at].consumer
