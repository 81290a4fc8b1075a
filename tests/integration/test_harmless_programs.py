"""Programs that fork, are interrupted, or turn warnings into errors go on and end as they would without Plumber."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensorboard_plugin_plumber.events import reader

ROOT = Path(__file__).parents[2]


def run(program: str, *arguments: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT,
        timeout=timeout,
        capture_output=True,
        text=True,
    )


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


_FORK = """
import os, sys, time, keras
import tensorboard_plugin_plumber as plumber
from tests.support.small import small_dataset, small_model

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
