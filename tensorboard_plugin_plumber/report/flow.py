"""The operators in the order in which data flows, as a tree can be written down the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorboard_plugin_plumber.schema import analysis_pb2 as a


@dataclass(frozen=True)
class Placed:
    """Where an operator stands on the page.

    Attributes:
      row: the operator.
      depth: of its branch; a chain stays at one depth, the inputs of an operator that has several, and what
        runs inside its function, are one deeper than itself.
      opens: it is the first of its branch: a source.
      lane: column of its chain, from 0: an operator stands below its first input.
      level: line, from 0: below all of its inputs.
      inputs: ids of the operators whose elements it takes.
    """

    row: a.OperatorRow
    depth: int
    opens: bool
    lane: int
    level: int
    inputs: tuple[str, ...]


def source_first(rows: Sequence[a.OperatorRow]) -> list[Placed]:
    """The operators, every one after all of its inputs; also those that no path connects to a last one."""
    by_id = {row.id: row for row in rows}
    inputs: dict[str, list[a.OperatorRow]] = {row.id: [] for row in rows}
    last: list[a.OperatorRow] = []
    for row in rows:
        consumer = next((to for to in (row.flows_to, row.parent) if to in by_id and to != row.id), None)
        if consumer is None:
            last.append(row)
        else:
            inputs[consumer].append(row)
    ordered = _inputs_first([*last, *rows], inputs)
    placed: dict[str, Placed] = {}
    lanes = 0
    for row, depth in ordered:
        # In a circle an input may come later: it has no place yet.
        above = [placed[one.id] for one in inputs[row.id] if one.id in placed]
        lane = above[0].lane if above else lanes
        lanes += not above
        level = max((one.level + 1 for one in above), default=0)
        opens = all(one.depth != depth for one in above)
        placed[row.id] = Placed(row, depth, opens, lane, level, tuple(one.row.id for one in above))
    return list(placed.values())


def _inputs_first(
    roots: Sequence[a.OperatorRow], inputs: dict[str, list[a.OperatorRow]]
) -> list[tuple[a.OperatorRow, int]]:
    """Every operator once with its depth, after its inputs; without recursion, for long chains."""
    ordered: list[tuple[a.OperatorRow, int]] = []
    seen: set[str] = set()
    stack = [(row, 0, False) for row in reversed(roots)]
    while stack:
        row, depth, inputs_done = stack.pop()
        if inputs_done:
            ordered.append((row, depth))
            continue
        if row.id in seen:
            continue
        seen.add(row.id)
        own = inputs[row.id]
        branches = sum(not one.in_body for one in own) > 1
        stack.append((row, depth, True))
        stack += [(one, depth + (one.in_body or branches), False) for one in reversed(own)]
    return ordered
