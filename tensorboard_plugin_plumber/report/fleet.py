"""All runs of a log directory, a line each, and totals: what `plumber report --all` answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorboard_plugin_plumber.report import words
from tensorboard_plugin_plumber.report.terminal import DEFAULT_WIDTH, paragraph, render, table, text
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema.jsonify import Json, to_dict

if TYPE_CHECKING:
    from rich.console import Console

_VERDICT_KEYS = (
    "input_bound",
    "wait_fraction",
    "waits_over_1ms",
    "observed_rate",
    "consumer_rate",
    "cause",
    "tentative",
)
_CAUSES = ("software", "hardware", "consumer", "unknown")


@dataclass(frozen=True)
class FleetEntry:
    """One run of many, under `plumber report --all`.

    Attributes:
      run, host: as in `Recording`.
      analysis: of its training pipeline with most steps on its slowest host; None if it cannot be analysed.
      problem: why there is no analysis, one sentence; "" if there is one.
    """

    run: str
    host: str
    analysis: a.Analysis | None
    problem: str = ""


def fleet_to_dict(entries: Sequence[FleetEntry]) -> dict[str, Json]:
    """The object of `plumber report --all --json`: a row per run, and totals over them."""
    return {
        "schema_version": 1,
        "runs": [_row(entry) for entry in entries],
        "totals": _totals(entries),
    }


def fleet_text(entries: Sequence[FleetEntry], *, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
    """`fleet_to_dict` to be read: a line per run, then the totals."""
    return render(lambda console: _print(console, entries), width, color)


def _row(entry: FleetEntry) -> dict[str, Json]:
    analysis = entry.analysis
    verdict = to_dict(analysis.verdict) if analysis is not None else {}
    bottleneck = to_dict(analysis.bottleneck) if analysis is not None else {}
    return {
        "run": entry.run,
        "host": entry.host,
        "pipeline": analysis.pipeline if analysis is not None else None,
        "steps": analysis.steps if analysis is not None else None,
        **{key: verdict.get(key) for key in _VERDICT_KEYS},
        "sentence": verdict.get("sentence"),
        "constraint": bottleneck.get("constraint"),
        "bottleneck": _bottleneck(analysis) or None if analysis is not None else None,
        "problem": entry.problem or None,
    }


def _bottleneck(analysis: a.Analysis) -> str:
    """What binds, in a few words: "Map decode (train.py:57)", "all 2 cores"; "" if unknown."""
    return next((bound.label for bound in analysis.bounds if bound.binds), "")


def _totals(entries: Sequence[FleetEntry]) -> dict[str, Json]:
    analyses = [entry.analysis for entry in entries if entry.analysis is not None]
    timed = [x for x in analyses if x.verdict.HasField("wait_s") and x.verdict.HasField("step_s")]
    total_s = sum(x.verdict.step_s * x.steps for x in timed)
    waited_s = sum(x.verdict.wait_s * x.steps for x in timed)
    often = [x for x in analyses if x.verdict.HasField("waits_over_1ms") and x.steps > 0]
    steps = sum(x.steps for x in often)
    causes = Counter(words.enum_word(a.Cause.Name(x.verdict.cause)) for x in analyses)
    causes["unknown"] += causes.pop("unspecified", 0)
    return {
        "runs": len(entries),
        "analysed": len(analyses),
        "input_bound": sum(x.verdict.input_bound for x in analyses),
        "wait_fraction": waited_s / total_s if total_s > 0 else None,
        "waits_over_1ms": sum(x.verdict.waits_over_1ms * x.steps for x in often) / steps if steps else None,
        "causes": {cause: causes[cause] for cause in _CAUSES},
    }


def _print(console: Console, entries: Sequence[FleetEntry]) -> None:
    made = table("run", "host", "wait", "over 1 ms", "cause", "what binds")
    for entry in entries:
        if entry.analysis is None:
            made.add_row(
                text(entry.run),
                text(entry.host),
                "–",
                "–",
                text("unknown", "dim"),
                text(entry.problem, "dim"),
            )
            continue
        verdict = entry.analysis.verdict
        cause = words.enum_word(a.Cause.Name(verdict.cause))
        style = "red" if verdict.input_bound else ""
        made.add_row(
            text(entry.run),
            text(entry.host),
            text(words.optional(verdict, "wait_fraction", words.percent), style),
            text(words.optional(verdict, "waits_over_1ms", words.percent)),
            text(cause + (" (tentative)" if verdict.tentative else ""), style),
            text(_bottleneck(entry.analysis)),
        )
    console.print(made)
    console.print()
    paragraph(console, _summary(entries), "bold")


def _summary(entries: Sequence[FleetEntry]) -> str:
    """ "3 runs, 1 input-bound; together they waited 39 % of their time. Causes: …" """
    totals = _totals(entries)
    causes = totals["causes"]
    assert isinstance(causes, dict)
    waited, often = totals["wait_fraction"], totals["waits_over_1ms"]
    runs, owner, time = ("run", "it", "its") if totals["runs"] == 1 else ("runs", "together they", "their")
    share = f"; {owner} waited {words.percent(waited)} of {time} time" if isinstance(waited, float) else ""
    steps = (
        f", and {words.percent(often)} of {time} steps waited over 1 ms" if isinstance(often, float) else ""
    )
    counted = ", ".join(f"{cause} {count}" for cause, count in causes.items())
    return f"{totals['runs']} {runs}, {totals['input_bound']} input-bound{share}{steps}. Causes: {counted}."
