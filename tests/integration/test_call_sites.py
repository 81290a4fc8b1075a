"""A saved plan applied while the user's code builds its datasets: at the plan's lines, and nowhere else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.rewrite.call_sites import Application, applying
from tensorboard_plugin_plumber.rewrite.call_sites.methods import METHODS, STATIC_METHODS
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.digests import elements
from tests.support.saved import plan_for

construction.install()
Dataset = tf.data.Dataset
AUTOTUNE = tf.data.AUTOTUNE


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    cls: Any = tf.data.Dataset
    before = {name: cls.__dict__.get(name) for name in (*METHODS, *STATIC_METHODS)}
    yield
    assert {name: cls.__dict__.get(name) for name in before} == before


@pytest.fixture
def no_warning(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.WARNING, "tensorboard_plugin_plumber"):
        yield
    assert not [one for one in caplog.records if one.name == "tensorboard_plugin_plumber"]


def operators(dataset: Any) -> list[m.Operator]:
    pipeline = describe(dataset, role="trace").pipeline
    return [one for one in pipeline.operators if not one.injected]


def types(dataset: Any) -> list[str]:
    return [one.type for one in operators(dataset)]


def labelled(dataset: Any, label: str) -> m.Operator:
    (found,) = [one for one in operators(dataset) if one.label == label]
    return found


def double(x: Any) -> Any:
    return x * 2


def increment(x: Any) -> Any:
    return x + 1


def inside(x: Any) -> Any:
    return Dataset.range(x, x + 3).map(increment).batch(2)


def make(count: int = 12) -> Any:
    return (
        Dataset.range(count)
        .map(double)
        .interleave(inside, cycle_length=2)
        .filter(lambda x: tf.size(x) > 0)
        .padded_batch(2, padded_shapes=[None])
        .prefetch(1)
    )


@pytest.mark.usefixtures("no_warning")
def test_arguments_caches_prefetches_and_the_pool_reach_their_calls() -> None:
    # GIVEN a plan that asks something of operators everywhere, in a function's body too
    plan = plan_for(
        make(),
        ("parallelism", "double", 3),
        ("unbounded", "double", "unbounded"),
        ("cache", "double", "memory"),
        ("parallelism", "inside", "autotune"),
        ("parallelism", "increment", 2),
        ("prefetch", "PaddedBatch", 5),
        ("prefetch", "Range", 4),
        ("threadpool", "", 7),
    )

    # WHEN the same code builds its dataset in force of it
    with applying(plan) as application:
        made = make()

    # THEN its operators have the plan's settings
    assert types(made) == [
        "Prefetch", "Prefetch", "PaddedBatch", "Filter", "ParallelInterleave", "Cache", "ParallelMap", "Range",
        "Batch", "ParallelMap", "Prefetch", "Range",
    ]  # fmt: skip
    mapped, interleaved = labelled(made, "double"), labelled(made, "inside")
    assert (mapped.num_parallel_calls, mapped.use_unbounded_threadpool, mapped.deterministic) == (
        3,
        True,
        True,
    )
    assert (interleaved.num_parallel_calls, interleaved.cycle_length) == (AUTOTUNE, 2)
    assert labelled(made, "increment").num_parallel_calls == 2
    assert [one.buffer_size for one in operators(made) if one.type == "Prefetch"] == [1, 5, 4]
    assert made.options().threading.private_threadpool_size == 7
    # AND it gives the same elements, epoch by epoch
    assert elements(made) == elements(made) == elements(make())
    # AND all of it is reported
    done = application.applied()
    assert set(done.changes) == set(plan.changes)
    assert done.missed == done.notes == ()


@pytest.mark.usefixtures("no_warning")
def test_without_a_plan_or_after_it_calls_are_as_written() -> None:
    plan = plan_for(make(), ("parallelism", "double", 3))

    with applying(plan):
        pass

    assert "ParallelMap" not in types(make())


def elsewhere() -> Any:
    return Dataset.range(12).map(double).batch(2)


@pytest.mark.usefixtures("no_warning")
def test_what_the_plan_does_not_know_is_left_alone() -> None:
    # GIVEN a plan for one function, and another that calls the same methods with the same functions
    plan = plan_for(make(), ("parallelism", "double", 3), ("cache", "PaddedBatch", "memory"))

    with applying(plan) as application:
        made = elsewhere()

    assert types(made) == types(elsewhere())
    done = application.applied()
    assert done.changes == ()
    assert len(done.missed) == 2
    assert done.missed[0].startswith("parallelism 3 at Map double (test_call_sites.py:")
    assert done.missed[0].endswith("is left out: no such call was made.")


@pytest.mark.usefixtures("no_warning")
def test_two_calls_on_one_line_are_told_apart_by_their_functions() -> None:
    def two() -> Any:
        return Dataset.range(5).map(double).map(increment)

    with applying(plan_for(two(), ("parallelism", "increment", 3))):
        made = two()

    assert types(made) == ["ParallelMap", "Map", "Range"]
    assert labelled(made, "increment").num_parallel_calls == 3


@pytest.mark.usefixtures("no_warning")
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_calls_of_one_line_with_one_function_are_told_apart_by_their_order(wanted: int) -> None:
    def looped() -> Any:
        dataset = Dataset.range(5)
        for _ in range(3):
            dataset = dataset.map(double)
        return dataset

    with applying(plan_for(looped(), ("parallelism", f"op{wanted}", 3))):
        made = looped()

    assert [one.type == "ParallelMap" for one in operators(made)[:3]] == [i == wanted for i in range(3)]


@pytest.mark.usefixtures("no_warning")
def test_branches_that_nobody_can_tell_apart_are_left_alone() -> None:
    def branch(count: int) -> Any:
        return Dataset.range(count).map(double)

    def zipped() -> Any:
        return Dataset.zip((branch(3), branch(4)))

    plan = plan_for(zipped(), ("parallelism", "op1", 3))
    with applying(plan) as application:
        made = zipped()
    both = plan_for(zipped(), ("parallelism", "op1", 3), ("parallelism", "op3", 3))
    with applying(both) as for_both:
        same_for_both = zipped()

    assert "ParallelMap" not in types(made)
    assert "nobody can tell which is which" in application.applied().missed[0]
    assert types(same_for_both) == ["Zip", "ParallelMap", "Range", "ParallelMap", "Range"]
    assert for_both.applied().missed == ()


@pytest.mark.usefixtures("no_warning")
def test_another_function_or_setting_at_the_line_is_left_alone() -> None:
    def build(function: Any, size: int) -> Any:
        return Dataset.range(6).map(function).batch(size)

    factor = 3
    plan = plan_for(
        build(double, 2), ("parallelism", "double", 3), ("parallelism", "Batch", 2), ("prefetch", "Batch", 2)
    )
    with applying(plan) as application:
        made = build(lambda x: x * factor, 4)

    assert types(made) == ["Batch", "Map", "Range"]
    assert [one.rpartition(": ")[2] for one in application.applied().missed] == [
        "the call there is given something else than when the plan was made."
    ] * 3


SCALE = {"by": 2}


def scaled(x: Any) -> Any:
    return x * SCALE["by"]


@pytest.mark.usefixtures("no_warning")
def test_a_function_that_does_something_else_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written as before, but what it takes from outside has changed."""

    def build() -> Any:
        return Dataset.range(6).map(scaled)

    plan = plan_for(build(), ("parallelism", "scaled", 3), ("cache", "scaled", "memory"))
    monkeypatch.setitem(SCALE, "by", 5)
    with applying(plan) as application:
        made = build()

    assert types(made) == ["Map", "Range"]
    assert elements(made) == elements(build())
    assert "does something else than when the plan was made" in application.applied().missed[0]


@pytest.mark.usefixtures("no_warning")
def test_a_cache_needs_to_be_legal_here_and_stands_in_no_body() -> None:
    random = [False]

    def build() -> Any:
        dataset = Dataset.range(6)
        if random[0]:
            dataset = dataset.map(lambda x: x + tf.random.uniform([], 0, 9, tf.int64))
        return dataset.map(double).flat_map(inside)

    plan = plan_for(build(), ("cache", "double", "memory"), ("cache", "increment", "memory"))
    random[0] = True
    with applying(plan) as application:
        made = build()

    assert "Cache" not in types(made)
    of_double, of_increment = application.applied().missed
    assert "may not be cached here: " in of_double
    assert "keeps nothing" in of_increment


def test_a_cache_that_finds_no_room_is_left_out() -> None:
    plan = plan_for(make(), ("cache", "double", "memory"), ("parallelism", "double", 3))

    with applying(plan, memory_bytes=999) as application:
        made = make()

    assert "Cache" not in types(made)
    assert labelled(made, "double").num_parallel_calls == 3
    assert "is left out: it takes 1.00 kB" in application.applied().notes[0]


def test_a_plan_of_another_host_keeps_its_numbers_and_says_so() -> None:
    plan = plan_for(make(), ("parallelism", "double", 96), cores=96)

    with applying(plan) as application:
        made = make()

    assert labelled(made, "double").num_parallel_calls == 96
    assert "made for 96 cores" in application.applied().notes[0]


def test_sources_made_by_classes_are_reached(tmp_path: Any) -> None:
    path = str(tmp_path / "data.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for one in (b"a", b"b", b"c"):
            writer.write(one)

    def build() -> Any:
        records = tf.data.TFRecordDataset(path)
        return Dataset.zip((records.map(tf.strings.length), records.batch(1)))

    def alone() -> Any:
        return tf.data.TFRecordDataset([path])

    with applying(plan_for(build(), ("cache", "TFRecord", "memory"))):
        made = build()
    only = applying(plan_for(alone(), ("prefetch", "TFRecord", 2)))(alone)()

    assert types(made) == ["Zip", "Map", "Cache", "TFRecord", "Batch", "Cache", "TFRecord"]
    assert elements(made) == elements(build())
    assert types(only) == ["Prefetch", "TFRecord"]


def test_a_decorated_function_gets_the_plan_at_each_call() -> None:
    plan = plan_for(make(), ("parallelism", "double", 3), ("threadpool", "", 7))

    @applying(plan)
    def decorated(count: int) -> Any:
        """What it is for."""
        return make(count)

    for count in (12, 13):
        made = decorated(count)
        assert labelled(made, "double").num_parallel_calls == 3
        assert made.options().threading.private_threadpool_size == 7
        assert elements(made) == elements(make(count))
    assert (decorated.__name__, decorated.__doc__) == ("decorated", "What it is for.")


def test_the_size_of_the_pool_outlives_options_that_follow() -> None:
    def build() -> Any:
        options = tf.data.Options()
        options.deterministic = False
        options.threading.private_threadpool_size = 2
        return Dataset.range(6).map(double).with_options(options)

    with applying(plan_for(build(), ("threadpool", "", 7))):
        made = build()

    assert made.options().threading.private_threadpool_size == 7
    assert made.options().deterministic is False


def test_an_interleave_keeps_its_cycle() -> None:
    """The cycle decides the order; where it is left to TensorFlow, it follows the host's cores and the calls."""

    def build() -> Any:
        return Dataset.range(9).interleave(inside)

    def parallel() -> Any:
        return Dataset.range(9).interleave(inside, num_parallel_calls=AUTOTUNE)

    cores = operators(build())[0].cycle_length
    for function in (build, parallel):
        cycle = operators(function())[0].cycle_length
        with applying(plan_for(function(), ("parallelism", "inside", cores + 5))) as application:
            made = function()
        assert application.applied().missed == ()
        assert (operators(made)[0].cycle_length, operators(made)[0].num_parallel_calls) == (cycle, cycle)
        assert elements(made) == elements(function())


def test_order_is_kept_unless_the_plan_gives_it_up() -> None:
    def build(deterministic: bool | None = None) -> Any:
        options = tf.data.Options()
        if deterministic is not None:
            options.deterministic = deterministic
        return Dataset.range(50).map(double).with_options(options)

    with applying(plan_for(build(), ("parallelism", "double", 3))):
        kept = build(False)
    with applying(plan_for(build(), ("parallelism", "double", 3), ("order", "double", "none"))):
        given_up = build()

    assert operators(kept)[0].deterministic is True
    assert operators(given_up)[0].deterministic is False


def test_other_threads_are_not_concerned() -> None:
    found: dict[str, list[str]] = {}
    plan = plan_for(make(), ("parallelism", "double", 3))
    both_in = threading.Barrier(2)

    def build(name: str, inside_of: bool) -> None:
        if not inside_of:
            both_in.wait()
            found[name] = types(make())
            both_in.wait()
            return
        with applying(plan):
            both_in.wait()
            found[name] = types(make())
            both_in.wait()

    threads = [
        threading.Thread(target=build, args=("with", True)),
        threading.Thread(target=build, args=("without", False)),
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert "ParallelMap" in found["with"]
    assert "ParallelMap" not in found["without"]


def test_many_threads_apply_plans_at_once() -> None:
    plan = plan_for(elsewhere(), ("parallelism", "double", 3))
    failed: list[object] = []
    shared = applying(plan)

    def work() -> None:
        for _ in range(10):
            with shared:
                if "ParallelMap" not in types(elsewhere()):
                    failed.append("with")
            if "ParallelMap" in types(elsewhere()):
                failed.append("without")

    threads = [threading.Thread(target=work) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert failed == []


def test_plans_nest_and_the_inner_one_holds() -> None:
    outer = plan_for(elsewhere(), ("parallelism", "double", 3))
    inner = plan_for(elsewhere(), ("parallelism", "double", 5))

    with applying(outer):
        with applying(inner):
            within = elsewhere()
        after = elsewhere()

    assert labelled(within, "double").num_parallel_calls == 5
    assert labelled(after, "double").num_parallel_calls == 3


def test_a_call_that_cannot_be_changed_is_made_as_written(caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN a setting that TensorFlow refuses
    plan = plan_for(elsewhere(), ("parallelism", "double", -7), ("parallelism", "Batch", 2))

    with caplog.at_level(logging.WARNING), applying(plan) as application:
        made, again = elsewhere(), elsewhere()

    # THEN the rest is applied, elements are the same, and there is one warning
    assert types(made) == types(again) == ["ParallelBatch", "Map", "Range"]
    assert elements(made) == elements(elsewhere())
    assert len([one for one in caplog.records if one.name == "tensorboard_plugin_plumber"]) == 1
    assert "TensorFlow refuses it" in application.applied().missed[0]


def test_whatever_fails_in_plumber_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = plan_for(make(), ("parallelism", "double", 3), ("threadpool", "", 7))

    def fail(*_: Any) -> Any:
        raise RuntimeError("a bug")

    for name in ("_site_of", "_followed", "_at_the_end", "_with_pool"):
        monkeypatch.setattr(Application, name, fail)
    with caplog.at_level(logging.WARNING), applying(plan) as application:
        made = application.finished(make())

    assert elements(made) == elements(make())
    assert [one.getMessage() for one in caplog.records if one.name == "tensorboard_plugin_plumber"] == [
        "Plumber makes a call as it is written, without the saved plan: RuntimeError: a bug"
    ]


def test_the_users_own_errors_are_the_users(caplog: pytest.LogCaptureFixture) -> None:
    broken = [False]

    def build() -> Any:
        def function(x: Any) -> Any:
            if broken[0]:
                raise ZeroDivisionError("the user's")
            return x

        return Dataset.range(3).map(function)

    plan = plan_for(build(), ("parallelism", "function", 3))
    broken[0] = True
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(Exception, match="the user's"),
        applying(plan),
    ):
        build()

    assert not [one for one in caplog.records if one.name == "tensorboard_plugin_plumber"]


def test_changes_that_no_call_can_make_are_reported() -> None:
    plan = plan_for(make(), ("service", "double", "host:5000"), ("parallelism", "PaddedBatch", 2))

    with applying(plan) as application:
        made = make()

    assert types(made) == types(make())
    service, parallel = application.applied().missed
    assert service.endswith("no call can make it.")
    assert parallel.endswith("padded_batch takes no num_parallel_calls in this version of TensorFlow.")


def test_tensorflow_1s_class_is_reached() -> None:
    def build() -> Any:
        return tf.compat.v1.data.Dataset.range(5).map(double).batch(2)

    with applying(plan_for(build(), ("parallelism", "Batch", 2))) as application:
        build()

    assert application.applied().missed == ()


def test_what_tensorflow_builds_for_itself_is_not_the_users_call() -> None:
    def build() -> Any:
        return Dataset.range(4).batch(2).unbatch().enumerate()

    plan = plan_for(build(), ("prefetch", "Enumerate", 2), ("prefetch", "Unbatch", 3))
    with applying(plan):
        made = build()

    assert types(made) == ["Prefetch", "Enumerate", "Prefetch", "Unbatch", "Batch", "Range"]
    assert elements(made) == elements(build())
