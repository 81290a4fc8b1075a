"""Rules and constraints from outside: found by entry points, run behind a guard (docs/extending.md).

A package that Plumber knows nothing of names a function in its metadata, and that function has its say in each
analysis. Whatever goes wrong in it is one note; nothing that it does can change what Plumber itself concludes.
"""

from __future__ import annotations

import copy
import functools
import importlib.metadata
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.findings.case import Case, by_severity
from tensorboard_plugin_plumber.model.network import Network, Settings
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

#: Entry points of functions `(case: Case) -> Iterable[Finding]`.
FINDINGS_GROUP = "plumber.findings"
#: Entry points of functions `(network: Network, settings: Settings) -> Limit | None`.
CONSTRAINTS_GROUP = "plumber.constraints"

_SEVERITIES = {"low": a.SEVERITY_LOW, "medium": a.SEVERITY_MEDIUM, "high": a.SEVERITY_HIGH}
_CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Finding:
    """What a rule from outside says.

    Attributes:
      code: a stable name, lower case with hyphens: "batch-of-one".
      message: what is wrong, with the operator, its line and the evidence in numbers.
      fix: what to do, as code where it can be.
      operator: id of the operator it speaks of; None for the whole pipeline.
      gain: new rate / old rate - 1, from `Case.gain` or `Case.gain_of`; None where it cannot be argued.
      severity: "low", "medium" or "high".
    """

    code: str
    message: str
    fix: str
    operator: str | None = None
    gain: float | None = None
    severity: str = "medium"


@dataclass(frozen=True)
class Limit:
    """An upper bound on the rate from outside.

    Attributes:
      rate: root elements per second, greater than 0.
      label: what limits it, for people: "link to the accelerator".
      operators: ids of the operators it speaks of, the largest share first.
    """

    rate: float
    label: str
    operators: Sequence[str] = ()


@dataclass(frozen=True)
class Extension:
    """A function from outside, and whose it is."""

    #: "batch-of-one (plumber-batch-of-one 1.0)".
    name: str
    call: Callable[..., Any]


@dataclass(frozen=True)
class Extensions:
    """All that is installed, and what of it could not be loaded."""

    rules: tuple[Extension, ...] = ()
    constraints: tuple[Extension, ...] = ()
    notes: tuple[str, ...] = ()


@functools.cache
def installed() -> Extensions:
    """What the entry points of this environment name, loaded once per process."""
    notes: list[str] = []
    rules, constraints = (_loaded(group, notes) for group in (FINDINGS_GROUP, CONSTRAINTS_GROUP))
    return Extensions(rules, constraints, tuple(notes))


def limit_on(constraints: Sequence[Extension]) -> Callable[[Network, Settings], float]:
    """The smallest bound that constraints from outside put on a rate, steps/s; what fails bounds nothing."""

    def limit(network: Network, settings: Settings) -> float:
        limits = limits_from_outside(network, settings, constraints, [])
        return limits[0].rate if limits else math.inf

    return limit


def let_speak(analysis: a.Analysis, case: Case, extensions: Extensions) -> None:
    """Adds what extensions say: findings, bounds with the plan's rate held below them, and notes of what failed.

    Args:
      analysis: whole but for them.
      case: what it was concluded from.
      extensions: `installed()`.
    """
    notes = list(extensions.notes)
    said = findings_from_outside(case, extensions.rules, notes)
    if said:
        ranked = by_severity([*analysis.findings, *said])
        del analysis.findings[:]
        analysis.findings.extend(ranked)
    network = case.estimate.network
    for limit in limits_from_outside(network, network.current, extensions.constraints, notes):
        _add_bound(analysis, limit)
    planned = limits_from_outside(network, case.planned, extensions.constraints, notes)
    if planned:
        _hold_below(analysis.plan, planned[0])
    analysis.notes.extend(notes)


def _add_bound(analysis: a.Analysis, limit: Limit) -> None:
    """A row of its own, by its rate among the others; it binds if it is below the one that does."""
    bound = a.Bound(label=limit.label, rate=limit.rate, operators=limit.operators)
    binding = next((one for one in analysis.bounds if one.binds), None)
    if binding is not None and binding.HasField("rate") and limit.rate < binding.rate:
        binding.binds, bound.binds = False, True
        analysis.notes.append(
            f"{limit.label} caps the rate at {words.rate(limit.rate)}, below what binds by what was measured."
        )
    rows = sorted([*analysis.bounds, bound], key=lambda one: one.rate if one.HasField("rate") else math.inf)
    del analysis.bounds[:]
    analysis.bounds.extend(rows)


def _hold_below(plan: a.Plan, limit: Limit) -> None:
    for name in ("predicted_rate", "low", "high", "data_rate", "first_epoch_rate", "epochs_rate"):
        if plan.HasField(name) and getattr(plan, name) > limit.rate:
            setattr(plan, name, limit.rate)
            held = f"{limit.label} holds the plan at {words.rate(limit.rate)}."
            if held not in plan.assumptions:
                plan.assumptions.append(held)


def findings_from_outside(case: Case, rules: Iterable[Extension], notes: list[str]) -> list[a.Finding]:
    """What the rules from outside have to say; adds a note for each that fails.

    Each gets a copy of the case: what it does to that is nobody's loss.
    """
    known = {operator.id for operator in case.pipeline.operators}
    found = []
    for rule in rules:
        said = _guarded(rule, notes, lambda call: [_checked(one, known) for one in call(copy.deepcopy(case))])
        found += said or []
    return found


def limits_from_outside(
    network: Network, settings: Settings, constraints: Iterable[Extension], notes: list[str]
) -> list[Limit]:
    """Upper bounds on the rate from outside, the smallest first; adds a note for each that fails."""
    known = {operator.id for operator in network.operators}
    found = []
    for constraint in constraints:
        limit = _guarded(constraint, notes, lambda call: _checked_limit(call(network, settings), known))
        if limit is not None:
            found.append(limit)
    return sorted(found, key=lambda limit: limit.rate)


def _loaded(group: str, notes: list[str]) -> tuple[Extension, ...]:
    found = []
    for point in sorted(importlib.metadata.entry_points(group=group), key=lambda point: point.name):
        owner = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
        extension = Extension(f"{point.name} ({owner})", point.load)
        call = _guarded(extension, notes, lambda load: _callable(load()))
        if call is not None:
            found.append(Extension(extension.name, call))
    return tuple(found)


_Result = TypeVar("_Result")


def _guarded(
    extension: Extension, notes: list[str], use: Callable[[Callable[..., Any]], _Result]
) -> _Result | None:
    """What `use` makes of a function from outside; None, and one note, where that fails."""
    try:
        return use(extension.call)
    except (Exception, SystemExit) as error:
        said = f"The extension {extension.name} is left out: {type(error).__name__}: {error}".rstrip(": ")
        if said not in notes:
            notes.append(said)
        return None


def _callable(loaded: Any) -> Callable[..., Any]:
    if not callable(loaded):
        raise TypeError(f"its entry point names a {type(loaded).__name__}, not a function")
    return loaded  # type: ignore[no-any-return]


def _checked(given: Any, known: set[str]) -> a.Finding:
    """The message of a finding from outside.

    Raises:
      TypeError, ValueError: it is none, or says what makes no sense.
    """
    if not isinstance(given, Finding):
        raise TypeError(f"a rule yields Finding, not {type(given).__name__}")
    if not _CODE.fullmatch(given.code):
        raise ValueError(f"code {given.code!r}: lower-case words joined by hyphens are wanted")
    if given.severity not in _SEVERITIES:
        raise ValueError(f"severity {given.severity!r}: one of {', '.join(_SEVERITIES)} is wanted")
    finding = a.Finding(
        code=given.code, severity=_SEVERITIES[given.severity], message=given.message, fix=given.fix
    )
    if given.operator is not None:
        finding.operator = _known(given.operator, known)
    if given.gain is not None:
        if not math.isfinite(given.gain):
            raise ValueError(f"gain {given.gain!r}: a finite number or None is wanted")
        finding.gain = given.gain
    return finding


def _checked_limit(given: Any, known: set[str]) -> Limit | None:
    if given is None:
        return None
    if not isinstance(given, Limit):
        raise TypeError(f"a constraint returns Limit or None, not {type(given).__name__}")
    if not given.rate > 0 or not given.label:
        raise ValueError(f"rate {given.rate!r} of {given.label!r}: a rate above 0 and a label are wanted")
    operators = tuple(_known(operator, known) for operator in given.operators)
    return None if math.isinf(given.rate) else Limit(float(given.rate), str(given.label), operators)


def _known(operator: str, known: set[str]) -> str:
    if operator not in known:
        raise ValueError(f"operator {operator!r}: there is no such operator here")
    return operator
