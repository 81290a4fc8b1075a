"""`plumber demo` tells the truth about its own training run."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import demo_reference
from tensorboard_plugin_plumber.demo import photographs, train

PLUMBER = [sys.executable, "-m", "tensorboard_plugin_plumber.cli"]


def map_line() -> int:
    """The line of train.py on which the augmentation map is called."""
    lines = Path(inspect.getfile(train)).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if ".map(decode_and_augment)" in line)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def run(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.run(
        [*PLUMBER, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_demo_names_the_augmentation_and_how_long_training_waits(cache: Path, tmp_path: Path) -> None:
    # GIVEN the demo as a newcomer runs it, and a stopwatch around the same model and data
    demo = run("demo", "--no-serve", "--logdir", str(tmp_path), cache=cache)
    assert demo.returncode == 0, demo.stderr
    reference = subprocess.run(
        [sys.executable, "-m", "benchmarks.demo_reference", "--epochs", "2"],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    stopwatch = demo_reference.Reference(**json.loads(reference.stdout))

    # WHEN the recorded run is analysed
    report = run("report", str(tmp_path), "--json", cache=cache)
    assert report.returncode == 0, report.stderr
    analysis = json.loads(report.stdout)

    # THEN the map is blamed at its own line, the wait is the stopwatch's, and the model agrees with itself
    place = f"train.py:{map_line()}"
    rows = {row["id"]: row for row in analysis["operators"]}
    culprit = rows[analysis["bottleneck"]["operator"]]
    assert (culprit["type"], culprit["source"]) == ("Map", place)
    assert analysis["bottleneck"]["constraint"] == "operator"
    verdict = analysis["verdict"]
    assert verdict["input_bound"] is True
    assert verdict["wait_fraction"] == pytest.approx(stopwatch.wait_fraction, abs=0.1)
    assert 0.8 <= verdict["self_check"] <= 1.25
    assert verdict["cause"] == "software"
    assert "sequential-map" in {finding["code"] for finding in analysis["findings"]}
    # AND stdout is the report, which says it in words
    assert place in demo.stdout
    assert verdict["sentence"] in " ".join(demo.stdout.split())
    # AND stderr, being no terminal, is silent
    assert demo.stderr == ""


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
