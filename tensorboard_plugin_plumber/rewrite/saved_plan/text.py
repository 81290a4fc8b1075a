"""A saved plan as JSON.

The file is for people too: numbers under "changes" may be edited by hand. What a plan is known by may not: "structure"
is a digest of "operators", and one that does not fit is damage.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tensorboard_plugin_plumber.rewrite.saved_plan.values import (
    Origin,
    SavedChange,
    SavedOperator,
    SavedPlan,
    Setting,
)
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

#: Raised when an older reader would misread the file: it refuses what is newer than itself.
VERSION = 1
FORMAT = "plumber-plan"

_KINDS = frozenset(
    name.removeprefix("CHANGE_KIND_").lower()
    for name, value in a.ChangeKind.items()
    if value != a.CHANGE_KIND_UNSPECIFIED
)
_NAMES = {"before": "from"}
_ID = re.compile(r"op\d+")


class Damaged(ValueError):
    """The text is no saved plan, or none that this version of Plumber reads; the message says why."""


def to_json(plan: SavedPlan) -> str:
    """The plan as text, the same for the same plan; `from_json` reads it on any host."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "origin": _written(plan.origin),
        "predicted_rate": plan.predicted_rate,
        "low": plan.low,
        "high": plan.high,
        "observed_rate": plan.observed_rate,
        "memory_bytes": plan.memory_bytes,
        "assumptions": list(plan.assumptions),
        "changes": [_written(one) for one in plan.changes],
        "structure": plan.structure,
        "operators": [_written(one) for one in plan.operators],
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str) -> SavedPlan:
    """The plan that `to_json` wrote.

    Raises:
      Damaged: it is no plan, or a part of it is missing or makes no sense, or it comes from a newer Plumber.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"it is no JSON, or is cut short: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise Damaged(f'it is JSON, but no saved plan: "format" is not "{FORMAT}"')
    version = content.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise Damaged(f'"version" is {version!r}, which no Plumber has written')
    if version > VERSION:
        raise Damaged(
            f"it has version {version}, and this Plumber reads up to {VERSION}: "
            "upgrade tensorboard-plugin-plumber, or trace again"
        )
    return _plan(_Reader(content, ""))


def _written(value: Any) -> dict[str, Any]:
    fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
    return {
        _NAMES.get(name, name): dict(one) if isinstance(one, Mapping) else one for name, one in fields.items()
    }


def _plan(content: _Reader) -> SavedPlan:
    origin = content.inner("origin")
    operators = tuple(_operator(one) for one in content.each("operators"))
    plan = SavedPlan(
        Origin(
            origin.number("time_s"),
            origin.text("plumber"),
            origin.text("run"),
            origin.text("host"),
            origin.number("cores"),
            origin.number("memory_bytes"),
        ),
        operators,
        tuple(_change(one) for one in content.each("changes")),
        content.number_or_none("predicted_rate"),
        content.number_or_none("low"),
        content.number_or_none("high"),
        content.number_or_none("observed_rate"),
        content.number("memory_bytes"),
        content.texts("assumptions"),
    )
    _check(plan, content.text("structure"))
    return plan


def _check(plan: SavedPlan, structure: str) -> None:
    if not plan.operators:
        raise Damaged('"operators" is empty')
    if [one.id for one in plan.operators] != [f"op{i}" for i in range(len(plan.operators))]:
        raise Damaged('"operators" are not numbered op0, op1, …')
    before: set[str] = set()
    for one in plan.operators:
        if one.parent not in before and (one.parent or before):
            raise Damaged(f"the parent of {one.id} is {one.parent!r}, which does not stand before it")
        if one.same_as not in before | {""}:
            raise Damaged(f"{one.id} is the same as {one.same_as!r}, which does not stand before it")
        before.add(one.id)
    if structure != plan.structure:
        raise Damaged('"operators" are not those that it was saved with: "structure" does not fit them')
    for change in plan.changes:
        if change.operator and change.operator not in before:
            raise Damaged(f'a change names {change.operator!r}, which is not among "operators"')
        if not change.operator and change.kind != "threadpool":
            raise Damaged(f"a change of {change.kind} names no operator")


def _operator(content: _Reader) -> SavedOperator:
    settings = content.inner("settings").content
    if not all(isinstance(one, (int, str)) for one in settings.values()):
        raise Damaged(f"the settings at {content.where} are no numbers")
    id_ = content.text("id")
    if not _ID.fullmatch(id_):
        raise Damaged(f"{content.where}.id is {id_!r}, no operator's")
    return SavedOperator(
        id_,
        content.text("type"),
        content.text("label"),
        content.text("parent"),
        content.flag("in_body"),
        content.text("file"),
        content.integer("line"),
        content.text("scope"),
        content.text("function"),
        content.text("code"),
        content.text("graph"),
        content.text("same_as"),
        content.integer("elements"),
        settings,
    )


def _change(content: _Reader) -> SavedChange:
    kind = content.text("kind")
    if kind not in _KINDS:
        raise Damaged(f"{content.where}.kind is {kind!r}, none that this Plumber knows")
    return SavedChange(
        content.text("operator"),
        kind,
        content.setting("from"),
        content.setting("to"),
        content.text("code"),
        content.text("why"),
        content.number_or_none("memory_bytes"),
    )


class _Reader:
    """An object of the JSON; each of its methods raises Damaged where a value is missing or of another kind."""

    def __init__(self, content: Any, where: str) -> None:
        if not isinstance(content, dict):
            raise Damaged(f"{where} is no object")
        self.content: dict[str, Any] = content
        self.where = where

    def _value(self, name: str, kinds: type | tuple[type, ...], what: str) -> Any:
        if name not in self.content:
            raise Damaged(f"{self._name(name)} is missing")
        value = self.content[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise Damaged(f"{self._name(name)} is {value!r:.40}, not {what}")
        return value

    def _name(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    def text(self, name: str) -> str:
        value: str = self._value(name, str, "a text")
        return value

    def flag(self, name: str) -> bool:
        value: bool = self._value(name, bool, "true or false")
        return value

    def integer(self, name: str) -> int:
        value: int = self._value(name, int, "a whole number")
        return value

    def number(self, name: str) -> float:
        value = float(self._value(name, (int, float), "a number"))
        if not math.isfinite(value):
            raise Damaged(f"{self._name(name)} is {value}, not a number")
        return value

    def number_or_none(self, name: str) -> float | None:
        if name in self.content and self.content[name] is None:
            return None
        return self.number(name)

    def setting(self, name: str) -> Setting:
        value: Setting = self._value(name, (int, str), "a whole number or a word")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values: Sequence[Any] = self._value(name, list, "a list")
        if not all(isinstance(one, str) for one in values):
            raise Damaged(f"{self._name(name)} holds something else than texts")
        return tuple(values)

    def inner(self, name: str) -> _Reader:
        return _Reader(self._value(name, dict, "an object"), self._name(name))

    def each(self, name: str) -> list[_Reader]:
        values: Sequence[Any] = self._value(name, list, "a list")
        return [_Reader(one, f"{self._name(name)}[{i}]") for i, one in enumerate(values)]
