"""Every way of Keras's to train, evaluate and predict: steps, elements, roles and lines against own counts."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture.session import CaptureSession
from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording
from tests.support.counted import BATCH, FEATURES, CountedDataset, by_role, check_map, step_counter


def small_model(kind: type = keras.Sequential, *, built: bool = True, **options: Any) -> keras.Model:
    layers = [keras.layers.Dense(4), keras.layers.Dense(1)]
    model = kind([keras.Input([FEATURES]), *layers] if built else layers)
    model.compile("sgd", "mse", **options)
    return model


class OwnTrainStep(keras.Sequential):
    """Its own train_step."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class OwnLoop(keras.Sequential):
    """Its own functions that run a step, for training and for tests."""

    def make_train_function(self, force: bool = False) -> Any:
        step = tf.function(self.train_step)
        self.train_function = lambda iterator: step(next(iterator))

    def make_test_function(self, force: bool = False) -> Any:
        step = tf.function(self.test_step)
        self.test_function = lambda iterator: step(next(iterator))


Fit = Callable[..., Any]
WAYS: dict[str, tuple[Callable[[], keras.Model], dict[str, Any]]] = {
    "fit": (small_model, {"epochs": 3}),
    "a model that is not built": (lambda: small_model(built=False), {"epochs": 2}),
    "run_eagerly": (lambda: small_model(run_eagerly=True), {"epochs": 2}),
    "jit_compile": (lambda: small_model(jit_compile=True), {"epochs": 2}),
    "own train_step": (lambda: small_model(OwnTrainStep), {"epochs": 2}),
    "own loop": (lambda: small_model(OwnLoop), {"epochs": 2}),
    "class_weight": (small_model, {"epochs": 2, "class_weight": {0: 1.0, 1: 3.0}}),
}


def fit(log_dir: Path, data: CountedDataset, model: keras.Model, *others: Any, **options: Any) -> Recording:
    model.fit(data.dataset, callbacks=[plumber.PlumberCallback(log_dir), *others], verbose=0, **options)
    return reader.read(log_dir)[-1]


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_train(tmp_path: Path, way: str) -> None:
    make_model, options = WAYS[way]
    data, validation, counter = CountedDataset(300), CountedDataset(100), step_counter(keras)

    seen = by_role(fit(tmp_path, data, make_model(), counter, validation_data=validation.dataset, **options))

    epochs = options["epochs"]
    # Keras takes one batch for itself where it has to build the model, and asks for it before training.
    seen.pop("trace", None)
    assert set(seen) == {"train", "validation"}
    for role, passes in (("train", data), ("validation", validation)):
        pipeline, sample = seen[role]
        assert sample.steps == counter.steps[role] == epochs * passes.examples // BATCH
        assert sample.iterators == sample.epochs_started == epochs
        assert 0 < sample.gap_s < sample.step_s <= 1.1 * sample.active_s
        assert sample.waits_seen == sample.joined_steps == pytest.approx(sample.steps, abs=2 * epochs)
        assert pipeline.consumer == m.CONSUMER_SYNCHRONOUS
    if way != "a model that is not built":
        check_map(*seen["train"], int(data.calls))
        check_map(*seen["validation"], int(validation.calls))


def test_sample_weights_change_nothing(tmp_path: Path) -> None:
    data = CountedDataset(300, weighted=True)

    seen = by_role(fit(tmp_path, data, small_model(), epochs=2))

    assert set(seen) == {"train"}
    assert seen["train"][1].steps == 60
    check_map(*seen["train"], int(data.calls))


def test_several_steps_in_one_call(tmp_path: Path) -> None:
    data = CountedDataset(6000)  # long enough for looks between its beginning and its end

    (pipeline, sample) = by_role(fit(tmp_path, data, small_model(steps_per_execution=5), epochs=2))["train"]

    assert sample.steps == int(data.calls) / BATCH == 1200
    check_map(pipeline, sample, int(data.calls))
    assert 0 < sample.gap_s < sample.step_s
    # Inside the call nobody sees a single step.
    assert sample.waits_seen == 0


def test_an_endless_dataset_and_steps_per_epoch(tmp_path: Path) -> None:
    data, counter = CountedDataset(100), step_counter(keras)
    once, data.dataset = data.dataset, data.dataset.repeat()

    (_, sample) = by_role(fit(tmp_path, data, small_model(), counter, epochs=3, steps_per_epoch=40))["train"]

    assert once is not data.dataset
    assert sample.steps == counter.steps["train"] == 120
    assert sample.iterators == sample.epochs_started == 1


def test_evaluate_and_predict_alone(tmp_path: Path) -> None:
    model, counter = small_model(), step_counter(keras)
    test, inputs = CountedDataset(300), CountedDataset(200, targets=False)

    for name in ("evaluate", "predict"):
        callbacks = [plumber.PlumberCallback(tmp_path / name), counter]
        getattr(model, name)((test if name == "evaluate" else inputs).dataset, callbacks=callbacks, verbose=0)

    for name, role, data in (("evaluate", "validation", test), ("predict", "predict", inputs)):
        (recording,) = reader.read(tmp_path / name)
        seen = by_role(recording)
        assert set(seen) == {role}
        assert seen[role][1].steps == counter.steps[role] == data.examples / BATCH
        assert seen[role][1].epochs_started == 1
        check_map(*seen[role], int(data.calls))
        assert recording.samples[-1].final


def test_early_stopping(tmp_path: Path) -> None:
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch == 16

    data, counter = CountedDataset(300), step_counter(keras)

    recording = fit(tmp_path, data, small_model(), Stop(), counter, epochs=5)

    (_, sample) = by_role(recording)["train"]
    assert sample.steps >= counter.steps["train"] == 17
    assert sample.iterators == 1
    assert recording.samples[-1].final


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_fit_that_ends_by_an_exception_keeps_what_was_counted(
    tmp_path: Path, error: type[BaseException]
) -> None:
    class Raise(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 8:
                time.sleep(1.0)  # Plumber has looked by now
            if batch == 16:
                raise error("mine")

    data, counter = CountedDataset(300), step_counter(keras)
    callback = plumber.PlumberCallback(tmp_path)
    with pytest.raises(error, match="mine"):
        small_model().fit(data.dataset, callbacks=[callback, counter, Raise()], verbose=0)

    # WHEN the callback is used again, or dropped
    del callback
    gc.collect()

    recording = reader.read(tmp_path)[-1]
    assert by_role(recording)["train"][1].steps >= counter.steps["train"] == 17
    assert not recording.samples[-1].final
    assert not [one for one in gc.get_objects() if type(one) is CaptureSession]


def test_two_fits_with_one_callback_are_two_sessions(tmp_path: Path) -> None:
    callback, sessions = plumber.PlumberCallback(tmp_path), []

    for examples in (200, 300):
        data = CountedDataset(examples)
        small_model().fit(data.dataset, callbacks=[callback], verbose=0)
        recording = reader.read(tmp_path)[-1]
        check_map(*by_role(recording)["train"], int(data.calls))
        sessions.append(recording.graph.session.id)

    assert len(set(sessions)) == 2


def test_two_callbacks_at_once_count_the_same(tmp_path: Path) -> None:
    data = CountedDataset(300)
    callbacks = [plumber.PlumberCallback(tmp_path / name) for name in ("one", "other")]

    small_model().fit(data.dataset, epochs=2, callbacks=callbacks, verbose=0)

    for name in ("one", "other"):
        (recording,) = reader.read(tmp_path / name)
        (pipeline, sample) = by_role(recording)["train"]
        assert (sample.steps, sample.iterators) == (60, 2)
        check_map(pipeline, sample, int(data.calls))
