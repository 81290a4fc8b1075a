"""`plumber demo` tells the truth about its own training run."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import demo_reference
from tensorboard_plugin_plumber.demo import photographs, train
from tests.support.answers import HostWatch, codes

PLUMBER = [sys.executable, "-m", "tensorboard_plugin_plumber.cli"]


def map_line() -> int:
    """The line of train.py on which the augmentation map is called."""
    lines = Path(inspect.getfile(train)).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if ".map(decode_and_augment)" in line)


@dataclass(frozen=True)
class Demo:
    """One run of `plumber demo --no-serve`, as a newcomer runs it."""

    logdir: Path
    cache: Path
    done: subprocess.CompletedProcess[str]
    # Other processes left the cores alone meanwhile.
    quiet: bool


def run(*command: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    logdir, cache = tmp_path_factory.mktemp("logs"), tmp_path_factory.mktemp("cache")
    with HostWatch() as host:
        done = run(*PLUMBER, "demo", "--no-serve", "--logdir", str(logdir), cache=cache)
    assert done.returncode == 0, done.stderr
    return Demo(logdir, cache, done, host.quiet)


def test_demo_names_the_augmentation_and_how_long_training_waits(demo: Demo) -> None:
    # GIVEN the demo's recording, and a stopwatch around the same model and data
    command = [sys.executable, "-m", "benchmarks.demo_reference", "--epochs", "2"]
    reference = run(*command, cache=demo.cache)
    assert reference.returncode == 0, reference.stderr
    stopwatch = demo_reference.Reference(**json.loads(reference.stdout))

    # WHEN it is analysed
    report = run(*PLUMBER, "report", str(demo.logdir), "--json", cache=demo.cache)
    assert report.returncode == 0, report.stderr
    analysis = json.loads(report.stdout)

    # THEN the map is blamed at its own line, the wait is the stopwatch's, and the model agrees with itself
    rows = {row["id"]: row for row in analysis["operators"]}
    culprit = rows[analysis["bottleneck"]["operator"]]
    assert (culprit["type"], culprit["source"]) == ("Map", f"train.py:{map_line()}")
    verdict = analysis["verdict"]
    assert verdict["input_bound"] is True
    assert verdict["wait_fraction"] == pytest.approx(stopwatch.wait_fraction, abs=0.1)
    assert 0.8 <= verdict["self_check"] <= 1.25
    if demo.quiet:
        assert analysis["bottleneck"]["constraint"] == "operator"
        assert verdict["cause"] == "software"
        assert "sequential-map" in codes(analysis)


def test_demo_prints_its_report_and_nothing_else(demo: Demo) -> None:
    assert f"train.py:{map_line()}" in demo.done.stdout
    assert "Plan" in demo.done.stdout
    # stderr is no terminal here, so there is no progress to show.
    assert demo.done.stderr == ""


def test_demo_serves_the_tab_until_interrupted(demo: Demo) -> None:
    # GIVEN the last part of `plumber demo`, on what was recorded
    module = "tensorboard_plugin_plumber.demo.command"
    program = f"import sys; from {module} import serve_tensorboard as s; sys.exit(s({str(demo.logdir)!r}))"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_take_interrupts
    ) as process:
        try:
            # WHEN it says where it is
            assert process.stdout is not None
            line = process.stdout.readline()
            address = re.search(r"http://localhost:\d+/", line)
            assert address is not None, line
            assert "#plumber" in line

            # THEN the tab is there, and has this recording
            with urllib.request.urlopen(f"{address[0]}data/plugins_listing") as reply:
                assert "plumber" in json.load(reply)
            with urllib.request.urlopen(f"{address[0]}data/plugin/plumber/runs") as reply:
                assert reply.status == 200
        finally:
            process.send_signal(signal.SIGINT)
        # AND Ctrl-C ends it in order, and TensorBoard with it
        assert process.wait(timeout=30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address[0], timeout=5)


def _take_interrupts() -> None:
    """What a job in the background ignores, and its children with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_photographs_are_kept_and_complete_themselves(tmp_path: Path) -> None:
    # GIVEN a small set, one shard of which an interruption took away
    first = photographs.prepare(2, 3, root=tmp_path)
    contents = [first.path(shard).read_bytes() for shard in range(2)]
    untouched = first.path(0).stat().st_mtime_ns
    first.path(1).unlink()

    # WHEN it is wanted again
    again = photographs.prepare(2, 3, root=tmp_path)

    # THEN only that one is made, and is the same
    assert again == first
    assert [again.path(shard).read_bytes() for shard in range(2)] == contents
    assert again.path(0).stat().st_mtime_ns == untouched
    assert sorted(path.name for path in again.directory.iterdir()) == [again.path(n).name for n in range(2)]


def test_photographs_weigh_what_photographs_weigh(tmp_path: Path) -> None:
    shards = photographs.prepare(1, 24, root=tmp_path)
    records = tf.data.TFRecordDataset(tf.io.gfile.glob(shards.pattern)).as_numpy_iterator()
    examples = [tf.train.Example.FromString(record) for record in records]
    images = [example.features.feature["image"].bytes_list.value[0] for example in examples]
    sizes = np.array([len(image) for image in images])
    assert tf.io.decode_jpeg(images[0]).shape == (photographs.HEIGHT, photographs.WIDTH, 3)
    assert np.percentile(sizes, 5) >= 75_000
    assert np.percentile(sizes, 95) <= 110_000
    labels = {example.features.feature["label"].int64_list.value[0] for example in examples}
    assert labels == set(range(len(photographs.SHAPES)))
