"""The report to be read in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorboard_plugin_plumber.model import host
from tensorboard_plugin_plumber.report import words
from tensorboard_plugin_plumber.report.flow import Placed, source_first
from tensorboard_plugin_plumber.report.terminal import (
    WIDE,
    bar,
    indented,
    item,
    paragraph,
    render,
    section,
    table,
    text,
)
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_MAX_BOUNDS = 8
_MAX_RAILS = 6
_STEP_BAR_WIDTH = 40
_DIFF_COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
_SEVERITY_STYLES = {a.SEVERITY_HIGH: "bold red", a.SEVERITY_MEDIUM: "yellow", a.SEVERITY_LOW: "dim"}


def report_text(analysis: a.Analysis, *, width: int, color: bool) -> str:
    """All of it, what matters most first."""
    return "".join(
        [
            render(lambda console: _print_until_plan(console, analysis), width, color),
            _patch_text(analysis.plan.patch, color),
            render(lambda console: _print_from_instructions(console, analysis), width, color),
        ]
    )


def _print_until_plan(console: Console, analysis: a.Analysis) -> None:
    if measured := words.measured_sentence(analysis):
        paragraph(console, measured, "bold")
        console.print()
    _print_verdict(console, analysis)
    section(console, "Pipeline, from source to consumer", _operator_table(analysis, console.width))
    if analysis.bounds:
        section(console, "Upper bounds on the rate", _bound_table(analysis))
    if analysis.autotune.sentence:
        section(console, "AUTOTUNE")
        for line in filter(None, (analysis.autotune.sentence, words.buffers_sentence(analysis))):
            paragraph(console, line, indent=2)
    _print_plan(console, analysis)
    if analysis.plan.patch:
        section(console, "Patch, for git apply")


def _patch_text(patch: str, color: bool) -> str:
    """The diff as it is: lines are not wrapped, tabs and blanks at their ends stay, so that it can be applied."""
    if not patch:
        return ""
    lines = ["\t".join(map(words.clean, line.split("\t"))) for line in patch.removesuffix("\n").split("\n")]
    if color:
        lines = [
            f"{_DIFF_COLOURS[line[:1]]}{line}\x1b[0m" if line[:1] in _DIFF_COLOURS else line for line in lines
        ]
    return "".join(f"{line}\n" for line in lines)


def _print_from_instructions(console: Console, analysis: a.Analysis) -> None:
    for instruction in analysis.plan.instructions:
        item(console, instruction, "")
    if analysis.prices or analysis.sizing.sentence:
        section(console, "What more would bring")
        for price in analysis.prices:
            item(console, price.sentence, "")
        if analysis.sizing.sentence:
            item(console, analysis.sizing.sentence, "")
    if analysis.findings:
        section(console, "Findings", _finding_table(analysis))
    notes = [words.limits_sentence(analysis.limits), host.sentence(analysis.host_use), *analysis.notes]
    if any(notes):
        section(console, "Notes")
        for note in filter(None, notes):
            item(console, note)


def _print_verdict(console: Console, analysis: a.Analysis) -> None:
    verdict = analysis.verdict
    paragraph(console, verdict.sentence, "bold")
    if verdict.caveat:
        paragraph(console, verdict.caveat, "yellow")
    bottleneck = analysis.bottleneck
    if bottleneck.sentence[1:] not in verdict.sentence:
        paragraph(console, bottleneck.sentence)
    if bottleneck.runner_up.sentence:
        paragraph(console, bottleneck.runner_up.sentence)
    parts = words.step_parts(verdict)
    if parts is not None:
        console.print(indented(_step_bar(*parts)))
    paragraph(console, " · ".join([words.headline(analysis), *words.facts(analysis)]), "dim")


def _step_bar(works_s: float, waits_s: float) -> Text:
    """The step as a bar: what the consumer works, and what it waits."""
    works = round(_STEP_BAR_WIDTH * works_s / (works_s + waits_s))
    made = text("step ")
    made.append_text(text("█" * works, "blue"))
    made.append_text(text("░" * (_STEP_BAR_WIDTH - works), "red"))
    parts = f" {words.duration(works_s)} of work + {words.duration(waits_s)} waiting"
    return made.append_text(text(parts))


def _operator_table(analysis: a.Analysis, width: int) -> Table:
    wide = width >= WIDE
    made = table("", "operator", "used", "calls", *(["time/step"] if wide else []), "max steps/s")
    for placed in source_first(analysis.operators):
        row = placed.row
        style = "bold red" if row.binds else "dim" if row.injected or row.dropped else ""
        own_s = words.step_s(row)
        time = [text(words.NONE if own_s is None else words.duration(own_s), style)] if wide else []
        share = row.utilisation if row.HasField("utilisation") and not row.fused_with else None
        made.add_row(
            text("▶" if row.binds else "", style),
            _named(placed, style),
            text(words.mark(row), "dim") if share is None else bar(share, style, width=10 if wide else 6),
            text(words.calls(row), style),
            *time,
            text(words.optional(row, "max_rate", words.measured), style),
        )
    return made


def _named(placed: Placed, style: str) -> RenderableType:
    """The operator's name with its line, behind the rails of the branches that it is in."""
    from rich.table import Table

    name = text(words.short_name(placed.row), style)
    name.append(" ")
    name.append_text(text(words.place(placed.row), "dim" if not placed.row.binds else style))
    if placed.depth == 0:
        return name
    rails = "│ " * min(placed.depth - 1, _MAX_RAILS) + ("╭ " if placed.opens else "│ ")
    # A grid keeps a name that breaks over lines to the right of its rails.
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(text(rails, "dim"), name)
    return grid


def _bound_table(analysis: a.Analysis) -> Table:
    made = table("", "bound", "what", "steps/s", "used now")
    observed = analysis.verdict.observed_rate
    finite = [bound for bound in analysis.bounds if bound.HasField("rate")]
    for bound in sorted(finite, key=lambda bound: bound.rate)[:_MAX_BOUNDS]:
        style = "bold red" if bound.binds else ""
        made.add_row(
            text("▶" if bound.binds else "", style),
            text(words.enum_word(a.Constraint.Name(bound.constraint)), style),
            text(bound.label, style),
            text(words.measured(bound.rate), style),
            bar(observed / bound.rate, style) if observed > 0 and bound.rate > 0 else "",
        )
    return made


def _print_plan(console: Console, analysis: a.Analysis) -> None:
    plan = analysis.plan
    section(console, "Plan", _plan_table(analysis) if plan.changes else None)
    for line in filter(None, (words.plan_sentence(analysis), _prediction(plan))):
        paragraph(console, line, indent=2)
    for assumption in plan.assumptions:
        item(console, assumption)


def _prediction(plan: a.Plan) -> str:
    """What the plan's sentence does not say: memory, and the first epoch."""
    parts = []
    if plan.changes and plan.memory_bytes > 0:
        parts.append(f"takes {words.size(plan.memory_bytes)} more memory")
    if plan.HasField("first_epoch_rate") and plan.first_epoch_rate < 0.99 * plan.predicted_rate:
        parts.append(f"the first epoch, which fills the caches, runs at {words.rate(plan.first_epoch_rate)}")
    said = "; ".join(parts)
    return f"{said[:1].upper()}{said[1:]}." if said else ""


def _plan_table(analysis: a.Analysis) -> Table:
    from rich.console import Group

    names = {row.id: words.operator_name(row) for row in analysis.operators}
    made = table("setting", "now", "suggested")
    for change in analysis.plan.changes:
        what: list[RenderableType] = [text(words.setting_name(change, names.get(change.operator, "")))]
        what += [
            indented(text(line, style))
            for line, style in ((change.code, "cyan"), (change.why, "dim"))
            if line
        ]
        made.add_row(Group(*what), words.setting(words.setting_from(change)), words.setting(change.to))
    return made


def _finding_table(analysis: a.Analysis) -> Table:
    from rich.console import Group

    made = table("", "", header=False)
    for finding in analysis.findings:
        style = _SEVERITY_STYLES.get(finding.severity, "")
        said = text(finding.code, "bold")
        if gain := words.gain(finding):
            said.append_text(text(f" ({gain})", style))
        said.append_text(text(f": {finding.message}"))
        parts: list[RenderableType] = [said]
        if finding.fix:
            fix = finding.fix if words.is_code(finding.fix) else f"Fix: {finding.fix}"
            parts.append(text(fix, "cyan" if words.is_code(finding.fix) else ""))
        made.add_row(text(words.enum_word(a.Severity.Name(finding.severity)), style), Group(*parts))
    return made
