"""Constructs of which nothing holds."""

from __future__ import annotations

import random

import keras
import tensorflow as tf

from tests.support.legality.case import Dataset, case, source

SEEN = []


@case(cache=True)
def plain_source():
    return source()


@case(cache=True, parallel=True)
def plain_map():
    return source().map(lambda x: x * 2)


@case(cache=True, parallel=True)
def static_table():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [5, 6]), -1)
    return Dataset.from_tensor_slices([0, 1]).map(table.lookup)


@case(cache=True, parallel=True)
def string_lookup_layer():
    layer = keras.layers.StringLookup(vocabulary=["a", "b"])
    return Dataset.from_tensor_slices(["a", "b"]).map(layer)


@case(cache=True, parallel=True)
def ragged_and_sparse():
    return source().map(tf.ragged.range).map(lambda x: x.to_sparse())


@case(cache=True, parallel=True)
def loops_and_branches():
    def body(x):
        total = tf.zeros([], tf.int64)
        while total < x:
            total += 1
        return tf.cond(x > 3, lambda: total, lambda: -total)

    return source().map(body)


@case(cache=True, parallel=True)
def assertions():
    def checked(x):
        tf.debugging.assert_greater_equal(x, tf.zeros([], tf.int64))
        return tf.ensure_shape(x, [])

    return source().map(checked)


@case(cache=True, parallel=True)
def names_that_sound_random():
    def random_uniform(x):
        shuffle, sample = x, x + 1
        return shuffle + sample

    return source().map(random_uniform, name="random")


@case(cache=True, parallel=True)
def stateful_only_while_tracing():
    def traced(x):
        SEEN.append(1)  # Python of a map runs when it is traced, never for an element
        print("tracing", end="")
        return x + random.randint(0, 0)

    return source().map(traced)


@case(cache=True, parallel=True)
def reads_files():
    return Dataset.from_tensor_slices([__file__]).map(tf.io.read_file)


@case(cache=True)
def nested_without_randomness():
    return source().window(4).flat_map(lambda window: window.batch(4))
