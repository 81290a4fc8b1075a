"""What TensorFlow fuses, parallelises, injects and drops is shown as what the user wrote, each with its line."""

from __future__ import annotations

import functools
import gc
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.capture.session import CaptureSession
from tensorboard_plugin_plumber.capture.sink import MemorySink
from tensorboard_plugin_plumber.model.analyse import analyse
from tensorboard_plugin_plumber.report import Report
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.operators.case import Bench, comment_lines

construction.install()
Dataset = tf.data.Dataset
Source = Callable[[], Any]
Make = Callable[[Source], Any]
# What buffers have run ahead of the last look is some hundred elements.
CLOSE = 0.15
CALLS = "calls"
# A run lasts until there are so many of both, however slow the machine.
LEAST_CALLS, LEAST_SAMPLES = 6000, 5
INTERVAL_S = 0.1


@dataclass(frozen=True)
class Row:
    """One row that must be seen.

    Attributes:
      marker: the comment at its line: its type and, where that stands twice, ":" and a number.
      share: its elements over the calls of the pipeline's own function; None: nobody can count them.
      runs_as: what TensorFlow runs for it; "" where it was dropped.
      joint: markers of all that run as one with it, itself included, downstream first.
      carried_by: marker of the row that has the joint cost, if it is another.
    """

    marker: str
    share: float | None
    runs_as: str
    joint: tuple[str, ...] = ()
    carried_by: str | None = None


@dataclass(frozen=True)
class Injected:
    """An operator that nobody wrote.

    Attributes:
      type: what TensorFlow runs.
      share: as of `Row`.
      hands_to: marker of the row that takes its elements; None at the end of the pipeline.
    """

    type: str
    share: float
    hands_to: str | None = None


@dataclass(frozen=True)
class Case:
    """A pipeline and what must be seen of it.

    Attributes:
      make: takes what makes the counted numbers, and returns the pipeline. Comments name the rows at their lines.
      rows: the user's operators above the numbers, in pre-order.
      numbers: what runs the map that counts; with a share only where it is fused.
      options: of `experimental_optimization`.
    """

    make: Make
    rows: tuple[Row, ...]
    injected: tuple[Injected, ...]
    numbers: Row
    options: dict[str, bool]

    @property
    def name(self) -> str:
        return self.make.__name__

    def dataset(self, bench: Bench) -> Any:
        options = tf.data.Options()
        for name, value in self.options.items():
            setattr(options.experimental_optimization, name, value)
        return self.make(functools.partial(numbers, bench)).with_options(options)


CASES: list[Case] = []
COUNTED = Row("Map:numbers", 1, "Map")
FINAL_PREFETCH = "Prefetch"
# TensorFlow 2.17 drops it, later ones let it run.
PREFETCH_OF_NOTHING = (
    Row("Prefetch", None, "") if tf.__version__.startswith("2.17.") else Row("Prefetch", 1, "Prefetch")
)


def pipeline(*rows: Row | Injected, counted: Row = COUNTED, **options: bool) -> Callable[[Make], Make]:
    """Adds a function's pipeline to the table."""

    def add(make: Make) -> Make:
        written = tuple(row for row in rows if isinstance(row, Row))
        injected = tuple(row for row in rows if isinstance(row, Injected))
        CASES.append(Case(make, written, injected, counted, options))
        return make

    return add


def numbers(bench: Bench) -> Any:
    """Endless numbers, each counted by a Python function: so this map is stateful, and stays a map."""
    return Dataset.range(1 << 40).map(bench.counted(CALLS))  # Map:numbers, Range:numbers


def double(x: tf.Tensor) -> tf.Tensor:
    return x * 2


def add_one(x: tf.Tensor) -> tf.Tensor:
    return x + 1


def draw(x: tf.Tensor) -> tf.Tensor:
    return x + tf.random.uniform([], 0, 2, tf.int64)


def is_even(x: tf.Tensor) -> tf.Tensor:
    return x % 2 == 0


def is_third(x: tf.Tensor) -> tf.Tensor:
    return x % 3 == 0


def drop_names(element: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    return element["a"], element["b"]


def name_both(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"a": x, "b": x}


BATCHED = ("Batch", "Map:numbers")
CARRIES_BATCH = Row("Map:numbers", 1, "MapAndBatch", BATCHED)


@pipeline(Row("Batch", 1 / 4, "MapAndBatch", BATCHED, "Map:numbers"), counted=CARRIES_BATCH)
def python_map_and_batch(counted: Source) -> Any:
    return counted().batch(4)  # Batch


@pipeline(
    Row("Batch", 1 / 4, "MapAndBatch", ("Batch", "Map"), "Map"),
    Row("Map", 1, "MapAndBatch", ("Batch", "Map")),
)
def stateless_map_and_batch(counted: Source) -> Any:
    mapped = counted().map(double)  # Map
    return mapped.batch(4)  # Batch


@pipeline(
    Row("Batch", 1 / 4, "MapAndBatch", ("Batch", "Map"), "Map"),
    Row("Map", 1, "MapAndBatch", ("Batch", "Map")),
)
def random_map_and_batch(counted: Source) -> Any:
    mapped = counted().map(draw)  # Map
    return mapped.batch(4)  # Batch


@pipeline(
    Row("Batch", 1 / 4, "MapAndBatch", ("Batch", "ParallelMap"), "ParallelMap"),
    Row("ParallelMap", 1, "MapAndBatch", ("Batch", "ParallelMap")),
)
def parallel_map_and_batch(counted: Source) -> Any:
    mapped = counted().map(draw, num_parallel_calls=2)  # ParallelMap
    return mapped.batch(4)  # Batch


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 4),
    Row("Batch", 1 / 4, "BatchV2"),
    Row("Map", 1, "ParallelMapV2"),
    map_and_batch_fusion=False,
)
def map_and_batch_that_may_not_fuse(counted: Source) -> Any:
    mapped = counted().map(double)  # Map
    return mapped.batch(4)  # Batch


@pipeline(
    Injected(FINAL_PREFETCH, 1),
    Row("Repeat", 1, "ShuffleAndRepeat", ("Repeat", "Shuffle")),
    Row("Shuffle", 1, "ShuffleAndRepeat", ("Repeat", "Shuffle"), "Repeat"),
    Row("Take", 1, "FiniteTake"),
)
def shuffle_and_repeat(counted: Source) -> Any:
    few = counted().take(50)  # Take
    shuffled = few.shuffle(8)  # Shuffle
    return shuffled.repeat()  # Repeat


@pipeline(
    Injected(FINAL_PREFETCH, 1),
    Row("Repeat", 1, "ForeverRepeat"),
    Row("Shuffle", 1, "Shuffle"),
    Row("Take", 1, "FiniteTake"),
    shuffle_and_repeat_fusion=False,
)
def shuffle_and_repeat_that_may_not_fuse(counted: Source) -> Any:
    few = counted().take(50)  # Take
    shuffled = few.shuffle(8)  # Shuffle
    return shuffled.repeat()  # Repeat


@pipeline(Row("Map", 1, "ParallelMapV2"))
def parallelised_map(counted: Source) -> Any:
    return counted().map(double)  # Map


@pipeline(Injected(FINAL_PREFETCH, 1), Row("Map", 1, "Map"), map_parallelization=False)
def map_that_may_not_be_parallelised(counted: Source) -> Any:
    return counted().map(double)  # Map


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 2),
    Row("Filter", 1 / 2, "Filter"),
    Row("Map", 1, "ParallelMapV2"),
)
def final_prefetch_behind_a_filter(counted: Source) -> Any:
    mapped = counted().map(add_one)  # Map
    return mapped.filter(is_even)  # Filter


@pipeline(Row("Filter", 1 / 2, "Filter"), inject_prefetch=False)
def no_injected_prefetch(counted: Source) -> Any:
    return counted().filter(is_even)  # Filter


@pipeline(Row("Prefetch", 1 / 2, "Prefetch"), Row("Filter", 1 / 2, "Filter"))
def prefetch_of_the_users(counted: Source) -> Any:
    filtered = counted().filter(is_even)  # Filter
    return filtered.prefetch(2)  # Prefetch


@pipeline(
    Injected(FINAL_PREFETCH, 1),
    Row("ParallelInterleave", 1, "Interleave"),
    Injected("Prefetch", 1, hands_to="ParallelInterleave"),
    Row("TensorSlice", None, "TensorSlice"),
    Row("Take", 1, "FiniteTake"),
    seq_interleave_prefetch=True,
)
def prefetch_injected_into_the_body_of_an_interleave(counted: Source) -> Any:
    starts = Dataset.from_tensor_slices([0, 0])  # TensorSlice
    return starts.interleave(  # ParallelInterleave
        lambda _: counted().take(1 << 40),  # Take
        cycle_length=2,
        num_parallel_calls=2,
        deterministic=True,
    )


@pipeline(
    Row("Batch", 1 / 4, "MapAndBatch", BATCHED, "Map:numbers"),
    Row("Repeat", None, ""),
    Row("Take", None, ""),
    Row("Skip", None, ""),
    Row("Shard", None, ""),
    counted=CARRIES_BATCH,
)
def operators_that_do_nothing(counted: Source) -> Any:
    sharded = counted().shard(1, 0)  # Shard
    skipped = sharded.skip(0)  # Skip
    taken = skipped.take(-1)  # Take
    once = taken.repeat(1)  # Repeat
    return once.batch(4)  # Batch


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 4),
    Row("Batch", 1 / 4, "BatchV2"),
    Row("Repeat", 1, "FiniteRepeat"),
    Row("Take", 1, "FiniteTake"),
    Row("Skip", 1, "FiniteSkip"),
    noop_elimination=False,
)
def operators_that_do_nothing_but_are_kept(counted: Source) -> Any:
    skipped = counted().skip(0)  # Skip
    taken = skipped.take(-1)  # Take
    once = taken.repeat(1)  # Repeat
    return once.batch(4)  # Batch


@pipeline(
    Injected(FINAL_PREFETCH, 1),
    Row("Shuffle", 1, "Shuffle"),
    Row("Map:2", None, ""),
    Row("Map:1", 1, "ParallelMapV2"),
)
def map_that_only_rearranges(counted: Source) -> Any:
    named = counted().map(name_both)  # Map:1
    pairs = named.map(drop_names)  # Map:2
    return pairs.shuffle(2)  # Shuffle


@pipeline(
    Injected(FINAL_PREFETCH, 1),
    Row("Shuffle", 1, "Shuffle"),
    PREFETCH_OF_NOTHING,
)
def prefetch_of_nothing(counted: Source) -> Any:
    prefetched = counted().prefetch(0)  # Prefetch
    return prefetched.shuffle(2)  # Shuffle


@pipeline(
    Row("Map:2", 1, "ParallelMapV2", ("Map:2", "Map:1")),
    Row("Map:1", 1, "ParallelMapV2", ("Map:2", "Map:1"), "Map:2"),
    map_fusion=True,
)
def fused_maps(counted: Source) -> Any:
    doubled = counted().map(double)  # Map:1
    return doubled.map(add_one)  # Map:2


@pipeline(
    Row("Batch", 1 / 4, "MapAndBatch", ("Batch", "Map:2", "Map:1"), "Map:2"),
    Row("Map:2", 1, "MapAndBatch", ("Batch", "Map:2", "Map:1")),
    Row("Map:1", 1, "MapAndBatch", ("Batch", "Map:2", "Map:1"), "Map:2"),
    map_fusion=True,
)
def fused_maps_and_batch(counted: Source) -> Any:
    doubled = counted().map(double)  # Map:1
    increased = doubled.map(add_one)  # Map:2
    return increased.batch(4)  # Batch


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 6),
    Row("Filter:2", 1 / 6, "Filter", ("Filter:2", "Filter:1")),
    Row("Filter:1", None, "Filter", ("Filter:2", "Filter:1"), "Filter:2"),
    filter_fusion=True,
)
def fused_filters(counted: Source) -> Any:
    even = counted().filter(is_even)  # Filter:1
    return even.filter(is_third)  # Filter:2


FILTERED = ("Filter", "Map:numbers")


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 2),
    Injected("Map", 1 / 2),
    Row("Filter", 1 / 2, "Filter", FILTERED, "Map:numbers"),
    counted=Row("Map:numbers", 1, "Map", FILTERED),
    map_and_filter_fusion=True,
)
def fused_map_and_filter(counted: Source) -> Any:
    return counted().filter(is_even)  # Filter


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 2), Row("Filter", 1 / 2, "ParallelFilter"), filter_parallelization=True
)
def parallelised_filter(counted: Source) -> Any:
    return counted().filter(is_even)  # Filter


@pipeline(
    Injected(FINAL_PREFETCH, 1 / 8),
    Row("Batch", 1 / 8, "BatchV2"),
    Row("Filter", 1 / 2, "Filter"),
    parallel_batch=True,
)
def parallel_batch(counted: Source) -> Any:
    filtered = counted().filter(is_even)  # Filter
    return filtered.batch(4)  # Batch


@pipeline(
    Row("Batch", 1 / 4, "MapAndBatch", ("Batch", "Map:2", "Map:1"), "Map:2"),
    Row("Map:2", 1, "MapAndBatch", ("Batch", "Map:2", "Map:1")),
    Row("Map:1", 1, "MapAndBatch", ("Batch", "Map:2", "Map:1"), "Map:2"),
    Row("Repeat", 1, "ShuffleAndRepeat", ("Repeat", "Shuffle")),
    Row("Shuffle", 1, "ShuffleAndRepeat", ("Repeat", "Shuffle"), "Repeat"),
    Row("Skip", None, ""),
    Row("Take", 1, "FiniteTake"),
    map_fusion=True,
    filter_fusion=True,
    map_and_filter_fusion=True,
    filter_parallelization=True,
    parallel_batch=True,
)
def all_at_once(counted: Source) -> Any:
    few = counted().take(50)  # Take
    skipped = few.skip(0)  # Skip
    shuffled = skipped.shuffle(8)  # Shuffle
    repeated = shuffled.repeat()  # Repeat
    doubled = repeated.map(double)  # Map:1
    increased = doubled.map(add_one)  # Map:2
    return increased.batch(4)  # Batch


@pipeline(
    Row("Batch", 1 / 4, "BatchV2"),
    Row("Map", 1, "Map"),
    Row("Skip", 1, "FiniteSkip"),
    apply_default_optimizations=False,
)
def nothing_rewritten(counted: Source) -> Any:
    skipped = counted().skip(0)  # Skip
    mapped = skipped.map(double)  # Map
    return mapped.batch(4)  # Batch


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rows_are_what_the_user_wrote(case: Case, bench: Bench) -> None:
    # GIVEN a pipeline that TensorFlow rewrites, and that counts what goes through it
    dataset = case.dataset(bench)

    # WHEN a loop over it is recorded
    rows = _recorded(dataset, bench)
    calls = bench.calls[CALLS]

    # THEN each row is one of the user's, at its line, with what runs for it
    written = [row for row in rows if not row["injected"]]
    expected = (*case.rows, case.numbers, Row("Range:numbers", 1, "Range"))
    lines = comment_lines(case.make) | comment_lines(numbers)
    assert [
        (row["type"], row["source_path"], row["source_line"], row["runs_as"] or "") for row in written
    ] == [(one.marker.split(":")[0], __file__, lines[one.marker], one.runs_as) for one in expected]
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
