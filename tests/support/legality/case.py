"""One construct: how it is built, and the facts that must hold of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction

construction.install()
Dataset = tf.data.Dataset
COUNT = 32


@dataclass(frozen=True)
class Expected:
    """A fact of the root's output: its kind, its operator's type, a part of its words, the comment at its line."""

    kind: str
    operator: str
    words: str
    seeded: bool = False
    changes: bool = False
    line: str = "# reason"


@dataclass(frozen=True)
class Case:
    make: Callable[[], tf.data.Dataset]
    facts: tuple[Expected, ...]
    cache: bool
    parallel: bool | None

    def __repr__(self):
        return self.make.__name__


CASES: list[Case] = []


def case(*facts, cache=False, parallel=None):
    """Adds a case. `cache`: the root's output may be cached; `parallel`: of the first map, None if there is none."""

    def add(make):
        CASES.append(Case(make, facts, cache, parallel))
        return make

    return add


def draws(operator, words, **more):
    return Expected("RANDOM", operator, words, **more)


def source():
    return Dataset.range(COUNT)


def forget_the_global_seed():
    from tensorflow.python.eager import context

    context.context()._seed = None


def kept(dataset, *values):
    """The dataset, with what it only holds weakly."""
    dataset.__dict__["_kept_by_the_test"] = values
    return dataset
