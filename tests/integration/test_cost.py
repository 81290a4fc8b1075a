"""What recording costs, as counts and ratios: times alone depend on the machine."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorboard.compat.proto import event_pb2

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture import (
    call_graph,
    cardinality,
    counters,
    following,
    iterators,
    overhead,
    pipeline,
    settings,
)
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.capture.looks import Looks
from tensorboard_plugin_plumber.capture.session import CaptureSession
from tensorboard_plugin_plumber.capture.sink import MemorySink
from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.events.record_file import read_records
from tensorboard_plugin_plumber.events.writer import EventWriter
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


def increment(x: Any) -> Any:
    return x + 1


def is_even(x: Any) -> Any:
    return x % 2 == 0


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[float]:
    """Times at which a function is called from now on."""
    original = getattr(owner, name)
    called: list[float] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        called.append(time.perf_counter())
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)
    return called


def iterate(dataset: tf.data.Dataset, seconds: float) -> None:
    end_s = time.perf_counter() + seconds
    for _ in dataset:
        if time.perf_counter() > end_s:
            break


class BothSinks:
    """Writes to a file what it keeps in memory."""

    def __init__(self, log_dir: Path) -> None:
        self.memory = MemorySink()
        self._file = EventWriter(log_dir)

    def write_graph(self, record: m.GraphRecord) -> None:
        self.memory.write_graph(record)
        self._file.write_graph(record)

    def write_sample(self, record: m.SampleRecord) -> None:
        self.memory.write_sample(record)
        self._file.write_sample(record)

    def close(self) -> None:
        self._file.close()


SOURCES: dict[str, Callable[[], tf.data.Dataset]] = {
    "range": lambda: tf.data.Dataset.range(10),
    "backwards": lambda: tf.data.Dataset.range(10, 3, -2),
    "nothing": lambda: tf.data.Dataset.range(0),
    "one": lambda: tf.data.Dataset.from_tensors(1),
    "slices": lambda: tf.data.Dataset.from_tensor_slices([1] * 7),
    "lines": lambda: tf.data.TextLineDataset("/etc/hosts"),
    "records": lambda: tf.data.TFRecordDataset(["a"]),
    "zip": lambda: tf.data.Dataset.zip(tf.data.Dataset.range(3), tf.data.Dataset.range(4)).map(
        lambda x, _: x
    ),
}
ABOVE: dict[str, Callable[[tf.data.Dataset], tf.data.Dataset]] = {
    "cache": lambda d: d.cache(),
    "prefetch": lambda d: d.prefetch(1),
    "shuffle": lambda d: d.shuffle(3),
    "repeat": lambda d: d.repeat(),
    "repeat(0)": lambda d: d.repeat(0),
    "repeat(3)": lambda d: d.repeat(3),
    "take(4)": lambda d: d.take(4),
    "take(0)": lambda d: d.take(0),
    "take(-1)": lambda d: d.take(-1),
    "skip(3)": lambda d: d.skip(3),
    "skip(-1)": lambda d: d.skip(-1),
    "batch(3)": lambda d: d.batch(3).unbatch(),
    "whole batches": lambda d: d.batch(3, drop_remainder=True),
    "padded": lambda d: d.padded_batch(3),
    "filter": lambda d: d.filter(lambda x: tf.constant(True)),
    "map": lambda d: d.map(tf.identity),
    "parallel map": lambda d: d.map(tf.identity, num_parallel_calls=2),
    "shard": lambda d: d.shard(2, 1),
}


def test_cardinalities_are_tensorflows_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN many sources with up to two operators above
    asked = count_calls(monkeypatch, tf.raw_ops, "DatasetCardinality")
    by_rule = 0
    for source in SOURCES.values():
        for first, second in itertools.product(ABOVE.values(), list(ABOVE.values())[::3]):
            dataset = second(first(source()))
            # THEN what the rules say is what TensorFlow says
            known = cardinality._by_rule(dataset)
            if known is not None:
                by_rule += 1
                assert known == int(tf.raw_ops.DatasetCardinality(input_dataset=dataset._variant_tensor))
    # and they say it of most
    assert by_rule > 400
    assert len(asked) == by_rule


def test_cardinalities_of_a_chain_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worked_out = count_calls(monkeypatch, cardinality, "_worked_out")
    dataset = tf.data.Dataset.range(1000)
    for _ in range(100):
        dataset = dataset.take(900).repeat(1)

    pipeline = describe(dataset, role="trace").pipeline

    written = [one for one in pipeline.operators if not one.injected and one.type != "Range"]
    assert {one.cardinality for one in written} == {900}
    assert len(worked_out) <= 201


def test_a_chain_too_long_to_walk_down_is_left_to_tensorflow() -> None:
    dataset = tf.data.Dataset.range(10)
    for _ in range(2000):
        dataset = dataset.map(tf.identity)

    assert cardinality.cardinality_of(dataset) == 10


def test_options_are_tensorflows_own() -> None:
    given = tf.data.Options()
    given.autotune.cpu_budget = 3
    given.threading.private_threadpool_size = 5
    dataset = tf.data.Dataset.range(4).with_options(given).map(increment).batch(2)
    assert settings.options_of(dataset) == dataset.options()
    # One that is made from a variant: only TensorFlow knows.
    from tensorflow.python.data.ops import dataset_ops

    again = dataset_ops._VariantDataset(dataset._variant_tensor, dataset.element_spec).take(1)
    assert settings.options_of(again).threading.private_threadpool_size == 5


@pytest.mark.parametrize("python", [False, True])
def test_calibration_calls_as_often_as_it_says_and_traces_nothing(
    monkeypatch: pytest.MonkeyPatch, python: bool
) -> None:
    from tensorflow.python.framework import func_graph

    called: list[int] = []
    monkeypatch.setattr(call_graph, "_same", lambda value: called.append(1) or value)
    traced = count_calls(monkeypatch, func_graph, "func_graph_from_py_func")
    made = count_calls(monkeypatch, iterators.iterator_ops.OwnedIterator, "__init__")

    calls = call_graph.Calls(python=python, batch=20, batches=6)
    for _ in range(3):
        calls.take()

    model = iterators.parse_model(iterators.read_model(calls.resource))
    elements = {node.name: node.num_elements for node in model.nodes.values()}
    assert elements["Map"] == 60
    assert len(called) == (60 if python else 0)
    assert not traced
    assert not made


@pytest.mark.parametrize("python", [False, True])
def test_a_call_costs_something_and_next_to_nothing(python: bool) -> None:
    costs = [overhead._measure(python) for _ in range(3)]
    # Some µs to some tens of µs; where everybody wants the cores not ten times that.
    assert 1e-7 < min(costs) < 1e-3


def test_calls_are_measured_once_and_only_where_they_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "_measured", {})
    measured = count_calls(monkeypatch, overhead, "_measure")

    def long(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.random.normal([1_000_000])) + tf.cast(x, tf.float32)

    # GIVEN functions that take milliseconds: not at all
    plumber.diagnose(tf.data.Dataset.range(1_000_000).map(long), seconds=2.5)
    assert len(measured) == 0
    # GIVEN functions that take next to nothing: once for all that are of a kind
    for _ in range(2):
        filtered = tf.data.Dataset.range(1_000_000_000).filter(is_even)
        plumber.diagnose(filtered, seconds=2.5)
    assert len(measured) == 1


def test_what_the_iterators_of_a_pipeline_share_is_made_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    layouts = count_calls(monkeypatch, pipeline, "Layout")
    made = count_calls(monkeypatch, following, "IteratorCounters")
    parsed = count_calls(monkeypatch, iterators, "parse_model")
    dataset = tf.data.Dataset.range(100).batch(5)
    with plumber.trace(tmp_path):
        for _ in range(40):
            iterator = iter(dataset)
            next(iterator)
            del iterator
    assert len(layouts) == 1
    assert len(made) == 40
    # Each is looked at when it is gone, and some were looked at before.
    assert len(parsed) <= 2 * 40


def test_looks_come_with_samples_and_not_between(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = count_calls(monkeypatch, Looks, "take")
    sink = MemorySink()
    session = CaptureSession(kind="trace", sink=sink, consumer=m.CONSUMER_UNKNOWN)
    session.start()
    dataset = tf.data.Dataset.range(1_000_000_000).map(increment)
    began_s = time.perf_counter()
    iterate(dataset, 5.5)
    session.stop()

    # After the first moments looks are hardly more than samples: a busy host takes one between two, now and then.
    later = [at_s for at_s in looked if at_s > began_s + 1.5]
    samples = [one for one in sink.samples if one.elapsed_s > 1.5]
    assert samples
    assert len(later) <= 2 * len(samples) + 2


def test_the_thread_takes_little_of_what_training_takes(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.range(1_000_000_000).map(increment).filter(is_even).batch(8)
    cpu_s = time.process_time()
    with plumber.trace(tmp_path):
        iterate(dataset, 6)
    cpu_s = time.process_time() - cpu_s
    (recording,) = reader.read(tmp_path)

    # A hundredth or two on an idle machine, most of it spent once.
    assert recording.samples[-1].host.poller_cpu_s < 0.08 * cpu_s


def test_samples_are_small_and_lose_nothing(tmp_path: Path) -> None:
    sink = BothSinks(tmp_path)
    session = CaptureSession(kind="trace", sink=sink, consumer=m.CONSUMER_UNKNOWN, interval_s=0.25)
    dataset = tf.data.Dataset.range(1000).shuffle(100).repeat()
    dataset = dataset.map(lambda x: tf.random.normal([64]) + tf.cast(x, tf.float32))
    dataset = dataset.filter(lambda x: x[0] > 0).map(lambda x: x * 2).batch(4)
    dataset = dataset.map(tf.math.tanh, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
    dataset = dataset.batch(8).take(10**9).prefetch(tf.data.AUTOTUNE)
    session.start()
    iterate(dataset, 3)
    session.stop()

    # THEN what is read is what was measured, parameters included
    (recording,) = reader.read(tmp_path)
    assert list(recording.samples) == sink.memory.samples
    (last,) = recording.samples[-1].pipelines
    assert any(one.name == "buffer_size" for counters_ in last.operators for one in counters_.parameters)
    # AND what is written of a sample takes less than all that it says
    (file,) = tmp_path.rglob("*tfevents*")
    half = len(recording.samples) // 2
    values = [event_pb2.Event.FromString(one).summary.value[0] for one in read_records(file).data[-half:]]
    sizes = [len(value.tensor.string_val[0]) for value in values]
    assert sum(sizes) < 0.95 * sum(one.ByteSize() for one in sink.memory.samples[-half:])


def test_the_layout_of_counters_is_that_of_the_operators() -> None:
    running = [m.RunningOperator(type="Batch", batch_size=2), m.RunningOperator(type="MemoryCache", parent=0)]
    layout = counters.Layout([*running, m.RunningOperator(type="Range", parent=1)], [])
    assert layout.caches == (1,)
    assert layout.ends == [3, 3, 3]
    assert layout.survives == [True, True, True]
