"""Settings of a pipeline, twice: as its author would write them, and as the model knows them.

The first is done to the calls of `map` and `interleave` while the pipeline is built, by the name of their function. It
shares nothing with Plumber's own rewriting.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import tensorflow as tf

from tensorboard_plugin_plumber.model.decisions import unchanged
from tensorboard_plugin_plumber.model.estimate import Estimate
from tensorboard_plugin_plumber.model.network import Settings

AUTOTUNE = tf.data.AUTOTUNE
#: Methods whose settings can be changed.
METHODS = ("map", "interleave")


@dataclass(frozen=True)
class Edit:
    """What differs from the pipeline as written; places are the names of functions.

    Attributes:
      calls: num_parallel_calls.
      prefetch: sizes of prefetches put on outputs.
      cache: whose output is cached in memory.
      pool: private_threadpool_size.
    """

    calls: Mapping[str, int] = field(default_factory=dict)
    prefetch: Mapping[str, int] = field(default_factory=dict)
    cache: str | None = None
    pool: int | None = None

    def __str__(self) -> str:
        said = [f"{name} {'AUTOTUNE' if k == AUTOTUNE else k}" for name, k in self.calls.items()]
        said += [f"prefetch {name} {size}" for name, size in self.prefetch.items()]
        if self.cache:
            said.append(f"cache {self.cache}")
        if self.pool:
            said.append(f"pool {self.pool}")
        return ", ".join(said) or "as written"

    @property
    def autotuned(self) -> bool:
        """AUTOTUNE may rule something: it was asked to, or TensorFlow asks it where nobody said how many calls."""
        return not self.calls or AUTOTUNE in self.calls.values()

    @property
    def places(self) -> set[str]:
        return {*self.calls, *self.prefetch, *([self.cache] if self.cache else [])}


def build(make: Callable[[], tf.data.Dataset], edit: Edit) -> tf.data.Dataset:
    """The dataset of `make` with the settings of `edit`.

    Raises:
      ValueError: it names a place that the pipeline does not have.
    """
    met: set[str] = set()
    with contextlib.ExitStack() as patches:
        for method in METHODS:
            patches.enter_context(_edited(method, edit, met))
        dataset = make()
        # The functions of interleaves may be traced when the iterator is made ready.
        if missing := edit.places - met:
            raise ValueError(f"no function is called {', '.join(sorted(missing))}: there are {sorted(met)}")
    if edit.pool:
        options = tf.data.Options()
        options.threading.private_threadpool_size = edit.pool
        dataset = dataset.with_options(options)
    return dataset


@contextlib.contextmanager
def _edited(method: str, edit: Edit, met: set[str]) -> Iterator[None]:
    original = getattr(tf.data.Dataset, method)

    def call(
        self: tf.data.Dataset, function: Callable[..., Any], *args: Any, **options: Any
    ) -> tf.data.Dataset:
        name = function.__name__
        met.add(name)
        if name in edit.calls:
            options["num_parallel_calls"] = edit.calls[name]
        dataset = original(self, function, *args, **options)
        if name == edit.cache:
            dataset = dataset.cache()
        if name in edit.prefetch:
            dataset = dataset.prefetch(edit.prefetch[name])
        return dataset

    with mock.patch.object(tf.data.Dataset, method, call):
        yield


def settings_of(now: Estimate, edit: Edit) -> Settings:
    """The model's settings for `edit`; what AUTOTUNE rules is at the highest that it may choose.

    Raises:
      ValueError: it names a place that the recording does not have.
    """
    places = {operator.function.name: i for i, operator in enumerate(now.written)}
    choices = list(now.network.current.choices)
    for name in edit.places:
        if name not in places:
            raise ValueError(f"no function is called {name}: there are {sorted(places)}")
        i = places[name]
        if name in edit.calls:
            k = edit.calls[name]
            choices[i] = replace(
                choices[i], parallel=True, autotuned=k == AUTOTUNE, parallelism=1 if k == AUTOTUNE else k
            )
        if name in edit.prefetch:
            choices[i] = replace(choices[i], prefetch=True, prefetch_size=edit.prefetch[name])
        if name == edit.cache:
            choices[i] = replace(choices[i], cache=True)
    pool = edit.pool or now.network.current.threadpool_size
    return unchanged(replace(now.network, current=Settings(tuple(choices), pool)))
