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
from tensorboard_plugin_plumber.rewrite.split import resources
from tensorboard_plugin_plumber.rewrite.split.lowering import passage
from tensorboard_plugin_plumber.rewrite.split.splitting import SAMPLES, Split, is_map, splits_of

# Data that was there when they were made.
_PLAIN_SOURCES = frozenset({"_TensorSliceDataset", "_TensorDataset", "_RangeDataset"})


@dataclass(frozen=True, eq=False)
class Candidate:
    """A map of a pipeline, and where it may be cut.

    Attributes:
      map_dataset: its dataset object, by whose id() edits are named.
      operator: its id, as `capture.describe` has it.
      splits: the one that saves most first; each of the others holds fewer bytes. Empty: it is not to be cut.
      refused: why there are none, in words; "" where there are.
      through: for `applied`: no cache may stand on the map's input, but one may below the shuffles and repeats
        at the end of it.
      buffered: elements that these shuffles hold. They come to hold what crosses the cut: with a cache in memory
        the very same tensors, else as many bytes more.
    """

    map_dataset: Any
    operator: str
    splits: tuple[Split, ...]
    refused: str = ""
    through: bool = False
    buffered: int = 0


def candidates(dataset: Any, *, samples: int = SAMPLES) -> list[Candidate]:
    """All maps of a pipeline outside function bodies, from the last to the first, each once.

    A map has splits if a cache may stand on its input, or below the shuffles and repeats at the end of it, so that
    one may stand between the halves.

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
        look = _Look(operators, PipelineFacts(root, found.library, cardinalities))
    seen: set[int] = set()
    made = []
    for operator, map_dataset in _maps(operators):
        if id(map_dataset) not in seen:
            seen.add(id(map_dataset))
            made.append(_candidate(operator, map_dataset, dataset, look, samples))
    return made


def _maps(operators: list[Written]) -> Iterator[tuple[Written, Any]]:
    for one in operators:
        map_dataset = unwrap(one.pair.dataset)[1]
        if not one.in_body and map_dataset is not None and is_map(map_dataset):
            yield one, map_dataset


def _candidate(operator: Written, map_dataset: Any, dataset: Any, look: _Look, samples: int) -> Candidate:
    written = resources.written_by(dataset)
    refused = look.refusal_at(map_dataset._input_dataset)
    through, buffered = False, 0
    if refused:
        way = passage(map_dataset._input_dataset, written)
        if not way.blind or look.refusal_at(way.base):
            words = look.refusal_at(way.base) or refused
            return Candidate(map_dataset, operator.id, (), f"no cache may stand on its input: {words}")
        through, buffered = True, way.buffered
    try:
        splits = splits_of(map_dataset, pipeline=dataset, samples=samples, whole=through)
    except Refused as error:
        return Candidate(map_dataset, operator.id, (), str(error))
    return Candidate(map_dataset, operator.id, tuple(splits), "", through, buffered)


class _Look:
    """What is known of caches in a pipeline."""

    def __init__(self, operators: list[Written], facts: PipelineFacts) -> None:
        self._facts = facts
        self._by_dataset: dict[int, Written] = {}
        for one in operators:
            self._by_dataset.setdefault(id(unwrap(one.pair.dataset)[1]), one)

    def refusal_at(self, dataset: Any) -> str:
        """Why no cache may stand on a dataset's output; "" if one may."""
        operator = self._by_dataset.get(id(unwrap(dataset)[1]))
        if operator is None:
            # Part of another operator, as the file names below the shuffle of `list_files`.
            return "" if type(dataset).__name__ in _PLAIN_SOURCES else "it cannot be told what stands there"
        allowed = legality.cache(operator, self._facts)
        return "" if allowed.allowed else allowed.reason
