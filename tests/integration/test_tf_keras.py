"""Keras 2: as TensorFlow's own (TF_USE_LEGACY_KERAS=1), and imported beside Keras 3."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.counted import by_role, check_map

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tf_keras") is None, reason="tf-keras is not installed: pip install tf-keras"
)


@pytest.mark.parametrize("legacy", ["1", "0"])
def test_tf_keras_is_recorded_as_keras_3_is(tmp_path: Path, legacy: str) -> None:
    # In a process of its own: which Keras is TensorFlow's is settled at its import.
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.legacy_fit", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "TF_USE_LEGACY_KERAS": legacy, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Plumber could not" not in ended.stderr
    own = json.loads(ended.stdout.split("counted ")[1])
    assert own["derives"] == (legacy == "1")

    (recording,) = reader.read(tmp_path / "fit")
    seen = by_role(recording)
    assert set(seen) == {"train", "validation"}
    assert (seen["train"][1].steps, seen["train"][1].iterators) == (60, 2)
    assert own["steps"]["train"] == 60 + 50
    assert seen["validation"][1].steps == own["steps"]["validation"] == 20
    for role in seen:
        pipeline, sample = seen[role]
        assert pipeline.consumer == m.CONSUMER_SYNCHRONOUS
        assert sample.epochs_started == 2
        assert 0 < sample.gap_s < sample.step_s
        check_map(pipeline, sample, own["calls"][role])

    (recording,) = reader.read(tmp_path / "predict")
    (pipeline, sample) = by_role(recording)["predict"]
    assert sample.steps == own["steps"]["predict"] == 20
    check_map(pipeline, sample, own["calls"]["predict"])

    (recording,) = reader.read(tmp_path / "endless")
    assert (by_role(recording)["train"][1].steps, set(by_role(recording))) == (50, {"train"})

    (recording,) = reader.read(tmp_path / "sequence")
    (pipeline, sample) = by_role(recording)["train"]
    assert sample.steps == 40
    assert "Sequence Photographs" in [operator.label for operator in pipeline.operators]
    assert any("Sequence Photographs (legacy_fit.py:" in note for note in pipeline.notes)
