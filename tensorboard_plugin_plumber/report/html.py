"""The report as one self-contained page.

All that is shown is text: Jinja2 escapes whatever a template prints. Each number stands in a `data` element
that names the key of `--json` it comes from and holds the exact value of that key.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from tensorboard_plugin_plumber.model import host
from tensorboard_plugin_plumber.report import words
from tensorboard_plugin_plumber.report.charts import HEIGHT, WIDTH, Chart, chart
from tensorboard_plugin_plumber.report.flow import Placed, source_first
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema.jsonify import Json, to_dict

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

# The graph's grid, pixels.
_CARD_WIDTH, _CARD_HEIGHT = 230, 92
_COLUMN, _LINE = 254, 122

_FORMS: Mapping[str, Callable[[float], str]] = {
    "rate": words.rate,
    "measured": words.measured,
    "number": words.number,
    "cores": words.cores,
    "percent": words.percent,
    "size": words.size,
    "size_rate": words.size_rate,
    "duration": words.duration,
    "gain": lambda value: f"{100 * value:+.0f} %",
    "ratio": lambda value: f"{value:.2f}",
    "epochs": lambda value: f"{value:,.0f}",
}

_HISTORY = (
    ("rate", "Throughput", "rate", "works"),
    ("wait_s", "Waiting per step", "duration", "waits"),
    ("process_cores", "Cores", "cores", "helps"),
    ("rss_bytes", "Memory", "size", "memory"),
    ("read_bytes_per_s", "Read", "size_rate", "works"),
)


def page(analysis: a.Analysis) -> str:
    """The whole page, as text in UTF-8."""
    flow = source_first(analysis.operators)
    numbers = _Numbers(to_dict(analysis))
    names = {row.id: words.operator_name(row) for row in analysis.operators}
    return (
        _environment()
        .get_template("page.html")
        .render(
            analysis=analysis,
            number=numbers.at,
            known=numbers.known,
            words=words,
            tone=_tone(analysis.verdict),
            step=words.step_parts(analysis.verdict),
            updated=_time(analysis.updated_s),
            graph=_graph(analysis, flow),
            index={row.id: i for i, row in enumerate(analysis.operators)},
            flow=flow,
            names=names,
            bounds=_bounds(analysis),
            patch=[(_kind_of(line), line) for line in _patch_lines(analysis.plan.patch)],
            charts=list(_charts(analysis)),
            chart_box=(WIDTH, HEIGHT),
            notes=[
                *filter(None, (words.limits_sentence(analysis.limits), host.sentence(analysis.host_use))),
                *analysis.notes,
            ],
            enum=lambda kind, value: words.enum_word(getattr(a, kind).Name(value)),
        )
    )


class _Numbers:
    """Looks numbers up by their key of `--json`."""

    def __init__(self, data: dict[str, Json]) -> None:
        self._data = data

    def at(self, key: str, form: str) -> Markup:
        """The number at "verdict.observed_rate" in one of _FORMS, with its key and exact value; else a dash."""
        from markupsafe import Markup

        value = self._value(key)
        if value is None:
            return Markup('<span class="none">–</span>')
        return Markup('<data value="{}" data-key="{}">{}</data>').format(
            repr(value), key, _FORMS[form](value)
        )

    def known(self, key: str) -> bool:
        """Whether it is a number rather than null."""
        return self._value(key) is not None

    def _value(self, key: str) -> Any:
        value: Any = self._data
        for part in key.split("."):
            if value is None:
                break
            value = value[int(part)] if isinstance(value, list) else value[part]
        return value


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("tensorboard_plugin_plumber.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalize(value: object) -> object:
    """Names and paths without control characters; what is markup of the template's own stays."""
    if type(value) is not str:
        return value
    return "\t".join(map(words.clean, value.split("\t")))


def _tone(verdict: a.Verdict) -> str:
    if not verdict.HasField("input_bound"):
        return "neutral"
    return "bad" if verdict.input_bound else "good"


def _time(unix_s: float) -> str:
    if not 0 < unix_s < 1e11:
        return ""
    return datetime.fromtimestamp(unix_s, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def _patch_lines(patch: str) -> list[str]:
    return patch.removesuffix("\n").split("\n") if patch else []


def _kind_of(line: str) -> str:
    return {"+": "added", "-": "removed", "@": "where"}.get(line[:1], "same")


@dataclass(frozen=True)
class _Card:
    """An operator in the graph: where it stands, pixels, and what the plan changes there."""

    row: a.OperatorRow
    left: int
    top: int
    suggestions: list[str]


@dataclass(frozen=True)
class _Graph:
    width: int
    height: int
    cards: list[_Card]
    #: SVG path data, and whether the elements come from within a function.
    edges: list[tuple[str, bool]]


def _graph(analysis: a.Analysis, flow: list[Placed]) -> _Graph:
    suggestions: dict[str, list[str]] = {}
    for change in analysis.plan.changes:
        suggestions.setdefault(change.operator, []).append(words.change_mark(change))
    placed = {one.row.id: one for one in flow}
    edges = [
        (_edge(placed[below], one), placed[below].row.in_body and not one.row.in_body)
        for one in flow
        for below in one.inputs
    ]
    cards = [
        _Card(one.row, one.lane * _COLUMN, one.level * _LINE, suggestions.get(one.row.id, [])) for one in flow
    ]
    lanes = max((one.lane for one in flow), default=0)
    levels = max((one.level for one in flow), default=0)
    return _Graph(lanes * _COLUMN + _CARD_WIDTH, levels * _LINE + _CARD_HEIGHT, cards, edges)


def _edge(from_: Placed, to: Placed) -> str:
    """From the lower edge of one card to the upper edge of another."""
    x0 = from_.lane * _COLUMN + _CARD_WIDTH // 2
    y0 = from_.level * _LINE + _CARD_HEIGHT
    x1 = to.lane * _COLUMN + _CARD_WIDTH // 2
    y1 = to.level * _LINE - 4
    bend = (y0 + y1) // 2 if to.level - from_.level == 1 else y1 - 14
    return f"M{x0} {y0}V{bend}H{x1}V{y1}"


def _bounds(analysis: a.Analysis) -> list[tuple[int, a.Bound, float | None]]:
    """Finite bounds, the lowest first: position in the analysis, the bound, and its share in use now."""
    finite = [
        (i, bound)
        for i, bound in enumerate(analysis.bounds)
        if bound.HasField("rate") and math.isfinite(bound.rate)
    ]
    observed = analysis.verdict.observed_rate
    return [
        (i, bound, observed / bound.rate if observed > 0 and bound.rate > 0 else None)
        for i, bound in sorted(finite, key=lambda one: one[1].rate)
    ]


@dataclass(frozen=True)
class _History:
    key: str
    title: str
    form: str
    tone: str
    chart: Chart


def _charts(analysis: a.Analysis) -> Iterator[_History]:
    times = [point.time_s for point in analysis.history]
    for key, title, form, tone in _HISTORY:
        values = [getattr(point, key) if point.HasField(key) else None for point in analysis.history]  # type: ignore[arg-type]
        line = chart(times, values)
        if line is not None:
            yield _History(key, title, form, tone, line)
