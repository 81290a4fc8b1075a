"""Whether what a call gave is what the plan was made for, and what the plan makes of it is allowed here."""

from __future__ import annotations

from typing import Any

from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.capture.digests import comparable, traced_digest
from tensorboard_plugin_plumber.capture.survey import traced_of
from tensorboard_plugin_plumber.rewrite.call_sites.sites import NotHere, Site
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


def check_function(site: Site, made: Any) -> None:
    """Sees to it that the function of a dataset does what it did when the plan was made.

    Raises:
      NotHere: it does something else, or what the plan makes of it is not allowed.
    """
    wrappers = traced_of(made)
    digest = traced_digest(wrappers[0]) if len(wrappers) == 1 else ""
    if comparable(digest, site.operator.graph):
        if digest != site.operator.graph:
            raise NotHere("its function does something else than when the plan was made")
    elif site.arguments and wrappers and not site.enclosed:
        verdict = _described(made).parallel
        if not verdict.allowed:
            raise NotHere(f"it may not run in parallel here: {verdict.reason.rstrip('.')}")


def check_cacheable(site: Site, made: Any) -> None:
    """Sees to it that a cache keeps what it should.

    Raises:
      NotHere: it would not.
    """
    if site.enclosed:
        raise NotHere("a cache in a function's body keeps nothing from one of its calls to the next")
    verdict = _described(made).cache
    if not verdict.allowed:
        raise NotHere(f"it may not be cached here: {verdict.reason.rstrip('.')}")


def _described(dataset: Any) -> m.Operator:
    return describe(dataset, role="diagnose").pipeline.operators[0]
