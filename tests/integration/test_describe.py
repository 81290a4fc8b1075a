"""Real pipelines, described: type, parent, line, running operator, legality, and their live models."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.capture.align import align
from tensorboard_plugin_plumber.capture.describe import Description, describe
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

construction.install()
Dataset = tf.data.Dataset
AUTOTUNE = tf.data.AUTOTUNE
HERE = Path(__file__)


def line_of(text: str) -> int:
    """The only line of this file that holds the text (and is not the call of this function)."""
    (line,) = [
        number
        for number, line in enumerate(HERE.read_text().splitlines(), 1)
        if text in line and "line_of(" not in line and "here(" not in line
    ]
    return line


def trace(dataset: tf.data.Dataset) -> Description:
    return describe(dataset, role="trace")


def types(description: Description) -> list[str]:
    return [one.type for one in description.pipeline.operators if not one.injected]


def operator(description: Description, type_: str) -> m.Operator:
    (found,) = [one for one in description.pipeline.operators if one.type == type_ and not one.injected]
    return found


def executed_by(description: Description, one: m.Operator) -> str | None:
    return description.pipeline.running[one.running].type if one.HasField("running") else None


def unmatched(description: Description, dataset: tf.data.Dataset, elements: int = 3) -> set[str]:
    """Names of the live model's nodes that belong to no running operator."""
    iterator = iter(dataset)
    missing = set()
    for _ in range(elements):
        next(iterator)
        model = tf.data.experimental.get_model_proto(iterator)
        found = align(description, model)
        missing |= {
            node.name for id_, node in model.nodes.items() if id_ not in found and node.name != "Root"
        }
    return missing


def assert_whole(description: Description) -> None:
    """What holds for any pipeline."""
    pipeline = description.pipeline
    ids = {one.id for one in pipeline.operators}
    assert pipeline.operators[0].parent == ""
    for one in pipeline.operators:
        assert one.parent in ids | {""}
        assert one.flows_to in ids | {""}
        assert bool(one.parent) or one.injected or one is pipeline.operators[0]
        if one.HasField("running"):
            assert one.id in pipeline.running[one.running].operators
    for index, one in enumerate(pipeline.running):
        assert list(one.operators)
        assert set(one.operators) <= ids
        assert not one.HasField("parent") or one.parent < index
    roots = [one.id for one in pipeline.operators if not one.flows_to]
    assert len(roots) == 1
    assert roots[0] in pipeline.running[0].operators


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


def double(x):
    return x * 2


def augment(x):
    return tf.cast(x, tf.float32) + tf.random.uniform([])


class TestChain:
    @pytest.fixture(scope="class")
    @classmethod
    def found(cls):
        def make_dataset():
            dataset = Dataset.range(100)  # the range
            return (
                dataset.map(
                    double,
                    num_parallel_calls=AUTOTUNE,
                )  # end of the parallel map
                .shuffle(10)  # the shuffle
                .repeat(2)  # the repeat
                .map(augment)  # the random map
                .batch(4, drop_remainder=True)  # the batch
            )

        dataset = make_dataset()
        return dataset, trace(dataset)

    def test_operators_stand_in_pre_order_at_their_lines(self, found):
        _, description = found

        assert_whole(description)
        assert types(description) == ["Batch", "Map", "Repeat", "Shuffle", "ParallelMap", "Range"]
        lines = {one.type: one.source.line for one in description.pipeline.operators if not one.injected}
        assert lines == {
            "Batch": line_of("# the batch"),
            "Map": line_of("# the random map"),
            "Repeat": line_of("# the repeat"),
            "Shuffle": line_of("# the shuffle"),
            "ParallelMap": line_of("# end of the parallel map") - 3,
            "Range": line_of("# the range"),
        }
        source = operator(description, "Map").source
        assert (source.path, source.scope) == (str(HERE), "make_dataset")
        assert description.pipeline.label == "make_dataset"

    def test_fused_operators_share_what_executes_them(self, found):
        dataset, description = found

        assert executed_by(description, operator(description, "Map")) == "MapAndBatch"
        assert executed_by(description, operator(description, "Batch")) == "MapAndBatch"
        assert executed_by(description, operator(description, "Repeat")) == "ShuffleAndRepeat"
        assert executed_by(description, operator(description, "Shuffle")) == "ShuffleAndRepeat"
        fused = description.pipeline.running[operator(description, "Batch").running]
        assert list(fused.operators) == ["op0", "op1"]
        assert fused.calls_function
        assert unmatched(description, dataset) == set()

    def test_settings_are_those_in_the_code(self, found):
        _, description = found

        assert operator(description, "Batch").batch_size == 4
        assert operator(description, "Batch").drop_remainder
        assert operator(description, "Shuffle").buffer_size == 10
        assert operator(description, "Shuffle").reshuffle
        assert operator(description, "Repeat").count == 2
        assert operator(description, "ParallelMap").num_parallel_calls == -1
        assert not operator(description, "Map").HasField("num_parallel_calls")
        assert [one.cardinality for one in description.pipeline.operators if not one.injected] == [
            50, 200, 200, 100, 100, 100,
        ]  # fmt: skip

    def test_functions_are_known_by_name_line_and_nature(self, found):
        _, description = found
        function = operator(description, "Map").function

        assert function.name == operator(description, "Map").label == "augment"
        assert function.source.line == line_of("def augment(x)")
        assert function.random
        assert not function.seeded
        assert not function.python
        assert not operator(description, "ParallelMap").function.random

    def test_a_cache_is_legal_up_to_the_first_randomness(self, found):
        _, description = found
        legal = {one.type: one.cache.allowed for one in description.pipeline.operators if not one.injected}

        assert legal == {
            "Batch": False, "Map": False, "Repeat": False, "Shuffle": False, "ParallelMap": True, "Range": True,
        }  # fmt: skip
        shuffle = operator(description, "Shuffle")
        assert shuffle.cache.operator == shuffle.id
        assert f"{HERE.name}:{line_of('# the shuffle')}" in shuffle.cache.reason
        assert operator(description, "Map").parallel.allowed  # random, but without a seed
        assert not operator(description, "Shuffle").HasField("parallel")

    def test_the_same_pipeline_has_the_same_id_and_another_role_another(self, found):
        dataset, description = found

        assert trace(dataset).pipeline.id == description.pipeline.id
        assert describe(dataset, role="train").pipeline.id != description.pipeline.id
        assert describe(dataset, role="train").pipeline.label == "train"


def test_injected_prefetch_is_told_apart():
    description = trace(Dataset.range(10).map(double).batch(2).repeat())

    (injected,) = [one for one in description.pipeline.operators if one.injected]
    assert (injected.id, injected.type) == ("injected0", "Prefetch")
    assert executed_by(description, injected) == "Prefetch"
    assert description.pipeline.operators[0].flows_to == "injected0"
    assert_whole(description)


def test_without_default_optimizations_the_graph_runs_as_written():
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    dataset = Dataset.range(10).map(double).batch(2).with_options(options)
    description = trace(dataset)

    assert [one.type for one in description.pipeline.running] == ["BatchV2", "Map", "Range"]
    assert not description.pipeline.default_optimizations
    assert not description.pipeline.inject_prefetch
    assert unmatched(description, dataset) == set()


def test_options_in_force_are_reported():
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 7
    options.deterministic = False
    pipeline = trace(Dataset.range(10).map(double, num_parallel_calls=2).with_options(options)).pipeline

    assert not pipeline.autotune_enabled
    assert not pipeline.has_counters
    assert pipeline.threadpool_size == pipeline.options_private_threadpool_size == 7
    assert not pipeline.options_deterministic
    assert not pipeline.running[0].deterministic
    assert pipeline.notes


def test_a_map_that_only_rearranges_is_dropped():
    dataset = (
        Dataset.range(10)
        .map(lambda x: {"a": x, "b": x + 1})
        .map(lambda e: (e["a"], e["b"]))
        .batch(2)
        .prefetch(1)
    )
    description = trace(dataset)
    dropped, kept = (one for one in description.pipeline.operators if one.type == "Map")

    assert executed_by(description, dropped) is None
    assert executed_by(description, kept) == "MapAndBatch"
    assert kept.flows_to == description.pipeline.operators[1].id
    assert dropped.flows_to == dropped.parent
    assert unmatched(description, dataset) == set()


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


class TestLegality:
    def test_python_functions_forbid_a_cache_and_allow_threads_with_a_reserve(self):
        def load(x):
            return np.int64(x * 2)

        dataset = Dataset.range(9).map(lambda x: tf.numpy_function(load, [x], tf.int64)).batch(3)
        description = trace(dataset)
        one = operator(description, "Map")

        assert one.function.python
        assert one.function.may_wait
        assert "load" in one.cache.reason
        assert (one.cache.allowed, operator(description, "Batch").cache.operator) == (False, one.id)
        assert one.parallel.allowed
        assert "several threads" in one.parallel.reason

    def test_python_functions_with_visible_writes_stay_sequential(self):
        seen = []

        def load(x):
            seen.append(int(x))
            return x

        one = operator(trace(Dataset.range(9).map(lambda x: tf.py_function(load, [x], tf.int64))), "Map")

        assert not one.parallel.allowed
        assert any("seen" in write for write in one.function.writes)

    def test_seeded_randomness_stays_sequential(self):
        one = operator(trace(Dataset.range(9).map(lambda x: tf.random.uniform([], seed=3))), "Map")

        assert one.function.seeded
        assert not one.parallel.allowed
        assert not one.cache.allowed

    def test_stateless_randomness_with_a_constant_seed_is_deterministic(self):
        one = operator(trace(Dataset.range(9).map(lambda x: tf.random.stateless_uniform([], [1, 2]))), "Map")

        assert one.cache.allowed
        assert one.parallel.allowed

    def test_variables_and_generators(self):
        count = tf.Variable(0, dtype=tf.int64)
        generator = tf.random.Generator.from_seed(1)
        writes = operator(trace(Dataset.range(9).map(lambda x: count.assign_add(x))), "Map")
        draws = operator(trace(Dataset.range(9).map(lambda x: generator.uniform([]))), "Map")
        reads = operator(trace(Dataset.range(9).map(lambda x: x + count)), "Map")

        assert not writes.cache.allowed
        assert not writes.parallel.allowed
        assert not draws.cache.allowed
        assert not draws.parallel.allowed
        assert not reads.cache.allowed  # training changes it
        assert reads.parallel.allowed
        assert count.numpy() == 0  # the description ran nothing

    def test_table_lookups_are_deterministic(self):
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [5, 6]), -1)
        one = operator(trace(Dataset.from_tensor_slices([0, 1]).map(table.lookup)), "Map")

        assert one.cache.allowed
        assert one.parallel.allowed

    def test_an_endless_input_never_completes_a_cache(self):
        description = trace(Dataset.range(9).repeat().map(double).take(5))

        assert not operator(description, "Map").cache.allowed
        assert operator(description, "Map").cache.operator == operator(description, "Repeat").id
        assert operator(description, "Take").cache.allowed

    def test_a_shuffle_that_keeps_its_order_may_be_cached(self):
        kept = operator(trace(Dataset.range(9).shuffle(9, seed=1, reshuffle_each_iteration=False)), "Shuffle")
        drawn = operator(trace(Dataset.range(9).shuffle(9, seed=1)), "Shuffle")

        assert kept.cache.allowed
        assert not drawn.cache.allowed


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


def test_describing_leaves_random_state_functions_and_elements_alone():
    traced = []

    def counted(x):
        traced.append(1)
        return x + 1

    def make():
        return Dataset.from_tensor_slices(np.arange(400_000)).map(counted).shuffle(5).batch(2).take(3)

    tf.random.set_seed(7)
    undisturbed = [list(make().as_numpy_iterator()), tf.random.uniform([]).numpy()]
    tf.random.set_seed(7)
    dataset = make()
    count = len(traced)
    description = trace(dataset)
    trace(dataset)
    disturbed = [list(dataset.as_numpy_iterator()), tf.random.uniform([]).numpy()]

    assert len(traced) == count
    np.testing.assert_array_equal(undisturbed[0], disturbed[0])
    assert undisturbed[1] == disturbed[1]
    assert operator(description, "TensorSlice").cardinality == 400_000


def test_state_that_changes_meanwhile_is_left_alone():
    """The copy that is tagged has tables and variables of its own."""
    from tensorboard_plugin_plumber.capture import graphs

    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    table.insert([1], [10])
    variable = tf.Variable(1.0)
    dataset = Dataset.range(5).map(lambda x: (table.lookup(x), tf.cast(x, tf.float32) + variable))
    serialised = graphs.serialise(dataset._variant_tensor)
    table.insert([1, 2], [11, 20])
    variable.assign(5.0)
    graphs.finalise(serialised, dataset)

    assert dict(zip(*(one.numpy().tolist() for one in table.export()), strict=True)) == {1: 11, 2: 20}
    assert variable.numpy() == 5.0


def test_large_arrays_are_not_serialised():
    from tensorboard_plugin_plumber.capture import graphs, shrink

    array = np.zeros([4096, 32, 32], np.float32)  # 16 MB
    options = tf.data.Options()
    options.deterministic = False
    dataset = (
        Dataset.from_tensor_slices((array, np.zeros(4096, np.int64)))
        .shuffle(10, seed=2)
        .map(lambda x, y: (x / 2, y), num_parallel_calls=2)
        .filter(lambda x, y: y >= 0)
        .with_options(options)
        .cache()
        .padded_batch(4)
        .prefetch(1)
        .repeat(2)
    )
    small = graphs.serialise(shrink.serialisable(dataset).dataset._variant_tensor)
    description = trace(dataset)

    assert small.ByteSize() < 1 << 20
    assert types(description) == [
        "Repeat", "Prefetch", "PaddedBatch", "Cache", "Filter", "ParallelMap", "Shuffle", "TensorSlice",
    ]  # fmt: skip
    assert operator(description, "TensorSlice").cardinality == 4096
    assert unmatched(description, dataset) == set()


def test_pipelines_inside_a_function_and_in_other_threads_can_be_described():
    import threading

    dataset = Dataset.range(9).map(double)
    found = []
    thread = threading.Thread(target=lambda: found.append(trace(dataset)))
    thread.start()
    thread.join()

    @tf.function(autograph=False)
    def inside():
        found.append(trace(dataset))
        return 1

    inside()
    assert found[0].pipeline == found[1].pipeline == trace(dataset).pipeline
