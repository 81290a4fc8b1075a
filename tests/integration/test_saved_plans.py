"""Saved plans between processes: made in one, applied in another, to a pipeline that is the same or is refused."""

from __future__ import annotations

import dataclasses
import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.events.reader import NothingRecorded
from tensorboard_plugin_plumber.rewrite import planned
from tensorboard_plugin_plumber.rewrite.call_sites import applying
from tensorboard_plugin_plumber.rewrite.rebuild import Edit, Edits, Refused, rebuilt
from tensorboard_plugin_plumber.rewrite.saved_plan import (
    Mismatch,
    SavedPlan,
    load,
    made_in,
    match_dataset,
    matched,
    to_json,
)
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.digests import elements
from tests.support.saved import Wanted, plan_for

construction.install()
Dataset = tf.data.Dataset

TRAIN = """
import tensorflow as tf

SIZE = 3

def decode(x):
    return tf.cast(x, tf.float32) * tf.ones([SIZE])

def parse(x):
    return x + 1

def shard(x):
    return tf.data.Dataset.range(x, x + 4).map(parse)

def make():
    dataset = tf.data.Dataset.range(6).interleave(shard, cycle_length=2)
    dataset = dataset.shuffle(8, seed=4)
    dataset = dataset.map(decode)
    return dataset.batch(4)
"""
SAVE = """
import sys
import tensorboard_plugin_plumber
import train
from tensorboard_plugin_plumber.rewrite.saved_plan import save
from tests.support.saved import plan_for
save(plan_for(train.make(), *{wanted!r}), sys.argv[1])
"""


def saved_by_another_process(folder: Path, *wanted: Wanted) -> Path:
    """The file of a plan for `make` of TRAIN."""
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    path = folder / "plan.json"
    subprocess.run(
        [sys.executable, "-c", SAVE.format(wanted=wanted), str(path)],
        env={"PYTHONPATH": f"{folder}:{Path.cwd()}", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONHASHSEED": "5"},
        check=True,
    )
    return path


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> SavedPlan:
    return load(
        saved_by_another_process(
            tmp_path_factory.mktemp("host") / "there",
            ("parallelism", "decode", 3),
            ("cache", "shard", "memory"),
            ("prefetch", "Batch", 4),
            ("threadpool", "", 6),
            ("parallelism", "parse", 2),
        )
    )


def train(folder: Path, source: str = TRAIN) -> Any:
    """The user's module, as this process has it."""
    path = folder / "train.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("train", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without(saved: SavedPlan, *operators: str) -> SavedPlan:
    """The plan without the changes of some operators."""
    kept = tuple(
        one
        for one in saved.changes
        if not one.operator or saved.operator(one.operator).label not in operators
    )
    return dataclasses.replace(saved, changes=kept)


def operators(dataset: Any) -> list[m.Operator]:
    return [one for one in describe(dataset, role="trace").pipeline.operators if not one.injected]


def test_a_plan_of_one_process_is_made_in_another(plan: SavedPlan, tmp_path: Path) -> None:
    # GIVEN the same program, a hundred lines longer
    dataset = train(tmp_path, "# a comment\n" * 100 + TRAIN).make()
    said: list[str] = []

    # WHEN the plan is made in its dataset, but for what stands in a function's body
    made = rebuilt(dataset, matched(without(plan, "parse"), dataset, say=said.append))

    # THEN its operators have the planned settings
    prefetch, batch, decode, shuffle, cache, *rest = operators(made)
    assert [one.type for one in (prefetch, batch, decode, shuffle, cache)] == [
        "Prefetch", "Batch", "ParallelMap", "Shuffle", "Cache",
    ]  # fmt: skip
    assert (prefetch.buffer_size, decode.num_parallel_calls, cache.cache_path) == (4, 3, "")
    assert [one.type for one in rest] == ["Interleave", "Range", "Map", "Range"]
    assert made.options().threading.private_threadpool_size == 6
    assert said == []
    # AND the elements are the same, epoch by epoch
    assert [elements(made), elements(made)] == [elements(dataset), elements(dataset)]


def test_what_stands_in_a_body_is_reached_at_its_call(plan: SavedPlan, tmp_path: Path) -> None:
    # GIVEN the plan with the lines of today, for a program that is longer by now
    module = train(tmp_path, "\n\n# a comment\n" + TRAIN)
    with pytest.raises(Refused, match="out of reach"):
        matched(plan, module.make())
    today = match_dataset(plan, module.make()).plan

    with applying(today) as application:
        made = application.finished(module.make())

    assert application.applied().missed == ()
    assert [one.type for one in operators(made)] == [
        "Prefetch", "Batch", "ParallelMap", "Shuffle", "Cache", "Interleave", "Range", "ParallelMap", "Range",
    ]  # fmt: skip
    assert operators(made)[-2].num_parallel_calls == 2
    assert made.options().threading.private_threadpool_size == 6
    assert elements(made) == elements(module.make())
    # AND with the lines of then, nothing is touched
    with applying(plan) as application:
        assert [one.type for one in operators(module.make())] == [one.type for one in plan.operators]
    assert len(application.applied().changes) == 0


def test_both_ways_together_make_all_of_a_plan(plan: SavedPlan, tmp_path: Path) -> None:
    # GIVEN the program of today, and a plan with one more change in a body, which moves all that follows it
    module = train(tmp_path, "\n# a comment\n" + TRAIN)
    more = (*plan.changes, dataclasses.replace(plan.changes[2], operator=plan.operators[-2].id))
    longer = dataclasses.replace(plan, changes=more)
    built: list[Any] = []

    def again() -> Any:
        built.append(module.make())
        return built[-1]

    # WHEN the plan is made in its dataset
    made = made_in(longer, module.make(), again=again)

    # THEN all of it is there
    assert [one.type for one in operators(made.dataset)] == [
        "Prefetch", "Batch", "ParallelMap", "Shuffle", "Cache", "Interleave", "Range", "Prefetch",
        "ParallelMap", "Range",
    ]  # fmt: skip
    assert made.dataset.options().threading.private_threadpool_size == 6
    assert (len(made.changes), made.notes, len(built)) == (6, (), 1)
    written = module.make()
    assert [elements(made.dataset), elements(made.dataset)] == [elements(written), elements(written)]
    # AND without the code that builds it, what stands in the body is told
    alone = made_in(longer, module.make())
    assert [one.type for one in operators(alone.dataset)][-3:] == ["Range", "Map", "Range"]
    assert len(alone.changes) == 4
    assert (
        alone.notes[0]
        == "parallelism 2 at Map parse (train.py:15) is left out: it stands in a function's body."
    )
    # AND nothing is built twice for nothing
    assert made_in(without(plan, "parse"), module.make(), again=again).notes == ()
    assert len(built) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("* tf.ones", "+ tf.ones", r"The function of Map decode \(train.py:18\) has changed"),
        (
            "SIZE = 3",
            "SIZE = 4",
            r"The function of Map decode \(train.py:18\) is written as it was, but does",
        ),
        ("x + 1", "x + 2", r"The function of Map parse \(train.py:13\) has changed"),
        (".batch(4)", ".batch(8)", r"Batch \(train.py:19\) has a batch size of 8; .* it was 4"),
        (".shuffle(8", ".shuffle(9", r"Shuffle \(train.py:17\) has a buffer of 9; .* it was 8"),
        (
            "    return dataset.batch",
            "    dataset = dataset.filter(lambda x: x[0] > 1)\n    return dataset.batch",
            r"Filter \(train.py:19\) was not there when the plan was made",
        ),
        (
            "    dataset = dataset.shuffle(8, seed=4)\n",
            "",
            r"Shuffle \(train.py:17\) of the plan is not there any more",
        ),
        ("dataset.batch(4)", "dataset.padded_batch(4)", r"there is now PaddedBatch \(train.py:19\)"),
        (
            "dataset.map(decode)",
            "dataset.map(decode, num_parallel_calls=2)",
            r"Where the plan has Map decode \(train.py:18\), there is now ParallelMap decode \(train.py:18\)",
        ),
    ],
)
def test_a_pipeline_that_changed_is_refused(
    plan: SavedPlan, tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert TRAIN.count(old) == 1
    dataset = train(tmp_path, TRAIN.replace(old, new)).make()

    with pytest.raises(Mismatch, match=said):
        matched(plan, dataset)


def test_a_cache_that_has_become_random_is_refused(tmp_path: Path) -> None:
    """What stands below the plan's cache is random now, though its own function is the same."""
    source = TRAIN.replace("    dataset = dataset.shuffle(8, seed=4)\n", "")
    dataset = train(tmp_path, source).make()
    saved = plan_for(dataset, ("cache", "decode", "memory"))
    assert matched(saved, dataset).operators

    shuffled = Dataset.range(6).shuffle(3)
    with_chance = plan_for(shuffled.map(lambda x: x), ("cache", "op0", "memory"))

    with pytest.raises(Mismatch, match="may not be cached here"):
        matched(with_chance, shuffled.map(lambda x: x))


def test_the_plan_of_a_log_directory_is_taken_while_it_is_written(tmp_path: Path) -> None:
    # GIVEN a pipeline that sleeps, one element at a time, and is recorded
    def nap(x: Any) -> Any:
        return tf.numpy_function(lambda y: (time.sleep(0.01), y)[1], [x], tf.int64)

    def make() -> Any:
        return Dataset.range(10**6).map(nap).batch(2)

    with pytest.raises(NothingRecorded):
        load(tmp_path)
    with plumber.trace(tmp_path / "run1"):
        began = time.monotonic()
        for _ in make():
            if time.monotonic() - began > 5:
                # WHEN the plan is taken while it still runs
                plan = load(tmp_path)
                break

    # THEN it is the plan of that pipeline, and applies to one that is built anew
    assert [one.type for one in plan.operators] == ["Batch", "Map", "Range"]
    assert plan.origin.run == "run1"
    assert plan.predicted_rate is not None
    assert plan.observed_rate is not None
    assert plan.predicted_rate > 1.5 * plan.observed_rate
    assert "parallelism" in [one.kind for one in plan.changes]
    dataset = make()
    made = rebuilt(dataset, matched(plan, dataset))
    (mapped,) = [one for one in operators(made) if one.type == "ParallelMap"]
    wanted = next(one.to for one in plan.changes if one.kind == "parallelism")
    assert mapped.num_parallel_calls == (-1 if wanted == "autotune" else wanted)
    assert elements(made.take(3)) == elements(dataset.take(3))


def double(x: Any) -> Any:
    return x * 2


def inner(x: Any) -> Any:
    return Dataset.range(x, x + 2).map(double)


STEPS: Mapping[str, Callable[[Any], Any]] = {
    "map": lambda ds: ds.map(lambda x: x + 1),
    "parallel map": lambda ds: ds.map(double, num_parallel_calls=2),
    "random map": lambda ds: ds.map(lambda x: x + tf.random.uniform([], 0, 2, tf.int64)),
    "filter": lambda ds: ds.filter(lambda x: x % 3 > 0),
    "shuffle": lambda ds: ds.shuffle(5),
    "interleave": lambda ds: ds.interleave(inner, cycle_length=2),
    "flat map": lambda ds: ds.flat_map(inner),
    "prefetch": lambda ds: ds.prefetch(2),
    "cache": lambda ds: ds.cache(),
    "repeat": lambda ds: ds.repeat(2),
    "take": lambda ds: ds.take(7),
    "zip": lambda ds: Dataset.zip((ds, Dataset.range(100))).map(lambda x, _: x),
    "self zip": lambda ds: Dataset.zip((ds, ds)).map(lambda x, y: x + y),
    "concatenate": lambda ds: ds.concatenate(Dataset.range(3).map(double)),
    "batch": lambda ds: ds.batch(2).map(tf.reduce_sum),
    "unbatch": lambda ds: ds.batch(2, drop_remainder=True).unbatch(),
    "scan": lambda ds: ds.scan(tf.constant(0, tf.int64), lambda s, x: (s + x, s)),
}
RANDOM = {"random map", "shuffle"}
SHORT = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6)


def built(steps: Sequence[str]) -> Any:
    dataset = Dataset.range(9)
    for one in steps:
        dataset = STEPS[one](dataset)
    return dataset


def possible_changes(
    described: Sequence[m.Operator], *, of: Sequence[m.Operator] | None = None
) -> list[Wanted]:
    """What a plan may ask of a pipeline, or of some of its operators."""
    found: list[Wanted] = [("threadpool", "", 5)]
    for one in described if of is None else of:
        found.append(("prefetch", one.id, 3))
        if one.cache.allowed and not _enclosed(one, described):
            found.append(("cache", one.id, "memory"))
        if one.HasField("parallel") and one.parallel.allowed:
            found.append(("parallelism", one.id, 4))
    return found


def at_places(edits: Edits, dataset: Any) -> tuple[dict[str, Edit], int | None]:
    """Edits by the ids of operators, which are the same in another process."""
    places = planned.places_of(dataset)
    return (
        {name: edits.operators[id(one.dataset)] for name, one in places.items() if id(one.dataset) in edits.operators},
        edits.threadpool_size,
    )  # fmt: skip


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(SHORT, st.data())
def test_any_plan_gives_the_same_edits_in_the_same_pipeline_built_anew(
    steps: list[str], data: st.DataObject
) -> None:
    # GIVEN a random pipeline, and changes of it that are allowed
    dataset = built(steps)
    described = operators(dataset)
    reached = [one for one in described if not _enclosed(one, described)]
    possible = possible_changes(described, of=reached)
    wanted = data.draw(st.lists(st.sampled_from(possible), unique=True))
    plan = plan_for(dataset, *wanted)

    # WHEN it is matched onto the same pipeline, built anew
    again = built(steps)
    found = matched(plan, again)

    # THEN the edits are the same, and so is what a new plan would save
    assert at_places(found, again) == at_places(matched(plan, dataset), dataset)
    assert {one.operator for one in plan.changes if one.operator} <= set(at_places(found, again)[0])
    assert to_json(plan_for(again, *wanted)) == to_json(plan)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(sorted({*STEPS} - RANDOM)), min_size=1, max_size=6), st.data())
def test_any_plan_at_its_calls_keeps_the_elements(steps: list[str], data: st.DataObject) -> None:
    dataset = built(steps)
    possible = possible_changes(operators(dataset))
    plan = plan_for(dataset, *data.draw(st.lists(st.sampled_from(possible), unique=True)))

    with applying(plan) as application:
        made = application.finished(built(steps))
    both = made_in(plan, built(steps), again=lambda: built(steps))

    assert elements(made) == elements(both.dataset) == elements(dataset)
    # AND what it says was made is there
    done = application.applied()
    assert len(done.changes) + len(done.missed) == len(plan.changes)
    if ("threadpool", "", 5) in [(one.kind, one.operator, one.to) for one in plan.changes]:
        assert made.options().threading.private_threadpool_size == 5
    added = len(operators(made)) - len(operators(dataset))
    assert (added > 0) == any(one.kind in ("cache", "prefetch") for one in done.changes)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(SHORT, SHORT)
def test_a_plan_applies_to_no_other_pipeline(steps: list[str], others: list[str]) -> None:
    dataset, other = built(steps), built(others)
    plan = plan_for(dataset, ("prefetch", "op0", 3))

    refused = ""
    try:
        matched(plan, other)
    except Mismatch as error:
        refused = str(error)

    assert refused.endswith(".") if steps != others else not refused


def _enclosed(one: m.Operator, among: Sequence[m.Operator]) -> bool:
    by_id = {other.id: other for other in among}
    while not one.in_body:
        if not one.parent:
            return False
        one = by_id[one.parent]
    return True
