"""The ways in which a pipeline can be written: as it is, and with the function of a costly map in two halves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.rewrite.rebuild import Edit, Edits, Refused, rebuilt
from tensorboard_plugin_plumber.rewrite.split import Candidate, Split, candidates, prove_split
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

#: A map that takes less of all the time than this is not worth two.
_LEAST_SHARE = 0.2
_MAPS = ("Map", "ParallelMap")
#: Elements that both forms of a function are compared on.
_PROVEN = 8


@dataclass(frozen=True)
class Way:
    """One way to write a pipeline.

    Attributes:
      dataset: the pipeline written so.
      changes: what it changes of the user's code.
      again: writes another dataset of the same pipeline so; may raise `Refused`.
    """

    dataset: Any
    changes: tuple[a.Change, ...] = ()
    again: Callable[[Any], Any] = lambda dataset: dataset


def worth_splitting(analysis: a.Analysis) -> frozenset[str]:
    """Ids of the maps that take much of the time, and whose work no planned cache saves.

    A cache below a map, as of the records that it decodes, does not save it.
    """
    cached = {change.operator for change in analysis.plan.changes if change.kind == a.CHANGE_KIND_CACHE}
    consumers = {row.id: row.parent for row in analysis.operators}
    spent = {row.id: row.visit_ratio * (row.cpu_s + row.wait_s) for row in analysis.operators}
    whole = sum(spent.values())
    return frozenset(
        row.id
        for row in analysis.operators
        if row.type in _MAPS
        and not row.in_body
        and whole > 0
        and spent[row.id] >= _LEAST_SHARE * whole
        and cached.isdisjoint(_downstream(row.id, consumers))
    )


def _downstream(operator: str, consumers: Mapping[str, str]) -> Iterator[str]:
    """The operator, and all that its elements go through."""
    while operator:
        yield operator
        operator = consumers.get(operator, "")


def splits(dataset: Any, maps: frozenset[str]) -> Iterator[Way | str]:
    """The ways with one of these maps in two, and for each map that cannot be, why not."""
    for found in candidates(dataset) if maps else ():
        if found.operator not in maps:
            continue
        if not found.splits:
            yield found.refused
        for number, split in enumerate(found.splits):
            proof = prove_split(split, found.map_dataset, _PROVEN)
            if not proof.same:
                yield f"the halves could not be proven to do the same: {proof.reason}"
                continue
            yield Way(
                _with(dataset, found, split),
                (_change(found, split),),
                lambda other, operator=found.operator, n=number: _again(other, operator, n),  # type: ignore[misc]
            )


def _with(dataset: Any, found: Candidate, split: Split) -> Any:
    return rebuilt(dataset, Edits({id(found.map_dataset): Edit(split=split, through=found.through)}))


def _again(dataset: Any, operator: str, number: int) -> Any:
    found = next((one for one in candidates(dataset) if one.operator == operator), None)
    if found is None or number >= len(found.splits):
        raise Refused("the function cannot be cut in this dataset as it was in the one that was traced")
    return _with(dataset, found, found.splits[number])


def _change(found: Candidate, split: Split) -> a.Change:
    why = split.why or "behind the cut it holds more bytes"
    moved = ", below the shuffles and repeats before the map" if found.through else ""
    change = a.Change(
        operator=found.operator,
        kind=a.CHANGE_KIND_REWRITE,
        to=a.Setting(word="split"),
        why=(
            f"{words.duration(split.first_seconds)} of the function's work are the same for the same element in each "
            f"epoch, and {words.size(split.crossing_bytes)} per element cross the cut{moved}; the rest stays: {why}"
        ),
        code=".map(first).cache().map(rest)",
    )
    getattr(change, "from").word = "none"
    return change
