"""The report as it is read in a terminal."""

from __future__ import annotations

import json
import math

import pytest

from tensorboard_plugin_plumber.report import FleetEntry, Report, fleet_text, fleet_to_dict
from tensorboard_plugin_plumber.report.flow import source_first
from tensorboard_plugin_plumber.report.words import duration, is_code, measured, number, operator_name, size
from tensorboard_plugin_plumber.schema import analysis_pb2 as a


def row(id_: str, **fields: object) -> a.OperatorRow:
    return a.OperatorRow(id=id_, **{"type": "Map", "label": id_, **fields})  # type: ignore[arg-type]


@pytest.fixture
def analysis() -> a.Analysis:
    """A sequential map inside a zip's branch binds."""
    analysis = a.Analysis(
        schema_version=1,
        run="run1",
        host="box-0",
        pipeline="ab12",
        pipeline_label="train",
        steps=1234,
        seconds=45,
    )
    verdict = analysis.verdict
    verdict.sentence = "Input-bound: 78 % of every step waits for data."
    verdict.input_bound = True
    verdict.wait_fraction = 0.78
    verdict.wait_s, verdict.step_s, verdict.waits_over_1ms = 0.078, 0.1, 1.0
    verdict.observed_rate = 12.3
    verdict.consumer_rate = math.inf
    verdict.cause = a.CAUSE_SOFTWARE
    analysis.operators.extend(
        [
            row("op0", type="Batch", label="Batch", source="train.py:60", flows_to="injected0", fused_with="op1"),
            row("op1", type="Zip", label="Zip", source="train.py:59", parent="op0", flows_to="op0"),
            row(
                "op2", label="decode", source="train.py:57", parent="op1", flows_to="op1", utilisation=0.99,
                max_rate=12.7, parallelism=1, binds=True,
            ),
            row("op3", type="TFRecord", label="TFRecord", source="train.py:55", parent="op2", flows_to="op2"),
            row("op4", type="Range", label="Range", source="train.py:58", parent="op1", flows_to="op1"),
            row("injected0", type="Prefetch", label="Prefetch", injected=True),
        ]
    )  # fmt: skip
    analysis.bounds.add(
        constraint=a.CONSTRAINT_OPERATOR, label="Map decode (train.py:57)", rate=12.7, binds=True
    )
    analysis.bounds.add(constraint=a.CONSTRAINT_CPU, label="all 2 cores", rate=25)
    analysis.bounds.add(constraint=a.CONSTRAINT_OPERATOR, label="Zip (train.py:59)", rate=math.inf)
    change = analysis.plan.changes.add(
        operator="op2", kind=a.CHANGE_KIND_PARALLELISM, why="it binds", code=".map(…)"
    )
    getattr(change, "from").number = 1
    change.to.number = 2
    analysis.plan.predicted_rate, analysis.plan.low, analysis.plan.high = 23.1, 20.0, 25.0
    analysis.findings.add(
        code="sequential-map",
        severity=a.SEVERITY_HIGH,
        operator="op2",
        message="It is slow.",
        fix="Do this.",
        gain=0.88,
    )
    analysis.notes.append("A file was cut short.")
    return analysis


def line_with(text: str, words: str) -> str:
    (line,) = (line for line in text.splitlines() if words in line)
    return line


def test_the_text_tells_all_that_matters(analysis: a.Analysis) -> None:
    text = Report(analysis).text(width=120)
    assert text.startswith("Input-bound: 78 % of every step waits for data.\n")
    assert "run run1, host box-0, pipeline train · 1,234 steps in 45 s · observed 12.3 steps/s" in text
    binding = line_with(text, "▶  │ Map decode train.py:57")
    assert "12.7" in binding
    assert "99 %" in binding
    assert "22 ms of work + 78 ms waiting" in text
    (bound,) = (line for line in text.splitlines() if "▶  operator" in line)
    assert bound.split()[-4:] == ["12.7", "██████████", "97", "%"]
    assert line_with(text, "parallel calls of Map decode (train.py:57)").split()[-2:] == ["1", "2"]
    assert "Predicted: 23.1 steps/s (20.0 to 25.0), now 12.3." in text
    assert "sequential-map (+88 %): It is slow." in text
    assert "A file was cut short." in text


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_asked_and_none_has_colour(analysis: a.Analysis, width: int) -> None:
    analysis.findings[0].message = "A long message about it. " * 20
    text = Report(analysis).text(width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text


def test_colour_for_a_terminal(analysis: a.Analysis) -> None:
    assert "\x1b[1;31m" in Report(analysis).text(color=True)


def test_data_flows_down_the_page(analysis: a.Analysis) -> None:
    placed = source_first(analysis.operators)
    order = [(one.row.id, one.depth, one.lane, one.level) for one in placed]
    assert order == [
        ("op3", 1, 0, 0),
        ("op2", 1, 0, 1),
        ("op4", 1, 1, 0),
        ("op1", 0, 0, 2),
        ("op0", 0, 0, 3),
        ("injected0", 0, 0, 4),
    ]
    assert [one.row.id for one in placed if one.opens] == ["op3", "op4", "op1"]
    # THEN rails show which of them are branches
    text = Report(analysis).text(width=120)
    assert "╭ TFRecord train.py:55" in text
    assert "╭ Range train.py:58" in text


def test_operators_in_a_circle_are_still_shown() -> None:
    rows = [row("a", parent="b"), row("b", parent="a"), row("c", parent="nowhere")]
    assert sorted(placed.row.id for placed in source_first(rows)) == ["a", "b", "c"]


def test_a_pipeline_of_thousands_of_operators_has_a_report() -> None:
    chain = [row(f"op{i}", **({"parent": f"op{i - 1}"} if i else {})) for i in range(3000)]
    assert [placed.level for placed in source_first(chain)] == list(range(3000))
    branches = [row(f"zip{i}", **({"parent": f"zip{i - 1}"} if i else {})) for i in range(1500)]
    branches += [row(f"range{i}", parent=f"zip{i}") for i in range(1500)]
    assert max(placed.depth for placed in source_first(branches)) == 1499
    assert "range1499" in Report(a.Analysis(operators=branches)).text()


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"label": "decode", "source": "train.py:57"}, "Map decode (train.py:57)"),
        ({"label": "Map", "source": "train.py:57"}, "Map (train.py:57)"),
        ({"label": "decode"}, "Map decode"),
        ({"type": "Prefetch", "label": "Prefetch", "injected": True}, "Prefetch (added by TensorFlow)"),
        ({"label": "evil\x1b[2J", "source": "x.py:1"}, "Map evil�[2J (x.py:1)"),
    ],
)
def test_names(fields: dict[str, object], name: str) -> None:
    assert operator_name(row("op0", **fields)) == name


def test_markup_in_names_is_text(analysis: a.Analysis) -> None:
    analysis.operators[2].label = "[red]decode[/red]"
    assert "Map [red]decode[/red]" in Report(analysis).text(width=120)


def test_an_empty_analysis_is_still_a_report() -> None:
    text = Report(a.Analysis()).text()
    assert "No changes: nothing that Plumber can set would make it faster." in text


def test_json_is_the_dictionary(analysis: a.Analysis) -> None:
    report = Report(analysis)
    assert json.loads(report.to_json()) == report.to_dict()
    assert report.to_dict()["verdict"]["consumer_rate"] is None  # type: ignore[call-overload, index]


def test_a_fleet_has_a_line_per_run_and_totals(analysis: a.Analysis) -> None:
    # GIVEN three runs: one waits, one does not, one recorded too little
    idle = a.Analysis()
    idle.CopyFrom(analysis)
    idle.steps = 1234
    idle.verdict.input_bound, idle.verdict.wait_fraction, idle.verdict.wait_s = False, 0.0, 0.0
    idle.verdict.cause = a.CAUSE_CONSUMER
    entries = [
        FleetEntry("a", "box-0", analysis),
        FleetEntry("b", "box-0", idle),
        FleetEntry("c", "box-0", None, "Too little."),
    ]
    # WHEN they are told together
    text = fleet_text(entries, width=80)
    told = fleet_to_dict(entries)
    # THEN
    assert line_with(text, "78 %").split() == (
        ["a", "box-0", "78", "%", "100", "%", "software", "Map", "decode", "(train.py:57)"]
    )
    assert "Too little." in line_with(text, "c ")
    summary = " ".join(text.split("\n\n")[1].split())
    assert summary == (
        "3 runs, 1 input-bound; together they waited 39 % of their time, and 100 % of their steps waited over "
        "1 ms. Causes: software 1, hardware 0, consumer 1, unknown 0."
    )
    assert [one["bottleneck"] for one in told["runs"]] == ["Map decode (train.py:57)"] * 2 + [None]
    assert told["totals"] == {
        "runs": 3,
        "analysed": 2,
        "input_bound": 1,
        "wait_fraction": pytest.approx(0.39),
        "waits_over_1ms": 1.0,
        "causes": {"software": 1, "hardware": 0, "consumer": 1, "unknown": 0},
    }
    json.dumps(told, allow_nan=False)


def test_a_patch_is_printed_as_it_is_and_what_it_lacks_is_said():
    long = "+" + "x" * 200
    analysis = a.Analysis(plan=a.Plan(patch=f"--- a/t.py\n+++ b/t.py\n@@ -1 +1 @@\n-y\n{long}\n"))
    analysis.plan.instructions.append("At t.py:5: .cache() (by hand: its line is not known).")
    text = Report(analysis).text(width=80)
    # THEN tabs stay tabs, and blanks at the end of a line are a part of it
    analysis.plan.patch = "+\tindented  \n \n"
    assert "\n+\tindented  \n \n" in Report(analysis).text(width=80)
    # THEN no line of it is wrapped: it can be copied into a file and applied
    assert f"\n--- a/t.py\n+++ b/t.py\n@@ -1 +1 @@\n-y\n{long}\n" in text
    assert ".cache() (by hand" in text


def test_what_more_would_bring_is_told(analysis: a.Analysis) -> None:
    analysis.prices.add(resource=a.RESOURCE_CORES, amount=1, gain=0.08, sentence="One more core: +8 %.")
    analysis.sizing.sentence = "For 40 steps/s it takes 3 cores."
    analysis.bottleneck.runner_up.sentence = "Next would be all 2 cores, at 25.0 steps/s."
    text = Report(analysis).text()
    assert "What more would bring" in text
    assert "·  One more core: +8 %." in text
    assert "·  For 40 steps/s it takes 3 cores." in text
    assert "Next would be all 2 cores" in text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (".map(decode, num_parallel_calls=4)", True),
        (".map(…, num_parallel_calls=4)", True),
        ("options.threading.private_threadpool_size = 16", True),
        ("Move .cache() before Map decode.", False),
        (".cache() after Map decode", False),
        ("Nothing: make the training step faster first.", False),
        ("Nothing", False),
    ],
)
def test_code_is_told_from_sentences(text: str, code: bool) -> None:
    assert is_code(text) is code


def test_numbers_have_three_digits_and_no_exponent() -> None:
    assert [number(x) for x in (0, 1, 12345, 0.5, math.inf)] == ["0", "1", "12,345", "0.500", "–"]
    assert [measured(x) for x in (3.0, 12345.6, 0.0000123, math.nan)] == ["3.00", "12,346", "0.0000123", "–"]
    assert [duration(x) for x in (0, 2e-9, 1e-6, 0.0263, 45, 720, 1e5)] == (
        ["0 s", "2 ns", "1 µs", "26.3 ms", "45 s", "12 min", "27.8 h"]
    )
    assert [size(x) for x in (0, 999.7, 3.1e9, 2e13)] == ["0 B", "1 kB", "3.1 GB", "20 TB"]
