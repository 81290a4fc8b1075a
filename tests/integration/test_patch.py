"""A plan's patch, applied to the user's file, builds the pipeline that the plan speaks of."""

from __future__ import annotations

import importlib.util
import subprocess
import textwrap
from pathlib import Path
from types import ModuleType

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

TRAIN = textwrap.dedent('''\
    """A pipeline that waits for a slow store."""
    import time

    import tensorflow as tf


    def fetch(x):
        time.sleep(0.01)  # a round trip
        return x


    def load(x):
        return tf.ensure_shape(tf.numpy_function(fetch, [x], tf.int64), [])


    def make_dataset():
        return (
            tf.data.Dataset.range(4000)
            .map(load)  # one at a time
            .batch(4)
        )
    ''')


def module_of(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location("patched_train", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_patch_of_a_diagnosis_applies_and_builds_the_planned_pipeline(tmp_path, monkeypatch):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    analysis = plumber.diagnose(module_of(path).make_dataset(), seconds=3).analysis
    plan = analysis.plan
    assert plan.patch
    assert not plan.instructions

    # WHEN it is applied as people apply patches
    subprocess.run(["git", "apply", "-"], input=plan.patch.encode(), cwd=tmp_path, check=True)

    # THEN what was written stays, and the pipeline is the planned one
    patched = path.read_text()
    assert "# one at a time" in patched
    dataset = module_of(path).make_dataset()
    pipeline = describe(dataset, role="diagnose").pipeline
    (mapped,) = (operator for operator in pipeline.operators if operator.label == "load")
    planned = {change.kind: change.to.number for change in plan.changes}
    assert mapped.num_parallel_calls == planned[a.CHANGE_KIND_PARALLELISM] > 1
    if a.CHANGE_KIND_THREADPOOL in planned:
        assert pipeline.options_private_threadpool_size == planned[a.CHANGE_KIND_THREADPOOL]
    assert [int(x) for x in next(iter(dataset))] == [0, 1, 2, 3]
