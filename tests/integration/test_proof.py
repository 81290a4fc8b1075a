"""`prove` says what is so of a rewritten pipeline, and touches neither."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.rewrite.caches import FileCache, MemoryCache, cached, statuses
from tensorboard_plugin_plumber.rewrite.digests import NotTold, digest
from tensorboard_plugin_plumber.rewrite.proof import Proof, prove
from tensorboard_plugin_plumber.rewrite.rebuild import Edit, Edits, rebuilt
from tests.support.digests import elements

construction.install()
Dataset = tf.data.Dataset


def proven(
    original: Any, rewritten: Any, *, in_order: bool = True, budget_s: float = 20.0, **more: int
) -> Proof:
    return prove(original, rewritten, in_order=in_order, budget_s=budget_s, **more)


def with_calls(dataset: Any, one: Any, calls: int = 3) -> Any:
    return rebuilt(dataset, Edits({id(one): Edit(calls=calls)}))


def unordered() -> Any:
    options = tf.data.Options()
    options.deterministic = False
    return options


def a_window(size: int) -> Any:
    return Dataset.range(12).window(size)


def an_array(last: int) -> Any:
    def array(x: Any) -> Any:
        return tf.TensorArray(tf.int64, size=2, element_shape=[]).unstack(tf.stack([x, last]))

    return Dataset.range(5).map(array)


def an_optional(of: int) -> Any:
    return Dataset.range(5).map(
        lambda x: tf.cond(
            x < of,
            lambda: tf.experimental.Optional.from_value(x),
            lambda: tf.experimental.Optional.empty(tf.TensorSpec([], tf.int64)),
        )
    )


def a_sparse(at: int) -> Any:
    return Dataset.range(5).map(lambda x: tf.SparseTensor([[at]], [x], [9]))


def a_ragged(first: int) -> Any:
    return Dataset.from_tensors(tf.ragged.constant([[1] * first, [1] * (3 - first)]))


# Pairs of pipelines of one form that give other elements.
OTHERS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "the last bit": lambda: (
        Dataset.from_tensor_slices(np.float32([1, 2, 3])),
        Dataset.from_tensor_slices(np.float32([1, 2, np.nextafter(np.float32(3), np.float32(4))])),
    ),
    "the sign of zero": lambda: (Dataset.from_tensors(np.zeros(1)), Dataset.from_tensors(-np.zeros(1))),
    "bits of what is no number": lambda: (
        Dataset.from_tensors(tf.bitcast(0x7FC00000, tf.float32)),
        Dataset.from_tensors(tf.bitcast(0x7FC00001, tf.float32)),
    ),
    "two swapped": lambda: (Dataset.from_tensor_slices([1, 2, 3]), Dataset.from_tensor_slices([1, 3, 2])),
    "one lost": lambda: (Dataset.range(9).filter(lambda x: x < 8), Dataset.range(9).filter(lambda x: x < 7)),
    "one more": lambda: (Dataset.range(9).filter(lambda x: x < 7), Dataset.range(9).filter(lambda x: x < 8)),
    "text": lambda: (Dataset.from_tensor_slices(["a", "bc"]), Dataset.from_tensor_slices(["ab", "c"])),
    "a shape": lambda: (
        Dataset.range(6).batch(3).map(lambda x: tf.ensure_shape(x, [None])).filter(lambda x: True),
        Dataset.range(6).batch(2).map(lambda x: tf.ensure_shape(x, [None])).filter(lambda x: True),
    ),
    "a ragged row": lambda: (a_ragged(1), a_ragged(2)),
    "a sparse index": lambda: (a_sparse(3), a_sparse(4)),
    "a dataset inside": lambda: (
        a_window(4).filter(lambda w: True),
        a_window(3).filter(lambda w: True),
    ),
    "an optional": lambda: (an_optional(3), an_optional(4)),
    "an array": lambda: (an_array(3), an_array(4)),
    "the second pass": lambda: (
        Dataset.range(20).shuffle(20, seed=5),
        Dataset.range(20).shuffle(20, seed=5, reshuffle_each_iteration=False),
    ),
    "what a draw is used for": lambda: (
        Dataset.range(5).map(lambda x: tf.random.uniform([]) + 1.0),
        Dataset.range(5).map(lambda x: tf.random.uniform([]) + 2.0),
    ),
    "an error": lambda: (Dataset.range(9).map(checked(5)), Dataset.range(9).map(checked(6))),
}


def checked(most: int) -> Callable[[Any], Any]:
    def check(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_less(x, tf.constant(most, tf.int64))]):
            return tf.identity(x)

    return check


@pytest.mark.parametrize("name", OTHERS)
def test_other_elements_are_told(name: str) -> None:
    original, rewritten = OTHERS[name]()

    found = proven(original, rewritten)

    assert found.same is False
    assert found.reason


@pytest.mark.parametrize("name", OTHERS)
def test_a_pipeline_is_the_same_as_itself(name: str) -> None:
    for one in OTHERS[name]():
        found = proven(one, one)
        assert (found.same, found.how, found.reason) == (True, "in order", "")
        assert found.whole
        assert found.elements > 0


FORMS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "element spec": lambda: (Dataset.range(6).batch(2, drop_remainder=True), Dataset.range(6).batch(2)),
    "structure": lambda: (Dataset.range(3).map(lambda x: {"a": x}), Dataset.range(3).map(lambda x: {"b": x})),
    "type": lambda: (Dataset.range(3), Dataset.range(3, output_type=tf.int32)),
    "cardinality": lambda: (Dataset.range(3), Dataset.range(4)),
    "options": lambda: (Dataset.range(3), Dataset.range(3).with_options(unordered())),
}


@pytest.mark.parametrize("name", FORMS)
def test_another_form_is_told_without_a_run(name: str) -> None:
    found = proven(*FORMS[name]())

    assert (found.same, found.elements, found.how) == (False, 0, "form only")
    assert found.reason


def test_threads_are_no_part_of_what_a_pipeline_gives() -> None:
    dataset = Dataset.range(9).map(lambda x: x + 1)

    assert proven(dataset, rebuilt(dataset, Edits(threadpool_size=7))).same


@pytest.mark.parametrize("seed", [None, 4])
@pytest.mark.parametrize("place", ["shuffle", "map"])
def test_a_cache_above_chance_is_told(seed: int | None, place: str) -> None:
    shuffled = Dataset.range(30).shuffle(30, seed=seed)
    mapped = shuffled.map(lambda x: x + 1)
    dataset = mapped.batch(4)
    one = shuffled if place == "shuffle" else mapped

    found = proven(dataset, rebuilt(dataset, Edits({id(one): Edit(cache="")})))

    assert found.same is False
    assert "in each epoch" in found.reason


def random_map(x: Any) -> Any:
    return tf.image.random_flip_left_right(tf.random.normal([2, 3, 1])) + tf.cast(x, tf.float32)


RANDOM: dict[str, Callable[[Any], Any]] = {
    "uniform": lambda x: tf.random.uniform([2]),
    "integers": lambda x: tf.random.uniform([2], 0, 99, tf.int64),
    "truncated": lambda x: tf.random.truncated_normal([2]),
    "categorical": lambda x: tf.random.categorical([[0.5, 0.5]], 4),
    "shuffle": lambda x: tf.random.shuffle(tf.range(9)),
    "crop": lambda x: tf.image.random_crop(tf.range(99), [5]),
    "box": lambda x: tf.image.sample_distorted_bounding_box([99, 99, 3], [[[0.0, 0.0, 1.0, 1.0]]])[0],
    "branch": lambda x: tf.cond(x > 3, lambda: tf.random.uniform([]), lambda: 0.5),
    "several": random_map,
    "function": tf.function(random_map),
    "generator": lambda x: GENERATOR.normal([2]),
}
GENERATOR = tf.random.Generator.from_seed(3)


@pytest.mark.parametrize("name", RANDOM)
def test_with_chance_held_still_the_rest_is_compared(name: str) -> None:
    state = GENERATOR.state.numpy().tolist()
    mapped = Dataset.range(12).map(RANDOM[name])
    dataset = mapped.batch(3)

    found = proven(dataset, with_calls(dataset, mapped))

    assert (found.same, found.elements, found.how, found.whole) == (True, 8, "in order", True)
    assert found.held
    assert GENERATOR.state.numpy().tolist() == state


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: Dataset.range(20).shuffle(20),
        lambda: Dataset.random().take(9),
        lambda: Dataset.random(rerandomize_each_iteration=True).take(9),
        lambda: Dataset.sample_from_datasets([Dataset.range(20), Dataset.range(50, 70)]),
        lambda: Dataset.range(5).interleave(lambda x: Dataset.range(9).shuffle(9)),
        lambda: Dataset.range(5).flat_map(lambda x: Dataset.random().take(3)),
    ],
)
def test_random_datasets_draw_the_same_in_both(dataset: Callable[[], Any]) -> None:
    mapped = dataset().map(lambda x: x + 1)
    rewritten = with_calls(mapped.batch(2), mapped)

    assert proven(mapped.batch(2), rewritten).same
    swapped = mapped.enumerate().map(lambda index, x: tf.where(index == 2, x + 1, x)).batch(2)
    assert proven(mapped.batch(2), swapped).same is False


def test_seeded_draws_count_where_their_order_was_kept_and_only_there() -> None:
    def draw(x: Any) -> Any:
        return tf.random.uniform([], seed=3) + tf.cast(x, tf.float32)

    in_order = Dataset.range(40).map(draw)
    in_none = Dataset.range(40).map(draw, num_parallel_calls=4)

    assert proven(in_order, with_calls(in_order, in_order)).same is False
    assert proven(in_order, in_order.prefetch(2)).same is True
    found = proven(in_none, with_calls(in_none, in_none, calls=2))
    assert (found.same, found.held) == (True, ("RandomUniform",))


def test_behind_an_error_nothing_is_compared() -> None:
    """A prefetch goes on reading below it, and fills the cache without the element that failed."""
    mapped = Dataset.range(9).map(checked(5))
    shuffled = mapped.shuffle(3, seed=1)

    found = proven(shuffled, rebuilt(shuffled, Edits({id(mapped): Edit(cache="", prefetch=2)})))

    assert (found.same, found.whole) == (True, True)


def test_what_draws_in_a_loop_is_not_run() -> None:
    drawn = (
        Dataset.range(6)
        .batch(2)
        .map(lambda x: tf.map_fn(lambda y: tf.random.uniform([]), x, fn_output_signature=tf.float32))
    )

    found = proven(drawn, with_calls(drawn, drawn))

    assert (found.same, found.how) == (None, "form only")
    assert "loop" in found.reason


def test_endless_data_that_is_filtered_by_chance_is_not_run() -> None:
    kept = Dataset.range(9).repeat().filter(lambda x: tf.random.uniform([]) < 0.001)

    found = proven(kept, kept)

    assert (found.same, found.how) == (None, "form only")


def test_what_writes_is_not_run() -> None:
    count = tf.Variable(0, dtype=tf.int64)
    seen: list[int] = []

    def see(x: Any) -> Any:
        seen.append(int(x))
        return x

    for dataset in (
        Dataset.range(9).map(lambda x: count.assign_add(x)),
        Dataset.range(9).map(lambda x: tf.numpy_function(see, [x], tf.int64)),
    ):
        found = proven(dataset, dataset.prefetch(1))
        assert (found.same, found.elements, found.how) == (None, 0, "form only")
        assert "was not run" in found.reason
    assert (int(count), seen) == (0, [])


def test_what_does_not_repeat_itself_is_not_judged() -> None:
    generator = np.random.default_rng()

    def draw(x: Any) -> Any:
        return x + generator.integers(1 << 40)

    mapped = Dataset.range(9).map(lambda x: tf.numpy_function(draw, [x], tf.int64))

    found = proven(mapped, with_calls(mapped, mapped))

    assert found.same is None
    assert "twice" in found.reason


def test_without_a_promised_order_elements_are_counted() -> None:
    forwards = Dataset.range(60).map(lambda x: x + 1, num_parallel_calls=2, deterministic=False)
    backwards = Dataset.range(60).map(lambda x: 60 - x, num_parallel_calls=2, deterministic=False)
    other = Dataset.range(60).map(lambda x: x + 2, num_parallel_calls=2, deterministic=False)

    found = proven(forwards, backwards)
    assert (found.same, found.elements, found.how, found.whole) == (True, 60, "as multisets", True)
    assert proven(forwards, other).same is False
    # The examples, too, where they come to lie in other batches.
    found = proven(forwards.batch(7), backwards.batch(7))
    assert (found.same, found.how) == (True, "as multisets")
    assert proven(forwards.batch(7), other.batch(7)).same is False
    # A part of the data proves nothing.
    found = proven(forwards, backwards, most_elements=20)
    assert (found.same, found.whole) == (None, False)


def test_order_may_be_given_up_by_the_caller_alone() -> None:
    forwards, backwards = Dataset.range(9), Dataset.range(8, -1, -1)

    assert proven(forwards, backwards).same is False
    assert proven(forwards, backwards, in_order=False).same is True


def test_of_endless_data_the_first_elements_are_compared() -> None:
    dataset = Dataset.range(7).repeat().map(lambda x: x * 2)

    found = proven(dataset, with_calls(dataset, dataset), most_elements=50)

    assert (found.same, found.elements, found.whole) == (True, 50, False)


def test_the_budget_is_kept_and_one_element_compared_all_the_same() -> None:
    dataset = Dataset.range(10**6).map(lambda x: x * 2)

    assert proven(dataset, with_calls(dataset, dataset), budget_s=0.0).elements == 1


def test_the_original_goes_on_as_if_nothing_had_been() -> None:
    # A count that nobody who looks at the function can see: what is seen to write is not run at all.
    ticks = itertools.count()
    tick = functools.partial(next, ticks)

    def count(x: Any) -> Any:
        tick()
        return x

    def make() -> Any:
        draws = Dataset.random(seed=3, rerandomize_each_iteration=True)
        kept = Dataset.range(64).map(lambda x: tf.numpy_function(count, [x], tf.int64)).cache()
        return Dataset.zip((kept, draws)).shuffle(64, seed=2).map(lambda x, y: (x + 1, y)).batch(8)

    untouched, proved = make(), make()
    found = proven(proved, with_calls(proved, proved))
    assert (found.same, found.elements, found.whole) == (True, 16, True)

    # WHEN what was proven is used, THEN it shuffles and draws as if it never had been, and fills its own cache
    begin = next(ticks)
    assert [elements(proved) for _ in range(2)] == [elements(untouched) for _ in range(2)]
    assert next(ticks) - begin == 128 + 1


def test_a_file_cache_is_not_begun_and_a_whole_one_is_read(tmp_path: Path) -> None:
    dataset = Dataset.range(9).map(lambda x: x + 1).cache(str(tmp_path / "cache"))

    found = proven(dataset, dataset.prefetch(1))
    assert (found.same, found.elements) == (True, 18)
    assert not list(tmp_path.iterdir())

    assert len(elements(dataset)) == 9
    files = {one: one.read_bytes() for one in tmp_path.iterdir()}
    assert proven(dataset, dataset.prefetch(1)).same
    assert {one: one.read_bytes() for one in tmp_path.iterdir()} == files


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_guarded_caches_are_compared_as_plain_ones(kind: str, tmp_path: Path) -> None:
    def guarded(dataset: Any) -> Any:
        spec = MemoryCache(1 << 20) if kind == "memory" else FileCache(str(tmp_path), 1 << 20)
        return cached(dataset, spec)

    mapped = Dataset.range(30).map(lambda x: x + 1)
    rewritten = guarded(mapped).shuffle(9, seed=1).batch(4)

    found = proven(mapped.shuffle(9, seed=1).batch(4), rewritten)

    assert (found.same, found.elements, found.whole) == (True, 16, True)
    assert all(one.state == "empty" for one in statuses(rewritten))
    assert proven(mapped.shuffle(9, seed=1), guarded(mapped.shuffle(9, seed=1))).same is False


def test_components_of_an_unknown_kind_are_refused() -> None:
    with pytest.raises(NotTold, match="cannot be looked into"):
        digest((tf.constant(1), object()))
