"""The analysis for people who read it in a terminal, and as the object of `--json`."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorboard_plugin_plumber.model import host
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema.jsonify import Json, to_dict, to_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

DEFAULT_WIDTH = 100
_BAR_WIDTH = 10
_MAX_BOUNDS = 8
# A first element that comes sooner delays nothing that a person would notice.
_WORTH_SAYING_S = 0.1
_SEVERITY_STYLES = {a.SEVERITY_HIGH: "bold red", a.SEVERITY_MEDIUM: "yellow", a.SEVERITY_LOW: "dim"}


@dataclass(frozen=True)
class Report:
    """What Plumber concluded about one pipeline.

    Attributes:
      analysis: the `Analysis` message of proto/analysis.proto; treat it as read-only.
    """

    analysis: a.Analysis

    def to_dict(self) -> dict[str, Json]:
        """Returns exactly the object that `plumber report --json` prints."""
        return to_dict(self.analysis)

    def to_json(self) -> str:
        """Returns `to_dict()` as JSON text."""
        return to_json(self.analysis, indent=1)

    def text(self, *, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
        """Returns the report to be read.

        Args:
          width: columns to fill; 80 and more read well.
          color: with ANSI colours, for a terminal.
        """
        return _render(lambda console: _print_report(console, self.analysis), width, color)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Report({self.analysis.verdict.sentence!r})"


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
        "runs": [_fleet_row(entry) for entry in entries],
        "totals": _fleet_totals(entries),
    }


def fleet_text(entries: Sequence[FleetEntry], *, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
    """`fleet_to_dict` to be read: a line per run, then the totals."""
    return _render(lambda console: _print_fleet(console, entries), width, color)


def operator_name(row: a.OperatorRow) -> str:
    """How an operator is named in every text: "Map decode_and_augment (train.py:57)"."""
    name = row.type if row.label in ("", row.type) else f"{row.type} {row.label}"
    if row.injected:
        return _clean(f"{name} (added by TensorFlow)")
    return _clean(f"{name} ({row.source})" if row.source else name)


def _render(show: Callable[[Console], None], width: int, color: bool) -> str:
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as capture:
        show(console)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _print_report(console: Console, analysis: a.Analysis) -> None:
    verdict = analysis.verdict
    _paragraph(console, verdict.sentence, "bold")
    if verdict.caveat:
        _paragraph(console, verdict.caveat, "yellow")
    if analysis.bottleneck.sentence[1:] not in verdict.sentence:
        _paragraph(console, analysis.bottleneck.sentence)
    _paragraph(console, " · ".join(_facts(analysis)), "dim")
    _section(console, "Pipeline, from source to consumer", _operator_table(analysis))
    if analysis.bounds:
        _section(console, "Upper bounds on the rate", _bound_table(analysis))
    if analysis.autotune.sentence:
        _section(console, "AUTOTUNE", None)
        for line in _autotune_lines(analysis):
            _paragraph(console, line, indent=2)
    _section(console, "Plan", _plan_table(analysis) if analysis.plan.changes else None)
    for line in _plan_lines(analysis):
        _paragraph(console, line, indent=2)
    for assumption in analysis.plan.assumptions:
        _item(console, assumption)
    if analysis.plan.patch:
        _section(console, "Patch, for git apply", None)
        _print_patch(console, analysis.plan.patch)
    for instruction in analysis.plan.instructions:
        _item(console, instruction)
    if analysis.findings:
        _section(console, "Findings", _finding_table(analysis))
    notes = [*_limit_notes(analysis), *analysis.notes]
    if notes:
        _section(console, "Notes", None)
        for note in notes:
            _item(console, note)


def _print_patch(console: Console, patch: str) -> None:
    """The diff as it is: lines are not wrapped and tabs stay, so that it can be copied."""
    from rich.segment import Segment, Segments

    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in patch.removesuffix("\n").split("\n"):
        content = "\t".join(map(_clean, line.split("\t")))  # a Text would make blanks of them
        style = console.get_style(styles.get(line[:1], "none"))
        console.print(Segments([Segment(content, style), Segment.line()]), soft_wrap=True, end="")


def _facts(analysis: a.Analysis) -> Iterator[str]:
    verdict = analysis.verdict
    run = f"run {analysis.run}, " if analysis.run not in ("", ".") else ""
    yield f"{run}host {analysis.host}, pipeline {analysis.pipeline_label or analysis.pipeline}"
    if analysis.steps:
        yield f"{_number(analysis.steps)} steps in {_duration(analysis.seconds)}"
    if verdict.HasField("observed_rate"):
        yield f"observed {_rate(verdict.observed_rate)}"
    if verdict.HasField("wait_fraction"):
        yield f"waits {_percent(verdict.wait_fraction)} of the time"
    if verdict.HasField("consumer_rate"):
        yield f"consumer could take {_rate(verdict.consumer_rate)}"
    if verdict.HasField("waits_over_1ms"):
        yield f"{_percent(verdict.waits_over_1ms)} of steps wait over 1 ms"
    if verdict.HasField("first_step_delay_s") and verdict.first_step_delay_s >= _WORTH_SAYING_S:
        each = "" if verdict.epochs == 1 else f", on average of {verdict.epochs} epochs"
        yield f"first element after {_duration(verdict.first_step_delay_s)}{each}"
    if verdict.HasField("self_check"):
        yield f"self-check {verdict.self_check:.2f}"


def _operator_table(analysis: a.Analysis) -> Table:
    table = _table("operator", "max steps/s", "used", "calls", "")
    for row, depth in source_first(analysis.operators):
        style = "bold red" if row.binds else "dim" if row.injected else ""
        table.add_row(
            _text("│ " * depth + operator_name(row), style),
            _text(_optional(row, "max_rate", _number), style),
            _bar(row.utilisation, style) if row.HasField("utilisation") else "",
            _text(_calls(row), style),
            _text("◀ binds" if row.binds else "fused" if row.fused_with else "", style),
        )
    return table


def source_first(rows: Sequence[a.OperatorRow]) -> list[tuple[a.OperatorRow, int]]:
    """The operators in the order in which data flows, with the depth of their branch.

    A chain stays at one depth; the inputs of an operator that has several, and what runs inside its
    function, are one deeper than itself.
    """
    by_id = {row.id: row for row in rows}
    inputs: dict[str, list[a.OperatorRow]] = {}
    last: list[a.OperatorRow] = []
    for row in rows:
        consumer = next((to for to in (row.flows_to, row.parent) if to in by_id and to != row.id), None)
        if consumer is None:
            last.append(row)
        else:
            inputs.setdefault(consumer, []).append(row)
    ordered: list[tuple[a.OperatorRow, int]] = []
    done: set[str] = set()

    def visit(row: a.OperatorRow, depth: int) -> None:
        if row.id in done:
            return
        done.add(row.id)
        own_inputs = inputs.get(row.id, [])
        for own_input in own_inputs:
            deeper = own_input.in_body or sum(not other.in_body for other in own_inputs) > 1
            visit(own_input, depth + (1 if deeper else 0))
        ordered.append((row, depth))

    # Rows that no path connects to a last operator are shown rather than lost.
    for row in [*last, *rows]:
        visit(row, 0)
    return ordered


def _calls(row: a.OperatorRow) -> str:
    if not row.HasField("parallelism"):
        return ""
    return f"{_number(row.parallelism)}{' auto' if row.autotuned else ''}"


def _bound_table(analysis: a.Analysis) -> Table:
    table = _table("bound", "what", "steps/s", "")
    finite = [bound for bound in analysis.bounds if bound.HasField("rate")]
    for bound in sorted(finite, key=lambda bound: bound.rate)[:_MAX_BOUNDS]:
        style = "bold red" if bound.binds else ""
        table.add_row(
            _text(_enum(a.Constraint.Name(bound.constraint)), style),
            _text(bound.label, style),
            _text(_number(bound.rate), style),
            _text("◀ binds" if bound.binds else "", style),
        )
    return table


def _autotune_lines(analysis: a.Analysis) -> Iterator[str]:
    yield analysis.autotune.sentence
    held = [row for row in analysis.operators if row.HasField("buffer_fill") and row.buffered_bytes > 0]
    if held:
        each = ", ".join(f"{operator_name(row)} {_percent(row.buffer_fill)} full" for row in held)
        yield f"Buffers hold {_size(analysis.autotune.buffered_bytes)}: {each}."


def _plan_table(analysis: a.Analysis) -> Table:
    from rich.console import Group

    names = {row.id: operator_name(row) for row in analysis.operators}
    table = _table("setting", "now", "suggested")
    for change in analysis.plan.changes:
        what: list[RenderableType] = [_text(_setting_name(change, names.get(change.operator, "")))]
        what += [
            _indented(_text(line, style))
            for line, style in ((change.code, "cyan"), (change.why, "dim"))
            if line
        ]
        # `from` is a keyword: the field can only be had by name.
        table.add_row(Group(*what), _setting(getattr(change, "from")), _setting(change.to))
    return table


def _setting_name(change: a.Change, name: str) -> str:
    words = {
        a.CHANGE_KIND_PARALLELISM: "parallel calls of {}",
        a.CHANGE_KIND_PREFETCH: "prefetch after {}",
        a.CHANGE_KIND_CACHE: "cache after {}",
        a.CHANGE_KIND_THREADPOOL: "threads of the pool",
        a.CHANGE_KIND_ORDER: "order of {}",
        a.CHANGE_KIND_SERVICE: "tf.data service after {}",
        a.CHANGE_KIND_REWRITE: "place of {}",
    }
    return words.get(change.kind, "{}").format(name or "the pipeline")


def _setting(setting: a.Setting) -> str:
    if setting.WhichOneof("value") is None:
        return "–"
    return f"{setting.number:,}" if setting.WhichOneof("value") == "number" else _clean(setting.word)


def _plan_lines(analysis: a.Analysis) -> Iterator[str]:
    plan = analysis.plan
    if plan.sentence:
        yield plan.sentence
    elif not plan.changes:
        yield "No changes: nothing that Plumber can set would make it faster."
    elif plan.HasField("predicted_rate"):
        predicted = f"Predicted: {_rate(plan.predicted_rate)}"
        if plan.HasField("low") and plan.HasField("high"):
            predicted += f" ({_number(plan.low)} to {_number(plan.high)})"
        if analysis.verdict.HasField("observed_rate"):
            predicted += f", now {_number(analysis.verdict.observed_rate)}"
        if plan.memory_bytes > 0:
            predicted += f"; takes {_size(plan.memory_bytes)} more memory"
        yield predicted + "."


def _finding_table(analysis: a.Analysis) -> Table:
    table = _table("", "", header=False)
    for finding in analysis.findings:
        severity = _enum(a.Severity.Name(finding.severity))
        gain = (
            f" ({100 * finding.gain:+.0f} %)"
            if finding.HasField("gain") and math.isfinite(finding.gain)
            else ""
        )
        fix = f"\nFix: {finding.fix}" if finding.fix else ""
        table.add_row(
            _text(severity, _SEVERITY_STYLES.get(finding.severity, "")),
            _text(f"{finding.code}{gain}: {finding.message}{fix}"),
        )
    return table


def _limit_notes(analysis: a.Analysis) -> Iterator[str]:
    limits = analysis.limits
    if limits.cores > 0:
        yield (
            f"Limits: {_number(limits.cores)} cores, {_size(limits.memory_bytes)} memory of which a plan may add "
            f"{_size(limits.memory_free_bytes)}, {limits.threadpool_size} threads for user functions."
        )
    used = host.sentence(analysis.host_use)
    if used:
        yield used


def _fleet_row(entry: FleetEntry) -> dict[str, Json]:
    analysis = entry.analysis
    verdict = to_dict(analysis.verdict) if analysis is not None else {}
    keys = (
        "input_bound",
        "wait_fraction",
        "waits_over_1ms",
        "observed_rate",
        "consumer_rate",
        "cause",
        "tentative",
    )
    return {
        "run": entry.run,
        "host": entry.host,
        "pipeline": analysis.pipeline if analysis is not None else None,
        **{key: verdict.get(key) for key in keys},
        "sentence": verdict.get("sentence"),
        "problem": entry.problem or None,
    }


def _fleet_totals(entries: Sequence[FleetEntry]) -> dict[str, Json]:
    analyses = [entry.analysis for entry in entries if entry.analysis is not None]
    timed = [x for x in analyses if x.verdict.HasField("wait_s") and x.verdict.HasField("step_s")]
    total_s = sum(x.verdict.step_s * x.steps for x in timed)
    waited_s = sum(x.verdict.wait_s * x.steps for x in timed)
    causes = Counter(_enum(a.Cause.Name(x.verdict.cause)) for x in analyses)
    causes["unknown"] += causes.pop("unspecified", 0)
    return {
        "runs": len(entries),
        "analysed": len(analyses),
        "input_bound": sum(x.verdict.input_bound for x in analyses),
        "wait_fraction": waited_s / total_s if total_s > 0 else None,
        "causes": {cause: causes[cause] for cause in ("software", "hardware", "consumer", "unknown")},
    }


def _print_fleet(console: Console, entries: Sequence[FleetEntry]) -> None:
    table = _table("run", "host", "wait", "steps > 1 ms", "cause")
    for entry in entries:
        if entry.analysis is None:
            table.add_row(_text(entry.run), _text(entry.host), "–", "–", _text(entry.problem, "dim"))
            continue
        verdict = entry.analysis.verdict
        cause = _enum(a.Cause.Name(verdict.cause))
        table.add_row(
            _text(entry.run),
            _text(entry.host),
            _optional(verdict, "wait_fraction", _percent),
            _optional(verdict, "waits_over_1ms", _percent),
            _text(cause + (" (tentative)" if verdict.tentative else "")),
        )
    console.print(table)
    totals = _fleet_totals(entries)
    causes = totals["causes"]
    assert isinstance(causes, dict)
    waited = totals["wait_fraction"]
    runs, owner, time = ("run", "it", "its") if totals["runs"] == 1 else ("runs", "together they", "their")
    share = f"; {owner} waited {_percent(waited)} of {time} time" if isinstance(waited, float) else ""
    _paragraph(
        console,
        f"\n{totals['runs']} {runs}, {totals['input_bound']} input-bound{share}. Causes: "
        + ", ".join(f"{cause} {count}" for cause, count in causes.items())
        + ".",
        "bold",
    )


def _section(console: Console, title: str, table: Table | None) -> None:
    console.print()
    console.print(_text(title, "bold underline"))
    if table is not None:
        console.print(_indented(table))


def _paragraph(console: Console, content: str, style: str = "", *, indent: int = 0) -> None:
    console.print(_indented(_text(content, style), indent))


def _indented(content: RenderableType, indent: int = 2) -> RenderableType:
    from rich.padding import Padding

    return Padding(content, (0, 0, 0, indent))


def _item(console: Console, content: str) -> None:
    table = _table("", "", header=False)
    table.add_row(_text("·", "dim"), _text(content, "dim"))
    console.print(_indented(table))


def _table(*columns: str, header: bool = True) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=header, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    numeric = {"max steps/s", "steps/s", "calls", "now", "suggested", "wait", "steps > 1 ms"}
    wide = {"operator", "what", "setting", "run", "cause"}
    for index, column in enumerate(columns):
        table.add_column(
            column,
            justify="right" if column in numeric else "left",
            overflow="fold",
            no_wrap=column not in wide and not (index == 1 and not header),
        )
    return table


def _text(content: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(_clean(content), style=style, overflow="fold")


def _bar(share: float, style: str) -> Text:
    filled = min(_BAR_WIDTH, max(0, round(share * _BAR_WIDTH)))
    return _text(f"{'█' * filled}{'░' * (_BAR_WIDTH - filled)} {_percent(share):>5}", style)


def _clean(content: str) -> str:
    """Without what could steer a terminal: names and paths come from whoever wrote the events."""
    return "".join(
        character if character.isprintable() or character == "\n" else "�" for character in content
    )


def _enum(name: str) -> str:
    return name.partition("_")[2].lower().replace("_", " ")


def _optional(message: a.OperatorRow | a.Verdict, field: str, form: Callable[[float], str]) -> str:
    if not message.HasField(field):  # type: ignore[arg-type]
        return "–"
    return form(getattr(message, field))


def _number(value: float) -> str:
    """Three significant digits, thousands set apart."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _rate(value: float) -> str:
    return f"{_number(value)} steps/s"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.005 or share == 0 else "<1 %"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
