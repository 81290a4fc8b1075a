"""Every way of iterating a dataset but Keras's: steps, operators and lines are seen, elements stay the same."""

from __future__ import annotations

import gc
import logging
import os
import queue
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture import boundary, guard, hidden
from tensorboard_plugin_plumber.capture.following import FollowedIterator
from tests.support import ways
from tests.support.ways import Delivered, Recorded, recorded

ROOT = Path(__file__).parents[2]

# How it is iterated, how many passes it makes, and what is said of it.
WAYS = [
    (ways.eager_loop, 2, ""),
    (ways.as_numpy, 1, ""),
    (ways.next_in_function, 1, ""),
    (ways.function_of_iterator, 1, ""),
    (ways.loop_in_function, 2, "tf.function"),
    (ways.loop_over_argument, 2, "tf.function"),
    (ways.loop_over_member, 1, "tf.function"),
    (ways.epochs_in_function, 2, "tf.function"),
    (ways.break_in_function, 2, "tf.function"),
    (ways.iterator_in_function, 2, "tf.function"),
    (ways.reduce, 2, "reduce"),
    (ways.reduce_in_function, 2, "reduce"),
]


@pytest.mark.parametrize(("way", "passes", "iterated_by"), WAYS, ids=[way.__name__ for way, _, _ in WAYS])
def test_steps_operators_and_lines(way: ways.Way, passes: int, iterated_by: str, tmp_path: Path) -> None:
    # GIVEN what the loop gets when nobody looks
    without, delivered = Delivered(body_s=0.0), Delivered()
    way(ways.make_dataset(), without)

    with plumber.trace(tmp_path):
        way(ways.make_dataset(), delivered)

    # THEN it gets the same, and every step of it is recorded, in one pipeline with the user's lines
    assert delivered.sums == without.sums
    (one,) = recorded(tmp_path)
    # A loop that is left early in a graph draws one element more, from which it is told to stop.
    unused = passes if way is ways.break_in_function else 0
    assert one.sample.steps == len(delivered.sums) + unused
    assert one.sample.iterators == passes
    assert one.pipeline.iterated_by == iterated_by
    assert [operator.type for operator in one.operators()] == ways.OPERATORS
    for operator in one.operators():
        assert Path(operator.source.path) == Path(ways.__file__)
        assert operator.source.line == ways.LINES[operator.type]
    assert one.operators()[1].function.name == "double"
    # What ran ahead, and what a pass that ended had not been looked at for, is at most this.
    assert one.elements("Shuffle") == pytest.approx(one.sample.steps * ways.BATCH, rel=0.1)


def test_what_a_function_builds_on_a_dataset_is_seen_with_its_lines(tmp_path: Path) -> None:
    delivered = Delivered()
    with plumber.trace(tmp_path):
        ways.enumerate_in_function(ways.make_dataset(), delivered)

    (one,) = recorded(tmp_path)
    assert one.sample.steps == len(delivered.sums) == ways.BATCHES
    assert [operator.type for operator in one.operators()] == ["Enumerate", *ways.OPERATORS]
    assert one.operators()[0].source.scope == "epoch"
    assert one.operators()[2].source.line == ways.LINES["Map"]


def test_a_list_of_all_elements(tmp_path: Path) -> None:
    with plumber.trace(tmp_path):
        ways.as_list(ways.make_dataset(), Delivered())

    (one,) = recorded(tmp_path)
    assert one.sample.steps == ways.BATCHES
    assert [operator.type for operator in one.operators()] == ["Map", *ways.OPERATORS]


def test_a_single_element(tmp_path: Path) -> None:
    with plumber.trace(tmp_path):
        element = tf.data.Dataset.range(8).map(ways.double).batch(8).get_single_element()

    assert element.numpy().tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    (one,) = recorded(tmp_path)
    assert one.sample.steps == 1
    assert one.pipeline.iterated_by == "get_single_element"
    assert [operator.type for operator in one.operators()] == ["Batch", "Map", "Range"]


def make_epoch(dataset: tf.data.Dataset, body_s: float = 0.0) -> Any:
    """A function that runs through the dataset and returns the number of its elements."""
    delivered = Delivered(body_s)

    @tf.function
    def epoch() -> tf.Tensor:
        steps = tf.constant(0, tf.int64)
        for batch in dataset:
            steps += delivered.in_graph(batch)
        return steps

    return epoch


def test_a_function_lives_on_after_the_session_in_which_it_was_traced(tmp_path: Path) -> None:
    epoch = make_epoch(ways.make_dataset(20))
    with plumber.trace(tmp_path / "first"):
        for _ in range(3):
            assert epoch() == 20
    # WHEN nobody looks
    assert epoch() == 20
    assert not boundary._running
    # AND somebody looks again
    with plumber.trace(tmp_path / "second"):
        assert epoch() == epoch() == 20

    assert [one.sample.steps for one in recorded(tmp_path / "first")] == [60]
    (second,) = recorded(tmp_path / "second")
    assert (second.sample.steps, second.sample.iterators) == (40, 2)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads can be counted on Linux only")
def test_two_hundred_epochs_in_a_function_leak_nothing(tmp_path: Path) -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    dataset = ways.make_dataset(20)
    epoch = make_epoch(dataset)
    with plumber.trace(tmp_path):
        for _ in range(50):
            epoch()
        threads_before, resident_before = threads(), resident()
        for _ in range(150):
            epoch()
        assert threads() <= threads_before + 3
        assert resident() - resident_before < 20e6
        assert not boundary._running
    assert [one.sample.steps for one in recorded(tmp_path)] == [200 * 20]
    # AND function and dataset die with their last reference
    dead = weakref.ref(dataset)
    del epoch, dataset
    gc.collect()
    assert dead() is None


def test_a_function_may_run_in_several_threads_at_once(tmp_path: Path) -> None:
    epoch = make_epoch(ways.make_dataset(50), body_s=0.001)
    counts: list[int] = []
    with plumber.trace(tmp_path):
        threads = [threading.Thread(target=lambda: counts.append(int(epoch()))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert counts == [50] * 4
    (one,) = recorded(tmp_path)
    assert (one.sample.steps, one.sample.iterators) == (200, 4)


def test_an_error_in_the_loop_is_the_users(tmp_path: Path) -> None:
    dataset = ways.make_dataset(50)

    @tf.function
    def epoch() -> None:
        for step, _ in enumerate(dataset, 1):
            tf.debugging.assert_less(step, tf.constant(30, tf.int64), "enough")

    with plumber.trace(tmp_path), pytest.raises(tf.errors.InvalidArgumentError, match="enough"):
        epoch()

    assert [one.sample.steps for one in recorded(tmp_path)] == [30]
    assert not boundary._running


def test_a_function_that_was_traced_too_early_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_said", set())
    epoch = make_epoch(ways.make_dataset(20))
    assert epoch() == 20

    with plumber.trace(tmp_path), caplog.at_level(logging.WARNING):
        assert epoch() == epoch() == 20

    said = [record.getMessage() for record in caplog.records if "traced before" in record.getMessage()]
    assert len(said) == 1
    assert "epoch" in said[0]


def test_an_argument_is_seen_although_the_function_was_traced_before(tmp_path: Path) -> None:
    @tf.function
    def epoch(given: tf.data.Dataset) -> tf.Tensor:
        steps = tf.constant(0, tf.int64)
        for _ in given:
            steps += 1
        return steps

    assert epoch(ways.make_dataset(20)) == 20
    with plumber.trace(tmp_path):
        assert epoch(ways.make_dataset(30)) == 30

    assert epoch.experimental_get_tracing_count() == 1
    assert [one.sample.steps for one in recorded(tmp_path)] == [30]


def test_an_exported_model_runs_where_plumber_is_not(tmp_path: Path) -> None:
    class Serving(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
        def predict(self, values: tf.Tensor) -> tf.Tensor:
            dataset = tf.data.Dataset.from_tensor_slices(values).map(ways.double).batch(100)
            total = tf.constant(0, tf.int64)
            for batch in dataset:
                total += tf.reduce_sum(batch)
            return total + tf.reduce_sum(dataset.get_single_element())

    serving = Serving()
    with plumber.trace(tmp_path / "log"):
        assert serving.predict(tf.constant([1, 2, 3], tf.int64)) == 24
        tf.saved_model.save(serving, tmp_path / "model")

    program = """
import sys, tensorflow as tf
print("predicted", int(tf.saved_model.load(sys.argv[1]).predict(tf.constant([1, 2, 3], tf.int64))))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "model"], timeout=120, capture_output=True, text=True
    )
    assert "predicted 24" in ended.stdout, ended.stderr


def test_the_functions_of_datasets_are_left_alone(tmp_path: Path) -> None:
    table = tf.data.Dataset.range(5).map(ways.double)

    def total(x: tf.Tensor) -> tf.Tensor:
        return x + table.reduce(np.int64(0), lambda state, y: state + y)

    with plumber.trace(tmp_path):
        got = [int(x) for x in tf.data.Dataset.range(30).map(total)]

    assert got == [20 + x for x in range(30)]
    (one,) = recorded(tmp_path)
    assert one.sample.steps == 30
    assert not one.operators()[0].function.python


def test_the_calls_of_a_step_are_no_burden() -> None:
    # GIVEN a function that is called with tensors, and a listener
    step = tf.function(lambda batch: batch + 1)
    batch = (tf.constant(1), {"x": tf.constant(2)})
    uninstall = hidden.listen(lambda one: None)
    try:
        assert hidden._shown_member(batch) is batch
        assert step(batch[0]) == 2
    finally:
        uninstall()


def by_label(found: list[Recorded]) -> dict[str, float]:
    return {one.pipeline.label: one.sample.steps for one in found}


def training() -> tf.data.Dataset:
    return tf.data.Dataset.range(400).map(ways.double).batch(2)


def validating() -> tf.data.Dataset:
    return tf.data.Dataset.range(150).map(ways.double)


def test_several_pipelines_interleaved_in_one_thread(tmp_path: Path) -> None:
    counts = {"training": 0, "validating": 0}
    with plumber.trace(tmp_path):
        first, second = iter(training()), iter(validating())
        for step in range(120):
            next(first)
            counts["training"] += 1
            if step % 3 == 0:
                next(second)
                counts["validating"] += 1
            time.sleep(0.001)

    assert by_label(recorded(tmp_path)) == counts


def test_an_iterator_made_in_one_thread_and_consumed_in_another(tmp_path: Path) -> None:
    counts: list[int] = []
    with plumber.trace(tmp_path):
        iterator = iter(training())
        next(iterator)
        consumer = threading.Thread(target=lambda: counts.append(sum(1 for _ in iterator)))
        consumer.start()
        consumer.join()

    assert by_label(recorded(tmp_path)) == {"training": counts[0] + 1} == {"training": 200}


def test_a_producer_thread_that_feeds_a_device_through_a_queue(tmp_path: Path) -> None:
    # As loops for JAX are written: a thread iterates, the main loop puts on the device.
    batches: queue.Queue[Any] = queue.Queue(maxsize=2)

    def produce() -> None:
        for batch in training().as_numpy_iterator():
            batches.put(batch)
        batches.put(None)

    steps = total = 0
    with plumber.trace(tmp_path):
        producer = threading.Thread(target=produce, daemon=True)
        producer.start()
        while (batch := batches.get()) is not None:
            steps += 1
            total += int(batch.sum())
            time.sleep(0.001)
        producer.join()

    assert total == sum(2 * x for x in range(400))
    assert by_label(recorded(tmp_path)) == {"training": steps} == {"training": 200}


_JAX = """
import queue, sys, threading
import jax, tensorflow as tf
import tensorboard_plugin_plumber as plumber
from tests.integration.test_iterating import training

@jax.jit
def step(total, batch):
    return total + batch.sum()

batches = queue.Queue(maxsize=2)

def produce():
    for batch in training().as_numpy_iterator():
        batches.put(batch)
    batches.put(None)

total, steps = jax.numpy.zeros([], int), 0
with plumber.trace(sys.argv[1]):
    threading.Thread(target=produce, daemon=True).start()
    while (batch := batches.get()) is not None:
        total = step(total, jax.device_put(batch))
        steps += 1
    total.block_until_ready()
print("trained", steps, int(total))
"""


def test_a_loop_of_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    ended = subprocess.run(
        [sys.executable, "-c", _JAX, tmp_path], cwd=ROOT, timeout=120, capture_output=True, text=True
    )

    assert f"trained 200 {sum(2 * x for x in range(400))}" in ended.stdout, ended.stderr
    assert by_label(recorded(tmp_path)) == {"training": 200}


def test_garbage_collected_in_the_middle_of_a_look_holds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a collector that runs only inside of looks, in the thread that holds the session's lock
    steps, collected = 0, []
    read = FollowedIterator.read

    def collecting_read(self: FollowedIterator) -> Any:
        collected.append(gc.collect())
        return read(self)

    def run() -> None:
        nonlocal steps
        dataset = training()
        with plumber.trace(tmp_path):
            for taken in (40, 50, 60):
                iterator = iter(dataset)
                for _ in range(taken):
                    next(iterator)
                    steps += 1
                cycle: list[Any] = [iterator]
                cycle.append(cycle)
                del iterator, cycle
                time.sleep(0.2)

    gc.collect()
    gc.disable()
    monkeypatch.setattr(FollowedIterator, "read", collecting_read)
    try:
        # WHEN iterators become garbage THEN nobody waits for ever
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    finally:
        gc.enable()

    assert any(collected)
    assert by_label(recorded(tmp_path)) == {"training": steps} == {"training": 150}


def test_iterators_dropped_in_mid_epoch_keep_what_was_counted(tmp_path: Path) -> None:
    dataset, steps = training(), 0
    with plumber.trace(tmp_path):
        for taken in (30, 1, 90, 7):
            iterator = iter(dataset)
            for _ in range(taken):
                next(iterator)
                steps += 1
            del iterator

    (one,) = recorded(tmp_path)
    assert one.sample.steps == steps == 128
    assert one.sample.iterators == 4


def test_an_iterator_kept_over_several_traces(tmp_path: Path) -> None:
    iterator = iter(training())
    for session, taken in enumerate((40, 60, 25)):
        with plumber.trace(tmp_path / str(session)):
            for _ in range(taken):
                next(iterator)
                time.sleep(0.001)
        assert by_label(recorded(tmp_path / str(session))) == {"training": taken}


def test_a_dataset_iterated_inside_the_generator_of_another(tmp_path: Path) -> None:
    inner_steps = []

    def generate() -> Iterator[int]:
        for element in validating():
            inner_steps.append(1)
            yield int(element)

    def outer() -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.int64))
        return dataset.map(ways.double)

    with plumber.trace(tmp_path):
        total = sum(int(x) for x in outer())

    assert total == 4 * sum(range(150))
    assert by_label(recorded(tmp_path)) == {"outer": 150, "validating": len(inner_steps)}


_SEEDED = """
import contextlib, os, sys
if sys.argv[1]:
    import tensorboard_plugin_plumber as plumber
import numpy as np, tensorflow as tf

tf.random.set_seed(7)
shuffled = tf.data.Dataset.range(20).shuffle(9).map(lambda x: (x, tf.random.uniform([])))
drawn = []

@tf.function
def epoch(given):
    total = tf.constant(0.0)
    for x, y in shuffled:
        total += tf.cast(x, tf.float32) * y + tf.random.uniform([])
    iterator = iter(shuffled)
    for x, y in given:
        total += next(iterator)[1] * y + tf.random.uniform([])
    return total + given.reduce(0.0, lambda state, element: state * 0.9 + element[1])

with plumber.trace(sys.argv[1]) if sys.argv[1] else contextlib.nullcontext():
    for _ in range(2):
        drawn.append(float(epoch(shuffled)))
        drawn.append(float(shuffled.reduce(0.0, lambda state, element: state * 0.9 + element[1])))
        drawn.append(float(tf.random.uniform([])))
    drawn.extend(float(y) for _, y in shuffled)
print("drawn", drawn, flush=True)
os._exit(0)
"""


def test_seeded_randomness_is_the_same_with_boundaries(tmp_path: Path) -> None:
    script = tmp_path / "seeded.py"  # autograph converts only what it can read
    script.write_text(_SEEDED)
    without, within = (
        subprocess.run([sys.executable, script, where], cwd=ROOT, timeout=120, capture_output=True, text=True)
        for where in ("", str(tmp_path))
    )

    assert without.returncode == within.returncode == 0, within.stderr
    assert "drawn" in without.stdout
    assert within.stdout == without.stdout
    assert {one.pipeline.iterated_by for one in recorded(tmp_path)} >= {"tf.function", "reduce"}


_BEFORE_IMPORT = """
import sys, time, tensorflow as tf
iterator = iter(tf.data.Dataset.range(1000).map(lambda x: x * 2).batch(2))
for _ in range(100): next(iterator)
import tensorboard_plugin_plumber as plumber
with plumber.trace(sys.argv[1]):
    for _ in range(150):
        next(iterator)
        time.sleep(0.001)
"""


def test_an_iterator_made_before_the_import(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _BEFORE_IMPORT, tmp_path], cwd=ROOT, timeout=120, check=True)

    (one,) = recorded(tmp_path)
    assert one.sample.steps == 150
    assert [operator.type for operator in one.operators()] == ["Batch", "Map", "Range"]
