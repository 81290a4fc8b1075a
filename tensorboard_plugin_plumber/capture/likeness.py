"""Knows again, for microseconds, a dataset that is built anew by the same lines as one before it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tensorboard_plugin_plumber.capture.construction import Construction, construction_of, inputs_of

# Shared inputs count each time they are met: what is wider than this is described instead.
_MOST_DATASETS = 200


def likeness_of(dataset: Any) -> Hashable | None:
    """What two datasets have in common that the same lines built from the same functions.

    As with the id of a pipeline, settings do not count: a batch of another size is the same pipeline.

    Args:
      dataset: any; only what `construction` remembers of it and of its inputs is looked at.

    Returns:
      None where that is not known of all.
    """
    parts: list[Hashable] = []
    stack = [dataset]
    while stack:
        one = stack.pop()
        made = construction_of(one)
        if made is None or made.call is None or len(parts) >= _MOST_DATASETS:
            return None
        inputs = inputs_of(one)
        parts.append((len(inputs), *_place(made)))
        stack.extend(inputs)
    return tuple(parts)


def _place(made: Construction) -> tuple[Hashable, ...]:
    assert made.call is not None
    functions = tuple((record.name, record.code) for record in made.functions.values())
    return made.class_name, made.method, made.call.code, made.call.instruction, made.site, functions
