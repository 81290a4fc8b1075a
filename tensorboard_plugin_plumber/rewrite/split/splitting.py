"""Finds where the function of a map may be cut, and cuts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.rewrite.rebuild import Refused
from tensorboard_plugin_plumber.rewrite.split import resources
from tensorboard_plugin_plumber.rewrite.split.costs import Costs, mapped, measured
from tensorboard_plugin_plumber.rewrite.split.cut import Cut, cuts
from tensorboard_plugin_plumber.rewrite.split.flat import Flat, flattened
from tensorboard_plugin_plumber.rewrite.split.halves import Part, part, specs_of, traced
from tensorboard_plugin_plumber.rewrite.split.lowering import MAPS, lowered, passage
from tensorboard_plugin_plumber.rewrite.split.sides import Sides, sides_of

# Elements that are measured with: the first warms up.
SAMPLES = 6
# Of the deterministic work, what has to stand before the cut.
SHARE = 0.9
# The same where all of it could: what is left for each epoch must be little beside it, not next to nothing.
_SHARE_OF_ALL = 0.75
# Less work than this is not worth the call of another function, 47 to 125 µs (docs/model.md).
LEAST_SECONDS = 100e-6
# What is handed on is smaller by a cut where it is at most this share of the whole.
_SMALLER = 0.8
_UNCHANGED = "assumes that the {} its function reads do not change"


@dataclass(frozen=True, eq=False)
class Split:
    """A map's function in two halves.

    Attributes:
      first: traced function wrapper of what is the same in each epoch, from the map's elements to those between.
      rest: traced function wrapper from the elements between to what the map returns.
      crossing: specs of the elements between, a tuple of tensors.
      crossing_bytes: of an element between, as measured: tensors, and 96 bytes for each of them.
      first_seconds: work of `first` per element, as measured: its operations' own times, one after the other.
      deterministic_seconds: the most that could stand before a cut.
      assumptions: what is taken for granted, in words; empty if nothing.
      why: why the rest must stay behind, in words; "" if nothing has to.
      before, behind: the graphs of the halves.
    """

    first: Any
    rest: Any
    crossing: tuple[tf.TensorSpec, ...]
    crossing_bytes: float
    first_seconds: float
    deterministic_seconds: float
    assumptions: tuple[str, ...]
    why: str
    before: Part = field(repr=False)
    behind: Part = field(repr=False)
    sides: Sides = field(repr=False)


def split_at_randomness(
    map_dataset: Any, *, pipeline: Any = None, samples: int = SAMPLES, share: float = SHARE
) -> Split:
    """Cuts between what is the same in each epoch and what is not.

    Args:
      map_dataset: the dataset object of a map, sequential or parallel.
      pipeline: the last dataset of the pipeline in which it stands: whatever that writes is not read before
        the cut. None: there is nothing above the map.
      samples: elements that bytes and times are measured with. They are read from a copy of the input.
      share: of the deterministic work that stands before the cut; of all cuts that hold so much, the one
        with the fewest bytes is taken.

    Raises:
      Refused: it cannot be cut, or there is nothing to gain; the message says why.
    """
    found = _Function(map_dataset, pipeline, samples)
    if not found.causes:
        raise Refused("the function is the same in each epoch: a cache may stand behind it")
    return found.split(_fewest(found.cuts, share))


def split_at_fewest_bytes(
    map_dataset: Any, *, pipeline: Any = None, samples: int = SAMPLES, share: float = _SHARE_OF_ALL
) -> Split:
    """Cuts a function that is the same in each epoch where fewer bytes cross than it returns.

    A cast or a resize that is cheap and makes the element larger is then done anew in each epoch. Arguments and
    errors as for `split_at_randomness`.
    """
    found = _Function(map_dataset, pipeline, samples)
    if found.causes:
        raise Refused(f"the function {found.causes}: cut it there")
    cut = _fewest(found.cuts, share)
    if cut.bytes > _SMALLER * found.cuts[0].bytes:
        raise Refused("nowhere behind its costly part does the function hold fewer bytes than it returns")
    return found.split(cut)


def splits_of(
    map_dataset: Any,
    *,
    pipeline: Any = None,
    samples: int = SAMPLES,
    share: float = 0.5,
    most: int = 4,
    whole: bool = False,
) -> list[Split]:
    """All splits that are worth a look, the one that saves most first; each holds fewer bytes than the last.

    Where nothing is random, only those that hold fewer bytes than the function returns. Arguments and errors as
    for `split_at_randomness`.

    Args:
      most: so many at most.
      whole: where nothing is random, also the split behind all of its work: for a map on whose output no cache may
        stand, while one may below a shuffle.
    """
    found = _Function(map_dataset, pipeline, samples)
    enough = [one for one in found.cuts if one.seconds >= share * found.cuts[0].seconds]
    held = float("inf") if found.causes or whole else found.cuts[0].bytes
    taken: list[Split] = []
    for one in enough:
        if one.bytes <= _SMALLER * held and len(taken) < most:
            held = one.bytes
            taken.append(found.split(one))
    if not taken:
        raise Refused("nowhere behind its costly part does the function hold fewer bytes than it returns")
    return taken


def applied(
    split: Split,
    map_dataset: Any,
    input_dataset: Any,
    *,
    between: Callable[[Any], Any],
    through: bool = False,
    pipeline: Any = None,
) -> Any:
    """The map in two halves.

    Args:
      split: of that map.
      map_dataset: the dataset object of the map; both halves have its settings and its name.
      input_dataset: what the first half takes its elements from.
      between: what stands between the halves, such as a cache, over the first half; the elements stay.
      through: the first half and what is between go below the shuffles, repeats and prefetches at the end of
        the input, and below maps among them that do the same in each epoch (`lowering`).
      pipeline: as for `split_at_randomness`, where it goes through maps.

    Raises:
      Refused: it cannot be made.
    """
    if input_dataset.element_spec != map_dataset._input_dataset.element_spec:
        raise Refused("the elements of its input are not those that its function was traced for")

    def half(below: Any) -> Any:
        first = mapped(map_dataset, below, split.first)
        construction.stand_for(first, map_dataset)
        middle = between(first)
        if middle.element_spec != first.element_spec:
            raise Refused("what stands between the halves changes the elements")
        return middle

    with tf.init_scope():
        if through:
            written = resources.written_by(map_dataset if pipeline is None else pipeline)
            middle = lowered(passage(input_dataset, written), half)
        else:
            middle = half(input_dataset)
        made = mapped(map_dataset, middle, split.rest)
        construction.stand_for(made, map_dataset)
    if made.element_spec != map_dataset.element_spec:
        raise Refused("the halves together would give elements of another kind")
    return made


def is_map(dataset: Any) -> bool:
    """Whether a dataset object is a map whose function may be cut."""
    return type(dataset).__name__ in MAPS


class _Function:
    """The function of a map, and all that is needed to cut it.

    Attributes:
      cuts: the cuts that are cheapest at some price, those that save most first.
      causes: why a part of it must stay behind the cut, in words; "" if nothing must.
    """

    def __init__(self, map_dataset: Any, pipeline: Any, samples: int) -> None:
        if not is_map(map_dataset):
            raise Refused(f"{type(map_dataset).__name__} is no map")
        with tf.init_scope():
            self._flat = flattened(map_dataset._map_func)
            written = resources.written_by(map_dataset if pipeline is None else pipeline)
            trusting = sides_of(self._flat, written, trusting=True)
            self._refuse_if_nothing(trusting)
            costs = measured(self._flat, trusting, map_dataset, samples)
            self._sides, self.cuts = self._without_trust(written, costs) or (
                trusting,
                cuts(self._flat, trusting, costs),
            )
        self.causes = _why(self._flat, self._sides)
        best = self.cuts[0].seconds
        if best < LEAST_SECONDS:
            why = f": the function {self.causes}" if self.causes else ""
            raise Refused(f"only {best * 1e6:.0f} µs of its work could be done before a cut{why}")

    def split(self, cut: Cut) -> Split:
        flat, sides = self._flat, self._sides
        if not cut.crossing:
            raise Refused("the rest of the function takes nothing of what could be cached")
        before = part(flat, takes=flat.arguments, gives=cut.crossing, runs=cut.first, free=sides.free)
        every = {one.name for one in flat.operations}
        behind = part(
            flat,
            takes=cut.crossing,
            gives=flat.outputs,
            runs=every - cut.first - sides.free - flat.placeholders,
            free=sides.free,
        )
        crossing = specs_of(flat, cut.crossing)
        return Split(
            first=traced(lambda given: before(given)[0], flat),
            rest=traced(
                lambda given: behind(given)[0],
                flat,
                takes=crossing,
                gives=flat.wrapper._output_structure,
            ),
            crossing=crossing,
            crossing_bytes=cut.bytes,
            first_seconds=cut.seconds,
            deterministic_seconds=self.cuts[0].seconds,
            assumptions=_assumptions(sides, cut),
            why=self.causes,
            before=before,
            behind=behind,
            sides=sides,
        )

    def _without_trust(self, written: resources.Written, costs: Costs) -> tuple[Sides, list[Cut]] | None:
        """The same with everything behind the cut that reads what somebody might change, if that costs little."""
        careful = sides_of(self._flat, written, trusting=False)
        names = {one.name for one in careful.first(self._flat)}
        kept = sum(seconds for name, seconds in costs.seconds.items() if name in names)
        if kept < SHARE * sum(costs.seconds.values()):
            return None
        # Only what may go before the cut has a time to be saved.
        seconds = {name: each for name, each in costs.seconds.items() if name in names}
        return careful, cuts(self._flat, careful, Costs(seconds, costs.bytes, costs.elements))

    def _refuse_if_nothing(self, sides: Sides) -> None:
        if not sides.first(self._flat):
            why = _why(self._flat, sides) or "only computes what is the same for all elements"
            raise Refused(f"nothing can be done before the cut: the function {why}")


def _fewest(found: list[Cut], share: float) -> Cut:
    """Of the cuts that save most of what can be saved, the one with the fewest bytes."""
    enough = [one for one in found if one.seconds >= share * found[0].seconds]
    return min(enough, key=lambda one: one.bytes)


def _why(flat: Flat, sides: Sides) -> str:
    """The reason from which most operations behind the cut follow; "" if none has a reason of its own."""
    reasons: dict[str, frozenset[str]] = {}
    for one in flat.operations:
        before = [*(value.op.name for value in one.inputs), *(each.name for each in one.control_inputs)]
        own = frozenset({sides.rest[one.name]} if one.name in sides.causes else ())
        reasons[one.name] = own.union(*(reasons.get(name, frozenset()) for name in before))
    counted = Counter(reason for one in reasons.values() for reason in one)
    return counted.most_common(1)[0][0] if counted else ""


def _assumptions(sides: Sides, cut: Cut) -> tuple[str, ...]:
    read = sorted({what for name, what in sides.reads.items() if name in cut.first})
    return tuple(_UNCHANGED.format(f"{what.removeprefix('a ')}s") for what in read)
