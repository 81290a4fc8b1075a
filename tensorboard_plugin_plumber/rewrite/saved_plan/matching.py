"""A saved plan, matched onto a pipeline as it stands now.

The structure and the functions decide: the same operators in the same tree, with the same settings and with functions
that do the same. Lines may have moved. What a host may have otherwise (its numbers of parallel calls, its paths, how
much data there is) does not count, but what follows from it is checked again or told.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorboard_plugin_plumber.capture.digests import comparable
from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.rewrite.saved_plan.values import (
    SavedChange,
    SavedOperator,
    SavedPlan,
    message,
    operators_of,
)
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

if TYPE_CHECKING:
    from tensorboard_plugin_plumber.rewrite.rebuild import Edits

_logger = logging.getLogger("tensorboard_plugin_plumber")
#: Share of the free memory that the caches of a plan may take, where nothing else is said.
MEMORY_SHARE = 0.5
# Fewer cores than this share of those that a plan was made for are worth a word, and so are more than its inverse.
_AS_MANY_CORES = 0.9
_NAMES = {
    "batch_size": "a batch size of",
    "buffer_size": "a buffer of",
    "block_length": "a block length of",
    "count": "a count of",
}


class Mismatch(Exception):
    """The pipeline is not the one that the plan was made for; the message says in one sentence what differs."""


@dataclass(frozen=True)
class Match:
    """A plan for a pipeline as it stands now.

    Attributes:
      changes: those that apply here, at the operators' ids.
      notes: what is different here, and does not forbid the plan; one sentence each.
      plan: the saved plan with the operators as they stand now: with the lines of today.
    """

    changes: tuple[a.Change, ...]
    notes: tuple[str, ...]
    plan: SavedPlan


def matched(
    saved: SavedPlan,
    dataset: Any,
    *,
    memory_share: float = MEMORY_SHARE,
    memory_bytes: float | None = None,
    cache: Callable[[a.Change], Any] | None = None,
    say: Callable[[str], None] = _logger.warning,
) -> Edits:
    """The edits that make the plan's changes in a dataset, for `rebuild.rebuilt`.

    Args:
      saved: the plan.
      dataset: an eager `tf.data.Dataset`.
      memory_share, memory_bytes: as for `match_dataset`.
      cache: what `Edit.cache` becomes for a change of that kind; by default a cache in memory, or at its path.
      say: is told what is different here, a sentence at a time.

    Raises:
      Mismatch: its pipeline is not the one that the plan was made for.
      Refused (of `rebuild`): a change cannot be made.
      tf.errors.OpError, ValueError: the dataset cannot be described.
    """
    from tensorboard_plugin_plumber.rewrite import planned

    found = match_dataset(saved, dataset, memory_share=memory_share, memory_bytes=memory_bytes)
    edits = planned.edits_of(found.changes, planned.places_of(dataset), cache or path_of_cache)
    for note in found.notes:
        say(note)
    return edits


def match_dataset(
    saved: SavedPlan,
    dataset: Any,
    *,
    memory_share: float = MEMORY_SHARE,
    memory_bytes: float | None = None,
) -> Match:
    """The plan for a dataset of this process, under what this process may use.

    Args:
      saved: the plan.
      dataset: an eager `tf.data.Dataset`.
      memory_share: of the memory that is free now, what caches may take.
      memory_bytes: bytes that they may take instead; never more than is free.

    Raises:
      Mismatch: its pipeline is not the one that the plan was made for.
      tf.errors.OpError, ValueError: the dataset cannot be described.
    """
    from tensorboard_plugin_plumber.capture.describe import describe

    pipeline = describe(dataset, role="diagnose").pipeline
    cores, allowed = limits_here(memory_share=memory_share, memory_bytes=memory_bytes)
    return match(saved, pipeline, cores=cores, memory_bytes=allowed)


def limits_here(
    *, memory_share: float = MEMORY_SHARE, memory_bytes: float | None = None
) -> tuple[float, float]:
    """(cores that this process may use, bytes that caches may take); the arguments are those of `match_dataset`."""
    from tensorboard_plugin_plumber.capture import host

    free = max(float(host.usable_memory()[0] - host.HostSampler().sample(0.0).memory_used_bytes), 0.0)
    allowed = memory_share * free if memory_bytes is None else min(memory_bytes, free)
    return host.usable_cores()[0], allowed


def match(saved: SavedPlan, pipeline: m.Pipeline, *, cores: float, memory_bytes: float) -> Match:
    """The plan for a pipeline.

    Args:
      saved: the plan.
      pipeline: as `capture.describe` gives it.
      cores: that the process may use.
      memory_bytes: what memory caches may take.

    Raises:
      Mismatch: the pipeline is not the one that the plan was made for.
    """
    now = operators_of(pipeline)
    _check_structure(saved.operators, now)
    unknown = [new for old, new in _upstream_first(saved.operators, now) if not _same_function(old, new)]
    for old, new in _upstream_first(saved.operators, now):
        _check_settings(old, new)
    _check_legality(saved.changes, pipeline)
    changes, too_large = affordable(saved, now, memory_bytes)
    changes, too_many = _within_cycles(changes, pipeline, now)
    notes = [*_on_unknown(unknown), *on_cores(saved, cores), *too_large, *too_many]
    relocated = dataclasses.replace(saved, operators=now, changes=tuple(changes))
    return Match(tuple(map(message, changes)), tuple(notes), relocated)


def path_of_cache(change: a.Change) -> str:
    """Where a change of that kind puts its cache; "" is memory."""
    return "" if change.to.word == "memory" else change.to.word


def _upstream_first(
    old: Sequence[SavedOperator], new: Sequence[SavedOperator]
) -> Iterator[tuple[SavedOperator, SavedOperator]]:
    """Pairs of operators; what changed in one may show in all that consume it, and is to be told of itself."""
    return zip(reversed(old), reversed(new), strict=True)


def _check_structure(old: Sequence[SavedOperator], new: Sequence[SavedOperator]) -> None:
    if _shape(old) == _shape(new):
        return
    before, after = _keys(old), _keys(new)
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    what, i, i_end, j, j_end = next(
        (one for one in blocks if one[0] != "equal"), ("replace", 0, len(old), 0, len(new))
    )
    if what == "insert":
        raise Mismatch(f"{_named(new[j:j_end])} {_were(j_end - j)} not there when the plan was made.")
    if what == "delete":
        raise Mismatch(f"{_named(old[i:i_end])} of the plan {_is(i_end - i)} not there any more.")
    raise Mismatch(f"Where the plan has {_named(old[i:i_end])}, there is now {_named(new[j:j_end])}.")


def _shape(operators: Sequence[SavedOperator]) -> list[tuple[str, str, bool]]:
    return [(one.type, one.parent, one.in_body) for one in operators]


def _keys(operators: Sequence[SavedOperator]) -> list[tuple[str, int, bool]]:
    """What an operator is told by among others: ids shift when one is added."""
    depths: dict[str, int] = {}
    for one in operators:
        # Chains keep their depth when something is added in their middle: only branches and bodies count.
        branches = sum(other.parent == one.parent for other in operators) > 1
        depths[one.id] = depths.get(one.parent, 0) + (branches or one.in_body)
    return [(one.type, depths[one.id], one.in_body) for one in operators]


def _named(operators: Sequence[SavedOperator]) -> str:
    """ "Map decode (train.py:57)", "Map decode (train.py:57) and 2 more"."""
    more = len(operators) - 1
    return f"{operators[0]} and {more} more" if more else str(operators[0])


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _same_function(old: SavedOperator, new: SavedOperator) -> bool:
    """Whether two functions do the same; False where nobody can tell.

    Raises:
      Mismatch: they do not.
    """
    if bool(old.function) != bool(new.function):
        raise Mismatch(f"Where the plan has {old}, there is now {new}.")
    same_code = old.code == new.code if comparable(old.code, new.code) else None
    same_graph = old.graph == new.graph if comparable(old.graph, new.graph) else None
    if same_graph or (same_graph is None and same_code):
        return True
    if same_graph is None and same_code is None:
        if old.function != new.function:
            raise Mismatch(f"Where the plan has {old}, there is now {new}.")
        return not old.function
    if same_graph is False and same_code:
        raise Mismatch(
            f"The function of {new} is written as it was, but does something else than when the plan was made: "
            "what it calls or takes from outside has changed."
        )
    if old.function != new.function:
        raise Mismatch(f"{new} has another function than {old} had when the plan was made.")
    raise Mismatch(f"The function of {new} has changed since the plan was made.")


def _check_settings(old: SavedOperator, new: SavedOperator) -> None:
    for name in sorted({*old.settings, *new.settings}):
        before, after = old.settings.get(name), new.settings.get(name)
        if before == after:
            continue
        if name in _NAMES and after is not None and before is not None:
            raise Mismatch(f"{new} has {_NAMES[name]} {after}; when the plan was made, it was {before}.")
        raise Mismatch(
            f"{new} has {name}={_written(after)}; when the plan was made, it was {_written(before)}."
        )


def _written(value: int | str | None) -> str:
    return "None" if value is None else repr(value)


def _check_legality(changes: Sequence[SavedChange], pipeline: m.Pipeline) -> None:
    """What was allowed when the plan was made must be so here: state beside the functions may be another."""
    by_id: Mapping[str, m.Operator] = {one.id: one for one in pipeline.operators}
    rewritten = {change.operator for change in changes if change.kind == "rewrite"}
    for change in changes:
        if not change.operator or change.operator in rewritten:
            continue
        operator = by_id[change.operator]
        what, verdict = "", None
        if change.kind == "cache":
            what, verdict = "be cached", operator.cache
        elif change.kind in ("parallelism", "unbounded") and operator.HasField("parallel"):
            what, verdict = "run in parallel", operator.parallel
        if verdict is not None and not verdict.allowed:
            (named,) = (one for one in operators_of(pipeline) if one.id == change.operator)
            raise Mismatch(f"{named} may not {what} here: {verdict.reason.rstrip('.')}.")


def affordable(
    saved: SavedPlan, now: Sequence[SavedOperator], memory_bytes: float
) -> tuple[list[SavedChange], list[str]]:
    """The changes without the memory caches that do not fit here, and a sentence for each of these."""
    kept: list[SavedChange] = []
    notes: list[str] = []
    left = memory_bytes
    elements = {one.id: one.elements for one in now}
    for change in saved.changes:
        if change.kind != "cache" or change.to != "memory":
            kept.append(change)
            continue
        needed = change.memory_bytes
        was, is_now = saved.operator(change.operator).elements, elements[change.operator]
        if needed is not None and was > 0 and is_now > 0:
            needed *= is_now / was
        if needed is not None and needed <= left:
            left -= needed
            kept.append(change)
            continue
        (at,) = (one for one in now if one.id == change.operator)
        size = "nobody knows how much memory it takes" if needed is None else f"it takes {words.size(needed)}"
        room = f"here caches may take {words.size(memory_bytes)}"
        notes.append(f"The plan's memory cache behind {at} is left out: {size}, and {room}.")
    return kept, notes


def _within_cycles(
    changes: Sequence[SavedChange], pipeline: m.Pipeline, now: Sequence[SavedOperator]
) -> tuple[list[SavedChange], list[str]]:
    """The changes with no more calls of an interleave than it opens inputs, and a sentence for each that had more.

    Where the program leaves its cycle to TensorFlow, it follows the host's cores.
    """
    cycles = {one.id: one.cycle_length for one in pipeline.operators if one.HasField("cycle_length")}
    kept: list[SavedChange] = []
    notes: list[str] = []
    for change in changes:
        most = cycles.get(change.operator) if change.kind == "parallelism" else None
        if most is not None and isinstance(change.to, int) and change.to > most:
            (at,) = (one for one in now if one.id == change.operator)
            notes.append(
                f"{at} gets {most} parallel calls instead of {change.to}: it opens no more inputs here."
            )
            change = dataclasses.replace(change, to=most)
        kept.append(change)
    return kept, notes


def _on_unknown(operators: Sequence[SavedOperator]) -> Iterator[str]:
    if operators:
        yield (
            f"Whether {'the function' if len(operators) == 1 else 'the functions'} of {_named(operators)} "
            f"{_is(len(operators))} still the same cannot be told: the plan was made with another Python or TensorFlow."
        )


def on_cores(saved: SavedPlan, cores: float) -> Iterator[str]:
    """What is to be said of a plan that was made for another number of cores: a sentence, or nothing."""
    before = saved.origin.cores
    if cores < before * _AS_MANY_CORES:
        yield (
            f"The plan was made for {words.cores(before)}, and this process may use {words.cores(cores)}: "
            "its numbers stay as they are, and its prediction does not hold here."
        )
    elif before < cores * _AS_MANY_CORES:
        yield (
            f"The plan was made for {words.cores(before)}, and this process may use {words.cores(cores)}: "
            "a plan made here may be better."
        )
