"""Keras 3 on JAX takes its batches from tf.data in Python: what is recorded there."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.counted import BATCH, by_role, line_of_map

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, sys
import keras
import tensorboard_plugin_plumber as plumber
from tests.support.counted import FEATURES, CountedDataset

assert keras.backend.backend() == "jax"
data = CountedDataset(2000)
model = keras.Sequential([keras.Input([FEATURES]), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(data.dataset, epochs=2, callbacks=[plumber.PlumberCallback(sys.argv[1])], verbose=0)
print("calls", int(data.calls))
"""


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed: pip install jax")
def test_keras_on_jax_is_asynchronous_and_seen(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert ended.returncode == 0, ended.stderr
    (recording,) = reader.read(tmp_path)
    seen = by_role(recording)
    assert set(seen) == {"train"}
    pipeline, sample = seen["train"]
    assert pipeline.consumer == m.CONSUMER_ASYNCHRONOUS
    assert (sample.steps, sample.iterators) == (400, 2)
    assert sample.synchronised_steps > 0
    # Keras takes a batch or two for itself, to build the model.
    calls = int(ended.stdout.split("calls ")[1])
    assert 400 * BATCH <= calls <= 402 * BATCH
    made = next(operator for operator in pipeline.operators if operator.label == "_make")
    assert (Path(made.source.path).name, made.source.line) == ("counted.py", line_of_map())
