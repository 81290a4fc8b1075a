"""Inputs of fit that are no tf.data pipeline: what can be said is said, and nothing wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.model.analyse import analyse
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording

BATCHES, BATCH = 20, 4
HERE = Path(__file__)


class Photographs(keras.utils.PyDataset):
    """Batches made by Python, which counts them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.made = 0

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:  # THE BATCH
        self.made += 1
        return arrays(BATCH)


def photographs() -> Iterator[tuple[np.ndarray, np.ndarray]]:  # THE GENERATOR
    for _ in range(BATCHES):
        yield arrays(BATCH)


def arrays(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros([count, 8], "float32"), np.zeros([count, 1], "float32")


def line_of(mark: str) -> int:
    lines = HERE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def fit(log_dir: Path, x: Any, y: Any = None, **options: Any) -> Recording:
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, y, callbacks=[plumber.PlumberCallback(log_dir)], verbose=0, **options)  # THE FIT
    (recording,) = reader.read(log_dir)
    return recording


def trained(recording: Recording) -> tuple[m.Pipeline, m.PipelineSample]:
    roles = [pipeline.role for pipeline in recording.graph.pipelines]
    assert roles == ["train"]
    return recording.graph.pipelines[0], recording.samples[-1].pipelines[0]


def assert_keras_built_all(pipeline: m.Pipeline, what: str) -> None:
    """Every operator says that it is Keras's but the one of the user's Python; the one line is that of fit."""
    (note,) = [note for note in pipeline.notes if "Keras itself built this pipeline" in note]
    assert what in note
    for operator in pipeline.operators:
        if operator.injected:
            continue
        assert (Path(operator.source.path), operator.source.line) == (HERE, line_of("THE FIT"))
        assert operator.label.startswith("Keras's ") != (operator.type == "Generator" and " " in what)


def test_a_py_dataset_is_named_after_its_class(tmp_path: Path) -> None:
    data = Photographs(workers=1, use_multiprocessing=False)

    recording = fit(tmp_path, data, epochs=2)

    pipeline, sample = trained(recording)
    assert (sample.steps, sample.iterators) == (2 * BATCHES, 2)
    assert sample.steps <= data.made
    (generator,) = [one for one in pipeline.operators if one.type == "Generator"]
    assert generator.label == generator.function.name == "PyDataset Photographs"
    assert generator.function.python
    place = generator.function.source
    assert (Path(place.path), place.line) == (HERE, line_of("THE BATCH"))
    assert_keras_built_all(pipeline, "PyDataset Photographs (test_keras_inputs.py:")
    # And the report says so.
    assert any("Keras itself" in note for note in analyse(recording).notes)


def test_a_py_dataset_with_workers_is_said_to_be_unseen(tmp_path: Path) -> None:
    pipeline, sample = trained(fit(tmp_path, Photographs(workers=2), epochs=2))

    assert not pipeline.has_counters
    assert sample.steps == 2 * BATCHES
    assert any("workers of its own" in note for note in pipeline.notes)
    assert [operator.label for operator in pipeline.operators] == ["PyDataset Photographs"]


def test_a_generator_is_named_after_its_function(tmp_path: Path) -> None:
    pipeline, sample = trained(fit(tmp_path, photographs()))

    assert sample.steps == BATCHES
    (generator,) = [one for one in pipeline.operators if one.type == "Generator"]
    assert generator.label == "photographs"
    place = generator.function.source
    assert (Path(place.path), place.line) == (HERE, line_of("THE GENERATOR"))
    assert_keras_built_all(pipeline, "generator photographs (test_keras_inputs.py:")


@pytest.mark.parametrize("kind", ["numpy", "lists", "validation"])
def test_arrays_are_said_to_be_kerass_pipeline(tmp_path: Path, kind: str) -> None:
    x, y = arrays(BATCH * BATCHES)
    options: dict[str, Any] = {"epochs": 2, "batch_size": BATCH}
    if kind == "lists":
        x, y = x.tolist(), y.tolist()
        x, y = keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y)
    if kind == "validation":
        options["validation_split"] = 0.5

    recording = fit(tmp_path, x, y, **options)

    roles = {"train", "validation"} if kind == "validation" else {"train"}
    assert {pipeline.role for pipeline in recording.graph.pipelines} == roles
    for pipeline, sample in zip(recording.graph.pipelines, recording.samples[-1].pipelines, strict=True):
        assert sample.steps == 2 * BATCHES / len(roles)
        assert_keras_built_all(pipeline, "arrays")
    assert any("Keras itself" in note for note in analyse(recording).notes)


def test_what_keras_adds_to_a_users_own_pipeline_is_told_apart(tmp_path: Path) -> None:
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(arrays(BATCH * BATCHES)).batch(BATCH)  # THE DATASET

    pipeline, sample = trained(fit(tmp_path, dataset, class_weight={0: 1.0, 1: 2.0}))

    assert sample.steps == BATCHES
    labels = {one.label: one.source.line for one in pipeline.operators if not one.injected}
    assert labels == {
        "Keras's Prefetch": line_of("THE FIT"),
        "Keras's class_weights_map_fn": line_of("THE FIT"),
        "Batch": line_of("THE DATASET"),
        "TensorSlice": line_of("THE DATASET"),
    }
    (note,) = [note for note in pipeline.notes if "Keras" in note]
    assert "class weights" in note


def test_a_dataset_alone_is_nobodys_but_the_users(tmp_path: Path) -> None:
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(arrays(BATCH * BATCHES)).batch(BATCH)

    pipeline, _ = trained(fit(tmp_path, dataset))

    assert not [note for note in pipeline.notes if "Keras" in note]
    assert not [one for one in pipeline.operators if "Keras" in one.label]
