"""What is saved of a plan: its changes, and the whole pipeline that it was made for, operator by operator."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

from tensorboard_plugin_plumber._version import __version__
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

Setting: TypeAlias = "int | str"


class NotSavable(ValueError):
    """The plan changes more than settings of the operators as they were written; the message says what."""


@dataclass(frozen=True)
class SavedOperator:
    """One operator as it was written.

    Attributes:
      id: "op0" is the pipeline's last operator; numbered in pre-order, so the same for the same tree.
      type: "ParallelMap".
      label: the `name=` that it was given, else its function's name, else its type.
      parent: id of its consumer; "" at the last operator.
      in_body: it is made in the function of its parent.
      file: base name of the file that holds the call; "" if unknown.
      line: of the method's name at the call, from 1; 0 if unknown.
      scope: the function that holds the line.
      function: name of the function it was given; "" if it has none.
      code, graph: digests of that function (`capture.digests`); "" if unknown.
      same_as: id of an earlier one that is the same dataset object, which is read at both places; "" if none is.
      elements: in one pass of its output; negative if unknown or endless.
      settings: as written, by their names; those that other hosts may have otherwise are left out.
    """

    id: str
    type: str
    label: str = ""
    parent: str = ""
    in_body: bool = False
    file: str = ""
    line: int = 0
    scope: str = ""
    function: str = ""
    code: str = ""
    graph: str = ""
    same_as: str = ""
    elements: int = -2
    settings: Mapping[str, Setting] = field(default_factory=dict)

    def __str__(self) -> str:
        """ "Map decode (train.py:57)"."""
        words = f"{self.type} {self.label}" if self.label and self.label != self.type else self.type
        return f"{words} ({self.file}:{self.line})" if self.file else words


@dataclass(frozen=True)
class SavedChange:
    """One change.

    Attributes:
      operator: the one changed, or whose output is cached or prefetched; "" for the thread pool.
      kind: "parallelism", "cache" …: as in the JSON of a report.
      before, to: a number, or a word ("autotune", "none", "memory", a path).
      code: as the user would write it.
      why: in words.
      memory_bytes: of a memory cache: what it is expected to hold at most; None if unknown.
    """

    operator: str
    kind: str
    before: Setting
    to: Setting
    code: str = ""
    why: str = ""
    memory_bytes: float | None = None


@dataclass(frozen=True)
class Origin:
    """What a plan was made from.

    Attributes:
      time_s: Unix time.
      plumber: version.
      run, host: of the recording.
      cores, memory_bytes: what that process could use.
    """

    time_s: float
    plumber: str
    run: str
    host: str
    cores: float
    memory_bytes: float


@dataclass(frozen=True)
class SavedPlan:
    """A plan, and what the pipeline is known by.

    Attributes:
      origin: what it was made from.
      operators: the whole pipeline as it was written, in pre-order.
      changes: what is to change.
      predicted_rate, low, high: steps/s with the plan, and the interval's ends; None if unknown.
      observed_rate: steps/s without it.
      memory_bytes: what the plan adds.
      assumptions: what it takes for granted, one sentence each.
    """

    origin: Origin
    operators: tuple[SavedOperator, ...]
    changes: tuple[SavedChange, ...]
    predicted_rate: float | None = None
    low: float | None = None
    high: float | None = None
    observed_rate: float | None = None
    memory_bytes: float = 0.0
    assumptions: tuple[str, ...] = ()

    @property
    def structure(self) -> str:
        """A digest of the pipeline's structure: its operators, each with its type and its place in the tree."""
        parts = "\n".join(f"{one.id} {one.type} {one.parent} {one.in_body}" for one in self.operators)
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    def operator(self, id_: str) -> SavedOperator:
        """The operator with that id, which is one of the plan's."""
        return next(one for one in self.operators if one.id == id_)


def saved(
    analysis: a.Analysis, pipeline: m.Pipeline, *, changes: Iterable[a.Change] | None = None
) -> SavedPlan:
    """What is to be saved of a plan.

    Args:
      analysis: with the plan.
      pipeline: as it was recorded.
      changes: what of the plan is in force; by default all of it.

    Raises:
      NotSavable: it cuts a function in two, and its other changes are of the pipeline that this gives.
    """
    changes = tuple(analysis.plan.changes if changes is None else changes)
    if any(one.kind == a.CHANGE_KIND_REWRITE for one in changes):
        raise NotSavable(
            "it cuts a function in two, which no saved plan can hold: optimize the dataset where it is used"
        )
    rows = {row.id: row for row in analysis.operators}
    plan = analysis.plan
    return SavedPlan(
        Origin(
            analysis.updated_s or time.time(),
            __version__,
            analysis.run,
            analysis.host,
            analysis.limits.cores,
            analysis.limits.memory_bytes,
        ),
        operators_of(pipeline),
        tuple(_saved_change(one, rows) for one in changes),
        _finite(plan.predicted_rate),
        _finite(plan.low),
        _finite(plan.high),
        _finite(analysis.verdict.observed_rate),
        plan.memory_bytes,
        tuple(plan.assumptions),
    )


def operators_of(pipeline: m.Pipeline) -> tuple[SavedOperator, ...]:
    """What the operators of a recorded pipeline are known by."""
    return tuple(_saved_operator(one) for one in pipeline.operators if not one.injected)


def message(change: SavedChange, *, operator: str | None = None) -> a.Change:
    """A change as the model makes it, at another operator if one is named."""
    made = a.Change(
        kind=a.ChangeKind.Value(f"CHANGE_KIND_{change.kind.upper()}"), why=change.why, code=change.code
    )
    if change.operator:
        made.operator = change.operator if operator is None else operator
    getattr(made, "from").CopyFrom(_setting(change.before))
    made.to.CopyFrom(_setting(change.to))
    return made


# Settings of an operator that a plan relies on and that are the same on every host.
_Name: TypeAlias = Literal[
    "batch_size", "drop_remainder", "deterministic", "reshuffle", "block_length", "count"
]
_SETTINGS: tuple[_Name, ...] = get_args(_Name)
# What these count is how much data there is, not what is done with it.
_COUNT_DATA = frozenset({"Range", "Repeat"})


def _saved_operator(one: m.Operator) -> SavedOperator:
    settings: dict[str, Setting] = {
        name: getattr(one, name)
        for name in _SETTINGS
        if one.HasField(name) and not (name == "count" and one.type in _COUNT_DATA)
    }
    if "Shuffle" in one.type and one.HasField("buffer_size"):
        settings["buffer_size"] = one.buffer_size
    return SavedOperator(
        one.id,
        one.type,
        one.label,
        one.parent,
        one.in_body,
        os.path.basename(one.source.path),
        one.source.line,
        one.source.scope,
        one.function.name,
        one.function.code_digest,
        one.function.graph_digest,
        one.same_as,
        one.cardinality,
        settings,
    )


def _saved_change(change: a.Change, rows: Mapping[str, a.OperatorRow]) -> SavedChange:
    kind = a.ChangeKind.Name(change.kind).removeprefix("CHANGE_KIND_").lower()
    made = SavedChange(
        change.operator,
        kind,
        _value(getattr(change, "from")),
        _value(change.to),
        change.code,
        change.why,
    )
    row = rows.get(change.operator)
    if kind == "cache" and change.to.word == "memory" and row is not None:
        size = row.materialised_high_bytes or row.materialised_bytes
        return replace(made, memory_bytes=_finite(size))
    return made


def _value(setting: a.Setting) -> Setting:
    return setting.word if setting.WhichOneof("value") == "word" else int(setting.number)


def _setting(value: Setting) -> a.Setting:
    return a.Setting(word=value) if isinstance(value, str) else a.Setting(number=int(value))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) and value > 0 else None
