"""Constructs that draw random numbers or an order, and what freezes them."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import keras
import tensorflow as tf

from tests.support.legality.case import COUNT, Dataset, Expected, case, draws, forget_the_global_seed, source

# Randomness of ops.


@case(draws("Map", "(RandomUniform)", changes=True), parallel=True)
def unseeded_op():
    def augment(x):  # reason
        return tf.random.uniform([])

    return source().map(augment)


@case(draws("ParallelMap", "(RandomStandardNormal)", changes=True), parallel=True)
def unseeded_op_in_a_lambda():
    return source().map(lambda x: tf.random.normal([]), num_parallel_calls=2)  # reason


@case(draws("Map", "with a seed (RandomUniform)", seeded=True), parallel=False)
def op_seed():
    return source().map(lambda x: tf.random.uniform([], seed=3))  # reason


@case(draws("Map", "with a seed (RandomUniform)", seeded=True), parallel=False)
def global_seed():
    tf.random.set_seed(7)
    try:
        return source().map(lambda x: tf.random.uniform([]))  # reason
    finally:
        forget_the_global_seed()


@case(draws("Map", "(RandomUniform)", changes=True), parallel=True)
def in_a_loop_of_a_called_function():
    @tf.function
    def inner(x):
        for _ in tf.range(3):
            x += tf.random.uniform([])
        return x

    def augment(x):  # reason
        return tf.cond(x > 3, lambda: inner(tf.cast(x, tf.float32)), lambda: 0.0)

    return source().map(augment)


@case(draws("Filter", "(RandomUniform)", changes=True))
def random_filter():
    return source().filter(lambda x: tf.random.uniform([]) < 0.5)  # reason


@case(draws("Map", "(RandomUniform)", changes=True), parallel=True)
def random_image_flip():
    flip = functools.partial(tf.image.random_flip_left_right)
    return source().map(lambda x: tf.reshape(tf.range(8), [1, 8, 1]) * tf.cast(x, tf.int32)).map(
        lambda x: flip(x)  # reason
    )  # fmt: skip


# Stateless draws are as random as their seeds.


@case(draws("Map", "from a fixed seed", seeded=True), cache=True, parallel=True)
def stateless_with_a_constant_seed():
    return source().map(lambda x: tf.random.stateless_uniform([], [1, 2]))  # reason


@case(draws("Map", "from seeds in the elements", seeded=True), cache=True, parallel=True)
def stateless_by_a_counter():
    return source().enumerate().map(
        lambda i, x: tf.random.stateless_uniform([], tf.stack([i, i]))  # reason
    )  # fmt: skip


@case(
    draws("Map", "from seeds in the elements", seeded=True, changes=True),
    draws("Random", "(RandomDataset", changes=True, line="# drawn"),
    parallel=True,
)
def stateless_by_a_random_dataset():
    seeds = Dataset.random(rerandomize_each_iteration=True)  # drawn
    return Dataset.zip((source(), seeds)).map(
        lambda x, s: tf.random.stateless_uniform([], tf.stack([s, s]))  # reason
    )  # fmt: skip


@case(
    draws("Map", "from seeds in the elements", seeded=True),
    draws("Random", "(RandomDataset", seeded=True, line="# drawn"),
    cache=True,
    parallel=True,
)
def stateless_by_a_seeded_random_dataset():
    seeds = Dataset.random(seed=5)  # drawn
    return Dataset.zip((source(), seeds)).map(
        lambda x, s: tf.random.stateless_uniform([], tf.stack([s, s]))  # reason
    )  # fmt: skip


@case(draws("Map", "generator's state (RngReadAndSkip)", seeded=True, changes=True), parallel=False)
def generator():
    numbers = tf.random.Generator.from_seed(1)
    return source().map(lambda x: numbers.uniform([]))  # reason


@case(draws("Map", "generator's state (RngReadAndSkip)", seeded=True, changes=True), parallel=False)
def seeds_of_a_generator():
    numbers = tf.random.Generator.from_seed(1)
    return source().map(lambda x: tf.random.stateless_uniform([], numbers.make_seeds(1)[:, 0]))  # reason


@case(
    draws("Map", "(StatelessRandomUniform", seeded=True, changes=True),
    Expected("SIDE_EFFECT", "Map", "writes a variable"),
    Expected(
        "STATE", "Map", "reads variables that the pipeline writes (seed_generator/seed_generator_state)"
    ),
    parallel=False,
)
def random_layer_of_keras():
    brighten = keras.layers.RandomBrightness(0.5, seed=3)

    def augment(x):  # reason
        return brighten(tf.ones([2, 2, 3]), training=True)

    return source().map(augment)


# Random datasets.


@case(draws("Shuffle", "a new order each epoch", changes=True))
def shuffle():
    return source().shuffle(COUNT)  # reason


@case(draws("Shuffle", "a new order each epoch", seeded=True, changes=True))
def seeded_shuffle():
    return source().shuffle(COUNT, seed=3)  # reason


@case(draws("Shuffle", "one order for all epochs", seeded=True), cache=True)
def seeded_shuffle_that_keeps_its_order():
    return source().shuffle(COUNT, seed=3, reshuffle_each_iteration=False)  # reason


@case(draws("Shuffle", "one order for all epochs"), cache=True)
def shuffle_that_keeps_its_order():
    return source().shuffle(COUNT, reshuffle_each_iteration=False)  # reason


@case(draws("Shuffle", "a new order each epoch", changes=True))
def shuffle_in_a_body():
    return Dataset.range(2).flat_map(lambda x: source().shuffle(COUNT))  # reason


@case(draws("Shuffle", "one order for all epochs", seeded=True), cache=True)
def seeded_shuffle_in_a_body():
    return Dataset.range(2).flat_map(lambda x: source().shuffle(COUNT, seed=3))  # reason


@case(draws("Shuffle", "a new order each epoch", changes=True))
def shuffle_that_keeps_its_order_in_a_body():
    body = lambda x: source().shuffle(COUNT, reshuffle_each_iteration=False)  # noqa: E731 # reason
    return Dataset.range(2).flat_map(body)


@case(draws("Shuffle", "a new order each epoch", changes=True))
def shuffle_deep_in_a_body():
    return Dataset.range(2).interleave(lambda x: source().shuffle(COUNT).batch(4).prefetch(1))  # reason


@case(draws("Map", "in its function (ShuffleDatasetV3)", changes=True), parallel=True)
def shuffle_in_the_elements():
    shuffled = source().map(lambda x: Dataset.range(COUNT).shuffle(COUNT))  # reason
    return shuffled.flat_map(lambda one: one)


@case(draws("Map", "(RandomUniform)", changes=True), parallel=True)
def random_map_in_a_body():
    body = lambda x: source().map(lambda y: tf.random.uniform([]))  # noqa: E731 # reason
    return Dataset.range(2).flat_map(body)


@case(draws("Random", "(RandomDataset"), cache=True)
def random_dataset():
    return Dataset.random().take(COUNT)  # reason


@case(draws("Random", "(RandomDataset", seeded=True), cache=True)
def seeded_random_dataset():
    return Dataset.random(seed=3).take(COUNT)  # reason


@case(draws("Random", "(RandomDataset", changes=True))
def random_dataset_in_a_body():
    return Dataset.range(2).flat_map(lambda x: Dataset.random().take(COUNT))  # reason


@case(draws("Random", "(RandomDataset", seeded=True, changes=True))
def seeded_random_dataset_that_draws_again():
    return Dataset.random(seed=3, rerandomize_each_iteration=True).take(COUNT)  # reason


@case(draws("SampleFromDatasets", "(RandomDataset"), cache=True)
def sample():
    return Dataset.sample_from_datasets([source(), Dataset.range(100, 140)], [0.5, 0.5])  # reason


@case(draws("SampleFromDatasets", "(RandomDataset", seeded=True), cache=True)
def seeded_sample():
    return Dataset.sample_from_datasets([source(), Dataset.range(100, 140)], [0.5, 0.5], seed=3)  # reason


@case(cache=True)
def choose():
    choice = Dataset.range(2).repeat(COUNT)
    return Dataset.choose_from_datasets([source(), Dataset.range(100, 132)], choice)


@case(
    draws("RejectionResample", "(RandomUniform)", changes=True),
    draws("RejectionResample", "(RandomDataset"),
    Expected("SIDE_EFFECT", "RejectionResample", "writes the console"),  # it warns of what it rejects
    parallel=True,
)
def resample():
    labels = source().repeat(8).map(lambda x: tf.cast(x % 4 == 0, tf.int32))
    return labels.rejection_resample(lambda label: label, [0.5, 0.5], [0.75, 0.25])  # reason


@case(draws("ListFiles", "a new order each epoch", changes=True))
def list_files():
    return Dataset.list_files(str(Path(__file__).parent / "*.py"))  # reason


@case(cache=True)
def list_files_in_order():
    return Dataset.list_files(str(Path(__file__).parent / "*.py"), shuffle=False)


# What freezes randomness.


@case(draws("Map", "Cache (draws.py:", line="# reason"), cache=True, parallel=True)
def random_map_below_a_cache():
    return source().map(lambda x: tf.random.uniform([])).cache()  # reason


@case(draws("Map", "keeps the first epoch's"), cache=True, parallel=True)
def random_map_below_a_cache_in_a_file():
    return source().map(lambda x: tf.random.uniform([])).cache(tempfile.mkdtemp() + "/cache")  # reason


@case(draws("Shuffle", "keeps the first epoch's", seeded=True), cache=True)
def shuffle_below_a_cache():
    return source().shuffle(COUNT, seed=2).cache().batch(4)  # reason


@case(draws("Map", "Snapshot (draws.py:"), cache=True, parallel=True)
def random_map_below_a_snapshot():
    return source().map(lambda x: tf.random.uniform([])).snapshot(tempfile.mkdtemp())  # reason


@case(draws("Map", "(RandomUniform)", changes=True), parallel=True)
def random_map_above_a_cache():
    return source().cache().map(lambda x: tf.random.uniform([]))  # reason


@case(draws("Map", "(RandomUniform)", changes=True), parallel=True)
def random_map_below_a_memory_cache_in_a_body():
    body = lambda x: source().map(lambda y: tf.random.uniform([])).cache()  # noqa: E731 # reason
    return Dataset.range(2).flat_map(body)


@case(cache=True)
def loaded_from_a_file():
    path = tempfile.mkdtemp()
    source().map(lambda x: tf.random.uniform([])).save(path)
    return Dataset.load(path)
