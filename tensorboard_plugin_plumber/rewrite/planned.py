"""From the changes of a plan, which name operators, to edits of the dataset objects that have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture import elsewhere, written
from tensorboard_plugin_plumber.rewrite.rebuild import Edit, Edits, Refused
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: The word of a setting that leaves a number to TensorFlow.
_AUTOTUNE = "autotune"


@dataclass(frozen=True)
class Place:
    """Where an operator of the user's stands.

    Attributes:
      type: as the user would name it.
      dataset: the object that has it; None inside a function's body, where objects are gone.
    """

    type: str
    dataset: Any


def places_of(dataset: Any) -> Mapping[str, Place]:
    """The places of a dataset's operators, by the ids that `capture.describe` gives them.

    Args:
      dataset: an eager `tf.data.Dataset`; a copy of it has the same ids.

    Raises:
      Refused: TensorFlow cannot say what the dataset consists of.
    """
    try:
        with tf.init_scope(), tf.device("/CPU:0"):
            found = elsewhere.read(dataset)
    except (tf.errors.OpError, ValueError) as error:
        raise Refused(f"the pipeline cannot be read: {error}") from error
    root = written.operators_of(found.written, dataset)
    return {
        one.id: Place(one.type, None if one.in_body else one.pair.dataset)
        for one in root.walk()
        if not one.foreign
    }


def out_of_reach(places: Mapping[str, Place]) -> frozenset[str]:
    """Ids of the operators that no edit can change."""
    return frozenset(name for name, place in places.items() if place.dataset is None)


def check_same(places: Mapping[str, Place], operators: Iterable[a.OperatorRow | m.Operator]) -> None:
    """Sees to it that places and the operators of a recording are those of one pipeline.

    Raises:
      Refused: they are not.
    """
    recorded = {one.id: one.type for one in operators if not one.injected}
    if recorded != {name: place.type for name, place in places.items()}:
        raise Refused("the pipeline is not the one that was traced: its operators are others")


def edits_of(
    changes: Iterable[a.Change],
    places: Mapping[str, Place],
    cache: Callable[[a.Change], Any],
) -> Edits:
    """The edits that make the changes of a plan.

    Args:
      changes: of a `Plan`.
      places: of the dataset that is to change.
      cache: what `Edit.cache` becomes for a change of that kind.

    Raises:
      Refused: a change is of no kind that can be made, or its operator cannot be reached.
    """
    operators: dict[int, Edit] = {}
    threadpool_size = None
    for change in changes:
        if change.kind == a.CHANGE_KIND_THREADPOOL:
            threadpool_size = int(change.to.number)
            continue
        place = places.get(change.operator)
        if place is None or place.dataset is None:
            kind = a.ChangeKind.Name(change.kind).removeprefix("CHANGE_KIND_").lower()
            where = f"{change.operator} ({place.type})" if place is not None else change.operator
            raise Refused(f"the change of {kind} at {where} is out of reach: it stands in a function's body")
        key = id(place.dataset)
        operators[key] = _changed(operators.get(key, Edit()), change, cache)
    return Edits(operators, threadpool_size)


def _changed(edit: Edit, change: a.Change, cache: Callable[[a.Change], Any]) -> Edit:
    """The edit with one change more at the same operator."""
    if change.kind == a.CHANGE_KIND_PARALLELISM:
        return replace(edit, calls=_number(change.to))
    if change.kind == a.CHANGE_KIND_UNBOUNDED:
        return replace(edit, unbounded=True)
    if change.kind == a.CHANGE_KIND_PREFETCH:
        return replace(edit, prefetch=_number(change.to))
    if change.kind == a.CHANGE_KIND_CACHE:
        return replace(edit, cache=cache(change))
    raise Refused(f"no edit makes a change of {a.ChangeKind.Name(change.kind)}")


def _number(setting: a.Setting) -> int:
    if setting.word == _AUTOTUNE:
        return int(tf.data.AUTOTUNE)
    return int(setting.number)
