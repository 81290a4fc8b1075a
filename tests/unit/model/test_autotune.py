"""AUTOTUNE's parameters over time, its budgets, and the sentence about it, from recordings that are written down."""

from __future__ import annotations

import pytest

from tensorboard_plugin_plumber.model.analyse import analyse
from tensorboard_plugin_plumber.model.autotune import HISTORY_POINTS
from tensorboard_plugin_plumber.report import Report
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.jsonify import to_dict
from tests.support.recordings import Cost, Run, chain

ALLOWED = m.Legality(allowed=True)
LARGEST = float(2**63 - 1)


def at(line):
    return m.SourceLine(path="/project/train.py", line=line)


def parameter(name, value, *, tunable=True, low=1.0, high=2.0):
    return m.Parameter(name=name, value=value, min=low, max=high, tunable=tunable)


def raises(second, record):
    """The prefetch's buffer doubles at 5 s and 9 s, the map's calls go from 1 to 2 at 3 s; the rest stays."""
    (part,) = record.pipelines
    part.autotune.CopyFrom(
        m.Autotune(
            algorithm="HILL_CLIMB", cpu_budget=2, ram_budget_bytes=8_000_000_000, model_input_time_ns=3e6
        )
    )
    prefetch, batch, augment, shuffle = part.operators
    buffer = 2.0 if second < 5 else 4.0 if second < 9 else 8.0
    prefetch.parameters.append(parameter("buffer_size", buffer, low=0, high=LARGEST))
    prefetch.buffer_size, prefetch.buffered_elements, prefetch.buffered_bytes = buffer, 2, 2000
    batch.parameters.append(parameter("parallelism", 1.0 if second < 3 else 2.0))
    augment.parameters.append(parameter("parallelism", 1.0, tunable=False))
    augment.parameters.append(parameter("deterministic", 1.0, tunable=False))
    shuffle.buffered_elements, shuffle.buffered_bytes = 60, 6000


def recording(change=raises, **options):
    decode = m.UserFunction(name="decode")
    augment = m.UserFunction(name="augment", random=True, stateful=True)
    return chain(
        [
            Cost(
                "Prefetch",
                1,
                1e-6,
                written=[m.Operator(cardinality=-2, type="Prefetch", buffer_size=-1, source=at(9))],
            ),
            Cost(
                "MapAndBatch",
                1,
                1e-3,
                function=decode,
                written=[
                    m.Operator(cardinality=-2, type="Batch", batch_size=8, source=at(8)),
                    m.Operator(cardinality=-2, type="Map", label="decode", source=at(7), parallel=ALLOWED),
                ],
            ),
            Cost(
                "Map",
                8,
                1e-3,
                function=augment,
                written=[m.Operator(cardinality=-2, type="Map", label="augment", source=at(6))],
            ),
            Cost(
                "Shuffle",
                8,
                1e-6,
                written=[m.Operator(cardinality=-2, type="Shuffle", buffer_size=80, source=at(5))],
            ),
        ],
        Run(rate=20, gap_s=1e-3, pool_cores=0.9, change=change),
        **options,
    )


@pytest.fixture
def found():
    made = recording()
    made.graph.pipelines[0].running[3].buffer_size = 80
    return analyse(made)


def rows(found):
    return {row.id: row for row in found.operators}


def test_a_history_holds_the_changes_only(found):
    (buffer,) = rows(found)["op0"].parameters

    # Samples come each second from 1001 s on.
    assert [(point.time_s, point.value) for point in buffer.history] == [(1001, 2), (1005, 4), (1009, 8)]
    assert (buffer.name, buffer.value, buffer.min, buffer.tunable) == ("buffer_size", 8, 0, True)
    assert not buffer.HasField("max")  # TensorFlow's largest integer is no limit
    assert buffer.fixed_by == ""


def test_a_parameter_of_a_fused_operator_stands_on_the_map(found):
    (calls,) = rows(found)["op2"].parameters

    assert (calls.name, calls.value, calls.max) == ("parallelism", 2, 2)
    assert list(rows(found)["op1"].parameters) == []
    assert list(rows(found)["op1"].runs_with) == list(rows(found)["op2"].runs_with) == ["op1", "op2"]
    assert list(rows(found)["op3"].runs_with) == []


def test_what_it_may_not_touch_says_why(found):
    calls, deterministic = rows(found)["op3"].parameters

    assert (calls.tunable, calls.fixed_by) == (False, "its function is random")
    assert deterministic.fixed_by == "TensorFlow sets it once"


def test_the_summary(found):
    summary = found.autotune

    assert (summary.enabled, summary.algorithm) == (True, "HILL_CLIMB")
    assert (summary.cpu_budget, summary.ram_budget_bytes) == (2, 8e9)
    assert (summary.tunable, summary.fixed) == (2, 1)  # whether order is kept is no setting of its own
    assert summary.buffered_bytes == 8000
    assert summary.consumer_s == pytest.approx(3e-3)
    assert summary.sentence == (
        "AUTOTUNE rules 2 of 3 parameters with a budget of 2 cores and 8.00 GB; it has raised the buffer of "
        "Prefetch (train.py:9) from 2 to 8 and raised parallel calls of Map decode (train.py:7) from 1 to 2; "
        "it may not touch Map augment (train.py:6), because its function is random."
    )
    text = " ".join(Report(found).text().split())
    assert summary.sentence in text
    assert "Buffers hold 8 kB" in text
    assert to_dict(found)["autotune"]["sentence"] == summary.sentence


def test_how_full_buffers_are(found):
    assert rows(found)["op0"].buffer_fill == 2 / 8
    assert rows(found)["op4"].buffer_fill == 60 / 80
    assert not rows(found)["op2"].HasField("buffer_fill")


@pytest.mark.parametrize(
    ("function", "given", "why"),
    [
        (m.UserFunction(name="f", random=True, python=True), None, "its function is random"),
        (m.UserFunction(name="f", python=True, stateful=True), None, "its function runs Python"),
        (m.UserFunction(name="f", writes=["a table"], stateful=True), None, "its function writes a table"),
        (m.UserFunction(name="f", stateful=True), None, "its function holds state"),
        (m.UserFunction(name="f", random=True), 2, "your code sets it"),
        (m.UserFunction(name="f"), -1, "TensorFlow sets it once"),
    ],
)
def test_reasons(function, given, why):
    def change(second, record):
        record.pipelines[0].operators[0].parameters.append(parameter("parallelism", 1.0, tunable=False))

    written = m.Operator(cardinality=-2, type="Map", label="f", source=at(3))
    if given is not None:
        written.num_parallel_calls = given
    found = analyse(
        chain([Cost("ParallelMapV2", 1, 1e-3, function=function, written=[written])], Run(9, change=change))
    )

    (calls,) = found.operators[0].parameters
    assert calls.fixed_by == why
    assert ("may not touch" in found.autotune.sentence) == why.startswith("its function")


def test_a_map_without_parameters_is_untouched_too():
    found = analyse(recording(change=lambda second, record: None))

    assert found.autotune.sentence == (
        "AUTOTUNE has nothing to rule in this pipeline; "
        "it may not touch Map augment (train.py:6), because its function is random."
    )


def test_autotune_off():
    found = analyse(recording(autotune_enabled=False, has_counters=False))

    assert not found.autotune.enabled
    assert found.autotune.sentence == "AUTOTUNE is off: options.autotune.enabled is False."


def test_budgets_as_given_stand_where_it_has_not_run():
    made = recording(change=lambda second, record: None)
    made.graph.pipelines[0].autotune_cpu_budget = 3
    made.graph.pipelines[0].autotune_ram_budget_bytes = 5000
    summary = analyse(made).autotune

    assert (summary.algorithm, summary.cpu_budget, summary.ram_budget_bytes) == ("", 3, 5000)


def test_a_restless_parameter_keeps_its_first_and_its_latest_points():
    def change(second, record):
        part = record.pipelines[0].operators[0]
        part.parameters.append(parameter("parallelism", float(second), high=1e6))

    run = Run(rate=9, seconds=2 * HISTORY_POINTS, change=change)
    made = chain([Cost("ParallelMapV2", 1, 1e-3, function=m.UserFunction(name="f"))], run)
    (calls,) = analyse(made).operators[0].parameters

    values = [point.value for point in calls.history]
    assert len(values) == HISTORY_POINTS
    assert values[0] == 1
    assert values[-3:] == [2 * HISTORY_POINTS - 2, 2 * HISTORY_POINTS - 1, 2 * HISTORY_POINTS]
    assert calls.value == 2 * HISTORY_POINTS
