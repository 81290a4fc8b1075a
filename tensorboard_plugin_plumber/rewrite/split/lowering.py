"""The first half and its cache below a shuffle: `input → first → cache → shuffle → rest`.

No cache may stand above a shuffle, and people shuffle records before they decode them. But a shuffle, a
repeat and a prefetch do not look at what an element holds: what is done to each element alone may as well be
done before them, and each element comes out at the same place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.capture.remake import CannotRemake, arguments_of, remade
from tensorboard_plugin_plumber.capture.survey import traced_of
from tensorboard_plugin_plumber.rewrite.rebuild import Refused
from tensorboard_plugin_plumber.rewrite.split import resources
from tensorboard_plugin_plumber.rewrite.split.flat import flattened
from tensorboard_plugin_plumber.rewrite.split.sides import sides_of

MAPS = frozenset({"_MapDataset", "_ParallelMapDataset"})
# They hand each element on as it is, and choose its place without looking at it.
_BLIND = frozenset({"_ShuffleDataset", "_RepeatDataset", "_PrefetchDataset"})


@dataclass(frozen=True, eq=False)
class Passage:
    """What stands above the place to which the first half may go.

    Attributes:
      base: the dataset at that place.
      blind: the operators that the first half passes, from the last down; they come to stand above it.
      maps: maps among them that do the same in each epoch, from the last down; they stay below the first half.
    """

    base: Any
    blind: tuple[Any, ...]
    maps: tuple[Any, ...]

    @property
    def buffered(self) -> int:
        """Elements that its shuffles hold, at most."""
        sizes = (int(one._buffer_size) for one in self.blind if type(one).__name__ == "_ShuffleDataset")
        return sum(sizes)


def passage(input_dataset: Any, written: resources.Written) -> Passage:
    """As far down from a map's input as its first half may go.

    Args:
      written: what the whole pipeline writes.
    """
    passed: list[Any] = []
    below = input_dataset
    while type(below).__name__ in _BLIND or _is_the_same_each_time(below, written):
        passed.append(below)
        below = below._input_dataset
    # Maps below all that has to be passed stay where they are.
    while passed and type(passed[-1]).__name__ in MAPS:
        below = passed.pop()
    return Passage(
        below,
        tuple(one for one in passed if type(one).__name__ in _BLIND),
        tuple(one for one in passed if type(one).__name__ in MAPS),
    )


def lowered(way: Passage, first: Callable[[Any], Any]) -> Any:
    """What the rest takes its elements from: the operators that were passed, over the first half.

    Args:
      first: from what the map took its elements from, in the order of the base, to what stands between the halves.

    Raises:
      Refused: one of the operators cannot be made again.
    """
    made = way.base
    for one in reversed(way.maps):
        made = _over(one, made)
    made = first(made)
    for one in reversed(way.blind):
        made = _over(one, made)
    return made


def _over(dataset: Any, input_dataset: Any) -> Any:
    try:
        arguments = {**arguments_of(dataset), "input_dataset": input_dataset}
        made = remade(dataset, arguments, traced_of(dataset))
    except CannotRemake as error:
        raise Refused(str(error)) from error
    construction.stand_for(made, dataset)
    return made


def _is_the_same_each_time(dataset: Any, written: resources.Written) -> bool:
    """Whether it is a map that does the same to an element in each epoch."""
    if type(dataset).__name__ not in MAPS:
        return False
    try:
        return not sides_of(flattened(dataset._map_func), written, trusting=True).causes
    except Refused:
        return False
