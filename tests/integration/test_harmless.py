"""Principle one: whatever the user does, training goes on as it would without Plumber."""

from __future__ import annotations

import errno
import gc
import logging
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from tensorboard.compat.proto import event_pb2

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber import callback
from tensorboard_plugin_plumber.capture import boundary, guard, iterators, registry, session
from tensorboard_plugin_plumber.capture.session import CaptureSession
from tensorboard_plugin_plumber.capture.sink import MemorySink
from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.events.writer import EventWriter
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

ROOT = Path(__file__).parents[2]


def small_dataset(examples: int = 20) -> tf.data.Dataset:
    return tf.data.Dataset.range(examples).map(lambda x: ([tf.cast(x, tf.float32)], 1.0)).batch(2)


def small_model() -> keras.Model:
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def run(program: str, *arguments: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT,
        timeout=timeout,
        capture_output=True,
        text=True,
    )


def test_a_callback_used_again_keeps_no_session(tmp_path: Path) -> None:
    callback, model = plumber.PlumberCallback(tmp_path), small_model()

    for _ in range(3):
        model.evaluate(small_dataset(), callbacks=[callback], verbose=0)

    gc.collect()
    assert not [one for one in gc.get_objects() if type(one) is CaptureSession]


_STRATEGY = """
import os, sys, time
import tensorboard_plugin_plumber as plumber
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

def numbers():
    while True:
        yield 1.0

endless = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([]))
threads = []
with plumber.trace(sys.argv[1]):
    for _ in range(12):
        # Dropped while its threads are at work.
        iterator = iter(strategy.experimental_distribute_dataset(tf.data.Dataset.range(10**6).map(abs).batch(2)))
        next(iterator)
        del iterator
        time.sleep(0.1)
        threads.append(len(os.listdir("/proc/self/task")))
    # A Python pipeline that anybody still held would keep the interpreter from ending.
    iterator = iter(strategy.experimental_distribute_dataset(endless.batch(2)))
    next(iterator)
del iterator
print("threads", *threads)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads can be counted on Linux only")
def test_iterators_of_a_strategy_end_when_they_are_dropped(tmp_path: Path) -> None:
    ended = run(_STRATEGY, tmp_path)

    assert ended.returncode == 0, ended.stderr
    threads = [int(word) for word in ended.stdout.split("threads")[1].split()]
    assert max(threads[6:]) <= max(threads[:3]) + 2


def test_a_strategy_iterates_without_a_boundary_where_it_cannot_take_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        return object(), None

    monkeypatch.setattr(boundary, "show_pass", broken)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")

    with plumber.trace(tmp_path):
        seen = [int(x) for x in strategy.experimental_distribute_dataset(tf.data.Dataset.range(4))]

    assert seen == [0, 1, 2, 3]


_FORK = """
import os, sys, time, keras
import tensorboard_plugin_plumber as plumber
from tests.integration.test_harmless import small_dataset, small_model

children = []

class Fork(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        children.append(child)

small_model().fit(small_dataset(), callbacks=[plumber.PlumberCallback(sys.argv[1]), Fork()], verbose=0)
small_model().fit(small_dataset(), callbacks=[plumber.PlumberCallback(sys.argv[1])], verbose=0)
for child in children:
    os.kill(child, 9)
"""


def test_a_forked_child_that_lives_on_holds_no_directory(tmp_path: Path) -> None:
    ended = run(_FORK, tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert len(os.listdir(tmp_path / "plumber")) == 1


def test_a_subclass_keeps_its_other_bases_constructor() -> None:
    class Marked:
        marked = False

        def __new__(cls, *args: Any) -> Any:
            made = object.__new__(cls)
            made.marked = True
            return made

    class Own(tf.data.Dataset):
        def __init__(self, count: int) -> None:
            self._inside = tf.data.Dataset.range(count)
            super().__init__(self._inside._variant_tensor)

        def _inputs(self) -> list[Any]:
            return [self._inside]

        @property
        def element_spec(self) -> Any:
            return self._inside.element_spec

    class Both(Own, Marked):
        pass

    assert Both(3).marked
    assert list(Both(3).as_numpy_iterator()) == [0, 1, 2]


def test_a_logging_handler_that_raises_is_not_training_s(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no warnings wanted")

    logger = logging.getLogger("tensorboard_plugin_plumber")
    handler = Strict()
    logger.addHandler(handler)
    try:
        with guard.protect(f"survive a handler {time.time()}"):
            raise ValueError("mine")
    finally:
        logger.removeHandler(handler)


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


_SEEDED = """
import sys, time, contextlib
if sys.argv[1]:
    import tensorboard_plugin_plumber as plumber
import numpy as np
import tensorflow as tf

tf.random.set_seed(7)
drawn = []
with plumber.trace(sys.argv[1]) if sys.argv[1] else contextlib.nullcontext():
    shuffled = tf.data.Dataset.range(20).shuffle(9).map(lambda x: (x, tf.random.uniform([])))
    large = tf.data.Dataset.from_tensor_slices(np.zeros([200_000, 2])).shuffle(9).map(
        lambda x: tf.random.normal([])).batch(50).take(3)
    again = tf.data.Dataset.random(rerandomize_each_iteration=True).take(3)
    for dataset in (shuffled, large, again, shuffled):
        drawn.append([str(x) for x in dataset.as_numpy_iterator()])
        time.sleep(0.3)  # the pipeline is described now
        drawn.append(str(tf.random.uniform([2]).numpy()))
        drawn.append(str(tf.random.uniform([2], seed=1).numpy()))
print("drawn", drawn)
"""


def test_seeded_randomness_is_the_same_with_and_without(tmp_path: Path) -> None:
    without, with_it = run(_SEEDED, ""), run(_SEEDED, tmp_path)

    assert without.returncode == with_it.returncode == 0, with_it.stderr
    assert "drawn" in without.stdout
    assert with_it.stdout == without.stdout
    assert list(tmp_path.rglob("*tfevents*"))


def test_datasets_die_with_their_last_reference(tmp_path: Path) -> None:
    with plumber.trace(tmp_path):
        dataset = small_dataset()
        for _ in dataset:
            pass
        time.sleep(0.5)
        dead = weakref.ref(dataset)
        del dataset
        gc.collect()
        assert dead() is None


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


def test_a_loop_that_makes_new_datasets_costs_little_more_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # GIVEN a budget for describing that one dataset uses up
    monkeypatch.setattr(registry, "_DESCRIBING_S", 1e-6)
    monkeypatch.setattr(guard, "_said", set())
    monkeypatch.setattr(registry, "_DESCRIBING_SHARE", 0.0)
    described: list[int] = []
    describe = registry.describe
    monkeypatch.setattr(
        registry, "describe", lambda *args, **named: described.append(1) or describe(*args, **named)
    )
    # WHEN a loop makes a new dataset for every step, each by lines of its own
    functions = [lambda x: x + 1, lambda x: x + 2, lambda x: x + 3, lambda x: x + 4, lambda x: x + 5]
    with plumber.trace(tmp_path):
        for function in functions:
            assert len(list(tf.data.Dataset.range(50).map(function))) == 50
            time.sleep(0.3)
    # THEN one is described, and the rest are left alone, which is said once
    assert len(described) == 1
    assert sum("follow every dataset" in record.message for record in caplog.records) == 1


def _increment(x: Any) -> Any:
    return x + 1


def test_a_dataset_that_the_same_lines_build_again_is_not_described_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[int] = []
    describe = registry.describe
    monkeypatch.setattr(
        registry, "describe", lambda *args, **named: described.append(1) or describe(*args, **named)
    )

    # WHEN a loop makes a new dataset for every step, and lets go of the one before
    steps = 0
    with plumber.trace(tmp_path):
        for step in range(30):
            for _ in tf.data.Dataset.range(40 + step).map(_increment).batch(10):
                steps += 1
            gc.collect()

    # THEN they are one pipeline, described once, and all of its steps are there
    (recording,) = reader.read(tmp_path)
    assert len(described) == 1
    assert [p.steps for p in recording.samples[-1].pipelines] == [steps]


def test_a_finalizer_that_warns_while_a_warning_is_said_hangs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Dropped:
        def __del__(self) -> None:
            with guard.protect(f"read the last counters {time.time()}"):
                raise ValueError("in a finalizer")

    class Said(set[str]):
        """Drops something whenever it is asked, as the garbage collector may do in any line."""

        def __contains__(self, what: object) -> bool:
            if not super().__contains__("dropped"):
                super().add("dropped")
                Dropped()
            return super().__contains__(what)

    monkeypatch.setattr(guard, "_said", Said())
    warning = threading.Thread(target=guard.warn, args=("do it", ValueError("first")), daemon=True)
    warning.start()
    warning.join(20)

    assert not warning.is_alive()


def test_an_iterator_dropped_while_a_look_goes_on_holds_nobody_up(tmp_path: Path) -> None:
    with plumber.trace(tmp_path):
        iterator = iter(small_dataset(1000))
        next(iterator)
        time.sleep(0.3)
        (recording,) = iterators._observers
        assert isinstance(recording, CaptureSession)

        def drop() -> None:
            nonlocal iterator
            del iterator

        with recording._lock:  # as the poller holds it while it looks
            dropping = threading.Thread(target=drop, daemon=True)
            dropping.start()
            dropping.join(20)
            assert not dropping.is_alive()


def test_what_fails_when_an_iterator_ends_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> bytes:
        raise MemoryError("injected")

    monkeypatch.setattr(guard, "_said", set())
    seen = 0
    with plumber.trace(tmp_path):
        for _ in range(3):
            iterator = iter(small_dataset())
            seen += len(next(iterator))
            time.sleep(0.2)
            with monkeypatch.context() as patched:
                patched.setattr(iterators, "read_model", broken)
                del iterator
                gc.collect()

    assert seen == 3 * 2
    assert sum("injected" in record.getMessage() for record in caplog.records) == 1


_WARNINGS_ARE_ERRORS = """
import sys, tensorflow as tf
import tensorboard_plugin_plumber as plumber
seen = 0
with plumber.trace(sys.argv[1]):
    for _ in tf.data.Dataset.range(50).map(lambda x: x + 1).batch(5):
        seen += 1
assert seen == 10
"""


def test_under_w_error_training_goes_on_as_without(tmp_path: Path) -> None:
    # TensorFlow's own import warns; what Plumber does in its own modules must not.
    program = f"import warnings, tensorflow; warnings.simplefilter('error')\n{_WARNINGS_ARE_ERRORS}"

    ended = run(program, tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert "Plumber could not" not in ended.stderr
    assert reader.read(tmp_path)[0].samples[-1].pipelines[0].steps == 10


_MULTIPROCESSING = """
import multiprocessing, sys, tensorflow as tf
import tensorboard_plugin_plumber as plumber

def work(x):
    return x * x

if __name__ == "__main__":
    with plumber.trace(sys.argv[1]):
        iterator = iter(tf.data.Dataset.range(1000).map(lambda x: x + 1))
        next(iterator)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(work, range(8)) == [x * x for x in range(8)]
        for _ in iterator:
            pass
    print("over")
"""


def test_forked_workers_in_a_session_end_as_without(tmp_path: Path) -> None:
    ended = run(_MULTIPROCESSING, tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip().endswith("over")
    # The children wrote nothing: one file, with all elements of the parent's.
    (recording,) = reader.read(tmp_path)
    assert recording.samples[-1].pipelines[0].steps == 1000


_INTERRUPTED = """
import os, signal, sys, threading, time, tensorflow as tf
import tensorboard_plugin_plumber as plumber
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT]).start()
with plumber.trace(sys.argv[1]):
    for _ in tf.data.Dataset.range(10**9).map(lambda x: x + 1):
        time.sleep(0.001)
"""


def test_an_interrupt_ends_the_loop_and_the_recording(tmp_path: Path) -> None:
    ended = run(_INTERRUPTED, tmp_path)

    assert "KeyboardInterrupt" in ended.stderr
    (recording,) = reader.read(tmp_path)
    assert recording.samples[-1].pipelines[0].steps > 10


def test_a_session_in_a_thread_of_its_own(tmp_path: Path) -> None:
    seen: list[int] = []

    def loop() -> None:
        with plumber.trace(tmp_path):
            seen.extend(int(x) for x in tf.data.Dataset.range(500).map(_increment))

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    thread.join(60)

    assert seen == list(range(1, 501))
    assert reader.read(tmp_path)[0].samples[-1].pipelines[0].steps == 500


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
