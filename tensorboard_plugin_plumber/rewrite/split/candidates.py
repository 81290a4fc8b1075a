"""The maps of a pipeline whose functions may be cut with profit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture import elsewhere, legality, settings
from tensorboard_plugin_plumber.capture.facts import PipelineFacts
from tensorboard_plugin_plumber.capture.written import Written, operators_of, unwrap
from tensorboard_plugin_plumber.rewrite.rebuild import Refused
from tensorboard_plugin_plumber.rewrite.split.splitting import SAMPLES, Split, is_map, splits_of


@dataclass(frozen=True, eq=False)
class Candidate:
    """A map of a pipeline, and where it may be cut.

    Attributes:
      map_dataset: its dataset object, by whose id() edits are named.
      operator: its id, as `capture.describe` has it.
      splits: the one that saves most first; each of the others holds fewer bytes. Empty: it is not to be cut.
      refused: why there are none, in words; "" where there are.
    """

    map_dataset: Any
    operator: str
    splits: tuple[Split, ...]
    refused: str = ""


def candidates(dataset: Any, *, samples: int = SAMPLES) -> list[Candidate]:
    """All maps of a pipeline outside function bodies, from the last to the first, each once.

    A map has splits if a cache may stand on its input, so that one may stand between the halves.

    Args:
      dataset: the last dataset of the pipeline, an eager one.
      samples: elements that bytes and times are measured with, from a copy of each map's input.

    Raises:
      tf.errors.OpError, ValueError: the dataset cannot be serialised.
    """
    with tf.init_scope(), tf.device("/CPU:0"):
        found = elsewhere.read(dataset)
        root = operators_of(found.written, dataset)
        operators = [one for one in root.walk() if not one.foreign]
        lengths: dict[int, int | None] = {}
        cardinalities = {one.id: settings.cardinality_of(one, lengths) for one in operators}
        facts = PipelineFacts(root, found.library, cardinalities)
    seen: set[int] = set()
    made = []
    for operator, map_dataset in _maps(operators):
        if id(map_dataset) not in seen:
            seen.add(id(map_dataset))
            made.append(_candidate(operator, map_dataset, dataset, facts, samples))
    return made


def _maps(operators: list[Written]) -> Iterator[tuple[Written, Any]]:
    for one in operators:
        map_dataset = unwrap(one.pair.dataset)[1]
        if not one.in_body and map_dataset is not None and is_map(map_dataset):
            yield one, map_dataset


def _candidate(
    operator: Written, map_dataset: Any, dataset: Any, facts: PipelineFacts, samples: int
) -> Candidate:
    for child in operator.children:
        if child.foreign:
            continue
        allowed = legality.cache(child, facts)
        if not allowed.allowed:
            return Candidate(
                map_dataset, operator.id, (), f"no cache may stand on its input: {allowed.reason}"
            )
    try:
        splits = splits_of(map_dataset, pipeline=dataset, samples=samples)
    except Refused as error:
        return Candidate(map_dataset, operator.id, (), str(error))
    return Candidate(map_dataset, operator.id, tuple(splits))
