"""Work that is done more than once within an epoch."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.estimate import label_of
from tensorboard_plugin_plumber.model.findings.case import (
    LEAST_GAIN,
    Case,
    cheaper,
    fewer,
    is_below,
    severity,
)
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


def repeated_work(case: Case) -> Iterator[a.Finding]:
    """One set of files is read again for each element of an interleave: once per class, or per branch."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    for files in case.pipeline.files:
        position = case.estimate.position.get(files.operator)
        if position is None or not files.count or not network.enclosing[position]:
            continue
        outer = network.enclosing[position][0]
        times = _times_opened(case, outer)
        # Names that flow in from outside differ from iterator to iterator: only constants repeat.
        if files.found_by != "constant" or files.named_by_elements or times < 2:
            continue
        again = [
            i
            for i in network.below(outer)
            if network.operators[i].in_body or network.enclosing[i][:1] == (outer,)
        ]
        gain = case.gain_of(case.changed(dict.fromkeys(again, fewer(1 / times))))
        if gain < LEAST_GAIN:
            continue
        yield a.Finding(
            code="repeated-work",
            severity=severity(gain),
            operator=files.operator,
            message=(
                f"{network.operators[position].label} reads the same {_file_count(files)} in each of the {times} "
                f"iterators that {network.operators[outer].label} opens: {words.duration(network.core_s(again))} of "
                "core time per step, most of it for what another iterator reads, too."
            ),
            fix=(
                "Read and parse once, and split afterwards (write one file per class, or cache the parsed records "
                f"in front of {network.operators[outer].label})."
            ),
            gain=gain,
        )


def _times_opened(case: Case, interleave: int) -> int:
    """How many iterators an interleave opens in one pass, as far as it is known, and at most."""
    inputs = case.estimate.network.inputs[interleave]
    counts = [case.estimate.written[i].cardinality for i in inputs]
    return int(max(counts, default=0))


def _file_count(files: m.SourceFiles) -> str:
    return f"{files.count:,} files" if files.count > 1 else "file"


def repeated_branches(case: Case) -> Iterator[a.Finding]:
    """One dataset is read once for each branch that is built on it, and all its work is done again."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    operators = {operator.id: operator for operator in case.pipeline.operators}
    files = {one.operator: tuple(one.paths) for one in case.pipeline.files if one.complete and one.paths}
    twins = _twins(operators, files)
    for again, first in twins.items():
        one = operators[again]
        if operators[again].parent in twins or any(fact.kind == m.FACT_RANDOM for fact in one.facts):
            continue  # part of a larger one; or two draws, which are not the same
        positions = [
            i
            for operator in case.pipeline.operators
            if operator.id == again or is_below(operators, operator, again)
            if (i := case.estimate.position.get(operator.id)) is not None
        ]
        gain = case.gain_of(case.changed(dict.fromkeys(positions, cheaper(0.0))))
        if not positions or gain < LEAST_GAIN:
            continue
        meet = _meeting(operators, again, first)
        label = network.operators[positions[0]].label
        where = "" if meet is None else f" that {label_of(operators[meet])} brings together"
        yield a.Finding(
            code="repeated-work",
            severity=severity(gain),
            operator=again,
            message=(
                f"{label} is made twice, once for each branch{where}: "
                f"{words.duration(network.core_s(positions))} of core time per step do again what the other branch "
                "does, too."
            ),
            fix=(
                "Do the common part once and make both results in one map: .map(lambda x: (first(x), second(x)))."
                if meet is not None and operators[meet].type == "Zip"
                else f".cache() after {label}, so that the second branch reads what the first has made."
            ),
            gain=gain,
        )


def _twins(operators: dict[str, m.Operator], files: Mapping[str, Hashable]) -> dict[str, str]:
    """Operators that make what an earlier one makes, too: the same object, or the same calls over the same files.

    Args:
      operators: by id, in pre-order.
      files: what the sources read, by id; those of which it is not known are left out.
    """
    children: dict[str, list[str]] = {}
    for operator in operators.values():
        children.setdefault(operator.parent, []).append(operator.id)
    # Equal numbers for operators that do the same; None where nobody can tell.
    made: dict[str, int | None] = {}
    numbers: dict[Hashable, int] = {}
    for operator in reversed(operators.values()):
        below = [made[child] for child in children.get(operator.id, ())]
        read, source = files.get(operator.id), operator.source
        known = operator.HasField("source") and (bool(below) or read is not None) and None not in below
        key = (operator.type, operator.label, source.path, source.line, operator.count, read, *below)
        made[operator.id] = numbers.setdefault(key, len(numbers)) if known else None
    found: dict[str, str] = {}
    first: dict[int, str] = {}
    for operator in operators.values():
        number = made[operator.id]
        if operator.same_as:
            found[operator.id] = operator.same_as
        elif number is not None and first.setdefault(number, operator.id) != operator.id:
            found[operator.id] = first[number]
    return found


def _meeting(operators: dict[str, m.Operator], one: str, other: str) -> str | None:
    """Id of the operator that both hand their elements to, at any distance; None if there is none."""
    while one:
        if one != other and is_below(operators, operators[other], one):
            return one
        one = operators[one].parent
    return None
