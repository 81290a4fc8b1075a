"""Digests of functions: the same for the same function, another for another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.capture.digests import code_digest, comparable
from tensorboard_plugin_plumber.capture.places import code_of

construction.install()


def of_code(text: str) -> str:
    scope: dict[str, Any] = {}
    exec(compile(text, "somewhere.py", "exec"), scope)
    return code_digest(code_of(scope["f"]))


def of_graph(function: Callable[..., Any]) -> str:
    pipeline = describe(tf.data.Dataset.range(3).map(function), role="trace").pipeline
    return pipeline.operators[0].function.graph_digest


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("\n\n\ndef f(x):\n\n    # a comment\n    return x + 1", True),
        ('def f(x):\n    "What it does."\n    return x + 1', True),
        ("def f(x):\n    return x + 2", False),
        ("def f(x):\n    return x - 1", False),
        ("def f(x, y):\n    return x + 1", False),
        ("def f(x):\n    return z + 1", False),
    ],
)
def test_code_is_known_by_what_it_does(other: str, same: bool) -> None:
    assert (of_code("def f(x):\n    return x + 1") == of_code(other)) == same


def test_code_within_code_counts() -> None:
    assert of_code("f = lambda x: (lambda y: y + 1)(x)") != of_code("f = lambda x: (lambda y: y + 2)(x)")


def test_constants_without_an_order_have_one_here() -> None:
    """Sets of texts are written in another order in each process."""
    text = "f = lambda x: x in {'a', 'b', 'c', 'd', 'e'}"
    other = subprocess.run(
        [sys.executable, "-c", f"from tests.unit.test_digests import of_code\nprint(of_code({text!r}))"],
        env={"PYTHONHASHSEED": "11", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == of_code(text)


def test_a_graph_is_known_by_what_it_computes() -> None:
    def add(x: Any) -> Any:
        return x + 1

    def written_otherwise(y: Any) -> Any:
        one = 1
        return tf.add(y, one)

    assert of_graph(add) == of_graph(written_otherwise)
    assert of_graph(add) != of_graph(lambda x: x + 2)
    assert of_graph(add) != of_graph(lambda x: x - 1)
    assert of_graph(lambda x: (x + 1) * x) != of_graph(lambda x: x * x + 1)


def test_what_a_function_takes_from_outside_counts_but_for_chance_and_paths() -> None:
    def with_size(size: int) -> Callable[[Any], Any]:
        return lambda x: tf.random.uniform([size]) + tf.cast(x, tf.float32)

    def with_path(path: str) -> Callable[[Any], Any]:
        return lambda x: tf.io.read_file(tf.strings.join([path, tf.strings.as_string(x)]))

    assert of_graph(with_size(3)) == of_graph(with_size(3))
    assert of_graph(with_size(3)) != of_graph(with_size(4))
    assert of_graph(with_path("/data/here/")) == of_graph(with_path("/mnt/there/"))
    before = of_graph(with_size(3))
    tf.random.set_seed(4)
    assert of_graph(with_size(3)) == before


def test_functions_that_a_function_calls_count() -> None:
    def calling(inner: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda x: tf.cond(x > 1, lambda: inner(x), lambda: x)

    def in_python(inner: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda x: tf.numpy_function(inner, [x], tf.int64)

    assert of_graph(calling(lambda x: x + 1)) == of_graph(calling(lambda x: x + 1))
    assert of_graph(calling(lambda x: x + 1)) != of_graph(calling(lambda x: x + 2))
    assert of_graph(in_python(lambda x: np.abs(x))) == of_graph(in_python(lambda x: np.abs(x)))
    assert of_graph(in_python(lambda x: np.abs(x))) != of_graph(in_python(lambda x: -x))


def test_inner_operators_are_no_part_of_the_function_around_them() -> None:
    def body(calls: int | None) -> Callable[[Any], Any]:
        return lambda x: tf.data.Dataset.range(x).map(tf.abs, num_parallel_calls=calls)

    found = {
        describe(tf.data.Dataset.range(3).flat_map(body(calls)), role="trace")
        .pipeline.operators[0]
        .function.graph_digest
        for calls in (None, 2)
    }
    assert len(found) == 1


def test_digests_of_two_versions_say_nothing_of_each_other() -> None:
    assert comparable("3.11:ab", "3.11:cd")
    assert not comparable("3.11:ab", "3.12:ab")
    assert not comparable("", "3.12:ab")
    python = of_graph(lambda x: tf.numpy_function(np.abs, [x], tf.int64))
    assert not comparable(python, of_graph(lambda x: x))
