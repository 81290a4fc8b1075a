"""A pipeline, described: type, parent, line, running operator, settings, functions."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.capture.describe import describe
from tests.support import described
from tests.support.described import assert_whole, double, executed_by, operator, trace, types, unmatched

construction.install()
Dataset = tf.data.Dataset
AUTOTUNE = tf.data.AUTOTUNE
HERE = Path(__file__)
line_of = functools.partial(described.line_of, HERE)


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


@pytest.mark.skipif(
    "use_unbounded_threadpool" not in inspect.signature(Dataset.map).parameters,
    reason="`map` has no `use_unbounded_threadpool` before TensorFlow 2.18",
)
@pytest.mark.parametrize("unbounded", [True, False])
def test_a_map_outside_the_pool_is_told_from_one_inside(unbounded):
    dataset = Dataset.range(9).map(double, num_parallel_calls=2, use_unbounded_threadpool=unbounded)
    description = trace(dataset)
    one = operator(description, "ParallelMap")

    assert one.use_unbounded_threadpool is unbounded
    assert description.pipeline.running[one.running].use_unbounded_threadpool is unbounded
    assert unmatched(description, dataset) == set()


def test_only_a_tensorflow_that_has_the_unbounded_pool_says_whether_it_is_used():
    """By this the optimisation knows whether it may ask for it."""
    description = trace(Dataset.range(9).map(double, num_parallel_calls=2))
    one = operator(description, "ParallelMap")

    known = "use_unbounded_threadpool" in inspect.signature(Dataset.map).parameters
    assert one.HasField("use_unbounded_threadpool") is known
    assert description.pipeline.running[one.running].HasField("use_unbounded_threadpool") is known


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
