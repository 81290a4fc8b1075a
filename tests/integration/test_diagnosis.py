"""Pipelines of known cost are diagnosed right; the truth comes from inside their own functions."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from benchmarks import ground_truth, shapes
from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.model.analyse import analyse
from tensorboard_plugin_plumber.report import Report
from tests.support.answers import HostWatch, codes, row_of

SECONDS = 4.0
# The promise: service times within 15 %, and within 25 % where others use the cores, too.
CLOSE, CLOSE_ON_A_BUSY_HOST = 0.15, 0.25


@dataclass(frozen=True)
class Diagnosed:
    """The object of `--json`, and whether other processes left the cores alone meanwhile."""

    answer: dict[str, Any]
    quiet: bool


def diagnose(shape: shapes.Shape) -> Diagnosed:
    """Diagnoses, and checks that the service times are the true ones."""
    with HostWatch() as host:
        answer: dict[str, Any] = plumber.diagnose(shape.dataset, seconds=SECONDS).to_dict()
    close = CLOSE if host.quiet else CLOSE_ON_A_BUSY_HOST
    for label, truth in shape.service_s.items():
        row = row_of(answer, label)
        assert row["cpu_s"] + row["wait_s"] == pytest.approx(truth(), rel=close), label
    return Diagnosed(answer, host.quiet)


def test_cpu_bound_sequential_map() -> None:
    diagnosed = diagnose(shapes.sequential_map())
    answer = diagnosed.answer

    # THEN the map binds, by itself, and it is a setting that binds
    row = row_of(answer, "native_spin")
    assert answer["bottleneck"]["operator"] == row["id"]
    if diagnosed.quiet:
        assert answer["bottleneck"]["constraint"] == "operator"
        assert answer["verdict"]["cause"] == "software"
        assert "sequential-map" in codes(answer)
    assert "no-prefetch" not in codes(answer)
    assert row["visit_ratio"] == pytest.approx(4, rel=0.05)
    assert row["wait_s"] < 0.1 * row["cpu_s"]


def test_sleeping_map_held_by_the_pool() -> None:
    diagnosed = diagnose(shapes.sleeping_map())
    answer = diagnosed.answer

    # THEN the pool binds, not the operator, and the time is waiting
    row = row_of(answer, "sleep")
    assert answer["bottleneck"]["constraint"] == "threadpool"
    assert answer["bottleneck"]["operator"] == row["id"]
    assert "pool-limited" in codes(answer)
    assert row["cpu_s"] < 0.1 * row["wait_s"]


def test_sequential_chain_without_default_optimizations() -> None:
    # GIVEN two costly maps and a batch on one thread: TensorFlow is told to inject nothing
    diagnosed = diagnose(shapes.chain(default_optimizations=False))
    answer = diagnosed.answer

    # THEN it is the thread that binds, shared by both, and a prefetch is missing
    if diagnosed.quiet:
        assert answer["bottleneck"]["constraint"] == "thread"
    shared = [row_of(answer, label)["id"] for label in ("second", "first")]
    assert answer["bottleneck"]["operators"][:2] == shared
    assert "no-prefetch" in codes(answer)


def test_sequential_chain_with_defaults_needs_no_prefetch() -> None:
    # GIVEN its twin, as TensorFlow runs it by default
    diagnosed = diagnose(shapes.chain(default_optimizations=True))
    answer = diagnosed.answer

    # THEN nothing is said against it: what TensorFlow makes of map and batch works ahead by itself
    assert "no-prefetch" not in codes(answer)


def test_zip() -> None:
    diagnosed = diagnose(shapes.zipped())
    answer = diagnosed.answer

    # THEN both branches feed the zip, and the thread that runs them binds
    (joined,) = (row for row in answer["operators"] if row["type"] == "Zip")
    for label in ("image", "mask"):
        assert row_of(answer, label)["parent"] == joined["id"]
        assert row_of(answer, label)["visit_ratio"] == pytest.approx(2, rel=0.05)
    if diagnosed.quiet:
        assert answer["bottleneck"]["constraint"] == "thread"
    assert answer["bottleneck"]["operator"] == row_of(answer, "image")["id"]


def test_map_inside_an_interleave() -> None:
    diagnosed = diagnose(shapes.interleaved())
    answer = diagnosed.answer

    # THEN it is found in there, though TensorFlow forgets each of its iterators
    row = row_of(answer, "spin")
    assert row["in_body"] is True
    assert row["visit_ratio"] == pytest.approx(2, rel=0.05)
    assert answer["bottleneck"]["operator"] == row["id"]


def trace(loop: Callable[[], None], log_dir: Path, **options: Any) -> dict[str, Any]:
    with plumber.trace(str(log_dir), **options):
        loop()
    (recording,) = reader.read(str(log_dir))
    answer: dict[str, Any] = Report(analyse(recording)).to_dict()
    return answer


def feed_a_device(dataset: tf.data.Dataset, step_s: float, depth: int) -> None:
    """Hands each element to a thread that takes `step_s` for it, over a queue of `depth`."""
    work: queue.Queue[object] = queue.Queue(depth)
    done = object()

    def device() -> None:
        while work.get() is not done:
            time.sleep(step_s)

    thread = threading.Thread(target=device)
    thread.start()
    try:
        for element in dataset:
            work.put(element)
    finally:
        work.put(done)
        thread.join()


@pytest.mark.parametrize("depth", [1, 2, 8])
def test_asynchronous_consumer_is_not_called_input_bound(depth: int, tmp_path: Path) -> None:
    # GIVEN a device that is as good as always busy, fed over a queue
    dataset = shapes.numbers(150).map(ground_truth.spin(ground_truth.Books(), 0.018))

    # WHEN the loop is traced without a word on how it works
    answer = trace(lambda: feed_a_device(dataset, 0.02, depth), tmp_path)

    # THEN nobody claims that it waits, and where the answer is unknown, it is said why
    verdict = answer["verdict"]
    assert verdict["input_bound"] is not True
    if verdict["input_bound"] is None:
        assert verdict["wait_fraction"] is None
        assert verdict["consumer_rate"] is None
        assert "cannot be known" in verdict["sentence"]
        assert "consumer" in verdict["caveat"]


def run_synchronously(dataset: tf.data.Dataset, step_s: float) -> None:
    for _ in dataset:
        time.sleep(step_s)


def test_short_gap_of_an_unknown_consumer_proves_nothing(tmp_path: Path) -> None:
    dataset = shapes.numbers(200).map(ground_truth.spin(ground_truth.Books(), 0.015))
    answer = trace(lambda: run_synchronously(dataset, 0.002), tmp_path)
    assert answer["verdict"]["input_bound"] is None


def test_synchronous_consumer_is_believed(tmp_path: Path) -> None:
    # GIVEN the same loop, of which the user says that each step is over when it asks again
    dataset = shapes.numbers(200).map(ground_truth.spin(ground_truth.Books(), 0.015))
    waited: list[float] = []

    def loop() -> None:
        iterator, begin = iter(dataset), time.perf_counter()
        inside = 0.0
        while True:
            asked = time.perf_counter()
            element = next(iterator, None)
            inside += time.perf_counter() - asked
            if element is None:
                break
            time.sleep(0.002)
        waited.append(inside / (time.perf_counter() - begin))

    answer = trace(loop, tmp_path, consumer="synchronous")

    # THEN it is input-bound, by as much as a stopwatch says
    assert answer["verdict"]["input_bound"] is True
    assert answer["verdict"]["wait_fraction"] == pytest.approx(waited[0], abs=0.1)


def test_consumer_that_fills_the_step_is_the_bottleneck(tmp_path: Path) -> None:
    dataset = shapes.numbers(40).map(ground_truth.spin(ground_truth.Books(), 0.001))
    answer = trace(lambda: run_synchronously(dataset, 0.1), tmp_path)
    assert answer["verdict"]["input_bound"] is False
    assert "not-input-bound" in codes(answer)
