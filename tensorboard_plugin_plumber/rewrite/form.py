"""What can be said of two pipelines without running them: their form, what they draw, whether they may be run."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.capture.settings import options_of
from tensorboard_plugin_plumber.capture.survey import Survey
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

# Of the options: what only says how fast.
_SPEED = ("threading_options",)
_ORDER = "deterministic"
_WRITERS = {"_SnapshotDataset": "writes a snapshot", "_SaveDataset": "writes files"}


class NotDescribed(Exception):
    """Nothing is known of what a pipeline does; the message says why."""


def difference(original: Any, rewritten: Any, *, in_order: bool) -> str:
    """What their forms differ in, in one sentence; empty if in nothing.

    Args:
      in_order: the options must say the same of the order.
    """
    if not _same_spec(original.element_spec, rewritten.element_spec):
        return f"the element spec was {original.element_spec} and is {rewritten.element_spec}"
    before, after = (int(one.cardinality()) for one in (original, rewritten))
    if before != after:
        return f"the cardinality was {_words(before)} and is {_words(after)}"
    for name in _other_options(original, rewritten):
        if name not in _SPEED and (in_order or name != _ORDER):
            return f"the options differ in {name}"
    return ""


def _same_spec(one: Any, other: Any) -> bool:
    try:
        tf.nest.assert_same_structure(one, other, check_types=True)
    except (TypeError, ValueError):
        return False
    parts = zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True)
    return all(type(a) is type(b) and a == b for a, b in parts)


def _words(cardinality: int) -> str:
    return {-1: "infinite", -2: "unknown"}.get(cardinality, f"{cardinality:,}")


def _other_options(one: Any, other: Any) -> list[str]:
    """Names of the options that differ."""
    before, after = (
        {field.name: value for field, value in options_of(dataset)._to_proto().ListFields()}
        for dataset in (one, other)
    )
    return [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]


class Form:
    """One pipeline, described.

    Args:
      dataset: an eager dataset.

    Raises:
      NotDescribed: TensorFlow cannot serialise it.
    """

    def __init__(self, dataset: Any) -> None:
        try:
            self._pipeline = describe(dataset, role="trace").pipeline
        except (tf.errors.OpError, ValueError) as error:
            raise NotDescribed(f"it cannot be described: {error}") from error
        survey = Survey()
        survey.look_at(dataset)
        self._names = {type(one).__name__ for one in survey.order}

    @property
    def writes(self) -> str:
        """What running it would write, in words; empty if nothing."""
        for name, words in _WRITERS.items():
            if name in self._names:
                return words
        effects = (fact.reason for fact in self._facts() if fact.kind == m.FACT_SIDE_EFFECT)
        return next(effects, "")

    @property
    def is_endless(self) -> bool:
        """Something in it never ends."""
        return any(fact.kind == m.FACT_INFINITE for fact in self._facts())

    @property
    def is_ordered(self) -> bool:
        """It promises the order of its elements: as written, for what runs may keep it all the same."""
        written = all(
            one.deterministic or not one.HasField("deterministic") for one in self._pipeline.operators
        )
        parallel = (one for one in self._pipeline.running if one.HasField("num_parallel_calls"))
        return written and all(one.deterministic for one in parallel)

    @property
    def varies(self) -> bool:
        """Passes may differ from each other, or be served by a cache."""
        kept = any(one.type == "Cache" for one in self._pipeline.operators)
        return kept or any(fact.kind == m.FACT_RANDOM for fact in self._facts())

    def changing_draws(self) -> int:
        """Operators whose randomness gives another outcome in each epoch, at the pipeline's end."""
        facts = self._pipeline.operators[0].facts if self._pipeline.operators else ()
        return sum(fact.kind == m.FACT_RANDOM and fact.changes_each_epoch for fact in facts)

    def _facts(self) -> list[m.Fact]:
        return [fact for one in self._pipeline.operators for fact in one.facts]
