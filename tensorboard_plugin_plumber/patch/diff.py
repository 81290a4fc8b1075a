"""From the changes of a plan to a unified diff against the user's files.

What source code cannot express, or nobody can place, becomes an instruction instead.
"""

from __future__ import annotations

import difflib
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tensorboard_plugin_plumber.schema import analysis_pb2 as a

if TYPE_CHECKING:
    from tensorboard_plugin_plumber.patch.edits import Place

#: How the user calls what makes an operator of a type, where that is not its name in snake case.
_METHODS: Mapping[str, str] = {
    "ParallelMap": "map",
    "ParallelInterleave": "interleave",
    "LegacyParallelInterleave": "interleave",
    "ParallelBatch": "batch",
    "ParallelFilter": "filter",
    "TFRecord": "TFRecordDataset",
    "TextLine": "TextLineDataset",
    "FixedLengthRecord": "FixedLengthRecordDataset",
    "TensorSlice": "from_tensor_slices",
    "Tensor": "from_tensors",
    "Generator": "from_generator",
}
#: The kinds of change that are settings of one call.
_PATCHED = {
    a.CHANGE_KIND_PARALLELISM,
    a.CHANGE_KIND_PREFETCH,
    a.CHANGE_KIND_CACHE,
    a.CHANGE_KIND_THREADPOOL,
    a.CHANGE_KIND_ORDER,
    a.CHANGE_KIND_UNBOUNDED,
}
#: More than this is no file that somebody wrote.
_LARGEST_BYTES = 4 << 20


@dataclass(frozen=True)
class Patch:
    """A plan as changes to files.

    Attributes:
      diff: unified, one part for each file; empty if nothing can be patched.
      instructions: what it does not hold, one precise sentence for each change.
      sources: what each file becomes, by its path.
    """

    diff: str = ""
    instructions: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Wanted:
    """What becomes of the call of one operator."""

    arguments: dict[str, str] = field(default_factory=dict)
    appended: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    changes: list[a.Change] = field(default_factory=list)


def fill_patch(analysis: a.Analysis, *, since_s: float | None = None) -> None:
    """Writes the plan's patch and instructions into the analysis.

    Args:
      since_s: Unix time when the program began; a file that was changed later is not patched.
    """
    made = patch_of(analysis, since_s=since_s)
    if made.diff:
        analysis.plan.patch = made.diff
    del analysis.plan.instructions[:]
    analysis.plan.instructions.extend(made.instructions)


def patch_of(analysis: a.Analysis, *, since_s: float | None = None) -> Patch:
    """The plan as a patch; see `fill_patch`."""
    rows = {row.id: row for row in analysis.operators}
    wanted: dict[str, _Wanted] = {}
    instructions: list[str] = []
    for change in analysis.plan.changes:
        operator = change.operator or _root(analysis.operators)
        row = rows.get(operator)
        if row is None or not row.source_path or not row.source_line:
            instructions.append(_instruction(change, row, "its line is not known"))
            continue
        if change.kind not in _PATCHED:
            instructions.append(_instruction(change, row, "it takes more than a setting"))
            continue
        _want(wanted.setdefault(operator, _Wanted()), change)
    by_file: dict[str, list[str]] = {}
    for operator in wanted:
        by_file.setdefault(rows[operator].source_path, []).append(operator)
    diffs, sources = [], {}
    for path, operators in by_file.items():
        changed, refused = _patched_file(path, operators, wanted, rows, since_s)
        instructions += refused
        if changed is not None:
            before, after = changed
            diffs.append(_diff(path, before, after))
            sources[path] = after
    return Patch("".join(diffs), tuple(instructions), sources)


def _want(wanted: _Wanted, change: a.Change) -> None:
    from tensorboard_plugin_plumber.patch.edits import DATA_MODULE

    wanted.changes.append(change)
    word = change.to.word
    number = f"{DATA_MODULE}.AUTOTUNE" if word == "autotune" else str(change.to.number)
    if change.kind == a.CHANGE_KIND_PARALLELISM:
        wanted.arguments["num_parallel_calls"] = number
    elif change.kind == a.CHANGE_KIND_ORDER:
        wanted.arguments["deterministic"] = "False"
    elif change.kind == a.CHANGE_KIND_UNBOUNDED:
        wanted.arguments["use_unbounded_threadpool"] = "True"
    elif change.kind == a.CHANGE_KIND_THREADPOOL:
        wanted.options.append(f"threading.private_threadpool_size = {number}")
    elif change.kind == a.CHANGE_KIND_CACHE:
        # A cache stands before the prefetch of the same output.
        wanted.appended.insert(0, ".cache()" if word == "memory" else f".cache({word!r})")
    elif change.kind == a.CHANGE_KIND_PREFETCH:
        wanted.appended.append(f".prefetch({number})")


def _patched_file(
    path: str,
    operators: Sequence[str],
    wanted: Mapping[str, _Wanted],
    rows: Mapping[str, a.OperatorRow],
    since_s: float | None,
) -> tuple[tuple[str, str] | None, list[str]]:
    """(source before and after, or None if nothing could be changed; instructions for what could not)."""
    from tensorboard_plugin_plumber.patch.edits import CannotEdit, Edit, edited

    refused: list[str] = []
    try:
        source = _read(path, since_s)
    except _Unreadable as error:
        return None, [
            _instruction(change, rows[one], str(error)) for one in operators for change in wanted[one].changes
        ]
    edits: list[Edit] = []
    patched: str | None = None
    for operator in operators:
        want = wanted[operator]
        try:
            edit = Edit(
                _place(rows[operator], rows.values()),
                want.arguments,
                tuple(want.appended),
                tuple(want.options),
            )
            patched = edited(
                source, [*edits, edit]
            )  # one that cannot be made must not keep the others from it
        except (CannotEdit, SyntaxError) as error:
            refused += [_instruction(change, rows[operator], str(error)) for change in want.changes]
        else:
            edits.append(edit)
    return None if patched is None else (source, patched), refused


class _Unreadable(Exception):
    """The user's file cannot be patched; the message says why, as the end of a sentence."""


def _read(path: str, since_s: float | None) -> str:
    name = os.path.basename(path)
    if not name.endswith(".py"):
        raise _Unreadable(f"{name} is no file of Python source")
    try:
        status = os.stat(path)
        if status.st_size > _LARGEST_BYTES:
            raise _Unreadable(f"{name} is too large")
        if since_s is not None and status.st_mtime > since_s:
            raise _Unreadable(f"{name} was changed since it ran")
        return Path(path).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _Unreadable(f"{name} cannot be read here") from error


def _place(row: a.OperatorRow, rows: Iterable[a.OperatorRow]) -> Place:
    """Where the call of an operator stands.

    Raises:
      CannotEdit: several operators come from that line, and nobody can tell which is which.
    """
    from tensorboard_plugin_plumber.patch.edits import CannotEdit, Place

    by_id = {one.id: one for one in rows}
    method = method_of(row.type)
    beside = [
        one
        for one in by_id.values()
        if (one.source_path, one.source_line, method_of(one.type))
        == (row.source_path, row.source_line, method)
        and not one.injected
    ]
    # The one that hands its elements on to all the others is the innermost call.
    beside.sort(key=lambda one: -_depth(one, by_id))
    for inner, outer in pairwise(beside):
        if not _hands_on(inner, outer, by_id):
            raise CannotEdit(f"{len(beside)} operators come from this line")
    return Place(row.source_line, method, [one.id for one in beside].index(row.id), len(beside))


def _depth(row: a.OperatorRow, by_id: Mapping[str, a.OperatorRow]) -> int:
    depth = 0
    while row.parent in by_id:
        row, depth = by_id[row.parent], depth + 1
    return depth


def _hands_on(inner: a.OperatorRow, outer: a.OperatorRow, by_id: Mapping[str, a.OperatorRow]) -> bool:
    # From within a function too: one that stands on the line of its operator is a lambda, and ends before it.
    while inner.parent in by_id:
        inner = by_id[inner.parent]
        if inner.id == outer.id:
            return True
    return False


def method_of(type_: str) -> str:
    """ "ParallelMap" -> "map": how the user calls what makes an operator of this type."""
    return _METHODS.get(type_) or re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", type_).lower()


def _root(rows: Iterable[a.OperatorRow]) -> str:
    return next((row.id for row in rows if not row.injected and not row.parent), "")


def _instruction(change: a.Change, row: a.OperatorRow | None, reason: str) -> str:
    """ "At train.py:57: .map(decode, num_parallel_calls=4) (its line is called twice)."""
    where = f"At {row.source}" if row is not None and row.source else "At the pipeline's end"
    if row is not None and not row.source:
        where = f"At {row.type} {row.label}".rstrip()
    return f"{where}: {change.code} (by hand: {reason})."


def _diff(path: str, before: str, after: str) -> str:
    name = _name_in_repository(Path(path))
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _lines(source: str) -> list[str]:
    """Its lines as patches count them: a form feed ends none."""
    return io.StringIO(source, newline="\n").readlines()


def _name_in_repository(path: Path) -> str:
    """The path from the top of its repository; without one, the file's name: the same wherever this runs."""
    for folder in path.parents:
        if (folder / ".git").exists():
            return path.relative_to(folder).as_posix()
    return path.name
