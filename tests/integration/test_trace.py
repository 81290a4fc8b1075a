"""`plumber.trace` and the running of a dataset on its own."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture.alone import Empty, NoElement, run_alone
from tensorboard_plugin_plumber.capture.sink import MemorySink
from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

ROOT = Path(__file__).parents[2]


def numbers(count: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(count)


def steps(log_dir: Path) -> list[float]:
    (recording,) = reader.read(log_dir)
    return sorted(pipeline.steps for pipeline in recording.samples[-1].pipelines)


def test_several_pipelines_at_once_and_in_threads(tmp_path: Path) -> None:
    def consume(dataset: tf.data.Dataset) -> None:
        for _ in dataset:
            time.sleep(0.002)

    with plumber.trace(tmp_path):
        threads = [
            threading.Thread(target=consume, args=(numbers(count).map(lambda x: x + 1).batch(2),))
            for count in (200, 300, 400)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert steps(tmp_path) == [100, 150, 200]


def test_a_block_in_which_nothing_can_be_seen_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    total = tf.function(lambda: numbers(100).reduce(np.int64(0), lambda state, x: state + x))
    with plumber.trace(tmp_path / "hidden"):
        assert total() == 4950
    with plumber.trace(tmp_path / "seen"):
        for _ in numbers(100):
            pass

    (said,) = [record.getMessage() for record in caplog.records if "saw no dataset" in record.getMessage()]
    assert "Of a tf.function it sees" in said


def test_an_iterator_made_before_the_block_is_counted_from_its_beginning(tmp_path: Path) -> None:
    iterator = iter(numbers(10_000).map(lambda x: x + 1))
    unused = iter(numbers(10))
    for _ in range(1000):
        next(iterator)

    with plumber.trace(tmp_path):
        time.sleep(0.2)
        for _ in range(500):
            next(iterator)
            time.sleep(0.001)

    assert steps(tmp_path) == [500]
    (recording,) = reader.read(tmp_path)
    sample = recording.samples[-1].pipelines[0]
    # What ran ahead before the block is not counted either.
    assert all(counters.elements <= 600 for counters in sample.operators)
    assert sample.active_s < 5
    del unused


def test_only_what_is_iterated_is_recorded(tmp_path: Path) -> None:
    with plumber.trace(tmp_path):
        iter(numbers(10))
        numbers(10).map(lambda x: x)
        for _ in numbers(50).map(lambda x: x + 1):
            time.sleep(0.001)

    assert steps(tmp_path) == [50]


def test_nothing_is_kept_alive(tmp_path: Path) -> None:
    # GIVEN a session that goes on
    with plumber.trace(tmp_path):
        dataset = numbers(1000).map(lambda x: x + 1)
        iterator = iter(dataset)
        next(iterator)
        time.sleep(0.3)
        dataset_reference, iterator_reference = weakref.ref(dataset), weakref.ref(iterator)

        # WHEN the user drops dataset and iterator
        del dataset, iterator
        for _ in range(20):
            gc.collect()
            if dataset_reference() is None and iterator_reference() is None:
                break
            time.sleep(0.1)

        assert iterator_reference() is None
        assert dataset_reference() is None


@pytest.mark.parametrize(
    ("consumer", "relation", "rate"),
    [
        (None, m.CONSUMER_UNKNOWN, None),
        ("synchronous", m.CONSUMER_SYNCHRONOUS, None),
        (20, m.CONSUMER_UNKNOWN, 20.0),
    ],
)
def test_what_the_user_says_of_the_consumer(
    tmp_path: Path, consumer: Any, relation: m.Consumer.ValueType, rate: float | None
) -> None:
    with plumber.trace(tmp_path, consumer=consumer):
        list(numbers(200).map(lambda x: x + 1))

    (pipeline,) = reader.read(tmp_path)[0].graph.pipelines
    assert pipeline.consumer == relation
    assert (pipeline.consumer_rate if pipeline.HasField("consumer_rate") else None) == rate


@pytest.mark.parametrize("consumer", ["asynchronous", -1.0, float("nan"), True, object()])
def test_nonsense_about_the_consumer_is_refused(tmp_path: Path, consumer: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="consumer"), plumber.trace(tmp_path, consumer=consumer):
        pass


def test_an_exception_in_the_block_is_the_users(tmp_path: Path) -> None:
    def loop() -> None:
        with plumber.trace(tmp_path):
            for _ in numbers(100):
                pass
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()

    assert steps(tmp_path) == [100]


def test_gaps_of_a_synchronous_loop(tmp_path: Path) -> None:
    # GIVEN a loop that works for 5 ms, on input that takes longer
    def slow(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(_wait, [x], tf.int64), ())

    inside = total = 0.0
    with plumber.trace(tmp_path, consumer="synchronous"):
        iterator = iter(numbers(150).map(slow))
        for step in range(150):
            began = time.perf_counter()
            next(iterator)
            got = time.perf_counter()
            time.sleep(0.005)
            if step >= 20:
                inside += got - began
                total += time.perf_counter() - began

    sample = reader.read(tmp_path)[0].samples[-1].pipelines[0]
    assert sample.joined_steps > 75
    assert 1 - sample.gap_s / sample.step_s == pytest.approx(inside / total, abs=0.1)
    assert sample.gap_low_s > 0.0045


def _wait(value: Any) -> Any:
    time.sleep(0.012)
    return value


def test_autotune_off_is_recorded_without_counters(tmp_path: Path) -> None:
    options = tf.data.Options()
    options.autotune.enabled = False

    with plumber.trace(tmp_path):
        for _ in numbers(100).map(lambda x: x + 1).with_options(options):
            time.sleep(0.002)

    (pipeline,) = reader.read(tmp_path)[0].graph.pipelines
    assert not pipeline.has_counters
    assert not pipeline.autotune_enabled


def alone(dataset: tf.data.Dataset, seconds: float = 1.0) -> tuple[m.Pipeline, m.PipelineSample, int]:
    sink = MemorySink()
    count = run_alone(dataset, sink, kind="diagnose", seconds=seconds)
    recording = sink.recording()
    (pipeline,) = recording.graph.pipelines
    return pipeline, recording.samples[-1].pipelines[0], count


def test_a_finite_dataset_is_begun_again() -> None:
    pipeline, sample, count = alone(numbers(200).map(lambda x: x + 1).batch(2))

    assert pipeline.consumer == m.CONSUMER_NONE
    assert sample.iterators > 1
    assert sample.steps == count > 200


def test_autotune_is_turned_on_in_a_copy() -> None:
    options = tf.data.Options()
    options.autotune.enabled = False

    pipeline, sample, _ = alone(numbers(10_000).map(lambda x: x + 1).with_options(options))

    # THEN there are counters, and it is still said how the user had it
    assert pipeline.has_counters
    assert not pipeline.autotune_enabled
    assert all(counters.elements > 0 for counters in sample.operators)


def test_its_loop_is_seen_by_no_other_session(tmp_path: Path) -> None:
    with plumber.trace(tmp_path):
        alone(numbers(1000), seconds=0.5)
        for _ in numbers(70).map(lambda x: x + 1):
            time.sleep(0.001)

    assert steps(tmp_path) == [70]


def test_an_empty_dataset() -> None:
    with pytest.raises(Empty):
        alone(numbers(0).map(lambda x: x + 1))


def test_an_error_of_the_dataset_is_raised() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        alone(numbers(5).map(lambda x: tf.debugging.check_numerics(tf.math.log(-tf.ones([])), "broken")))


def test_an_element_that_never_comes_holds_nobody() -> None:
    # In a process of its own, which must end, too.
    program = """
import time, tensorflow as tf
from tensorboard_plugin_plumber.capture.alone import NoElement, run_alone
from tensorboard_plugin_plumber.capture.sink import MemorySink
dataset = tf.data.Dataset.range(5).map(lambda x: tf.numpy_function(lambda v: time.sleep(20) or v, [x], tf.int64))
began = time.monotonic()
try:
    run_alone(dataset, MemorySink(), kind="diagnose", seconds=1.0)
except NoElement as error:
    print("no element", time.monotonic() - began < 15)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, timeout=120, capture_output=True, text=True
    )

    assert "no element True" in ended.stdout
    assert NoElement.__name__ not in ended.stderr


def test_a_python_pipeline_does_not_hang_the_interpreter() -> None:
    program = """
import tensorflow as tf, tensorboard_plugin_plumber as plumber
dataset = tf.data.Dataset.from_generator(lambda: iter(range(100000)), output_signature=tf.TensorSpec((), tf.int64))
print(plumber.diagnose(dataset.batch(10), seconds=1.0).analysis.steps > 0)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, timeout=120, capture_output=True, text=True
    )

    assert ended.returncode == 0, ended.stderr
    assert "True" in ended.stdout


def test_a_fork_neither_writes_nor_hangs(tmp_path: Path) -> None:
    program = """
import os, sys, tensorflow as tf, tensorboard_plugin_plumber as plumber
dataset = tf.data.Dataset.range(50).map(lambda x: x + 1)
with plumber.trace(sys.argv[1]):
    list(dataset)
    if (child := os.fork()) == 0:
        sys.exit(0)  # leaves the block, and runs exit handlers
    os.waitpid(child, 0)
    list(dataset)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, timeout=120, check=True)

    (recording,) = reader.read(tmp_path)
    assert recording.notes == ()
    assert steps(tmp_path) == [100]
    assert [sample.final for sample in recording.samples] == [False] * (len(recording.samples) - 1) + [True]
