"""Real pipelines, described: which rows there are, at which lines, and that their live models match."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.capture.align import align
from tests.support import described
from tests.support.described import assert_whole, double, executed_by, operator, trace, types, unmatched

construction.install()
Dataset = tf.data.Dataset
HERE = Path(__file__)
line_of = functools.partial(described.line_of, HERE)


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> list[str]:
    """Two TFRecord files."""
    directory = tmp_path_factory.mktemp("records")
    paths = [str(directory / f"part{index}.tfrecord") for index in range(2)]
    for path in paths:
        with tf.io.TFRecordWriter(path) as writer:
            for index in range(20):
                writer.write(bytes([index]))
    return paths


def test_zip_has_its_branches_in_order():
    left = Dataset.range(9).map(double)
    dataset = Dataset.zip((left, Dataset.range(9).batch(1).unbatch())).prefetch(2)
    description = trace(dataset)

    assert types(description) == ["Prefetch", "Zip", "Map", "Range", "Unbatch", "Batch", "Range"]
    zipped = operator(description, "Zip")
    assert [one.type for one in description.pipeline.operators if one.parent == zipped.id] == [
        "Map",
        "Unbatch",
    ]
    assert unmatched(description, dataset) == set()
    assert_whole(description)


def test_one_dataset_in_two_branches_stands_twice():
    shared = Dataset.range(9).map(double)
    description = trace(Dataset.zip((shared, shared)))

    first, second = (one for one in description.pipeline.operators if one.type == "Map")
    assert first.source.line == second.source.line
    assert first.running != second.running
    assert_whole(description)


def test_interleave_shows_the_operators_of_its_body():
    def body(start):
        inner = Dataset.range(start, start + 6)  # body's range
        return (
            inner.map(double)  # body's first map
            .map(lambda x: x + 1)  # body's second map
            .batch(2)  # body's batch
        )

    dataset = Dataset.range(4).interleave(body, cycle_length=3, num_parallel_calls=2)
    description = trace(dataset)

    assert types(description) == ["ParallelInterleave", "Range", "Batch", "Map", "Map", "Range"]
    interleave, _, batch, second, first, inner = description.pipeline.operators[:6]
    assert [one.in_body for one in (batch, second, first, inner)] == [True, False, False, False]
    assert batch.parent == interleave.id
    assert [one.source.line for one in (batch, second, first, inner)] == [
        line_of("# body's batch"),
        line_of("# body's second map"),
        line_of("# body's first map"),
        line_of("# body's range"),
    ]
    assert first.function.name == "double"
    assert second.function.source.line == line_of("# body's second map")
    assert interleave.cycle_length == 3
    assert interleave.function.name == "body"
    assert unmatched(description, dataset) == set()
    assert_whole(description)


def test_nested_interleave_and_live_instances():
    def inner(x):
        return Dataset.from_tensors(x).repeat(3).map(double)

    def outer(x):
        return Dataset.range(x, x + 3).interleave(inner, cycle_length=2)

    dataset = Dataset.range(4).interleave(outer, cycle_length=2, block_length=2)
    description = trace(dataset)
    iterator = iter(dataset)
    for _ in range(5):
        next(iterator)
    found = align(description, tf.data.experimental.get_model_proto(iterator))

    assert types(description) == ["Interleave", "Range", "Interleave", "Range", "Map", "Repeat", "Tensor"]
    instances = [
        index for index in found.values() if description.pipeline.running[index].type == "Interleave"
    ]
    assert len(instances) == 3  # the outer one and two of its body
    assert unmatched(description, dataset, 6) == set()
    assert_whole(description)


def test_from_generator_is_one_operator():
    def numbers():
        yield from range(20)

    dataset = Dataset.from_generator(  # the generator
        numbers, output_signature=tf.TensorSpec([], tf.int64)
    ).map(double)
    description = trace(dataset)

    assert types(description) == ["Map", "Generator"]
    generator = operator(description, "Generator")
    assert generator.source.line == line_of("# the generator")
    assert generator.function.name == "numbers"
    assert generator.function.python
    assert generator.function.may_wait
    assert not generator.cache.allowed
    assert not generator.HasField("parallel")
    running = [one.type for one in description.pipeline.running if generator.id in one.operators]
    assert running == ["FlatMap", "FromTensor", "Generator"]
    assert unmatched(description, dataset) == set()


def test_tfrecord_is_one_operator_wherever_it_stands(records):
    plain = tf.data.TFRecordDataset(records)
    opened = Dataset.from_tensor_slices(records).interleave(tf.data.TFRecordDataset, cycle_length=2)
    partial = Dataset.from_tensor_slices(records).flat_map(
        functools.partial(tf.data.TFRecordDataset, buffer_size=1 << 16)
    )
    parallel = tf.data.TFRecordDataset(records, num_parallel_reads=2)

    assert types(trace(plain)) == ["TFRecord"]
    assert types(trace(opened)) == ["Interleave", "TensorSlice", "TFRecord"]
    assert types(trace(partial)) == ["FlatMap", "TensorSlice", "TFRecord"]
    assert types(trace(parallel)) == ["TFRecord"]
    assert operator(trace(parallel), "TFRecord").num_parallel_calls == 2
    for dataset in (plain, opened, partial):
        assert unmatched(trace(dataset), dataset) == set()
        assert operator(trace(dataset), "TFRecord").cache.allowed


def test_calls_that_make_several_operators_are_one_row(tmp_path):
    left, right = Dataset.range(9).repeat(), Dataset.range(9).repeat()

    assert types(trace(Dataset.sample_from_datasets([left, right]))) == [
        "SampleFromDatasets", "Repeat", "Range", "Repeat", "Range",
    ]  # fmt: skip
    assert types(trace(Dataset.range(9).enumerate())) == ["Enumerate", "Range"]
    assert types(trace(Dataset.range(9).batch(3).rebatch(2))) == ["Rebatch", "Batch", "Range"]
    assert types(trace(Dataset.list_files(str(HERE.parent / "test_*.py")))) == ["ListFiles"]
    assert types(trace(Dataset.range(9).snapshot(str(tmp_path)))) == ["Snapshot", "Range"]
    for number in (1, 3):
        dataset = Dataset.range(9)
        for _ in range(number):
            dataset = dataset.batch(1).unbatch()
        assert types(trace(dataset)) == ["Unbatch", "Batch"] * number + ["Range"]


def test_operators_of_a_call_that_makes_a_whole_pipeline_are_told_apart(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n")
    dataset = tf.data.experimental.make_csv_dataset(str(tmp_path / "rows.csv"), 2, num_epochs=1)

    assert {"Prefetch", "Map", "Batch", "Shuffle", "CSV"} <= set(types(trace(dataset)))


def test_what_follows_a_cache_may_be_cached_again_and_its_states_align(tmp_path):
    dataset = Dataset.range(6).shuffle(6).map(double).cache().repeat(2).batch(2)
    description = trace(dataset)

    assert executed_by(description, operator(description, "Cache")) == "MemoryCache"
    assert operator(description, "Cache").cache_path == ""
    assert not operator(description, "Map").cache.allowed
    assert operator(description, "Repeat").cache.allowed
    assert unmatched(description, dataset, 5) == set()

    path = str(tmp_path / "cache")
    on_disk = trace(Dataset.range(6).cache(path))
    assert operator(on_disk, "Cache").cache_path == path
    assert executed_by(on_disk, operator(on_disk, "Cache")) == "FileCache"


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.range(9).window(3).flat_map(lambda window: window.batch(3)),
        Dataset.range(9).concatenate(Dataset.range(4).map(double)).prefetch(1),
        Dataset.range(9)
        .scan(tf.constant(0, tf.int64), lambda state, x: (state + x, state))
        .take_while(lambda x: x < 99),
        Dataset.range(99).skip(2).shard(2, 0).take(20).unique().filter(lambda x: x > 3),
        Dataset.range(20).group_by_window(
            lambda x: x % 2, lambda key, window: window.batch(2), window_size=2
        ),
        Dataset.choose_from_datasets([Dataset.range(9), Dataset.range(9)], Dataset.range(2).repeat()),
        Dataset.counter().ragged_batch(2),
        Dataset.range(20).batch(2).padded_batch(2).batch(2, num_parallel_calls=2, deterministic=False),
    ],
)
def test_other_operators_are_matched(dataset):
    description = trace(dataset)

    assert_whole(description)
    # Instances of a window are datasets of their own, made while it runs.
    assert unmatched(description, dataset, 2) <= {"Window"}
    assert all(one.HasField("source") for one in description.pipeline.operators if not one.injected)


def test_image_pipelines_of_keras_and_of_hand(tmp_path):
    import keras

    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
        for index in range(4):
            image = tf.zeros([8, 8, 3], tf.uint8)
            tf.io.write_file(str(tmp_path / name / f"{index}.png"), tf.io.encode_png(image))

    def decode_and_augment(path):
        image = tf.io.decode_png(tf.io.read_file(path))
        return tf.image.random_flip_left_right(image)

    by_hand = Dataset.list_files(str(tmp_path / "*" / "*.png")).map(decode_and_augment).batch(2)
    of_keras = keras.utils.image_dataset_from_directory(tmp_path, image_size=(8, 8), batch_size=2)  # by Keras
    hand, directory = trace(by_hand), trace(of_keras)

    assert types(hand) == ["Batch", "Map", "ListFiles"]
    assert operator(hand, "Map").function.random
    assert operator(hand, "Map").function.may_wait
    assert not operator(hand, "Map").cache.allowed
    assert {one.source.line for one in directory.pipeline.operators if not one.injected} == {
        line_of("# by Keras")
    }
    assert "ParallelMap" in types(directory) or "Map" in types(directory)
    assert unmatched(hand, by_hand) == unmatched(directory, of_keras) == set()


def test_tfrecord_images_through_interleave_shuffle_map_batch(records):
    def decode(record):
        return tf.image.random_flip_left_right(tf.reshape(tf.io.decode_raw(record, tf.uint8), [1, 1, 1]))

    pattern = str(Path(records[0]).parent / "*.tfrecord")
    dataset = Dataset.list_files(pattern).interleave(tf.data.TFRecordDataset).shuffle(10).map(decode).batch(4)
    description = trace(dataset)

    assert types(description) == ["Batch", "Map", "Shuffle", "Interleave", "ListFiles", "TFRecord"]
    assert operator(description, "Map").label == "decode"
    assert executed_by(description, operator(description, "Map")) == "MapAndBatch"
    assert unmatched(description, dataset) == set()
