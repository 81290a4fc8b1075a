"""Storage: the hull of what was measured, what is kept of it, and real measurements of real files."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorboard_plugin_plumber.capture import read_speed, storage
from tensorboard_plugin_plumber.capture.read_speed import NotMeasured, curve_through, measure
from tensorboard_plugin_plumber.capture.sink import MemorySink
from tensorboard_plugin_plumber.model.network import StorageCurve
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

FILES, FILE_BYTES = 3, 6 << 20


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Local files with content on the device, not only in memory."""
    paths = [tmp_path / f"shard-{number}" for number in range(FILES)]
    for path in paths:
        with open(path, "wb") as file:
            file.write(os.urandom(FILE_BYTES))
            os.fsync(file.fileno())
    return [str(path) for path in paths]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def graph_of(paths: list[str]) -> m.GraphRecord:
    files = m.SourceFiles(operator="op0", paths=paths, device=storage.device_of(paths))
    return m.GraphRecord(sequence=4, pipelines=[m.Pipeline(id="p", files=[files])])


def recorded(graph: m.GraphRecord, *, measured: bool) -> MemorySink:
    """What a session with that graph writes."""
    inner = MemorySink()
    sink = storage.StorageSink(inner, measure=measured)
    sink.write_graph(graph)
    sink.write_sample(m.SampleRecord(pipelines=[m.PipelineSample(steps=3)]))
    sink.close()
    return inner


speeds = st.lists(st.floats(min_value=1.0, max_value=1e10), min_size=1, max_size=6)


@settings(deadline=None)
@given(speeds)
def test_the_hull_is_the_least_concave_function_above(rates: list[float]) -> None:
    points = [(float(2**i), rate) for i, rate in enumerate(rates)]
    corners = curve_through(points)
    # THEN it is one that the model takes: concave, never falling (it raises otherwise); above all points ...
    curve = StorageCurve(tuple(corners))
    assert all(curve.bytes_per_s(readers) >= rate * (1 - 1e-9) for readers, rate in points)
    # ... and the least: each corner was measured.
    assert set(corners) <= set(points)
    assert corners[-1][1] == max(rates)


def test_a_real_device_is_measured_within_time_and_bytes(files: list[str]) -> None:
    began_s = time.perf_counter()
    try:
        speed = measure(files)
    except NotMeasured as error:
        pytest.skip(f"storage cannot be measured here: {error}")
    assert time.perf_counter() - began_s < 10  # a second, on a machine that has nothing else to do
    assert speed.readers == read_speed.READERS[: len(speed.readers)]
    assert all(rate > 0 for rate in speed.bytes_per_s)
    assert 0 < speed.read_bytes < 300e6
    # What it calls past the page cache the kernel has counted.
    assert not speed.past_page_cache or storage_bytes() >= 0.9 * speed.read_bytes


def storage_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def test_reads_from_memory_are_not_taken_for_the_device(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a file system without direct reads, and files that cannot be put out of the page cache
    monkeypatch.setattr(read_speed, "_allows_direct", lambda path: False)
    monkeypatch.setattr(read_speed, "_evict", lambda parts: None)
    for path in files:
        Path(path).read_bytes()
    # WHEN they are measured
    speed = measure(files)
    # THEN nobody claims that this was the device
    assert not speed.past_page_cache


def test_small_files_are_not_measured(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x" * 1000)
    with pytest.raises(NotMeasured, match="too small"):
        measure([str(tmp_path / "small"), str(tmp_path / "not there")])


def test_a_device_is_named_only_where_there_is_one(files: list[str], tmp_path: Path) -> None:
    here = storage.device_of(files)
    assert here == storage.device_of([files[0], str(tmp_path / "not there")])
    assert f"{os.major(os.stat(files[0]).st_dev)}:" in here
    assert storage.device_of(["gs://bucket/shard"]) == ""
    assert storage.device_of([]) == ""
    if os.path.isdir("/dev/shm") and storage.device_of(["/dev/shm"]) == "":  # memory is no storage
        assert storage.device_of([files[0], "/proc/self/io"]) == ""  # two of them


def test_a_training_is_never_measured(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_speed, "measure", lambda paths: pytest.fail("it was measured"))
    sink = recorded(graph_of(files), measured=False)
    assert [len(graph.host.storage) for graph in sink.graphs] == [0]


def test_what_was_measured_is_kept_for_trainings_and_for_a_week(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a first run on its own
    asked: list[list[str]] = []

    def measured(paths: list[str]) -> read_speed.ReadSpeed:
        asked.append(list(paths))
        return read_speed.ReadSpeed((1, 2, 4), (100e6, 150e6, 140e6), 50_000_000, True)

    monkeypatch.setattr(read_speed, "measure", measured)
    first = recorded(graph_of(files), measured=True)
    (curve,) = first.graphs[-1].host.storage
    assert asked == [files]
    assert first.graphs[-1].sequence == 5
    assert list(zip(curve.readers, curve.bytes_per_s, strict=True)) == [(1, 100e6), (2, 150e6)]
    assert "50 MB" in curve.sentence
    # WHEN a training follows, and another run on its own
    training = recorded(graph_of(files), measured=False)
    again = recorded(graph_of(files), measured=True)
    # THEN both know the device, and it is measured once
    assert training.graphs[-1].host.storage[0] == curve
    assert again.graphs[-1].host.storage[0] == curve
    assert len(asked) == 1
    # ... until what is kept is more than a week old
    (kept,) = storage.cache_directory().iterdir()
    content = json.loads(kept.read_text())
    content["curve"]["measured_time_s"] -= 8 * 86400
    kept.write_text(json.dumps(content))
    recorded(graph_of(files), measured=True)
    assert len(asked) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 1, "curve": {"readers": [-1.0]}}'])
def test_a_damaged_file_of_what_is_kept_is_no_file(files: list[str], content: str) -> None:
    device = storage.device_of(files)
    storage._keep(m.StorageCurve(device=device, readers=[1], bytes_per_s=[1e8]))
    assert storage.kept(device) is not None
    (kept,) = storage.cache_directory().iterdir()
    kept.write_text(content)
    assert storage.kept(device) is None


def test_where_nothing_can_be_measured_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x" * 1000)
    (curve,) = recorded(graph_of([str(tmp_path / "small")]), measured=True).graphs[-1].host.storage
    assert not curve.readers
    assert "was not measured: the files that are known are too small" in curve.sentence
