"""Keras's fit with the callback: real training, real event files."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture import device, guard, looks
from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording

ROOT = Path(__file__).parents[2]
FEATURES = 8


def spinning_dataset(examples: int, work: int = 40) -> tf.data.Dataset:
    """Batches of 10; TensorFlow leaves the map sequential, for it draws random numbers."""

    def make(_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        noise = tf.random.uniform([work, work])
        return tf.reduce_mean(noise @ noise, axis=0)[:FEATURES], tf.constant([1.0])

    return tf.data.Dataset.range(examples).map(make).batch(10)


def small_model(**options: Any) -> keras.Model:
    model = keras.Sequential([keras.Input([FEATURES]), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **options)
    return model


def fit(
    log_dir: Path, dataset: tf.data.Dataset, model: keras.Model | None = None, **options: Any
) -> Recording:
    (model or small_model()).fit(dataset, callbacks=[plumber.PlumberCallback(log_dir)], verbose=0, **options)
    return reader.read(log_dir)[-1]


def by_role(recording: Recording) -> dict[str, tuple[m.Pipeline, m.PipelineSample]]:
    last = recording.samples[-1]
    return {p.role: (p, sample) for p, sample in zip(recording.graph.pipelines, last.pipelines, strict=True)}


def test_training_and_validation_are_told_apart_and_epochs_put_together(tmp_path: Path) -> None:
    recording = fit(
        tmp_path, spinning_dataset(600), epochs=3, validation_data=spinning_dataset(200), validation_freq=1
    )

    seen = by_role(recording)
    assert set(seen) == {"train", "validation"}
    training, sample = seen["train"]
    assert (sample.steps, sample.iterators) == (180, 3)
    assert training.consumer == m.CONSUMER_SYNCHRONOUS
    assert (seen["validation"][1].steps, seen["validation"][1].iterators) == (60, 3)
    # All but the first step of each epoch have a gap before them.
    assert sample.joined_steps == pytest.approx(177, abs=3)
    assert sample.waits_seen == sample.joined_steps
    assert recording.samples[-1].final
    assert recording.graph.session.kind == "fit"


def test_one_dataset_in_both_roles_is_two_pipelines(tmp_path: Path) -> None:
    dataset = spinning_dataset(200)

    seen = by_role(fit(tmp_path, dataset, epochs=2, validation_data=dataset))

    assert {role: sample.steps for role, (_, sample) in seen.items()} == {"train": 40, "validation": 40}


def test_an_endless_dataset_keeps_its_one_iterator(tmp_path: Path) -> None:
    dataset = spinning_dataset(100).repeat()

    (_, sample) = by_role(fit(tmp_path, dataset, epochs=3, steps_per_epoch=50))["train"]

    assert (sample.steps, sample.iterators) == (150, 1)
    # The gaps between epochs belong to no step.
    assert sample.joined_steps == pytest.approx(147, abs=3)


def test_steps_are_counted_even_without_autotune(tmp_path: Path) -> None:
    options = tf.data.Options()
    options.autotune.enabled = False

    recording = fit(tmp_path, spinning_dataset(400).with_options(options), epochs=2)

    pipeline, sample = by_role(recording)["train"]
    assert not pipeline.has_counters
    assert (sample.steps, sample.iterators) == (80, 2)


def test_on_a_device_one_step_in_fifty_is_synchronised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN what is taken for a device: here it has done its work anyway when Keras asks again
    monkeypatch.setattr(device, "is_asynchronous", lambda model: True)

    pipeline, sample = by_role(fit(tmp_path, spinning_dataset(2000), epochs=2))["train"]

    assert pipeline.consumer == m.CONSUMER_ASYNCHRONOUS
    # Those of which a look found the gap, in so short a training.
    assert 2 <= sample.synchronised_steps <= 10
    own_s = sample.synchronised_s / sample.synchronised_steps
    assert own_s == pytest.approx(sample.gap_s / sample.joined_steps, rel=0.8)


class TimedModel(keras.Sequential):
    """Takes its data eagerly, and measures itself how long that takes of the whole."""

    inside_s = 0.0
    total_s = 0.0

    def make_train_function(self, force: bool = False) -> Any:
        train_step = tf.function(self.train_step)
        began: list[float] = []

        def train(iterator: Any) -> Any:
            began.append(time.perf_counter())
            if len(began) > 2:
                self.total_s += began[-1] - began[-2]
                self.inside_s += self._last_s
            data = next(iterator)
            self._last_s = time.perf_counter() - began[-1]
            return train_step(data)

        self.train_function = train
        return train


@pytest.mark.parametrize("work", [20, 600])
def test_wait_fraction_is_that_of_a_clock_around_next(tmp_path: Path, work: int) -> None:
    # GIVEN input that is much faster than the step, and input that is slower
    model = TimedModel([keras.Input([FEATURES]), keras.layers.Dense(4000), keras.layers.Dense(4000)])
    model.compile("sgd", "mse")

    (_, sample) = by_role(fit(tmp_path, spinning_dataset(500, work), model))["train"]

    assert 1 - sample.gap_s / sample.step_s == pytest.approx(model.inside_s / model.total_s, abs=0.1)


def test_pauses_are_no_waiting(tmp_path: Path) -> None:
    # GIVEN a callback that stops training for longer than any step, twice
    class Checkpoint(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch in (50, 100):
                time.sleep(2.0)

    callbacks = [Checkpoint(), plumber.PlumberCallback(tmp_path)]
    began = time.perf_counter()
    small_model().fit(spinning_dataset(1500), callbacks=callbacks, verbose=0)
    seconds = time.perf_counter() - began

    (_, sample) = by_role(reader.read(tmp_path)[0])["train"]
    assert sample.steps == 150
    assert sample.active_s < seconds - 3.9
    assert sample.step_s < seconds - 3.9


def test_mirrored_strategy_is_seen_through(tmp_path: Path) -> None:
    # In a process of its own: logical devices are made before TensorFlow begins.
    subprocess.run(
        [sys.executable, "-m", "tests.support.mirrored_fit", str(tmp_path)], cwd=ROOT, check=True, timeout=240
    )

    seen = by_role(reader.read(tmp_path)[0])
    training, sample = seen["train"]
    assert training.through_boundary
    assert "Map" in {operator.type for operator in training.operators}
    # Two devices take one element each in each of the 2 x 20 steps.
    assert (sample.steps, sample.iterators) == (80, 2)
    assert 0 < sample.gap_s < sample.step_s
    assert seen["validation"][1].iterators == 2


def test_a_failing_poller_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("injected")

    monkeypatch.setattr(looks.Looks, "take", broken)

    history = small_model().fit(
        spinning_dataset(300), epochs=2, callbacks=[plumber.PlumberCallback(tmp_path)], verbose=0
    )

    assert len(history.history["loss"]) == 2
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len([w for w in warnings if "injected" in w.getMessage()]) <= 2


def test_a_log_directory_that_cannot_be_made_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_said", set())
    (tmp_path / "file").write_text("")

    small_model().fit(
        spinning_dataset(100), callbacks=[plumber.PlumberCallback(tmp_path / "file")], verbose=0
    )

    warnings = [record.getMessage() for record in caplog.records if "Plumber" in record.getMessage()]
    assert len(warnings) == 1
    # which of the two depends on whether the training outlasts the first look
    assert "go on recording" in warnings[0] or "finish recording" in warnings[0]


def test_a_fit_that_raises_is_finished_at_exit(tmp_path: Path) -> None:
    program = """
import sys, keras, tensorboard_plugin_plumber as plumber
from tests.integration.test_fit import small_model, spinning_dataset

class Interrupt(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 120:
            raise KeyboardInterrupt

small_model().fit(spinning_dataset(5000), callbacks=[plumber.PlumberCallback(sys.argv[1]), Interrupt()], verbose=0)
"""
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, timeout=180)

    assert ended.returncode != 0
    recording = reader.read(tmp_path)[0]
    assert by_role(recording)["train"][1].steps == 121
    assert not recording.samples[-1].final


def test_a_resumed_training_goes_on_in_the_same_directory(tmp_path: Path) -> None:
    first = fit(tmp_path, spinning_dataset(200))
    second = fit(tmp_path, spinning_dataset(400))

    assert len(list((tmp_path / "plumber").iterdir())) == 1
    assert first.graph.session.id != second.graph.session.id
    assert by_role(second)["train"][1].steps == 40
    # Stable over sessions, so that they can be compared.
    assert first.graph.pipelines[0].id == second.graph.pipelines[0].id
    steps = [event.step for event in _events(tmp_path) if event.step]
    assert steps == sorted(set(steps))


def test_nothing_is_written_into_the_users_own_folders(tmp_path: Path) -> None:
    fit(tmp_path, spinning_dataset(200))

    written = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {"plumber"}


def _events(log_dir: Path) -> list[Any]:
    files = sorted(log_dir.rglob("*tfevents*"), key=os.path.getmtime)
    return [event for file in files for event in tf.compat.v1.train.summary_iterator(str(file))]


def test_bytes_written_stay_small(tmp_path: Path) -> None:
    dataset = spinning_dataset(100_000, 20)
    for _ in range(4):
        dataset = dataset.map(lambda x, y: (x + 1.0, y)).filter(lambda x, y: tf.reduce_max(x) > -1.0)

    class Stop(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.end_s = time.monotonic() + 6

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = time.monotonic() > self.end_s

    small_model().fit(dataset, callbacks=[Stop(), plumber.PlumberCallback(tmp_path)], verbose=0)

    (recording,) = reader.read(tmp_path)
    (pipeline,) = recording.graph.pipelines
    assert len(pipeline.running) >= 11
    samples = [
        event.ByteSize() for event in _events(tmp_path) for v in event.summary.value if v.tag == "sample"
    ]
    fixed = sum(path.stat().st_size for path in tmp_path.rglob("*tfevents*")) - sum(samples)
    assert fixed < 64_000
    assert max(samples) * 60 < 100_000
