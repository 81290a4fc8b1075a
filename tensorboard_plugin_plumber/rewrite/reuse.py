"""A plan that was found for one dataset, made again in another that the same function has built."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.rewrite.attempts import Optimized
from tensorboard_plugin_plumber.rewrite.rebuild import Refused
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


def reapplied(known: Optimized, dataset: Any) -> Optimized | None:
    """The dataset with the plan of `known`; None where its pipeline is another one, or cannot be changed likewise.

    Args:
      known: what was found for a dataset of the same function and arguments.
      dataset: an eager `tf.data.Dataset`.
    """
    if _shape(describe(dataset, role="diagnose").pipeline) != _shape(known.pipeline):
        return None
    try:
        return replace(known, dataset=known.remake(dataset), failure="")
    except Refused:
        return None


def _shape(pipeline: m.Pipeline) -> list[tuple[object, ...]]:
    """What of a pipeline decides whether a plan is right for it: all but its sizes."""
    return [
        (
            one.id,
            one.type,
            one.parent,
            one.label,
            one.random,
            one.function.SerializeToString(deterministic=True),
            one.cache.allowed,
            one.parallel.allowed,
        )
        for one in pipeline.operators
        if not one.injected
    ]
