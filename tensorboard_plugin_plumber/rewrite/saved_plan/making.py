"""A saved plan, made in a dataset: by its objects, and in functions' bodies at the calls of the code that builds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tensorboard_plugin_plumber.rewrite.saved_plan.matching import (
    MEMORY_SHARE,
    match_dataset,
    path_of_cache,
)
from tensorboard_plugin_plumber.rewrite.saved_plan.values import SavedPlan
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

if TYPE_CHECKING:
    from tensorboard_plugin_plumber.rewrite.planned import Place


@dataclass(frozen=True)
class Made:
    """A dataset with a plan in force.

    Attributes:
      dataset: the dataset.
      changes: those that are in force, at the operators' ids before them.
      notes: what is different here, and what was left out; one sentence each.
    """

    dataset: Any
    changes: tuple[a.Change, ...]
    notes: tuple[str, ...]


def made_in(
    saved: SavedPlan,
    dataset: Any,
    *,
    again: Callable[[], Any] | None = None,
    memory_share: float = MEMORY_SHARE,
    memory_bytes: float | None = None,
    cache: Callable[[a.Change], Any] | None = None,
) -> Made:
    """The dataset with a saved plan in force.

    Args:
      saved: the plan.
      dataset: an eager `tf.data.Dataset`; it is not touched.
      again: builds the same dataset once more; without it, what stands in functions' bodies is out of reach. It is
        called only if the plan changes anything there.
      memory_share, memory_bytes, cache: as for `matching.matched`.

    Raises:
      Mismatch: its pipeline is not the one that the plan was made for.
      Refused (of `rebuild`): a change cannot be made.
      tf.errors.OpError, ValueError: the dataset cannot be described.
    """
    from tensorboard_plugin_plumber.rewrite import planned, rebuild

    found = match_dataset(saved, dataset, memory_share=memory_share, memory_bytes=memory_bytes)
    places = planned.places_of(dataset)
    beyond = planned.out_of_reach(places)
    within = [one for one in found.changes if one.operator not in beyond]
    notes, enclosed = list(found.notes), [one for one in found.changes if one.operator in beyond]
    names: Mapping[str, str] = {name: name for name in places}
    if enclosed and again is not None:
        dataset, enclosed, missed = _built_again(found.plan, beyond, again, enclosed)
        notes += missed
        new_places = planned.places_of(dataset)
        names, places = _renamed(places, new_places), new_places
    elif enclosed:
        notes += [
            f"{_named(found.plan, one)} is left out: it stands in a function's body." for one in enclosed
        ]
        enclosed = []
    edits = planned.edits_of([_moved(one, names) for one in within], places, cache or path_of_cache)
    kept = {id(one) for one in (*within, *enclosed)}
    changes = tuple(one for one in found.changes if id(one) in kept)
    return Made(rebuild.rebuilt(dataset, edits), changes, tuple(notes))


def _built_again(
    plan: SavedPlan, beyond: frozenset[str], again: Callable[[], Any], enclosed: Sequence[a.Change]
) -> tuple[Any, list[a.Change], tuple[str, ...]]:
    """(the dataset built with the plan's settings in bodies, the changes that were made, sentences on the others)."""
    from tensorboard_plugin_plumber.rewrite.call_sites import applying

    inside = replace(plan, changes=tuple(one for one in plan.changes if one.operator in beyond))
    with applying(inside) as application:
        dataset = again()
    done = application.applied()
    made = [change for change, one in zip(enclosed, inside.changes, strict=True) if one in done.changes]
    return dataset, made, done.missed


def _renamed(before: Mapping[str, Place], after: Mapping[str, Place]) -> Mapping[str, str]:
    """Ids of the operators that are in reach: what is added in bodies moves those that follow."""
    old, new = (
        [name for name, place in places.items() if place.dataset is not None] for places in (before, after)
    )
    return dict(zip(old, new, strict=True))


def _moved(change: a.Change, names: Mapping[str, str]) -> a.Change:
    if not change.operator:
        return change
    moved = a.Change()
    moved.CopyFrom(change)
    moved.operator = names[change.operator]
    return moved


def _named(plan: SavedPlan, change: a.Change) -> str:
    kind = a.ChangeKind.Name(change.kind).removeprefix("CHANGE_KIND_").lower()
    return f"{change.code or kind} at {plan.operator(change.operator)}"
