"""Every kind of change that source can express, patched into a real pipeline that is then built again."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.patch.diff import patch_of
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.integration.test_patch import module_of

TRAIN = """\
import tensorflow as tf


def part(x):
    return tf.data.Dataset.range(3).map(lambda y: x * 10 + y)


def double(x):
    return 2 * x


def make_dataset():
    other = tf.data.Dataset.range(5).batch(2)  # another one
    del other
    return (
        tf.data.Dataset.range(4)
        .interleave(part, cycle_length=2)  # two at a time
        .map(double)
        .batch(4)
    )
"""


def planned(
    path: Path, pipeline: m.Pipeline, *changes: tuple[a.ChangeKind.ValueType, str, a.Setting]
) -> a.Analysis:
    """An analysis of the described pipeline, with lines as the hook saw them, and a plan."""
    analysis = a.Analysis()
    for operator in pipeline.operators:
        row = analysis.operators.add(id=operator.id, type=operator.type, in_body=operator.in_body)
        row.source_path, row.source_line = operator.source.path, operator.source.line
        row.source = f"train.py:{operator.source.line}"
        if operator.parent:
            row.parent = operator.parent
    assert {row.source_path for row in analysis.operators} == {str(path)}
    for kind, type_, to in changes:
        change = analysis.plan.changes.add(kind=kind, to=to)
        if type_:
            (change.operator,) = (
                one.id for one in pipeline.operators if one.type == type_ and not one.in_body
            )
    return analysis


def chain_of(dataset: tf.data.Dataset) -> dict[str, tf.data.Dataset]:
    """The datasets of a chain by the names of their classes, without the marks of versions."""
    found = {}
    while True:
        found[type(dataset).__name__.strip("_").removesuffix("Dataset")] = dataset
        inputs = dataset._inputs()
        if not inputs:
            return found
        dataset = inputs[0]


def constant(tensor: object) -> object:
    return tf.get_static_value(tensor)


def test_every_kind_of_change_builds_the_planned_pipeline(tmp_path: Path) -> None:
    # GIVEN a program, described as the hook describes it
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    made = module_of(path).make_dataset()
    elements = [list(map(int, element)) for element in made]
    pipeline = describe(made, role="diagnose").pipeline
    unbounded = "use_unbounded_threadpool" in inspect.signature(tf.data.Dataset.map).parameters
    cache = os.path.join(tmp_path, "it's a cache")
    changes = [
        (a.CHANGE_KIND_PARALLELISM, "Interleave", a.Setting(number=2)),
        (a.CHANGE_KIND_CACHE, "Interleave", a.Setting(word="memory")),
        (a.CHANGE_KIND_PARALLELISM, "Map", a.Setting(number=3)),
        (a.CHANGE_KIND_ORDER, "Map", a.Setting(word="any")),
        (a.CHANGE_KIND_CACHE, "Map", a.Setting(word=cache)),
        (a.CHANGE_KIND_PARALLELISM, "Batch", a.Setting(word="autotune")),
        (a.CHANGE_KIND_PREFETCH, "Batch", a.Setting(number=5)),
        (a.CHANGE_KIND_THREADPOOL, "", a.Setting(number=7)),
    ]
    if unbounded:
        changes.append((a.CHANGE_KIND_UNBOUNDED, "Map", a.Setting(word="unbounded")))
    # WHEN it is patched and built again
    patch = patch_of(planned(path, pipeline, *changes))
    assert patch.instructions == ()
    path.write_text(patch.sources[str(path)])
    dataset = module_of(path).make_dataset()
    # THEN each setting is in force in TensorFlow's own objects
    chain = chain_of(dataset)
    assert constant(chain["ParallelInterleave"]._num_parallel_calls) == 2
    assert constant(chain["ParallelMap"]._num_parallel_calls) == 3
    assert chain["ParallelMap"]._deterministic in (False, "false")
    if unbounded:
        assert chain["ParallelMap"]._use_unbounded_threadpool
    assert constant(chain["ParallelBatch"]._num_parallel_calls) == tf.data.AUTOTUNE
    assert constant(chain["Prefetch"]._buffer_size) == 5
    assert dataset.options().threading.private_threadpool_size == 7
    # THEN the hook sees them, too
    patched = {
        one.type: one for one in describe(dataset, role="diagnose").pipeline.operators if not one.in_body
    }
    assert patched["ParallelMap"].num_parallel_calls == 3
    assert [one.type for one in describe(dataset, role="diagnose").pipeline.operators].count("Cache") == 2
    # THEN its elements are the same, in any order, and the cache is a file
    assert sorted(x for element in dataset for x in map(int, element)) == sorted(
        x for element in elements for x in element
    )
    assert os.path.exists(f"{cache}.index")
    # THEN comments stay where they were
    assert ".interleave(part, cycle_length=2, num_parallel_calls=2)  # two at a time\n" in path.read_text()
    assert "other = tf.data.Dataset.range(5).batch(2)  # another one\n" in path.read_text()


LOOP = """ds = tf.data.Dataset.range(9)
    for _ in range(2):
        ds = ds.map(double)
    return ds.batch(3)"""
BOUND = """ds = tf.data.Dataset.range(9)
    parallel = ds.map
    return parallel(double).batch(3)"""
STARRED = """given = [double]
    return tf.data.Dataset.range(9).map(*given).batch(3)"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [(LOOP, "more than once"), (BOUND, "no call of map"), (STARRED, "from a variable")],
)
def test_what_nobody_can_place_is_an_instruction(tmp_path: Path, body: str, reason: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        f"import tensorflow as tf\n\n\ndef double(x):\n    return 2 * x\n\n\ndef make_dataset():\n    {body}\n"
    )
    pipeline = describe(module_of(path).make_dataset(), role="diagnose").pipeline
    analysis = planned(path, pipeline)
    first = next(row for row in analysis.operators if row.type == "Map")
    analysis.plan.changes.add(
        kind=a.CHANGE_KIND_PARALLELISM,
        operator=first.id,
        to=a.Setting(number=4),
        code=".map(double, num_parallel_calls=4)",
    )
    patch = patch_of(analysis)
    assert patch.diff == ""
    (instruction,) = patch.instructions
    assert instruction.startswith(f"At {first.source}: .map(double, num_parallel_calls=4) (by hand: ")
    assert reason in instruction
