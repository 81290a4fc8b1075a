"""Maps that decode and augment in one function, as people write them: what a split has to cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

Dataset = tf.data.Dataset
SIDE = 192


def jpegs(count: int = 6) -> list[bytes]:
    """Photographs, in a way: smooth with some noise."""
    rng = np.random.default_rng(0)
    smooth = tf.image.resize(rng.uniform(0, 255, (6, 6, 3)).astype("float32"), (SIDE, SIDE)).numpy()
    noisy = (np.clip(smooth + rng.normal(0, 12, smooth.shape), 0, 255).astype("uint8") for _ in range(count))
    return [tf.io.encode_jpeg(one).numpy() for one in noisy]


def pictures(count: int = 6) -> Any:
    """Elements (JPEG, label)."""
    return Dataset.from_tensor_slices((jpegs(count), tf.range(count) + 1))


def decoded(jpeg: Any) -> Any:
    image = tf.io.decode_jpeg(jpeg, channels=3)
    return tf.ensure_shape(image, (SIDE, SIDE, 3))


def augmented(image: Any) -> Any:
    """Crops and flips at random."""
    return tf.image.random_flip_left_right(tf.image.random_crop(image, (64, 64, 3)))


class Example(NamedTuple):
    image: Any
    label: Any


def plain(jpeg: Any, label: Any) -> Any:
    image = tf.image.resize(decoded(jpeg), (96, 96))
    return augmented(image) / 127.5 - 1.0, label


def as_dictionary(jpeg: Any, label: Any) -> Any:
    return {"image": augmented(decoded(jpeg)), "label": label, "more": {"square": label * label}}


def as_named_tuple(jpeg: Any, label: Any) -> Any:
    return Example(augmented(decoded(jpeg)), label)


@tf.function
def _augmented_in_a_function(image: Any) -> Any:
    return augmented(image), tf.random.uniform(())


@tf.function
def _all_in_a_function(jpeg: Any) -> Any:
    image, drawn = _augmented_in_a_function(decoded(jpeg))
    return image, drawn


def in_nested_functions(jpeg: Any, label: Any) -> Any:
    return (*_all_in_a_function(jpeg), label)


def under_a_condition(jpeg: Any, label: Any) -> Any:
    image = decoded(jpeg)
    flips = tf.random.uniform(()) < 0.5
    return tf.cond(flips, lambda: tf.image.flip_up_down(image), lambda: augmented_to_the_same(image)), label


def augmented_to_the_same(image: Any) -> Any:
    return tf.image.random_flip_left_right(image)


def in_a_loop(jpeg: Any, label: Any) -> Any:
    image = tf.cast(decoded(jpeg), tf.float32)
    loop = tf.while_loop(
        lambda index, _: index < 3,
        lambda index, one: (index + 1, one + tf.random.normal(one.shape)),
        (0, image),
    )
    return loop[1], label


def row_by_row(jpeg: Any, label: Any) -> Any:
    image = tf.cast(decoded(jpeg), tf.float32)
    return tf.map_fn(lambda row: row * tf.random.uniform(()), image), label


def loop_before_the_randomness(jpeg: Any, label: Any) -> Any:
    image = tf.map_fn(lambda row: row // 2, decoded(jpeg))
    return augmented(image), label


def printed(jpeg: Any, label: Any) -> Any:
    image = decoded(jpeg)
    tf.debugging.assert_greater(label, 0)
    tf.print("label", label, output_stream="file:///dev/null")
    return augmented(image), label


def controlled(jpeg: Any, label: Any) -> Any:
    image = decoded(jpeg)
    with tf.control_dependencies(
        [tf.debugging.assert_less_equal(tf.reduce_max(image), tf.constant(255, tf.uint8))]
    ):
        image = tf.identity(image)
    with tf.control_dependencies([tf.random.uniform(())]):
        image = tf.image.flip_left_right(image)
    return image, label


def python_behind(jpeg: Any, label: Any) -> Any:
    image = augmented(decoded(jpeg))
    turned = tf.py_function(lambda one: one.numpy()[::-1], [image], tf.uint8)
    return tf.ensure_shape(turned, image.shape), label


def seeded_by_the_element(jpeg: Any, label: Any) -> Any:
    seed = tf.stack([label, 7])
    return tf.image.stateless_random_crop(decoded(jpeg), (64, 64, 3), seed), label


def ragged(jpeg: Any, label: Any) -> Any:
    image = decoded(jpeg)
    rows = tf.RaggedTensor.from_row_lengths(tf.range(label), [label - 1, 1])
    return {"image": augmented(image), "rows": rows}


def sparse(jpeg: Any, label: Any) -> Any:
    dense = tf.cast(decoded(jpeg)[:, :, 0] > 100, tf.float32)
    return tf.sparse.from_dense(dense) * tf.random.uniform(()), tf.sparse.from_dense(tf.one_hot(label, 8))


def of_a_table(table: Any) -> Callable[..., Any]:
    def looked_up(jpeg: Any, label: Any) -> Any:
        return augmented(decoded(jpeg)), table.lookup(label)

    return looked_up


def of_a_variable(variable: Any) -> Callable[..., Any]:
    """The variable is needed first of all: everything follows from it."""

    def scaled(jpeg: Any, label: Any) -> Any:
        image = tf.io.decode_jpeg(tf.cond(variable > 0.0, lambda: jpeg, lambda: tf.constant(b"")), channels=3)
        return augmented(tf.ensure_shape(image, (SIDE, SIDE, 3))), label

    return scaled


def of_a_generator(generator: Any) -> Callable[..., Any]:
    def shifted(jpeg: Any, label: Any) -> Any:
        image = tf.cast(decoded(jpeg), tf.float32)
        return image + generator.normal((SIDE, SIDE, 3)), generator.uniform(()), label

    return shifted


#: Functions of (JPEG, label) that decode first and draw later.
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    plain, as_dictionary, as_named_tuple, in_nested_functions, under_a_condition, in_a_loop, row_by_row,
    loop_before_the_randomness, printed, controlled, python_behind, seeded_by_the_element, ragged, sparse,
)  # fmt: skip
