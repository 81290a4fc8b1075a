"""Guarded caches in files: interruption, full disks, several processes."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.rewrite import cache_stores, caches
from tensorboard_plugin_plumber.rewrite.caches import FileCache, NotCacheable, cached, statuses
from tests.support.filling import pipeline

ROOT = Path(__file__).parents[2]
COUNT = 30
ALL = list(range(COUNT))


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several files even of little data."""
    monkeypatch.setattr(cache_stores, "SEGMENT_BYTES", 200_000)


@pytest.fixture
def records(tmp_path: Path) -> str:
    """A file of numbers."""
    path = str(tmp_path / "records")
    write_records(path, ALL)
    return path


def write_records(path: str, numbers: list[int]) -> None:
    with tf.io.TFRecordWriter(path) as writer:
        for number in numbers:
            writer.write(str(number))


def numbers(dataset: Any) -> list[int]:
    return [int(element["number"]) for element in dataset]


def state(dataset: Any) -> str:
    (status,) = statuses(dataset)
    return status.state


def runs(directory: Path) -> list[Path]:
    return sorted(directory.glob("plumber-caches/run-*"))


def files(directory: Path) -> list[str]:
    return sorted(one.name for one in directory.rglob("*-*") if one.is_file())


def wait_until(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def filling(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A process that fills a cache (tests/support/filling.py)."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.filling", *arguments],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def said(process: subprocess.Popen[str]) -> list[str]:
    """What a process printed; it must have ended well."""
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return out.splitlines()


PASS = " ".join(["PASS", *map(str, ALL)])


def test_it_serves_from_files_and_clears_them_away_with_the_dataset(records: str, tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    dataset = cached(pipeline(records), FileCache(str(directory), 12_000_000))

    assert [numbers(dataset) for _ in range(3)] == [ALL] * 3
    assert state(dataset) == "serving"
    assert len([one for one in files(directory) if one.endswith(".index")]) > 3

    del dataset
    gc.collect()
    assert not directory.joinpath("plumber-caches").exists()


def test_files_of_others_are_never_touched(records: str, tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    dataset = cached(pipeline(records), FileCache(str(directory), 12_000_000))
    numbers(dataset)
    (run,) = runs(directory)
    ours = {"123-notes.txt", "mine"}
    for folder in (directory, directory / "plumber-caches", run):
        for name in ours:
            (folder / name).write_text("precious")
    other = directory / "plumber-caches" / "run-of-somebody-else"
    other.mkdir()

    del dataset
    gc.collect()

    assert {one.name for one in run.iterdir()} == ours
    assert ours < {one.name for one in directory.iterdir()}
    assert other.exists()


def test_an_interrupted_fill_is_cleared_away_by_the_next_one(records: str, tmp_path: Path) -> None:
    # GIVEN a process that was killed while it filled a cache
    directory = tmp_path / "cache"
    killed = filling(str(directory), records, "--keep", "--slow", "0.1")
    assert killed.stdout is not None
    for line in killed.stdout:
        if line == "ELEMENT 20\n":
            break
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    (left,) = runs(directory)
    assert files(directory)

    # WHEN the same pipeline is run again
    lines = said(filling(str(directory), records, "--keep", "--passes", "2"))

    # THEN it fills its own, and what was left is gone
    assert lines == ["STATE empty", PASS, "STATE serving", PASS, "STATE serving"]
    assert not left.exists()
    assert len(runs(directory)) == 1


def test_what_is_kept_serves_a_later_process_until_a_file_changes(records: str, tmp_path: Path) -> None:
    directory = tmp_path / "cache"

    first = said(filling(str(directory), records, "--keep"))
    second = said(filling(str(directory), records, "--keep"))
    assert first == ["STATE empty", PASS, "STATE serving"]
    assert second == ["STATE serving", PASS, "STATE serving"]

    write_records(records, ALL[::-1])
    os.utime(records, ns=(1, 1))
    third = said(filling(str(directory), records, "--keep"))

    assert third == ["STATE empty", " ".join(["PASS", *map(str, ALL[::-1])]), "STATE serving"]


def test_two_processes_at_once_do_not_disturb_each_other(records: str, tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    both = [filling(str(directory), records, "--passes", "2", "--slow", "0.01") for _ in range(2)]

    for one in both:
        lines = [line for line in said(one) if not line.startswith("ELEMENT")]
        assert lines == ["STATE empty", PASS, "STATE serving", PASS, "STATE serving"]

    assert not directory.joinpath("plumber-caches").exists()


def test_a_checkpoint_of_a_served_pass_is_restored_where_the_files_are_kept(
    records: str, tmp_path: Path
) -> None:
    spec = FileCache(str(tmp_path / "cache"), 12_000_000, keep=True)
    dataset = cached(pipeline(records), spec)
    numbers(dataset)
    iterator = iter(dataset)
    for _ in range(12):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "saved"))
    wait_until(lambda: bool(list(tmp_path.rglob("complete.json"))))

    again = cached(pipeline(records), spec)
    restored = iter(again)
    tf.train.Checkpoint(iterator=restored).read(path)

    assert state(again) == "serving"
    assert numbers(restored) == ALL[12:]
    assert numbers(again) == ALL


@pytest.mark.parametrize("passes", [0, 1])
def test_iterators_are_saved_and_restored_in_the_middle(passes: int, records: str, tmp_path: Path) -> None:
    dataset = cached(pipeline(records), FileCache(str(tmp_path / "cache"), 12_000_000))
    for _ in range(passes):
        numbers(dataset)
    iterator = iter(dataset)
    for _ in range(12):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "saved"))
    for _ in range(9):
        next(iterator)

    for restored in (iterator, iter(dataset)):
        tf.train.Checkpoint(iterator=restored).read(path)
        assert numbers(restored) == ALL[12:]

    assert [numbers(dataset) for _ in range(3)] == [ALL] * 3
    assert state(dataset) == "serving"


def test_files_that_are_gone_before_a_pass_are_done_without(
    records: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "cache"
    dataset = cached(pipeline(records), FileCache(str(directory), 12_000_000))
    numbers(dataset)
    next(directory.rglob("*-000002.index")).unlink()

    assert numbers(dataset) == ALL
    assert state(dataset) == "off"
    wait_until(lambda: "no longer there" in caplog.text)


def test_only_what_the_graph_and_its_files_determine_is_kept(tmp_path: Path) -> None:
    variable = tf.Variable(1, dtype=tf.int64)
    numbers = tf.data.Dataset.range(3)
    spec = FileCache(str(tmp_path), 1 << 20, keep=True)
    for dataset, why in (
        (numbers.map(lambda i: tf.numpy_function(lambda one: one, [i], tf.int64)), "Python"),
        (numbers.map(lambda i: i + variable), "state of this process"),
        (
            tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec([])),
            "Generator|Python",
        ),
    ):
        with pytest.raises(NotCacheable, match=why):
            cached(dataset, spec)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 20 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=20m", "plumber-test", str(place)]
    made = subprocess.run(command, capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield place
    finally:
        for _ in range(50):
            gc.collect()
            if subprocess.run(["umount", str(place)], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.1)


def large(count: int) -> tf.data.Dataset:
    """Elements of 1 MB each."""
    return tf.data.Dataset.range(count).map(
        lambda i: {"number": i, "values": tf.fill([1 << 20], tf.cast(i, tf.uint8))}
    )


def test_a_disk_without_room_is_refused_before_anything_is_written(small_disk: Path) -> None:
    with pytest.raises(NotCacheable, match=r"up to 30\.0 MB does not fit .* 19\.9 MB to spare"):
        cached(large(25), FileCache(str(small_disk / "below"), 40_000_000, projected_bytes=30_000_000))

    assert list(small_disk.iterdir()) == []


@pytest.mark.parametrize("watched", [True, False], ids=["the reserve is touched", "a write fails"])
def test_a_disk_that_gets_full_ends_the_cache_and_not_the_training(
    watched: bool,
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # GIVEN 40 MB that were taken for 10, and a watch that sees the disk fill in time, or does not
    if not watched:
        monkeypatch.setattr(caches, "room_left", lambda place: 1 << 40)
    dataset = cached(large(40), FileCache(str(small_disk), 60_000_000, projected_bytes=10_000_000))

    # WHEN they pass
    seen = []
    with caplog.at_level(logging.WARNING):
        for element in dataset:
            seen.append(int(element["number"]))
            if watched and len(seen) in range(15, 23):  # while the last room is taken
                time.sleep(0.5)
        wait_until(lambda: "undone" in caplog.text)

    # THEN training has them all, now and later, and the disk is free again
    assert seen == numbers(dataset) == list(range(40))
    assert state(dataset) == "off"
    assert ("nearly full" if watched else "could not be kept") in caplog.text
    wait_until(lambda: files(small_disk) == [])
    with contextlib.suppress(NameError):
        del element
    del dataset
    gc.collect()
