"""Functions with seeded draws draw the same sequence in two halves as in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.rewrite.split import applied, splitting
from tests.support.digests import elements

construction.install()
Dataset = tf.data.Dataset


def squared(index: Any) -> Any:
    ones = tf.fill((2, 2), tf.cast(index, tf.float32))
    return tf.matmul(ones, ones)


def by_op_seeds(index: Any) -> Any:
    return squared(index) + tf.random.uniform((2, 2), seed=1), tf.random.normal((), seed=3)


def by_the_graphs_seed(index: Any) -> Any:
    return squared(index) + tf.random.uniform((2, 2)), tf.random.uniform(()), tf.random.shuffle(tf.range(5))


def with_a_draw_that_nobody_takes(index: Any) -> Any:
    tf.random.uniform((), seed=4)
    return squared(index) * tf.random.uniform((), seed=4)


@tf.function
def _inner(value: Any) -> Any:
    tf.random.uniform((7,))
    return value + tf.random.uniform((2, 2), seed=4), tf.random.normal((), seed=3)


@tf.function
def _outer(value: Any) -> Any:
    return _inner(value)[0] * tf.random.uniform(()), tf.random.shuffle(tf.range(3))


def in_functions_that_are_called_twice(index: Any) -> Any:
    first, order = _outer(squared(index))
    return first, order, *_outer(first)


def under_a_condition(index: Any) -> Any:
    value = squared(index)
    return tf.cond(
        tf.random.uniform(()) < 0.5,
        lambda: value + tf.random.uniform((), seed=9),
        lambda: value - tf.random.normal((), seed=9),
    )


def of_boxes(index: Any) -> Any:
    box = tf.image.sample_distorted_bounding_box(
        (50, 50, 3), tf.zeros((1, 0, 4)), use_image_if_no_bounding_boxes=True, seed=3
    )
    return squared(index), box, tf.random.categorical([[0.3, 0.7]], 2, seed=3)


@pytest.mark.parametrize("calls", [None, 1])
@pytest.mark.parametrize(
    "function",
    [
        by_op_seeds,
        by_the_graphs_seed,
        with_a_draw_that_nobody_takes,
        in_functions_that_are_called_twice,
        under_a_condition,
        of_boxes,
    ],
    ids=lambda one: one.__name__,
)
def test_the_sequence_is_the_same(
    function: Callable[..., Any], calls: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "LEAST_SECONDS", 0.0)  # the costs do not matter here
    # GIVEN a function whose draws seeds decide
    tf.random.set_seed(5)
    source = Dataset.range(1, 7)
    dataset = source.map(function, num_parallel_calls=calls)

    # WHEN it is cut, with a cache between
    split = splitting.split_at_randomness(dataset)
    assert "MatMul" in {node.op for node in split.first.function.graph.as_graph_def().node}
    made = applied(split, dataset, source, between=lambda first: first.cache())

    # THEN each iterator draws as one of the original does, over epochs too, and where one ends early
    for _ in range(2):
        assert elements(made) == elements(dataset)
    assert elements(made.repeat(3)) == elements(dataset.repeat(3))
    if calls is None:  # parallel calls may have drawn for more than four
        assert elements(made.take(4).repeat(2)) == elements(dataset.take(4).repeat(2))
    assert len(set(elements(made.repeat(2)))) == 12
