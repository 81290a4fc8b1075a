"""How many elements a pass of each operator has, and what they weigh in memory (docs/model.md, "Sizes")."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tensorboard_plugin_plumber.model.counted import Counted
from tensorboard_plugin_plumber.model.intervals import Interval
from tensorboard_plugin_plumber.model.lengths import Lengths
from tensorboard_plugin_plumber.model.windows import Windows
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: A memory cache keeps this much beside each tensor's bytes (benchmarks/cache_memory.py).
CACHE_TENSOR_BYTES = 200
#: Tensors of an element where the recording does not say.
USUAL_COMPONENTS = 2


@dataclass(frozen=True)
class Size:
    """One pass of an operator's output.

    Attributes:
      elements: None if unknown or infinite.
      infinite: it never ends.
      element_bytes: of one element; None if none was seen.
      materialised_bytes: all of it in a memory cache; None if unknown or infinite.
    """

    elements: Interval | None = None
    infinite: bool = False
    element_bytes: Interval | None = None
    materialised_bytes: Interval | None = None


def sizes_of(pipeline: m.Pipeline, windows: Windows) -> dict[str, Size]:
    """Sizes by Operator.id; what TensorFlow injected is left out."""
    return _Sizes(pipeline, windows).all()


def projected_cache_bytes(sizes: Mapping[str, Size], cache: m.Operator) -> Interval | None:
    """What a memory cache that the user wrote will hold once it is full; None if that cannot be told.

    An endless input would fill memory without end: infinite.
    """
    size = sizes.get(cache.id)
    if size is None:
        return None
    return Interval(math.inf, math.inf, math.inf) if size.infinite else size.materialised_bytes


class _Sizes:
    def __init__(self, pipeline: m.Pipeline, windows: Windows) -> None:
        self._counted = Counted(pipeline, windows)
        self._lengths = Lengths(self._counted)

    def all(self) -> dict[str, Size]:
        return {name: self._size(one) for name, one in self._counted.operators.items() if not one.injected}

    def _size(self, operator: m.Operator) -> Size:
        length = self._lengths.length(operator)
        infinite = length is not None and math.isinf(length.low)
        weight = self._element_bytes(operator, length)
        if length is None or infinite:
            return Size(None, infinite, weight, None)
        total = self._cached(operator)
        if total is None and weight is not None:
            beside = CACHE_TENSOR_BYTES * (operator.components or USUAL_COMPONENTS)
            total = length * (weight + Interval.exactly(beside))
        return Size(length, False, weight, total)

    def _element_bytes(self, operator: m.Operator, length: Interval | None) -> Interval | None:
        counters = self._counted.counters(operator)
        if counters is None or counters.elements_seen <= 0:
            return None
        scale = 1.0
        if self._counted.is_fused_below(operator):
            scale = max(self._counted.count(operator) / max(counters.elements, 1e-12), 1.0)
        seen = counters.elements_seen * scale
        whole = length.value if length is not None else math.inf
        value = counters.bytes_produced / seen
        return Interval.around(value, value * self._counted.bytes_deviation(operator.running, seen, whole))

    def _cached(self, operator: m.Operator) -> Interval | None:
        """A memory cache that is full says what its tensors weigh."""
        held, counters = self._lengths.held(operator), self._counted.counters(operator)
        if held is None or counters is None or not counters.buffered_bytes:
            return None
        beside = held.value * CACHE_TENSOR_BYTES * (operator.components or USUAL_COMPONENTS)
        return Interval.exactly(counters.buffered_bytes + beside)
