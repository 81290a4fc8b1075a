"""Which operator of a saved plan a call makes: by file, line and method, by the function it is given, and by order."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tensorboard_plugin_plumber.capture import construction, places
from tensorboard_plugin_plumber.capture.digests import code_digest, comparable
from tensorboard_plugin_plumber.patch.diff import method_of
from tensorboard_plugin_plumber.rewrite.saved_plan.values import SavedChange, SavedOperator, SavedPlan

_ARGUMENTS = {
    "parallelism": "num_parallel_calls",
    "order": "deterministic",
    "unbounded": "use_unbounded_threadpool",
}
#: Arguments of a call that a plan knows by these names too.
_SETTINGS = ("batch_size", "drop_remainder", "buffer_size", "count")


class NotHere(Exception):
    """A call at a line of the plan is not the one that the plan means; the message says why, without a full stop."""


@dataclass(frozen=True)
class Site:
    """What becomes of the call that makes one operator.

    Attributes:
      operator: of the plan.
      arguments: changes that are arguments of the call, by the arguments' names.
      cache, prefetch: changes that follow on its result.
      enclosed: the call is made while a function is traced.
      also: changes of other operators that the same call makes; what becomes of one becomes of those of its kind.
    """

    operator: SavedOperator
    arguments: tuple[tuple[str, SavedChange], ...] = ()
    cache: SavedChange | None = None
    prefetch: SavedChange | None = None
    enclosed: bool = False
    also: tuple[SavedChange, ...] = ()

    @property
    def changes(self) -> tuple[SavedChange, ...]:
        """All of its changes."""
        behind = (one for one in (self.cache, self.prefetch) if one is not None)
        return (*(change for _, change in self.arguments), *behind)

    @property
    def wanted(self) -> tuple[object, ...]:
        """What is equal for operators of which the same becomes."""
        return tuple((one.kind, one.to) for one in self.changes)


@dataclass(frozen=True)
class Called:
    """One call of the user's.

    Attributes:
      place: base name of the file, line, and method.
      inputs: the datasets that it is made of.
      function: that it is given; None if none.
      settings: its arguments by their names.
    """

    place: tuple[str, int, str]
    inputs: tuple[Any, ...] = ()
    function: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)


class Sites:
    """The operators of a plan by the places of their calls.

    Args:
      plan: the saved plan.
      changes: what of it is to be made; those of operators, and of kinds that a call can make.
    """

    def __init__(self, plan: SavedPlan, changes: Iterable[SavedChange]) -> None:
        self._parents = {one.id: one.parent for one in plan.operators}
        enclosed: dict[str, bool] = {}
        sites: dict[str, Site] = {}
        for one in plan.operators:
            enclosed[one.id] = one.in_body or enclosed.get(one.parent, False)
            if not one.same_as:  # one call makes one object, at however many places it is read
                sites[one.id] = Site(one, enclosed=enclosed[one.id])
        for change in changes:
            id_ = plan.operator(change.operator).same_as or change.operator
            sites[id_] = _with(sites[id_], change)
        self._at: dict[tuple[str, int, str], list[Site]] = {}
        for site in sites.values():
            one = site.operator
            if one.line:
                self._at.setdefault((one.file, one.line, method_of(one.type)), []).append(site)

        self._files = {file for file, _, _ in self._at}
        last = plan.operators[0]
        #: Where the pipeline's last operator is made.
        self.last = (last.file, last.line, method_of(last.type))

    def know_file(self, path: str) -> bool:
        """Whether any operator comes from that file."""
        return os.path.basename(path) in self._files

    def at(self, place: tuple[str, int, str]) -> tuple[Site, ...]:
        """The sites at a place; none if nothing changes there."""
        found = self._at.get(place, ())
        return tuple(found) if any(site.changes for site in found) else ()

    def of(self, called: Called) -> Site:
        """The site of a call.

        Raises:
          NotHere: none, or nobody can tell which.
        """
        found = self._at.get(called.place, [])
        if called.function is not None:
            found = self._with_function(found, called)
        found = [one for one in found if _same_settings(one.operator, called.settings)]
        if not found:
            raise NotHere("the call there is given something else than when the plan was made")
        if len(found) > 1:
            below = _made_below(called)
            found = [one for one in found if self._below(one, found) == below] or found
        if len({one.wanted for one in found}) > 1:
            raise NotHere(f"{len(found)} operators come from that line, and nobody can tell which is which")
        others = (change for one in found[1:] for change in (*one.changes, *one.also))
        return replace(found[0], also=(*found[0].also, *others))

    def _with_function(self, found: list[Site], called: Called) -> list[Site]:
        """Those that may have the function of the call."""
        digest = code_digest(places.code_of(called.function))
        same = [one for one in found if comparable(one.operator.code, digest) and one.operator.code == digest]
        if same:
            return same
        # One that is written otherwise may do the same: its graph will tell.
        name = places.function_name(called.function)
        return [
            one
            for one in found
            if one.operator.function in ("", name)
            and (not comparable(one.operator.code, digest) or one.operator.graph)
        ]

    def _below(self, site: Site, among: list[Site]) -> int:
        """How many of these operators its elements come from."""
        ids = {one.operator.id for one in among}
        return sum(self._is_below(other, site.operator.id) for other in ids)

    def _is_below(self, id_: str, upper: str) -> bool:
        while id_:
            id_ = self._parents[id_]
            if id_ == upper:
                return True
        return False


def place_of(call: places.Call) -> tuple[str, int, str]:
    """The key of a call."""
    return os.path.basename(call.path), call.line, call.method


def made_by_class(dataset: Any) -> tuple[str, int, str] | None:
    """The key of the call of a class that made a dataset (`tf.data.TFRecordDataset(…)`); None if none did."""
    made = construction.construction_of(dataset)
    if made is None or made.call is None or made.method != "__init__":
        return None
    name = re.sub(r"V\d+$", "", type(dataset).__name__)
    return os.path.basename(made.call.path), made.call.line, name


def _with(site: Site, change: SavedChange) -> Site:
    if any(one.kind == change.kind for one in site.changes):  # at another place of the same dataset
        return replace(site, also=(*site.also, change))
    if change.kind == "cache":
        return replace(site, cache=change)
    if change.kind == "prefetch":
        return replace(site, prefetch=change)
    return replace(site, arguments=(*site.arguments, (_ARGUMENTS[change.kind], change)))


def can_be_made(change: SavedChange) -> bool:
    """Whether a call can make a change of that kind."""
    return change.kind in _ARGUMENTS or change.kind in ("cache", "prefetch")


def _same_settings(operator: SavedOperator, settings: Mapping[str, Any]) -> bool:
    for name in _SETTINGS:
        was, given = operator.settings.get(name), settings.get(name)
        if isinstance(given, int) and was is not None and was != given:
            return False
    return True


def _made_below(called: Called) -> int:
    """How many of the datasets that a call is made of were made by the like of it."""
    digest = code_digest(places.code_of(called.function)) if called.function is not None else ""
    found, seen, waiting = 0, set[int](), list(called.inputs)
    while waiting:
        dataset = waiting.pop()
        if id(dataset) in seen:
            continue
        seen.add(id(dataset))
        waiting += construction.inputs_of(dataset)
        made = construction.construction_of(dataset)
        if made is None or made.call is None or made.call.method != called.place[2]:
            continue
        if place_of(made.call) == called.place and (
            not digest or digest in {code_digest(one.code) for one in made.functions.values()}
        ):
            found += 1
    return found
