"""Copies of a pipeline in which chance is held still, so that what two pipelines do to their elements can be compared.

Nothing of the original is touched: its shuffles do not go on, its caches are not filled, its generators draw nothing.
What a seed decides is left as it is; what nothing decides is decided by one fixed seed, in all copies the same.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.capture.remake import CannotRemake, Seeds, arguments_with, remade
from tensorboard_plugin_plumber.capture.survey import PLAIN, Survey, traced_of
from tensorboard_plugin_plumber.rewrite.held_functions import SEED, CannotHold, Holder, name_of

# They drop elements by what is in them.
_DROPPERS = frozenset({"_FilterDataset", "_UniqueDataset"})


@dataclass(frozen=True)
class Held:
    """A copy.

    Attributes:
      dataset: to be iterated; it shares sources, variables and tables with the original.
      draws: ops and datasets whose draws were held still.
      caches: it keeps elements in memory.
      may_stall: its functions draw the same at each call, and something drops elements: perhaps all of them.
    """

    dataset: Any
    draws: tuple[str, ...]
    caches: bool
    may_stall: bool


def unordered_functions(dataset: Any) -> frozenset[str]:
    """Library names of the functions that a pipeline calls in parallel: what they draw with a seed is in no order."""
    survey = Survey()
    survey.look_at(dataset)
    return frozenset(
        name_of(wrapper)
        for one in survey.order
        if getattr(one, "_num_parallel_calls", None) is not None
        for wrapper in traced_of(one)
    )


def held(dataset: Any, *, unordered: Collection[str] = ()) -> Held:
    """A copy of a pipeline with chance held still, its order included.

    Args:
      dataset: an eager `tf.data.Dataset`.
      unordered: functions whose seeded draws are left to chance, too, as `unordered_functions` gives them: of
        the original for both, so that a rewrite that puts draws out of order does not go unnoticed.

    Raises:
      CannotHold: an operator cannot be made again, or draws in a way that is not understood.
    """
    with tf.init_scope():
        survey = Survey()
        survey.look_at(dataset)
        copier = _Copier(unordered)
        try:
            for one in survey.order:  # from below, so that no long chain has to be walked down
                copier.copy(one)
        except CannotRemake as error:
            raise CannotHold(str(error)) from error
        names = {type(one).__name__ for one in survey.order}
        return Held(
            copier.copy(dataset),
            tuple(dict.fromkeys((*copier.draws, *copier.holder.draws))),
            "CacheDataset" in names,
            bool(copier.holder.draws and names & _DROPPERS),
        )


def plainly_cached(dataset: Any) -> Any:
    """The dataset with TensorFlow's own caches in memory in the place of guarded ones, which cannot be described.

    Raises:
      CannotHold: what stands above one cannot be made again.
    """
    survey = Survey()
    survey.look_at(dataset)
    made: dict[int, Any] = {}

    def again(one: Any) -> Any:
        return made.get(id(one), one)

    try:
        for one in survey.order:
            if hasattr(one, PLAIN):  # gives the same as a plain one, which writes nothing
                made[id(one)] = again(construction.inputs_of(one)[0]).cache()
            elif any(again(below) is not below for below in construction.inputs_of(one)):
                made[id(one)] = remade(one, arguments_with(one, again), traced_of(one))
                construction.stand_for(made[id(one)], one)
    except CannotRemake as error:
        raise CannotHold(str(error)) from error
    return again(dataset)


class _Copier:
    """Copies of datasets, each made once."""

    def __init__(self, unordered: Collection[str]) -> None:
        self.holder = Holder(unordered)
        self.draws: list[str] = []
        self._copies: dict[int, Any] = {}

    def copy(self, dataset: Any) -> Any:
        """The dataset itself if it is a source without a state of its own, else a copy."""
        made = self._copies.get(id(dataset))
        if made is None:
            made = self._copies[id(dataset)] = self._copy(dataset)
        return made

    def _copy(self, dataset: Any) -> Any:
        # A random source may draw anew for each iterator, and then it counts them.
        if not construction.inputs_of(dataset) and not hasattr(dataset, "_seed"):
            return dataset
        arguments = arguments_with(dataset, self.copy)
        functions = [self.holder.wrapper(one) for one in traced_of(dataset)]
        made = remade(dataset, self._without_chance(dataset, arguments), functions)
        construction.stand_for(made, dataset)
        return made

    def _without_chance(self, dataset: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        changed = dict(arguments)
        if (
            "seed" in arguments
            and hasattr(dataset, "_seed")
            and not (_any(dataset._seed) or _any(dataset._seed2))
        ):
            changed["seed"] = Seeds(SEED, SEED)
            self.draws.append(type(dataset).__name__.strip("_"))
        if arguments.get("deterministic") is False:
            changed["deterministic"] = True
        if arguments.get("sloppy") is True:
            changed["sloppy"] = False
        if type(dataset).__name__ == "_OptionsDataset":
            changed["options"] = _in_order(arguments["options"])
        if type(dataset).__name__ == "CacheDataset" and not _is_whole(dataset):
            changed["filename"] = ""  # nothing is written where the user's own iterators will
        return changed


def _any(seed: Any) -> bool:
    return bool(seed.numpy() if hasattr(seed, "numpy") else seed)


def _in_order(options: Any) -> Any:
    """The options, order kept."""
    if options.deterministic is not False:
        return options
    kept = tf.data.Options()
    kept.deterministic = True
    return options.merge(kept)


def _is_whole(cache: Any) -> bool:
    """Whether a cache lies whole in its file: reading it changes nothing."""
    path = os.fsdecode(cache._filename.numpy())
    return bool(path) and os.path.exists(f"{path}.index")
