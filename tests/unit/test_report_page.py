"""The report as a page: text is never markup, numbers are those of `--json`, and nothing is loaded."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tensorboard_plugin_plumber.report import Report
from tensorboard_plugin_plumber.report.charts import HEIGHT, WIDTH, chart
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tests.support.page import Page

#: What a number shown is worth in the unit of the schema.
_UNITS = {
    "": 1.0, "steps/s": 1.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "%": 0.01,
    "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "kB/s": 1e3, "MB/s": 1e6, "B/s": 1.0,
}  # fmt: skip

HOSTILE = {
    "markup": "x<script>alert(1)</script><img src=x onerror=alert(1)>&amp;<!-- ",
    "quotes": "x\" onmouseover=\"alert(1)' style='x:y` title=`",
    "template": "x{{ 7 * 7 }}{% include 'page.css' %}{# #}",
    "ends": "x</title></style></pre></svg>]]>",
    "lines": "x<b>\n\r\n</b>\n+x\n-y",
    "right to left": "x\u202e\u2067שלום عالم\u2066\u200f",
    "controls": "x\x00\x1b[2J\x07\u0085\u2028\ufeff",
    "long": "x<" * 5000,
}


def filled(message: Message, word: str, seed: int = 1) -> Message:
    """The message with something in every field; all strings are `word`."""
    for number, field in enumerate(message.DESCRIPTOR.fields, seed):
        repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
        if field.message_type is not None:
            for _ in range(2 if repeated else 1):
                child = getattr(message, field.name)
                filled(child.add() if repeated else child, word, number)
            continue
        value = _value(field, word, number)
        if repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    return message


def _value(field: FieldDescriptor, word: str, number: int) -> Any:
    if field.type == field.TYPE_STRING:
        return word
    if field.type == field.TYPE_BOOL:
        return True
    if field.type == field.TYPE_ENUM:
        return field.enum_type.values[1].number
    return 3 + number if field.type != field.TYPE_DOUBLE else 0.0123 * number


def analysis_of(word: str) -> a.Analysis:
    """An analysis with something in every field, of two operators."""
    analysis = a.Analysis()
    filled(analysis, word)
    last, first = analysis.operators
    last.id, first.id = "op0", "op1"
    for row in (last, first):
        row.ClearField("parent")
        row.ClearField("flows_to")
        row.injected = False
        row.label = f"{word}label"
    first.parent = "op0"
    for change in analysis.plan.changes:
        change.operator = "op1"
    analysis.steps = 1234
    for i, point in enumerate(analysis.history):
        point.time_s = 100.0 + i
    return analysis


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_whatever_a_name_holds_is_text(hostile: str) -> None:
    # GIVEN the same analysis twice: once with harmless words, once with these everywhere
    page = Page(Report(analysis_of(hostile)).html())
    # The patch is one element for each line.
    harmless = Page(Report(analysis_of("\n".join("x" for _ in hostile.split("\n")))).html())
    # THEN they make the same elements with the same attributes
    assert page.elements == harmless.elements
    assert not {"script", "img", "iframe", "object", "link", "base", "form"} & {
        name for name, *_ in page.elements
    }
    # THEN nothing steers the reader's browser or turns text around
    assert not re.search(
        "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", page.text
    )


def test_names_are_shown_as_they_are() -> None:
    name = "decode<b>&\"'"
    page = Page(Report(analysis_of(name)).html())
    assert f"{name}label" in page.text
    assert ("title", f"{name} {name}label ({name})") in page.attributes


def test_nothing_is_loaded_from_anywhere() -> None:
    source = Report(analysis_of("https://example.org/x")).html()
    page = Page(source)
    assert {name for name, _ in page.attributes} & {"src", "href", "srcset", "action", "background"} == set()
    assert not any(name.startswith("on") for name, _ in page.attributes)
    style = source.partition("<style>")[2].partition("</style>")[0]
    assert "@import" not in style
    assert "url(" not in style
    assert any("default-src 'none'" in value for _, value in page.attributes)


def test_every_number_is_that_of_json() -> None:
    report = Report(analysis_of("x"))
    numbers = Page(report.html()).numbers
    told: Any = report.to_dict()
    for number in numbers:
        value = told
        for part in number.key.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
        assert float(number.value) == value, number
        # THEN what is shown is that number, as far as its digits go
        shown, _, unit = number.shown.replace(",", "").partition(" ")
        assert float(shown.lstrip("<")) * _UNITS[unit] == pytest.approx(value, rel=0.01, abs=0.005), number


def test_the_page_shows_what_was_concluded() -> None:
    keys = {number.key for number in Page(Report(analysis_of("x")).html()).numbers}
    assert {
        f"verdict.{key}" for key in ("observed_rate", "wait_fraction", "consumer_rate", "self_check")
    } <= keys
    assert {
        f"plan.{key}" for key in ("predicted_rate", "low", "high", "memory_bytes", "first_epoch_rate")
    } <= keys
    for row in ("operators.0.", "operators.1."):
        assert {row + key for key in ("cpu_s", "wait_s", "max_rate", "parallelism", "utilisation")} <= keys
    assert {"bounds.0.rate", "findings.0.gain", "prices.1.gain", "history.1.rate"} <= keys


def test_what_is_not_known_is_a_dash() -> None:
    page = Page(Report(a.Analysis()).html())
    assert "Nothing can be said yet." in page.text
    assert [number.key for number in page.numbers] == ["steps", "seconds"]
    infinite = a.Analysis(operators=[a.OperatorRow(id="op0", type="Map", max_rate=math.inf, cpu_s=math.nan)])
    infinite.verdict.wait_fraction = math.nan
    assert "nan" not in Page(Report(infinite).html()).text
    assert "inf" not in Page(Report(infinite).html()).text


def test_a_patch_keeps_its_tabs_and_blanks() -> None:
    analysis = a.Analysis(plan=a.Plan(patch="--- a/t.py\n+++ b/t.py\n@@ -1 +1 @@\n-\tx  \n+\ty  \n \n"))
    source = Report(analysis).html()
    assert (
        '<span class="removed">-\tx  </span><span class="added">+\ty  </span><span class="same"> </span></pre>'
        in source
    )


def test_a_line_is_broken_where_nothing_is_known() -> None:
    line = chart([0, 1, 2, 3, 4], [1.0, 2.0, None, 4.0, 2.0])
    assert line is not None
    assert (
        line.path == f"M0.0 {HEIGHT * 3 / 4:.1f}L75.0 {HEIGHT / 2:.1f}M225.0 0.0L{WIDTH:.1f} {HEIGHT / 2:.1f}"
    )
    assert (line.highest, line.last) == (3, 4)
    assert chart([0, 1], [1.0, math.nan]) is None
    flat = chart([0, 1], [0.0, 0.0])
    assert flat is not None
    assert flat.path == f"M0.0 {HEIGHT:.1f}L{WIDTH:.1f} {HEIGHT:.1f}"
