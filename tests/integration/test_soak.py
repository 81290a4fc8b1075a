"""A day of recording in seconds, and thousands of iterators: nothing grows, nothing stays behind.

Each test is a process of its own, for what it measures is the process: its memory, threads, files and objects.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

# A day at the usual pace: a look each 0.4 s, and samples each 1 s, 2 s, 4 s …, a thousand of each.
LOOKS_OF_A_DAY = 216_000
LOOKS_PER_SAMPLE = 34

# What the programs below share.
_COMMON = """
import gc, json, os, sys, time
import psutil
import tensorflow as tf
import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture import poller, recorder
from tensorboard_plugin_plumber.capture.files import open_writer
from tensorboard_plugin_plumber.capture.session import CaptureSession
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

process = psutil.Process()

def counts():
    gc.collect()
    modules = (str(type(one).__module__) for one in gc.get_objects())
    ours = [name for name in modules if name.startswith("tensorboard_plugin_plumber")]
    return {
        "rss_bytes": process.memory_info().rss,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "objects": len(ours),
        "blocks": sys.getallocatedblocks(),
    }

def increment(x):
    return x + 1

def say(**numbers):
    print(json.dumps(numbers), flush=True)
    os._exit(0)  # TensorFlow may hang at the interpreter's end
"""

_DAY = """
import tracemalloc
log_dir, looks, looks_per_sample = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
# The poller only gets its thread: its looks are taken here, one after the other.
poller.Pace.period_s = lambda self, *_: 1e6
taken = 0
recorder.Recorder.is_due = lambda self, now_s: taken % looks_per_sample == 0

sink = open_writer(log_dir)
session = CaptureSession(kind="trace", sink=sink, consumer=m.CONSUMER_UNKNOWN)
session.start()
dataset = tf.data.Dataset.range(1000).shuffle(10).repeat().map(increment)
# Children that come and go, as the nodes of an interleave do.
dataset = dataset.interleave(lambda x: tf.data.Dataset.range(3), cycle_length=2).batch(4).prefetch(2)
iterator = iter(dataset)

def until(wanted):
    global taken
    while taken < wanted:
        next(iterator)
        session._tick()
        taken += 1

def traced_until(wanted):
    # Bytes that were allocated meanwhile and are alive; tracing makes a look four times as slow.
    tracemalloc.start()
    until(wanted)
    gc.collect()
    grown_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return grown_bytes

seen, grown_bytes = [], []
for part in (4, 12, 20):
    until(looks * (part - 1) // 20)
    grown_bytes.append(traced_until(looks * part // 20))
    seen.append(counts())
session.stop()
(file,) = [os.path.join(sink.directory, name) for name in os.listdir(sink.directory) if "tfevents" in name]
say(seen=seen, grown_bytes=grown_bytes, file_bytes=os.path.getsize(file))
"""

_ITERATORS = """
count = int(sys.argv[2])
options = tf.data.Options()
options.experimental_optimization.apply_default_optimizations = False  # most of what an iterator costs
dataset = tf.data.Dataset.range(100).map(increment).batch(4).with_options(options)
with plumber.trace(sys.argv[1]):
    def drop(iterators):
        for _ in range(iterators):
            next(iter(dataset))
        time.sleep(1.0)  # the poller takes in the last of them
        return counts()
    seen = [drop(count * part // 10) for part in (2, 4, 4)]
say(seen=seen)
"""

_SESSIONS = """
count = int(sys.argv[2])
dataset = tf.data.Dataset.range(100).map(increment).batch(4)
def run(sessions):
    for _ in range(sessions):
        with plumber.trace(sys.argv[1]):
            for _ in dataset:
                pass
    return counts()
say(seen=[run(count * part // 10) for part in (2, 4, 4)])
"""


def soak(program: str, *arguments: object, timeout: float) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _COMMON + program, *map(str, arguments)],
        cwd=ROOT,
        timeout=timeout,
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    assert "Plumber could not" not in done.stderr, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(answer)
    return answer


def assert_nothing_stays(before: dict[str, int], after: dict[str, int]) -> None:
    """Between two moments at which equally much was alive."""
    assert after["objects"] <= before["objects"] + 10
    # A look that goes on just then has a file open, or a thread.
    assert after["files"] <= before["files"] + 2
    assert after["threads"] <= before["threads"] + 2
    # TensorFlow's own heap grows and shrinks by some.
    assert after["rss_bytes"] < before["rss_bytes"] + 16_000_000


def assert_a_day_leaves_nothing(tmp_path: Path, looks: int, timeout: float) -> None:
    found = soak(_DAY, tmp_path, looks, LOOKS_PER_SAMPLE, timeout=timeout)

    _, middle, last = found["seen"]
    assert_nothing_stays(middle, last)
    # What is made anew at each look weighs some hundred thousand bytes; a list that grows by one number per look, more
    # in a day.
    assert max(found["grown_bytes"]) < 250_000
    # A session that kept but one small object per look would hold twice as many blocks of memory more in an hour.
    assert last["blocks"] < middle["blocks"] + 600
    # TensorBoard reads it whole: some kilobytes per sample.
    assert found["file_bytes"] < looks / LOOKS_PER_SAMPLE * 4_000


def test_an_hour_leaves_nothing_behind(tmp_path: Path) -> None:
    assert_a_day_leaves_nothing(tmp_path, LOOKS_OF_A_DAY // 24, timeout=200)


@pytest.mark.slow
def test_a_day_leaves_nothing_behind(tmp_path: Path) -> None:
    assert_a_day_leaves_nothing(tmp_path, LOOKS_OF_A_DAY, timeout=1500)


def assert_iterators_leave_nothing(tmp_path: Path, count: int, timeout: float) -> None:
    _, middle, last = soak(_ITERATORS, tmp_path, count, timeout=timeout)["seen"]

    assert_nothing_stays(middle, last)


def test_a_thousand_iterators_leave_nothing_behind(tmp_path: Path) -> None:
    assert_iterators_leave_nothing(tmp_path, 1_000, timeout=200)


@pytest.mark.slow
def test_ten_thousand_iterators_leave_nothing_behind(tmp_path: Path) -> None:
    assert_iterators_leave_nothing(tmp_path, 10_000, timeout=600)


def test_two_hundred_sessions_leave_nothing_behind(tmp_path: Path) -> None:
    _, middle, last = soak(_SESSIONS, tmp_path, 200, timeout=200)["seen"]

    assert_nothing_stays(middle, last)
