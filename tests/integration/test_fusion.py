"""What TensorFlow fuses, parallelises, injects and drops is shown as what the user wrote, each with its line."""

from __future__ import annotations

import gc
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture.session import CaptureSession
from tensorboard_plugin_plumber.capture.sink import MemorySink
from tensorboard_plugin_plumber.model.analyse import analyse
from tensorboard_plugin_plumber.report import Report
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support import fusion
from tests.support.fusion.case import CALLS, Case, Dataset, Row, numbers
from tests.support.fusion.table import double, drop_names, name_both
from tests.support.operators.case import Bench, comment_lines

# What buffers have run ahead of the last look is some hundred elements.
CLOSE = 0.15
# A run lasts until there are so many of both, however slow the machine.
LEAST_CALLS, LEAST_SAMPLES = 6000, 5
INTERVAL_S = 0.1


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("case", fusion.CASES, ids=lambda case: case.name)
def test_rows_are_what_the_user_wrote(case: Case, bench: Bench) -> None:
    # GIVEN a pipeline that TensorFlow rewrites, and that counts what goes through it
    dataset = case.dataset(bench)

    # WHEN a loop over it is recorded
    rows = _recorded(dataset, bench)
    calls = bench.calls[CALLS]

    # THEN each row is one of the user's, at its line, with what runs for it
    written = [row for row in rows if not row["injected"]]
    expected = (*case.rows, case.numbers, Row("Range:numbers", 1, "Range"))
    places = {
        marker: (module.__file__, line)
        for module, function in ((fusion.table, case.make), (fusion.case, numbers))
        for marker, line in comment_lines(function).items()
    }
    assert [
        (row["type"], row["source_path"], row["source_line"], row["runs_as"] or "") for row in written
    ] == [(one.marker.split(":")[0], *places[one.marker], one.runs_as) for one in expected]
    assert [row["dropped"] for row in written] == [one.runs_as == "" for one in expected]
    # AND says with which others it is fused, and which has their cost
    _check_fusion(dict(zip((one.marker for one in expected), written, strict=True)), expected)
    # AND what nobody wrote is marked, and stands in its place
    injected = [row for row in rows if row["injected"]]
    _check_injected(injected, case, {one.marker: row for one, row in zip(expected, written, strict=True)})
    # AND the counts are those of the pipeline's own function
    last = (*case.injected, *case.rows)[0].share
    assert last is not None
    for row, share in zip(
        (*written, *injected), [one.share for one in (*expected, *case.injected)], strict=True
    ):
        if share is None:
            continue
        assert row["elements"] == pytest.approx(share * calls, rel=CLOSE), row["id"]
        assert row["visit_ratio"] == pytest.approx(share / last, rel=CLOSE), row["id"]
    # AND what runs is all that TensorFlow's own model of it shows
    assert _running(rows) == _live(dataset)


def _recorded(dataset: Any, bench: Bench) -> list[dict[str, Any]]:
    """Rows of the operator table after a loop over the dataset."""
    sink = MemorySink()
    session = CaptureSession(kind="trace", sink=sink, consumer=m.CONSUMER_NONE, interval_s=INTERVAL_S)
    session.start()
    try:
        for _ in dataset:
            if bench.calls[CALLS] >= LEAST_CALLS and len(sink.samples) >= LEAST_SAMPLES:
                break
    finally:
        session.stop()
    rows: list[dict[str, Any]] = Report(analyse(sink.recording())).to_dict()["operators"]
    return rows


def _check_fusion(rows: dict[str, dict[str, Any]], expected: tuple[Row, ...]) -> None:
    for one in expected:
        row = rows[one.marker]
        assert row["runs_with"] == [rows[marker]["id"] for marker in one.joint], one.marker
        carrier = rows[one.carried_by] if one.carried_by is not None else None
        assert row["fused_with"] == (carrier["id"] if carrier is not None else None), one.marker
        if carrier is not None:
            assert carrier["cpu_s"] + carrier["wait_s"] > 0
            if row["runs_as"] == carrier["runs_as"]:
                assert row["cpu_s"] == row["wait_s"] == 0


def _check_injected(injected: list[dict[str, Any]], case: Case, rows: dict[str, dict[str, Any]]) -> None:
    assert [(row["type"], row["runs_as"]) for row in injected] == [
        (one.type, one.type) for one in case.injected
    ]
    assert all(row["source"] is None and not row["dropped"] for row in injected)
    ends = [row["id"] for row in injected] + [rows[case.rows[0].marker]["id"]]
    for position, (row, one) in enumerate(zip(injected, case.injected, strict=True)):
        # Those at the end of the pipeline stand one behind the other, and below them the user's last.
        above = (
            rows[one.hands_to]["id"]
            if one.hands_to is not None
            else (ends[position - 1] if position else None)
        )
        assert row["flows_to"] == above
    at_the_end = [row["id"] for row, one in zip(injected, case.injected, strict=True) if one.hands_to is None]
    assert rows[case.rows[0].marker]["flows_to"] == (at_the_end[-1] if at_the_end else None)


def _running(rows: list[dict[str, Any]]) -> set[tuple[str, int]]:
    """What runs by the rows: each kind, and how many there are."""
    # What is fused has several rows for one operator.
    one_each = {(row["runs_as"], *(row["runs_with"] or [row["id"]])) for row in rows if row["runs_as"]}
    return set(Counter(kind for kind, *_ in one_each).items())


def _live(dataset: Any) -> set[tuple[str, int]]:
    """What runs by TensorFlow's own model."""
    iterator = iter(dataset)
    next(iterator)
    names = names_in(iterator)
    if "Interleave" in names:  # each instance of its body is there
        names.subtract(
            {name: count - 1 for name, count in names.items() if name in ("FiniteTake", "Map", "Range")}
        )
        names["Prefetch"] = 2
    return set(names.items())


def names_in(iterator: Any) -> Counter[str]:
    """How often each kind of operator stands in an iterator's live model."""
    nodes = tf.data.experimental.get_model_proto(iterator).nodes.values()
    return Counter(node.name for node in nodes if node.name != "Root")


# What TensorFlow makes of `TestRewritesStayOn.training`, by hand.
REWRITTEN = Counter(
    {"Prefetch": 1, "Filter": 1, "ShuffleAndRepeat": 1, "MapAndBatch": 1, "ParallelMapV2": 3, "Range": 1}
)


class TestRewritesStayOn:
    """The operators that run while training are the same with and without Plumber."""

    @staticmethod
    def training() -> Any:
        """Of all default rewrites: maps made parallel, a map and a skip dropped, two fusions, a prefetch."""
        return (
            Dataset.range(64)
            .skip(0)
            .map(double)
            .map(lambda x: tf.cast(x, tf.float32) / 64)
            .map(name_both)
            .map(drop_names)
            .map(lambda a, b: (a[None], b[None] + tf.random.uniform([1])))
            .batch(4)
            .shuffle(4)
            .repeat()
            .filter(lambda a, b: tf.reduce_all(a >= 0))
        )

    @classmethod
    def in_a_fit(cls, callbacks: list[Any]) -> list[Counter[str]]:
        """Names in the live models of all iterators in the middle of a fit."""
        seen: list[Counter[str]] = []

        class Look(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                if batch == 2:
                    seen.extend(names_in(one) for one in gc.get_objects() if type(one) is OwnedIterator)

        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        gc.collect()
        model.fit(cls.training(), steps_per_epoch=4, epochs=2, verbose=0, callbacks=[*callbacks, Look()])
        return seen

    @classmethod
    def in_a_loop(cls) -> list[Counter[str]]:
        """Names in the live model of an iterator after each of a few elements."""
        iterator = iter(cls.training())
        seen = []
        for _ in range(4):
            next(iterator)
            seen.append(names_in(iterator))
        return seen

    def test_in_a_fit(self, tmp_path: Path) -> None:
        without = self.in_a_fit([])
        with_plumber = self.in_a_fit([plumber.PlumberCallback(tmp_path)])

        assert without == [REWRITTEN] * len(without) != []
        assert with_plumber == without

    @pytest.mark.parametrize("tracing", [False, True])
    def test_in_a_loop(self, tracing: bool, tmp_path: Path) -> None:
        with plumber.trace(tmp_path) if tracing else nullcontext():
            seen = self.in_a_loop()

        assert seen == [REWRITTEN] * 4
