"""The files that sources read, and the bytes that they read of them, against files of known size."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture import sources
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

CLOSE = 0.05
Data = tf.data.Dataset
Records = tf.data.TFRecordDataset


class Folder:
    """Makes files; their bytes are random, so that they do not compress."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._random = np.random.default_rng(0)

    def records(self, name: str, count: int, size: int, compression: str = "") -> str:
        path = str(self.path / name)
        with tf.io.TFRecordWriter(path, compression) as writer:
            for _ in range(count):
                writer.write(self._random.bytes(int(self._random.integers(size // 2, size * 3 // 2))))
        return path

    def lines(self, name: str, count: int) -> str:
        path = self.path / name
        path.write_text("".join("x" * int(self._random.integers(0, 300)) + "\n" for _ in range(count)))
        return str(path)

    def raw(self, name: str, size: int) -> str:
        path = self.path / name
        path.write_bytes(self._random.bytes(size))
        return str(path)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "data").mkdir()
    return Folder(tmp_path / "data")


def on_disk(*paths: str) -> int:
    return sum(os.path.getsize(path) for path in paths)


def files_of(dataset: tf.data.Dataset) -> list[m.SourceFiles]:
    return sources.sources_of(describe(dataset, role="trace").readings)


@pytest.fixture
def shards(folder: Folder) -> list[str]:
    return [folder.records(f"{i}.tfrecord", 10 * (i + 1), 100) for i in range(4)]


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda names: Records(names), id="reader"),
        pytest.param(lambda names: Records(names, num_parallel_reads=2), id="parallel reader"),
        pytest.param(lambda names: Data.from_tensor_slices(names).interleave(Records), id="interleave"),
        pytest.param(
            lambda names: (
                Data.from_tensor_slices(names)
                .shuffle(4)
                .interleave(lambda name: Records(name).skip(1).map(tf.strings.length), num_parallel_calls=2)
            ),
            id="body",
        ),
        pytest.param(
            lambda names: (
                Data.from_tensor_slices({"label": [1, 2, 3, 4], "name": names})
                .map(lambda both: (both["label"], both["name"]))
                .map(lambda label, name: (tf.io.read_file(name), label))
            ),
            id="read_file",
        ),
        pytest.param(
            lambda names: (
                Data.zip((Data.range(4), Data.from_tensor_slices(names)))
                .enumerate()
                .map(lambda _, pair: tf.io.read_file(pair[1]))
            ),
            id="read_file behind zip and enumerate",
        ),
        pytest.param(
            lambda names: Data.from_tensor_slices(
                [os.path.basename(name).split(".")[0] for name in names]
            ).interleave(
                lambda stem: Records(tf.strings.join([os.path.dirname(names[0]), "/", stem + ".tfrecord"]))
            ),
            id="names put together",
        ),
        pytest.param(lambda names: Records(names[:2]).concatenate(Records(names[2:])), id="two readers"),
    ],
)
def test_names_that_the_graph_holds(build: Callable[[list[str]], tf.data.Dataset], shards: list[str]) -> None:
    found = files_of(build(shards))

    assert sum(one.count for one in found) == 4
    assert sum(one.bytes for one in found) == on_disk(*shards)
    assert [path for one in found for path in one.paths] == shards
    assert all(one.complete and not one.note and one.found_by == "constant" for one in found)


def test_list_files_and_patterns(folder: Folder, shards: list[str]) -> None:
    pattern = str(folder.path / "*.tfrecord")
    (listed,) = files_of(Data.list_files(pattern).interleave(Records))
    (matched,) = files_of(
        Data.from_tensors(str(folder.path))
        .flat_map(lambda path: Data.list_files(path + "/*.tfrecord", shuffle=False))
        .flat_map(Records)
    )

    assert (listed.found_by, listed.count, listed.bytes) == ("list_files", 4, on_disk(*shards))
    assert (matched.found_by, matched.count, matched.bytes) == ("pattern", 4, on_disk(*shards))


def test_what_take_skip_and_shard_leave(folder: Folder, shards: list[str]) -> None:
    names = Data.from_tensor_slices(shards)
    (some,) = files_of(names.skip(1).take(2).interleave(Records))
    (part,) = files_of(names.shard(2, 1).interleave(Records))
    # WHEN the names are shuffled first, nobody knows which are left
    (any_two,) = files_of(names.shuffle(4).take(2).interleave(Records))
    (chosen,) = files_of(names.filter(lambda name: tf.strings.length(name) > 3).interleave(Records))

    assert list(some.paths) == shards[1:3]
    assert some.complete
    assert list(part.paths) == shards[1::2]
    assert part.complete
    assert any_two.count == 2
    assert not any_two.complete
    assert "order" in any_two.note
    assert not chosen.complete
    assert "chooses" in chosen.note


def test_compression(folder: Folder) -> None:
    packed = folder.records("packed", 10, 100, "GZIP")
    (told,) = files_of(Records(packed, "GZIP"))
    (csv,) = files_of(tf.data.experimental.CsvDataset([packed], [tf.int32], compression_type="ZLIB"))
    (not_told,) = files_of(tf.data.TextLineDataset(packed))
    (within,) = files_of(
        Records(folder.records("plain", 10, 100)).map(lambda one: tf.io.decode_compressed(one, "ZLIB"))
    )

    assert (told.compression, told.note) == ("GZIP", "")
    assert (csv.compression, csv.count) == ("ZLIB", 1)
    assert not_told.compression == ""
    assert "GZIP" in not_told.note
    assert within.compression == "ZLIB"
    assert "function" in within.note


def test_names_that_nobody_can_know(shards: list[str]) -> None:
    text = tf.TensorSpec([], tf.string)
    from_python = Data.from_generator(lambda: iter(shards), output_signature=text)
    (generated,) = files_of(from_python.interleave(Records))
    (computed,) = files_of(
        Data.from_tensor_slices(shards).map(
            lambda name: tf.io.read_file(tf.strings.regex_replace(name, "x", "y"))
        )
    )
    assert generated.count == 0
    assert not generated.complete
    assert "generator" in generated.note
    assert computed.count == 0
    assert not computed.complete
    assert "computed" in computed.note
    assert files_of(Data.range(3).map(lambda one: one + 1)) == []


def test_a_hundred_thousand_names_are_sampled(folder: Folder) -> None:
    # GIVEN a quarter of all names each of 1, 2, 3 and 4 kB, too many to ask for each size
    paths = [folder.raw(str(size), size * 1000) for size in (1, 2, 3, 4)]
    names = [paths[i % 4] for i in range(100_000)]

    began_s = time.thread_time()
    (found,) = files_of(Data.from_tensor_slices(names).map(tf.io.read_file))

    assert found.count == 100_000
    assert found.bytes == pytest.approx(250_000_000, rel=0.02)
    assert "extrapolated" in found.note
    assert len(found.paths) < 100
    assert time.thread_time() - began_s < 5


def test_missing_files_are_said(tmp_path: Path) -> None:
    (found,) = files_of(Records([str(tmp_path / "none")]))
    assert (found.count, found.bytes) == (1, 0)
    assert "not found" in found.note


# Bytes that were read.


def read_by_sources(
    tmp_path: Path, dataset: tf.data.Dataset, *, passes: int = 2, step_s: float = 0.005
) -> list[float | None]:
    """What the recording says that each source has read, in the order of the operators."""
    with plumber.trace(tmp_path / "logs"):
        for _ in range(passes):
            for _ in dataset:
                time.sleep(step_s)
    (recording,) = reader.read(tmp_path / "logs")
    (pipeline,) = recording.graph.pipelines
    operators = {operator.id: operator for operator in pipeline.operators}
    counters = recording.samples[-1].pipelines[0].operators
    found = [counters[operators[files.operator].running] for files in pipeline.files]
    return [one.read_bytes if one.HasField("read_bytes") else None for one in found]


def test_bytes_of_records(folder: Folder, tmp_path: Path) -> None:
    paths = [folder.records(str(i), 100, 40_000) for i in range(3)]
    assert read_by_sources(tmp_path, Records(paths).batch(8)) == [
        pytest.approx(2 * on_disk(*paths), rel=CLOSE)
    ]


def test_bytes_of_compressed_records_repeated(folder: Folder, tmp_path: Path) -> None:
    # GIVEN no whole pass to be seen, and records that weigh something else in memory than in their file
    paths = [folder.records(str(i), 300, 40_000, "GZIP") for i in range(2)]
    dataset = Records(paths, "GZIP").repeat(3).batch(16)
    assert read_by_sources(tmp_path, dataset, passes=1) == [pytest.approx(3 * on_disk(*paths), rel=CLOSE)]


def test_bytes_of_lines(folder: Folder, tmp_path: Path) -> None:
    paths = [folder.lines(str(i), 20_000) for i in range(2)]
    dataset = tf.data.TextLineDataset(paths).repeat(2).batch(500)
    assert read_by_sources(tmp_path, dataset, passes=1) == [pytest.approx(2 * on_disk(*paths), rel=CLOSE)]


def test_bytes_of_fixed_length_records(folder: Folder, tmp_path: Path) -> None:
    path = folder.raw("fixed", 10_000_000)
    dataset = tf.data.FixedLengthRecordDataset(path, 1000).repeat(2).batch(100)
    assert read_by_sources(tmp_path, dataset, passes=1) == [pytest.approx(2 * on_disk(path), rel=CLOSE)]


def test_bytes_of_files_read_whole(folder: Folder, tmp_path: Path) -> None:
    # GIVEN batches that do not come out even, fused with the map that reads
    paths = [folder.raw(str(i), 20_000 + 300 * i) for i in range(200)]
    dataset = Data.from_tensor_slices(paths).map(tf.io.read_file).batch(7)
    assert read_by_sources(tmp_path, dataset) == [pytest.approx(2 * on_disk(*paths), rel=CLOSE)]


def test_bytes_of_two_sources_side_by_side(folder: Folder, tmp_path: Path) -> None:
    plain = folder.records("plain", 300, 20_000)
    packed = folder.records("packed", 300, 60_000, "GZIP")
    dataset = Data.zip((Records(plain), Records(packed, "GZIP"))).batch(4)

    first, second = read_by_sources(tmp_path, dataset)

    assert first == pytest.approx(2 * on_disk(plain), rel=CLOSE)
    assert second == pytest.approx(2 * on_disk(packed), rel=CLOSE)


def test_bytes_of_a_mixture(folder: Folder, tmp_path: Path) -> None:
    large, small = folder.records("large", 600, 20_000), folder.lines("small", 1500)
    dataset = Data.sample_from_datasets([Records(large), tf.data.TextLineDataset(small)], seed=1).batch(8)

    first, second = read_by_sources(tmp_path, dataset)

    assert first == pytest.approx(2 * on_disk(large), rel=CLOSE)
    assert second == pytest.approx(2 * on_disk(small), rel=CLOSE)


def test_bytes_of_many_small_files(folder: Folder, tmp_path: Path) -> None:
    paths = [folder.records(f"{i}.tfrecord", 10, 2000) for i in range(100)]
    dataset = (
        Data.list_files(str(folder.path / "*")).interleave(Records, num_parallel_calls=2).repeat(4).batch(16)
    )
    assert read_by_sources(tmp_path, dataset, passes=1) == [pytest.approx(4 * on_disk(*paths), rel=CLOSE)]


def test_a_shard_reads_what_it_passes_over(folder: Folder, tmp_path: Path) -> None:
    # Of large records it would leave some in the file: TensorFlow seeks where a record is longer than its buffer.
    path = folder.records("all", 20_000, 800)
    dataset = Records(path).shard(4, 1).repeat(2).batch(100)
    assert read_by_sources(tmp_path, dataset, passes=1) == [pytest.approx(2 * on_disk(path), rel=CLOSE)]


def test_nothing_is_read_while_a_cache_serves(folder: Folder, tmp_path: Path) -> None:
    path = folder.records("cached", 300, 40_000, "GZIP")
    dataset = Records(path, "GZIP").cache().batch(8)
    assert read_by_sources(tmp_path, dataset, passes=4) == [pytest.approx(on_disk(path), rel=CLOSE)]


def test_what_python_reads_leaves_compressed_bytes_unknown(folder: Folder, tmp_path: Path) -> None:
    path = folder.records("packed", 200, 20_000, "GZIP")

    def look(record: bytes) -> bytes:
        return Path(path).read_bytes()[:10] + record

    dataset = Records(path, "GZIP").map(lambda one: tf.numpy_function(look, [one], tf.string)).repeat(2)
    assert read_by_sources(tmp_path, dataset.batch(4), passes=1) == [None]
