"""The caches of a plan: as they are proven, as they are raced, and as users get them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture import iterators
from tensorboard_plugin_plumber.rewrite.caches import (
    CacheSpec,
    FileCache,
    MemoryCache,
    NotCacheable,
    cached,
    statuses,
)
from tensorboard_plugin_plumber.rewrite.rebuild import Refused
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

_IN_MEMORY = "memory"
#: A plan that adds no more than this share of what it may add needs nobody to watch its caches grow.
_SURE = 0.1
#: Passes over the first elements that stand for one over all of them, at most, and where nobody knows how many.
_MOST_PASSES = 16

#: A cache that does not serve after so many passes never will.
_MOST_FILLING_PASSES = 2

Placed = Callable[[Any], Any]


def plain(change: a.Change) -> str:
    """A cache as it is proven: in memory, wherever it will be."""
    return ""


def lasting(analysis: a.Analysis) -> Callable[[a.Change], Placed]:
    """Caches as users get them: what may outgrow its budget is watched, and undone before it does harm."""

    def place(change: a.Change) -> Placed:
        spec = _spec(change, analysis)
        sure = analysis.plan.memory_bytes <= _SURE * analysis.limits.memory_free_bytes
        if isinstance(spec, MemoryCache) and sure:
            # A watched one costs some 0.1 s of core time at the beginning of each epoch.
            return lambda dataset: dataset.cache()
        return lambda dataset: _guarded(dataset, spec)

    return place


def brief(analysis: a.Analysis, seconds: float) -> Callable[[a.Change], Placed]:
    """Caches as they are raced: of as many elements as are made in some seconds, served again and again.

    All elements of a large dataset would take a whole epoch to fill it, while what it serves does not
    depend on how many they are.
    """

    place_lasting = lasting(analysis)

    def place(change: a.Change) -> Placed:
        put = place_lasting(change)
        count = elements_in(analysis, change.operator, seconds)

        def cache(dataset: Any) -> Any:
            length = int(dataset.cardinality())
            if 0 <= length <= count:
                return put(dataset)
            passes = math.ceil(length / count) if length > 0 else _MOST_PASSES
            return put(dataset.take(count)).repeat(min(passes, _MOST_PASSES))

        return cache

    return place


def elements_in(analysis: a.Analysis, operator: str, seconds: float) -> int:
    """Elements of an operator that the pipeline as it was traced makes in so many seconds, at least one."""
    visits = next((row.visit_ratio for row in analysis.operators if row.id == operator), 1.0)
    return max(1, math.ceil(analysis.verdict.observed_rate * visits * seconds))


def warm(dataset: Any, *, steps: int, most_s: float) -> bool:
    """Runs a dataset until its caches serve.

    Args:
      dataset: with caches of `brief`.
      steps: root elements by which they are full.
      most_s: how long it may take.

    Returns:
      Whether they do.
    """
    began_s = time.perf_counter()
    made, passes = 0, 0
    while passes < _MOST_FILLING_PASSES:
        with iterators.seen_only_by():
            iterator = iter(dataset)
        for _ in iterator:
            made += 1
            if made > steps and all(one.state == "serving" for one in statuses(dataset)):
                return True
            if time.perf_counter() - began_s > most_s:
                return False
        passes += 1
    return all(one.state == "serving" for one in statuses(dataset))


def _spec(change: a.Change, analysis: a.Analysis) -> CacheSpec:
    if change.to.word == _IN_MEMORY:
        return MemoryCache(max(1, int(analysis.limits.memory_free_bytes)))
    directory = os.path.abspath(os.path.dirname(change.to.word) or ".")
    return FileCache(directory, max(1, int(analysis.limits.disk_free_bytes)))


def _guarded(dataset: Any, spec: CacheSpec) -> Any:
    try:
        return cached(dataset, spec)
    except NotCacheable as error:
        if isinstance(spec, MemoryCache) and int(dataset.cardinality()) != tf.data.INFINITE_CARDINALITY:
            return dataset.cache()
        raise Refused(f"no cache can stand there: {error}") from error
