"""Guarded caches in memory, on real pipelines."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.rewrite import caches, rebuild
from tensorboard_plugin_plumber.rewrite.caches import MemoryCache, NotCacheable, cached, statuses

PLENTY = MemoryCache(1 << 30)
COUNT = 20


class Made:
    """A pipeline that counts how often its elements are made."""

    def __init__(self, count: int = COUNT, *, known: bool = True, values: int = 100) -> None:
        self._calls = tf.Variable(0, dtype=tf.int64)
        self.dataset = tf.data.Dataset.range(count).map(lambda i: self._make(i, values))
        if not known:
            self.dataset = self.dataset.filter(lambda element: element["number"] >= 0)

    def _make(self, i: tf.Tensor, values: int) -> dict[str, tf.Tensor]:
        self._calls.assign_add(1)
        return {
            "number": i,
            "values": tf.fill([values], tf.cast(i, tf.float32)),
            "name": tf.strings.as_string(i),
        }

    @property
    def calls(self) -> int:
        return int(self._calls)


def numbers(dataset: Any) -> list[int]:
    return [int(element["number"]) for element in dataset]


def resident() -> int:
    """Bytes of this process in memory. TensorFlow keeps what it lets go of for its next tensors."""
    return int(psutil.Process().memory_info().rss)


def state(dataset: Any) -> str:
    (status,) = statuses(dataset)
    return status.state


def wait_until(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)


@pytest.mark.parametrize("known", [True, False])
def test_the_first_pass_fills_it_and_later_ones_are_served(known: bool) -> None:
    made = Made(known=known)
    dataset = cached(made.dataset, PLENTY)
    assert state(dataset) == "empty"

    passes = [numbers(dataset) for _ in range(3)]

    assert passes == [list(range(COUNT))] * 3
    assert made.calls == COUNT
    assert statuses(dataset) == (caches.Status("serving", COUNT),)


@pytest.mark.parametrize("known", [True, False])
def test_it_is_the_same_dataset_otherwise(known: bool) -> None:
    options = tf.data.Options()
    options.deterministic = False
    options.threading.private_threadpool_size = 3
    given = Made(known=known).dataset.with_options(options)

    dataset = cached(given, PLENTY)

    assert dataset.element_spec == given.element_spec
    assert dataset.cardinality() == given.cardinality()
    policy = tf.data.Options()
    policy.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    assert dataset.options() == given.options().merge(policy)


def growing(count: int, small: int, kib: int) -> tf.data.Dataset:
    """A few small elements, then large ones: a sample of the first says nothing of the rest."""
    return tf.data.Dataset.range(count).map(
        lambda i: {"number": i, "values": tf.fill([tf.where(i < small, 1, kib * 1024)], tf.cast(i, tf.uint8))}
    )


@pytest.mark.parametrize("known", [True, False])
def test_a_cache_that_grows_past_its_budget_is_undone_in_the_middle_of_the_pass(
    known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # GIVEN elements that begin small and become large: 200 MB, of which 40 may be held
    given = growing(220, 20, 1024)
    if not known:
        given = given.filter(lambda element: element["number"] >= 0)
    dataset = cached(given, MemoryCache(40 << 20))
    for _ in given.take(30):
        pass
    before = resident()

    # WHEN they pass
    seen, highest, most = [], 0, 0
    with caplog.at_level(logging.WARNING):
        for element in dataset:
            seen.append(int(element["number"]))
            assert np.all(element["values"].numpy() == seen[-1] % 256)
            highest = max(highest, resident() - before)
            most = max(most, int(dataset._keeper.store.kept.size()))
        wait_until(lambda: "undone" in caplog.text)

    # THEN none is lost, and no more than the budget was ever held
    assert seen == list(range(220))
    assert 40 < most <= 60
    assert highest < 70 << 20

    # and it is free for others; one warning says so
    assert int(dataset._keeper.store.kept.size()) == 0
    held = resident()
    other = growing(30, 0, 1024).cache()
    assert len(list(other)) == 30
    assert resident() - held < 15 << 20
    assert numbers(dataset) == seen
    assert state(dataset) == "off"
    assert [one for one in caplog.messages if "undone" in one] == [
        "Plumber's cache was undone, and training goes on without it, with the same elements: the elements are more "
        "than the 41.9 MB that it may hold."
    ]


def test_a_cache_that_surely_will_not_fit_ends_before_its_budget_is_held() -> None:
    dataset = cached(growing(400, 0, 1024), MemoryCache(150 << 20))
    (keeper,) = [one._keeper for one in (dataset,)]

    most = 0
    for _ in dataset:
        most = max(most, int(keeper.store.kept.size()))

    assert most <= 101  # a quarter of the elements tells
    assert state(dataset) == "off"


def test_elements_of_any_kind_are_served_as_they_were() -> None:
    ragged = tf.ragged.constant([[1, 2], [], [3]])

    def make(i: tf.Tensor) -> dict[str, Any]:
        return {
            "ragged": ragged + tf.cast(i, tf.int32),
            "sparse": tf.sparse.from_dense(tf.one_hot(i, 5)),
            "parts": (tf.fill([i], "text"), {"half": tf.cast(i, tf.bfloat16), "even": i % 2 == 0}),
        }

    given = tf.data.Dataset.range(5).map(make)
    dataset = cached(given, PLENTY)
    for _ in range(2):
        for one, other in zip(dataset, given, strict=True):
            tf.nest.assert_same_structure(one, other, expand_composites=True)
            for a, b in zip(
                tf.nest.flatten(one, expand_composites=True),
                tf.nest.flatten(other, expand_composites=True),
                strict=True,
            ):
                assert a.dtype == b.dtype
                assert np.array_equal(a.numpy(), b.numpy())
    assert dataset.element_spec == given.element_spec
    assert state(dataset) == "serving"


def test_an_empty_dataset_is_cached_too() -> None:
    for given in (tf.data.Dataset.range(0), tf.data.Dataset.range(3).filter(lambda i: i < 0)):
        dataset = cached(given, PLENTY)
        assert list(dataset) == list(dataset) == []


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (lambda: tf.data.Dataset.range(3).repeat(), "endless"),
        (lambda: tf.data.Dataset.range(3).window(2), "no bytes can be told"),
        (lambda: tf.data.Dataset.range(3).with_options(_symbolic()), "symbolic"),
    ],
)
def test_what_cannot_be_cached_is_refused_with_a_reason(dataset: Any, why: str) -> None:
    with pytest.raises(NotCacheable, match=why):
        cached(dataset(), PLENTY)


def _symbolic() -> tf.data.Options:
    options = tf.data.Options()
    options.experimental_symbolic_checkpoint = True
    return options


def test_a_pass_that_is_broken_off_keeps_nothing_and_the_next_one_begins_again() -> None:
    made = Made()
    dataset = cached(made.dataset, PLENTY)

    for _ in range(6):
        assert numbers(dataset.take(5)) == list(range(5))
    assert state(dataset) == "filling"

    assert numbers(dataset) == numbers(dataset) == list(range(COUNT))
    assert state(dataset) == "serving"


def test_a_cache_that_never_gets_whole_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    dataset = cached(Made(200).dataset, PLENTY)

    for _ in range(6):
        assert numbers(dataset.take(100)) == list(range(100))

    assert state(dataset) == "off"
    wait_until(lambda: "never got whole" in caplog.text)
    assert numbers(dataset) == list(range(200))


def test_iterators_side_by_side_all_get_every_element() -> None:
    dataset = cached(Made().dataset, PLENTY)

    first, second = iter(dataset), iter(dataset)
    pairs = [(int(next(first)["number"]), int(next(second)["number"])) for _ in range(COUNT)]

    assert pairs == [(i, i) for i in range(COUNT)]
    assert list(first) == list(second) == []
    assert state(dataset) == "serving"
    assert numbers(dataset) == list(range(COUNT))


@pytest.mark.parametrize("budget", [PLENTY, MemoryCache(3000)], ids=["fits", "does not fit"])
@pytest.mark.parametrize("passes", [0, 1])
@pytest.mark.parametrize("known", [True, False])
def test_iterators_are_saved_and_restored_in_the_middle(
    budget: MemoryCache, passes: int, known: bool, tmp_path: Path
) -> None:
    # GIVEN an iterator that is saved after 7 elements, of a pass that fills, or is served, or neither
    dataset = cached(Made(known=known).dataset, budget)
    for _ in range(passes):
        numbers(dataset)
    iterator = iter(dataset)
    for _ in range(7):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "saved"))
    assert numbers(iterator) == list(range(7, COUNT))

    # WHEN it, another one, and one of the same pipeline in another process are set back to it
    elsewhere = cached(Made(known=known).dataset, budget)
    for restored in (iterator, iter(dataset), iter(elsewhere)):
        tf.train.Checkpoint(iterator=restored).read(path)

        # THEN they go on behind the seventh
        assert numbers(restored) == list(range(7, COUNT))

    # and later passes are whole
    for one in (dataset, elsewhere):
        assert [numbers(one) for _ in range(2)] == [list(range(COUNT))] * 2


def test_an_iterator_set_back_while_it_fills_does_not_complete_it_with_other_elements(tmp_path: Path) -> None:
    dataset = cached(Made().dataset, PLENTY)
    iterator = iter(dataset)
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    for _ in range(5):
        next(iterator)
    path = checkpoint.write(str(tmp_path / "saved"))
    for _ in range(5):
        next(iterator)

    checkpoint.read(path)

    assert numbers(iterator) == list(range(5, COUNT))
    assert [numbers(dataset) for _ in range(3)] == [list(range(COUNT))] * 3
    assert state(dataset) == "serving"


def test_a_fit_of_three_epochs_makes_every_element_once() -> None:
    made = Made(32)
    dataset = (
        cached(made.dataset, PLENTY).map(lambda one: (one["values"], one["number"])).batch(8).prefetch(2)
    )
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")

    history = model.fit(dataset, epochs=3, verbose=0)

    assert len(history.history["loss"]) == 3
    assert made.calls == 32


def test_a_mirrored_strategy_is_served_too() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    made = Made(32)
    with strategy.scope():
        dataset = cached(made.dataset, PLENTY).map(lambda one: one["number"]).batch(8)

    for _ in range(3):
        seen = [batch.numpy() for batch in strategy.experimental_distribute_dataset(dataset)]
        assert np.concatenate(seen).tolist() == list(range(32))

    assert made.calls == 32


def test_a_copy_is_a_cache_of_its_own() -> None:
    made = Made()
    dataset = cached(made.dataset, PLENTY).batch(4)
    assert len(list(dataset)) == 5

    copy = rebuild.copied(dataset)

    assert state(copy) == "empty"
    assert len(list(copy)) == 5
    assert (made.calls, state(copy), state(dataset)) == (2 * COUNT, "serving", "serving")


def test_it_is_described_as_the_cache_that_it_is() -> None:
    dataset = cached(Made().dataset, PLENTY).batch(4)

    pipeline = describe(dataset, role="fit").pipeline

    assert [one.type for one in pipeline.operators if not one.injected] == ["Batch", "Cache", "Map", "Range"]


def test_little_memory_left_ends_the_fill(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = cached(Made(50).dataset, PLENTY)
    iterator = iter(dataset)
    next(iterator)
    assert state(dataset) == "filling"

    monkeypatch.setattr(caches.cache_watch, "memory_left", lambda: -1)
    wait_until(lambda: dataset._keeper.state.numbers(caches.Key.LIMIT) == [-1])

    assert numbers(iterator) == list(range(1, 50))
    wait_until(lambda: "may not use much more memory" in caplog.text)
    assert numbers(dataset) == list(range(50))


def test_what_it_holds_goes_with_the_dataset() -> None:
    highest = []
    for _ in range(3):
        dataset = cached(growing(150, 0, 1024), PLENTY)
        for _element in dataset:
            pass
        assert state(dataset) == "serving"
        highest.append(resident())
        del dataset, _element
        gc.collect()

    assert highest[2] - highest[0] < 100 << 20


def test_what_holds_elements_in_memory_is_known_for_that() -> None:
    numbers = tf.data.Dataset.range(COUNT)

    assert rebuild.has_memory_cache(cached(numbers, PLENTY).batch(2))
    assert rebuild.has_memory_cache(numbers.cache())
    assert not rebuild.has_memory_cache(numbers.batch(2))
