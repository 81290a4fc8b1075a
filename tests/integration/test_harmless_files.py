"""What goes wrong with the log directory does not go wrong with training."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from tensorboard.compat.proto import event_pb2

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber import callback
from tensorboard_plugin_plumber.capture import guard, session
from tensorboard_plugin_plumber.capture.session import CaptureSession
from tensorboard_plugin_plumber.capture.sink import MemorySink
from tensorboard_plugin_plumber.events.writer import EventWriter
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.small import small_dataset, small_model


def test_a_file_that_cannot_be_closed_gives_up_its_directory(tmp_path: Path) -> None:
    class Full:
        def close(self) -> None:
            raise OSError("No space left on device")

    writer = EventWriter(tmp_path)
    writer._file.close()
    writer._file = Full()  # type: ignore[assignment]

    with pytest.raises(OSError, match="No space"):
        writer.close()

    second = EventWriter(tmp_path)
    assert second.directory == writer.directory
    second.close()


def test_a_log_directory_that_hangs_holds_up_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, answered = threading.Event(), threading.Event()

    class Hanging(MemorySink):
        def write_sample(self, record: Any) -> None:
            hanging.set()
            answered.wait(60)

    monkeypatch.setattr(session, "_PATIENCE_S", 0.2)
    recording = CaptureSession(kind="fit", sink=Hanging(), consumer=m.CONSUMER_SYNCHRONOUS)
    recording.start()
    recording.begin_phase("train")
    for _ in small_dataset(200):
        recording.clock.begin()
        hanging.wait(0.1)
    assert hanging.is_set()
    began_s = time.monotonic()
    recording.end_phase()
    recording.stop()

    assert time.monotonic() - began_s < 30
    answered.set()


def test_a_log_directory_that_hangs_when_it_is_opened_delays_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, answered, opened_by = threading.Event(), threading.Event(), []

    def hang(log_dir: str) -> MemorySink:
        opened_by.append(threading.current_thread())
        opening.set()
        answered.wait(60)
        return MemorySink()

    monkeypatch.setattr(session, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(callback, "open_writer", hang)

    class Wait(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            opening.wait(20 if batch == 0 else 0)

    history = small_model().fit(
        small_dataset(400), callbacks=[plumber.PlumberCallback(tmp_path), Wait()], epochs=2, verbose=0
    )
    hanging = not answered.is_set()
    answered.set()

    assert hanging
    assert len(history.history["loss"]) == 2
    assert opened_by
    assert threading.main_thread() not in opened_by


def test_a_full_disk_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: EventWriter, record: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(guard, "_said", set())
    monkeypatch.setattr(EventWriter, "write_sample", full)

    history = small_model().fit(
        small_dataset(200), epochs=3, callbacks=[plumber.PlumberCallback(tmp_path)], verbose=0
    )

    assert len(history.history["loss"]) == 3
    assert sum("No space left" in record.getMessage() for record in caplog.records) == 1


def test_a_remote_directory_is_written_through_tensorflow() -> None:
    # TensorFlow's memory file system, as a bucket would be: no appending, no flushing, another writer.
    directory = f"ram://plumber-{time.time_ns()}"

    with plumber.trace(directory):
        for _ in small_dataset(100):
            pass

    (path,) = tf.io.gfile.glob(f"{directory}/plumber/*/events.out.tfevents.*")
    records = [event_pb2.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(path)]
    tags = [value.tag for event in records for value in event.summary.value]
    assert set(tags) == {"graph", "sample"}
    last = records[-1].summary.value[0].tensor.string_val[0]
    assert m.SampleRecord.FromString(last).pipelines[0].steps == 50
