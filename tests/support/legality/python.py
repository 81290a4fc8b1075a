"""Constructs that run Python."""

from __future__ import annotations

import functools
import random
import time

import numpy as np
import tensorflow as tf

from tests.support import python_functions
from tests.support.legality.case import COUNT, Dataset, Expected, case, draws, source

SEEN = []


@case(Expected("PYTHON", "Map", "runs Python code (keeps_to_its_locals)", line=""), parallel=True)
def clean_python():
    function = python_functions.keeps_to_its_locals
    return source().map(lambda x: tf.py_function(function, [x], tf.int64))


@case(
    Expected("PYTHON", "Map", "runs Python code (collect)"),
    Expected("SIDE_EFFECT", "Map", "writes SEEN by .append() in Python (collect)"),
    parallel=False,
)
def python_that_appends():
    def collect(x):  # reason
        SEEN.append(x)
        return x

    return source().map(lambda x: tf.numpy_function(collect, [x], tf.int64))


@case(
    Expected("PYTHON", "Map", "runs Python code (tell)"),
    Expected("SIDE_EFFECT", "Map", "writes the console in Python (tell)"),
    parallel=False,
)
def python_that_prints():
    def tell(x):  # reason
        print(x)
        return x

    return source().map(lambda x: tf.py_function(tell, [x], tf.int64))


@case(
    Expected("PYTHON", "Map", "runs Python code (jitter)"),
    draws("Map", "draws random numbers in Python (jitter)", changes=True),
    parallel=True,
)
def python_that_draws():
    def jitter(x):  # reason
        return x + np.random.randint(1_000_000)

    return source().map(lambda x: tf.numpy_function(jitter, [x], tf.int64, stateful=False))


@case(
    Expected("PYTHON", "Map", "runs Python code (stamp)"),
    Expected("STATE", "Map", "reads the clock in Python (stamp)"),
    parallel=True,
)
def python_that_tells_the_time():
    def stamp(x):  # reason
        return np.int64(time.time())

    return source().map(lambda x: tf.numpy_function(stamp, [x], tf.int64))


@case(
    Expected("PYTHON", "Map", "runs Python code (Counter)"),
    Expected("SIDE_EFFECT", "Map", "writes the attribute self.count in Python (Counter)"),
    parallel=False,
)
def python_object_that_counts():
    class Counter:
        count = 0

        def __call__(self, x):  # reason
            self.count += 1
            return x

    counter = Counter()
    return source().map(lambda x: tf.numpy_function(counter, [x], tf.int64))


@case(
    Expected("PYTHON", "Map", "runs Python code (store)"),
    Expected("SIDE_EFFECT", "Map", "writes the container cache in Python (store)"),
    parallel=False,
)
def python_partial_that_stores():
    def store(cache, x):  # reason
        cache[int(x)] = x
        return x

    function = functools.partial(store, {})
    return source().map(lambda x: tf.numpy_function(function, [x], tf.int64))


@case(
    Expected("PYTHON", "Map", "runs Python code (append)"),
    Expected("SIDE_EFFECT", "Map", "writes a list by .append() in Python (append)"),
    parallel=False,
)
def c_method_that_appends():
    seen = []

    def keep(x):  # reason
        tf.numpy_function(seen.append, [x], [])
        return x

    return source().map(keep)


@case(
    Expected("PYTHON", "Map", "runs Python code (sqrt)", line=""),
    parallel=True,
)
def c_function():
    return source().map(lambda x: tf.numpy_function(np.sqrt, [x], tf.float64))


@case(Expected("PYTHON", "Generator", "runs Python code (count)"))
def clean_generator():
    def count():  # reason
        yield from range(COUNT)

    return Dataset.from_generator(count, output_signature=tf.TensorSpec([], tf.int64))


@case(
    Expected("PYTHON", "Generator", "runs Python code (stream)"),
    Expected("SIDE_EFFECT", "Generator", "writes the attribute self.position in Python (stream)"),
)
def generator_method_that_writes():
    class Reader:
        position = 0

        def stream(self):  # reason
            for one in range(COUNT):
                self.position = one
                yield one

    reader = Reader()
    return Dataset.from_generator(reader.stream, output_signature=tf.TensorSpec([], tf.int64))


@case(
    Expected("PYTHON", "Generator", "runs Python code (draw)"),
    draws("Generator", "in Python (draw)", changes=True),
)
def generator_that_draws():
    def draw():  # reason
        for _ in range(COUNT):
            yield random.random()

    return Dataset.from_generator(draw, output_signature=tf.TensorSpec([], tf.float64))
