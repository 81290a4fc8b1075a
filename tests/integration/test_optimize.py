"""`plumber.optimize`: faster where that can be, the same elements always, and the original where it cannot."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.optimizing import Optimization
from tensorboard_plugin_plumber.rewrite import optimizer
from tensorboard_plugin_plumber.rewrite.optimizer import Verdict
from tensorboard_plugin_plumber.rewrite.rebuild import Refused
from tests.support.digests import elements

Dataset = tf.data.Dataset
BUDGET_S = 14.0
WAIT_S = 0.02


def wait(index: Any) -> Any:
    """Waits off the core, as a request over the network does."""

    def call(value: Any) -> Any:
        time.sleep(WAIT_S)
        return value

    waited = tf.numpy_function(call, [index], tf.int64)
    return tf.ensure_shape(waited, [])


def waiting(length: int = 400) -> Any:
    return Dataset.range(length).map(wait).batch(2)


def decoded() -> Any:
    """Costly, the same in each epoch, then shuffled: what a cache is for."""

    def work(index: Any) -> Any:
        noise = tf.random.stateless_uniform([40_000], seed=tf.stack([index, 7]))
        return tf.sort(noise)[:64]

    return Dataset.range(200).map(work).shuffle(20, seed=4).batch(4).repeat()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What is warned of in the test."""
    said: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                said.append(record.getMessage())

    handler = Handler()
    logger = logging.getLogger("tensorboard_plugin_plumber")
    logger.addHandler(handler)
    yield said
    logger.removeHandler(handler)


@pytest.fixture(scope="module")
def of_waiting() -> tuple[Any, Optimization]:
    dataset = waiting()
    return dataset, plumber.optimize(dataset, budget_s=BUDGET_S, return_report=True)


@pytest.fixture(scope="module")
def of_decoded() -> tuple[Any, Optimization]:
    dataset = decoded()
    return dataset, plumber.optimize(dataset, budget_s=BUDGET_S, return_report=True)


def kinds(found: Optimization) -> set[str]:
    assert found.report is not None
    return {change["kind"] for change in found.report.to_dict()["plan"]["changes"]}  # type: ignore[index,union-attr]


def measured(found: Optimization) -> dict[str, Any]:
    assert found.report is not None
    answer: Any = found.report.to_dict()["measured"]
    return answer  # type: ignore[no-any-return]


def seconds(dataset: Any, steps: int) -> float:
    iterator = iter(dataset)
    next(iterator)
    began_s = time.perf_counter()
    for _ in range(steps):
        next(iterator)
    return time.perf_counter() - began_s


def test_a_map_that_waits_gets_calls_and_threads_and_is_many_times_faster(
    of_waiting: tuple[Any, Optimization],
) -> None:
    dataset, found = of_waiting

    assert kinds(found) >= {"parallelism", "threadpool"}
    assert measured(found)["after"] > 5 * measured(found)["before"]
    assert measured(found)["same_elements"] is True
    # THEN it is so for whoever runs it
    assert seconds(found.dataset, 40) < seconds(dataset, 40) / 5
    assert elements(found.dataset.take(20)) == elements(dataset.take(20))
    assert [one.verdict for one in found.attempts][-1] is Verdict.KEPT


def test_options_cardinality_and_element_spec_are_kept(of_waiting: tuple[Any, Optimization]) -> None:
    dataset, found = of_waiting

    assert found.dataset.element_spec == dataset.element_spec
    assert int(found.dataset.cardinality()) == int(dataset.cardinality())
    pool = tf.data.Options()
    pool.threading.private_threadpool_size = found.dataset.options().threading.private_threadpool_size
    assert pool.threading.private_threadpool_size > 2
    assert found.dataset.options()._to_proto() == dataset.with_options(pool).options()._to_proto()


def test_what_is_the_same_each_epoch_is_cached_below_the_shuffle(
    of_decoded: tuple[Any, Optimization],
) -> None:
    dataset, found = of_decoded

    assert "cache" in kinds(found)
    assert measured(found)["after"] > 1.5 * measured(found)["before"]
    # THEN three epochs are the same, in their order: tracing, proving and racing drew nothing from the shuffle
    epochs = 3 * 50
    assert elements(found.dataset, epochs) == elements(dataset, epochs)


def test_the_originals_state_does_not_advance() -> None:
    def make() -> Any:
        return Dataset.range(30).shuffle(30, seed=5).map(wait).batch(3)

    dataset, untouched = make(), make()

    found = plumber.optimize(dataset, budget_s=BUDGET_S)
    assert found is not dataset

    # THEN the first epoch of the shuffle is still to come
    assert elements(dataset) == elements(untouched)


def test_what_cannot_be_improved_comes_back_as_the_same_object(warnings: list[str]) -> None:
    dataset = Dataset.range(100_000)

    found = plumber.optimize(dataset, budget_s=4, return_report=True)

    assert found.dataset is dataset
    assert kinds(found) == set()
    assert measured(found)["before"] == measured(found)["after"] > 0
    assert warnings == []


def test_a_failure_gives_the_original_and_one_warning(
    warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a pipeline of which an operator cannot be made again
    def refuse(*_: Any, **__: Any) -> Any:
        raise Refused("its constructor wants what nobody knows")

    monkeypatch.setattr(optimizer, "copied", refuse)
    dataset = Dataset.range(10)

    assert plumber.optimize(dataset, budget_s=4) is dataset
    assert len(warnings) == 1
    assert "wants what nobody knows" in warnings[0]


def test_a_pipeline_that_fails_while_it_runs_comes_back_with_one_warning(warnings: list[str]) -> None:
    def fail(index: Any) -> Any:
        return tf.debugging.assert_less(index, tf.constant(0, tf.int64), message="bad record") or index

    dataset = Dataset.range(10).map(lambda x: tf.ensure_shape(tf.py_function(fail, [x], tf.int64), []))

    assert plumber.optimize(dataset, budget_s=4) is dataset
    assert len(warnings) == 1


def test_a_rewrite_that_gives_other_elements_is_not_returned(
    warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a rewriter that is broken
    real = optimizer.rebuilt

    def other(dataset: Any, edits: Any, **options: Any) -> Any:
        return real(dataset, edits, **options).map(lambda x: x + 1)

    monkeypatch.setattr(optimizer, "rebuilt", other)
    dataset = waiting()

    found = plumber.optimize(dataset, budget_s=6, return_report=True)

    assert found.dataset is dataset
    assert {one.verdict for one in found.attempts} == {Verdict.OTHER_ELEMENTS}
    assert len(warnings) == 1


def test_a_rewrite_that_is_slower_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN plans that promise much and give less
    real = optimizer.rebuilt

    def slower(dataset: Any, edits: Any, **options: Any) -> Any:
        return real(dataset, edits, **options).map(
            lambda x: tf.ensure_shape(tf.numpy_function(_late, [x], tf.int64), x.shape)
        )

    monkeypatch.setattr(optimizer, "rebuilt", slower)
    dataset = waiting()

    found = plumber.optimize(dataset, budget_s=BUDGET_S, return_report=True)

    assert found.dataset is dataset
    assert found.attempts
    # ... and a cache of theirs may not even fill in time
    assert Verdict.SLOWER in {one.verdict for one in found.attempts} <= {Verdict.SLOWER, Verdict.REFUSED}
    assert kinds(found) == set()


def _late(value: Any) -> Any:
    time.sleep(0.1)
    return value


def test_python_stays_in_one_thread_where_that_is_asked() -> None:
    found = plumber.optimize(waiting(), budget_s=4, python_threads=False, return_report=True)

    assert "parallelism" not in kinds(found)


def test_a_function_that_decodes_and_augments_is_split_and_cached_in_between() -> None:
    """No cache may stand behind it, and below it there is nothing to gain."""
    pictures = [
        tf.io.encode_jpeg(tf.fill([400, 400, 3], tf.cast(shade, tf.uint8))).numpy() for shade in range(48)
    ]

    def decode_and_augment(encoded: Any) -> Any:
        picture = tf.image.resize(tf.io.decode_jpeg(encoded, channels=3), [48, 48])
        return tf.image.random_flip_left_right(tf.image.random_crop(picture, [32, 32, 3]))

    dataset = Dataset.from_tensor_slices(10 * pictures).shuffle(48, seed=2)
    dataset = dataset.map(decode_and_augment).batch(4)

    found = plumber.optimize(dataset, budget_s=25, return_report=True)

    assert kinds(found) >= {"rewrite", "cache"}
    assert measured(found)["after"] > 1.5 * measured(found)["before"]
    assert found.dataset.element_spec == dataset.element_spec
    assert int(found.dataset.cardinality()) == int(dataset.cardinality())
    # THEN what is random is drawn anew in each epoch
    assert elements(found.dataset) != elements(found.dataset)


@pytest.mark.parametrize("steps", [20, 60], ids=["while it fills", "while it serves"])
def test_checkpoints_of_the_result_restore_in_mid_epoch(
    of_decoded: tuple[Any, Optimization], tmp_path: Any, steps: int
) -> None:
    _, found = of_decoded
    iterator = iter(found.dataset)
    for _ in range(steps):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "checkpoint"))
    wanted = [next(iterator) for _ in range(5)]

    again = iter(found.dataset)
    tf.train.Checkpoint(iterator=again).read(path)

    for one in wanted:
        tf.debugging.assert_equal(next(again), one)


def test_keras_fit_and_a_mirrored_strategy_take_the_result(of_decoded: tuple[Any, Optimization]) -> None:
    _, found = of_decoded
    pairs = found.dataset.map(lambda x: (x, tf.reduce_sum(x, axis=1)))
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(loss="mse")
    history = model.fit(pairs, epochs=2, steps_per_epoch=3, verbose=0)
    assert len(history.history["loss"]) == 2

    distributed = strategy.experimental_distribute_dataset(found.dataset)
    assert next(iter(distributed)).shape == (4, 64)
