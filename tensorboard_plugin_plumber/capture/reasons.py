"""One thing that holds of an operator's output, and how people are told what it comes from."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from tensorboard_plugin_plumber.capture import places
from tensorboard_plugin_plumber.capture.written import Written
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

Place = tuple[str, int, str]


class Epochs(enum.Enum):
    """Whether randomness gives another outcome in each epoch."""

    SAME = "the same in each"
    ANOTHER = "another in each"
    # A seeded op begins again with each new iterator, and goes on where a repeat begins again.
    ANOTHER_WITH_REPEAT = "another where a repeat stands above"

    def differ(self, repeated: bool) -> bool:
        """Whether epochs differ, given whether a repeat stands above."""
        return self is Epochs.ANOTHER or (self is Epochs.ANOTHER_WITH_REPEAT and repeated)


@dataclass(frozen=True, eq=False)
class Fact:
    """One thing that holds of an operator's output.

    Attributes:
      kind: a `m.FactKind`.
      reason: in words.
      operator: the one that is the reason.
      place: path, line and scope of the reason; None if unknown.
      seeded, epochs: of randomness.
      draws: of randomness: numbers are drawn, not an order.
      fed: of randomness: the seed comes with the elements.
      uncacheable: why a cache of it would not hold the same elements; "" if it would.
      sequential: why calls of the operator must come one after the other; "" if they need not.
      reserve: what a cache takes for granted; "" if nothing.
    """

    kind: m.FactKind.ValueType
    reason: str
    operator: Written
    place: Place | None = None
    seeded: bool = False
    epochs: Epochs = Epochs.SAME
    draws: bool = False
    fed: bool = False
    uncacheable: str = ""
    sequential: str = ""
    reserve: str = ""

    def message(self, repeated: bool) -> m.Fact:
        """As it is recorded, for an output above which a repeat stands or not."""
        random = self.kind == m.FACT_RANDOM
        out = m.Fact(
            kind=self.kind,
            reason=self.reason,
            operator=self.operator.id,
            seeded=random and self.seeded,
            changes_each_epoch=random and self.epochs.differ(repeated),
        )
        if self.place is not None:
            out.source.path, out.source.line, out.source.scope = self.place
        return out


@dataclass(frozen=True)
class Edge:
    """An operator's output: all that holds of it, the operator's own facts first."""

    facts: tuple[Fact, ...]
    # A repeat stands above it.
    repeated: bool


def place_of_call(operator: Written) -> Place | None:
    """Where the user made the operator; None if nobody knows."""
    made = operator.pair.construction
    return None if made is None or made.call is None else (made.call.path, made.call.line, made.call.scope)


def user_function(operator: Written) -> Any:
    """The record of the function the user gave: the first that is not TensorFlow's own; None if none is."""
    for one in operator.functions.values():
        if one.code is None or not places.is_tensorflow_file(one.code.co_filename):
            return one
    return None


def function_place(operator: Written) -> Place | None:
    """Where the user defined the operator's function; None if there is none, or nobody knows."""
    record = user_function(operator)
    if record is None or record.place is None:
        return None
    path, line, scope = record.place
    call = place_of_call(operator)
    if record.name == "<lambda>" and places.is_generated(record.code) and call is not None:
        line = call[1]  # autograph knows the statement only; the call is nearer
    return path, line, scope


def describe_operator(operator: Written) -> str:
    """For people: "Map decode (train.py:57)"."""
    name = next((one.name for one in operator.functions.values() if one.name != "<lambda>"), "")
    words = f"{operator.type} {name}".strip()
    call = place_of_call(operator)
    return words if call is None else f"{words} ({call[0].rsplit('/', 1)[-1]}:{call[1]})"


def is_enclosed(operator: Written) -> bool:
    """Whether the operator lives, at any depth, in the body of a function."""
    one: Written | None = operator
    while one is not None:
        if one.in_body:
            return True
        one = one.parent
    return False
