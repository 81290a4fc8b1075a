"""How many elements a pass of each operator has, and what they weigh in memory (docs/model.md, "Sizes").

What TensorFlow knows of a length is exact. The rest follows from the operators below by their rules (a take, a
batch), from whole passes that were counted, from the bytes of files over the bytes that one element takes, or from
what was seen of a pass so far, with an interval that is the wider the less was seen.

Below an interleave or flat map all instances of the function's dataset count together, over one pass of the
interleave.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tensorboard_plugin_plumber.model.intervals import Interval, deviation_of_ratio, share, smallest
from tensorboard_plugin_plumber.model.windows import Array, Windows
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: A memory cache keeps this much beside each tensor's bytes (benchmarks/cache_memory.py).
CACHE_TENSOR_BYTES = 200
#: Tensors of an element where the recording does not say.
USUAL_COMPONENTS = 2
INFINITE = -1
#: Coefficients of variation where windows cannot tell: elements of a function's dataset; bytes of an element.
_CHILDREN_VARY = 1.0
_BYTES_VARY = 0.5
#: What was counted of an operator that was dropped between two looks may be off by this share, and by one.
_BETWEEN_LOOKS = 0.01
#: A parallel interleave opens twice as many datasets as it reads before it is their turn.
_OPENED_AHEAD = 3.0

_SAME = frozenset(
    {
        "Map",
        "ParallelMap",
        "Prefetch",
        "Shuffle",
        "Cache",
        "Scan",
        "Enumerate",
        "AssertCardinality",
        "Snapshot",
        "Options",
    }
)
_BATCHES = frozenset({"Batch", "ParallelBatch", "PaddedBatch", "RaggedBatch"})
_FILTERS = frozenset({"Filter", "ParallelFilter", "RejectionResample", "Sampling"})
_OPENING = frozenset({"FlatMap", "Interleave", "ParallelInterleave", "LegacyParallelInterleave", "Unbatch"})
_MIXING = frozenset({"SampleFromDatasets", "ChooseFromDatasets", "DirectedInterleave"})
#: Operators that may leave some of their input unread at the end of a pass.
_CUTTING = frozenset({"Take", "TakeWhile", "Zip", "SampleFromDatasets", "ChooseFromDatasets"})


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
        self.pipeline, self.windows, self.last = pipeline, windows, windows.last
        self.operators = {operator.id: operator for operator in pipeline.operators}
        self.inputs: dict[str, list[m.Operator]] = {}
        self.bodies: dict[str, list[m.Operator]] = {}
        for operator in self.operators.values():
            (self.bodies if operator.in_body else self.inputs).setdefault(operator.parent, []).append(
                operator
            )
        self.files = {files.operator: files for files in pipeline.files}
        self.lengths: dict[str, Interval | None] = {}

    def all(self) -> dict[str, Size]:
        return {name: self._size(one) for name, one in self.operators.items() if not one.injected}

    def _size(self, operator: m.Operator) -> Size:
        length = self.length(operator)
        infinite = length is not None and math.isinf(length.low)
        weight = self._element_bytes(operator, length)
        if length is None or infinite:
            return Size(None, infinite, weight, None)
        total = self._cached(operator)
        if total is None and weight is not None:
            beside = CACHE_TENSOR_BYTES * (operator.components or USUAL_COMPONENTS)
            total = length * (weight + Interval.exactly(beside))
        return Size(length, False, weight, total)

    # Lengths.

    def length(self, operator: m.Operator) -> Interval | None:
        """Elements of one pass; all infinite if it never ends; None if unknown."""
        if operator.id not in self.lengths:
            self.lengths[operator.id] = None  # whatever asks for itself learns nothing
            found = self._known(operator)
            if found is None:
                found = self._counted(operator) or self._by_rule(operator)
                found = found and self._at_least_seen(operator, found)
            self.lengths[operator.id] = found
        return self.lengths[operator.id]

    def _known(self, operator: m.Operator) -> Interval | None:
        """What TensorFlow says."""
        if operator.cardinality == INFINITE:
            return Interval(math.inf, math.inf, math.inf)
        if operator.cardinality < 0:
            return None
        owner = self._owner(operator)
        if owner is None:
            return Interval.exactly(float(operator.cardinality))
        opened = self._opened(owner)
        return None if opened is None else opened.map(lambda n: n * operator.cardinality)

    def _counted(self, operator: m.Operator) -> Interval | None:
        """What whole passes, or a cache that is full, have counted."""
        held = self._held(operator)
        if held is not None:
            return held
        passes = self.last.passes
        if not passes or not operator.HasField("running"):
            return None
        repeats = 1.0
        one = operator
        while one.parent:
            one = self.operators[one.parent]
            if one.type in _CUTTING or one.type == "Cache":
                return None
            if one.type == "Repeat":
                if not one.HasField("count") or one.count <= 0:
                    return None
                repeats *= one.count
        counters = self._counters(operator)
        if counters is None or not counters.pass_elements or self._is_fused_below(operator):
            return None
        value = counters.pass_elements * self._passed_over(operator) / passes / repeats
        if self._is_root(operator):  # it outlives the sequence
            return Interval.exactly(value)
        unseen = max(counters.elements - counters.elements_seen, 0.0) / max(counters.elements, 1.0)
        doubt = value * max(unseen, _BETWEEN_LOOKS) + 1.0
        # It was dropped at its end, up to a look's time after it was last seen.
        missed = 0.0 if unseen else float(np.median(self.windows.elements[:, operator.running]))
        return Interval(value, max(value - doubt, 0.0), value + max(doubt, min(missed, value)))

    def _held(self, operator: m.Operator) -> Interval | None:
        """A memory cache that serves holds exactly one pass."""
        counters = self._counters(operator)
        if operator.type != "Cache" or operator.cache_path or counters is None:
            return None
        if self.last.cache_states.get(operator.running) != "serving" or not counters.buffered_elements:
            return None
        return Interval.exactly(float(counters.buffered_elements))

    def _by_rule(self, operator: m.Operator) -> Interval | None:
        kind, inputs = operator.type, self.inputs.get(operator.id, [])
        if kind in _MIXING or kind in ("Zip", "Concatenate"):
            return self._of_several(kind, inputs)
        if kind in _OPENING:
            return self._of_opened(operator)
        if not inputs:
            return self._of_source(operator)
        if len(inputs) > 1:
            return None
        below = self.length(inputs[0])
        if kind == "Take":
            return _take(operator, below)
        if below is None:
            return None
        if kind in _SAME:
            return below
        if math.isinf(below.low):
            return below
        if kind in _BATCHES and operator.batch_size:
            rounded = math.floor if operator.drop_remainder else math.ceil
            return below.map(lambda n: float(rounded(n / operator.batch_size)))
        if kind == "Skip" and operator.HasField("count"):
            return below.map(lambda n: max(n - operator.count, 0.0) if operator.count >= 0 else 0.0)
        if kind == "Shard" and operator.count:
            shards = operator.count
            return Interval(below.value / shards, below.low // shards, -(-below.high // shards))
        if kind == "Repeat" and operator.HasField("count"):
            return below.map(lambda n: n * operator.count) if operator.count >= 0 else _endless(below)
        if kind in _FILTERS:
            return self._filtered(operator, inputs[0], below)
        if kind in ("TakeWhile", "Unique"):
            seen = self._count(operator) if not self._repeated(operator) else 0.0
            return Interval(below.value, min(seen, below.high), below.high)
        return self._measured(operator, inputs[0], below)

    def _of_several(self, kind: str, inputs: list[m.Operator]) -> Interval | None:
        found = [self.length(one) for one in inputs]
        known = [one for one in found if one is not None]
        if not known or (len(known) < len(found) and kind != "Zip"):
            return None
        if kind == "Zip":
            least = smallest(known)
            return least if len(known) == len(found) else Interval(least.value, 0.0, least.high)
        total = known[0]
        for one in known[1:]:
            total = total + one
        # A mixture may end with the first of its inputs.
        return total if kind == "Concatenate" else Interval(total.value, smallest(known).low, total.high)

    def _of_source(self, operator: m.Operator) -> Interval | None:
        """A source of unknown length, from the bytes of its files."""
        files, counters = self.files.get(operator.id), self._counters(operator)
        if files is None or not files.complete or not files.bytes or counters is None:
            return None
        if not counters.HasField("read_bytes") or counters.elements <= 0 or counters.read_bytes <= 0:
            return None
        reads = counters.read_bytes / counters.elements
        value = files.bytes / reads
        known = self._bytes_deviation(operator.running, counters.elements, value)
        # Readers read ahead of what they deliver: up to a buffer's length for each file that is open.
        ahead = min(_READ_AHEAD_BYTES * max(files.count, 1), files.bytes) / max(counters.read_bytes, 1.0)
        ahead *= max(1.0 - counters.elements / value, 0.0)
        relative = 1.96 * known
        return Interval(value, value * max(1 - relative, 0.0), value * (1 + relative) * (1 + ahead))

    def _of_opened(self, operator: m.Operator) -> Interval | None:
        """What a function's datasets deliver: their number times the elements of one."""
        bodies, opened = self.bodies.get(operator.id, []), self._opened(operator)
        if opened is not None and math.isinf(opened.low):
            return opened
        if len(bodies) == 1:
            if bodies[0].cardinality >= 0 and opened is not None:
                return opened.map(lambda n: n * bodies[0].cardinality)
            if bodies[0].cardinality == INFINITE:
                return Interval(math.inf, math.inf, math.inf)
            by_files = self._by_files_inside(operator, bodies[0])
            if by_files is not None:
                return by_files
        inputs = self.inputs.get(operator.id, [])
        if opened is None or len(inputs) != 1:
            return None
        delivered, begun = self._count(operator), self._count(inputs[0])
        if delivered <= 0 or begun <= 0:
            return None
        live = 1.0 if operator.type == "Unbatch" else float(max(operator.cycle_length, 1))
        live *= _OPENED_AHEAD if operator.type == "ParallelInterleave" else 1.0
        ended = max(begun - live, 0.0)
        least, most = delivered / begun, delivered / ended if ended > 0 else math.inf
        spread = self._deviation(operator, inputs[0], max(ended, 1.0), opened.value, _CHILDREN_VARY)
        # An interleave smooths what its windows show: how much its children differ does not show there.
        alone = _CHILDREN_VARY * least / math.sqrt(max(ended, 1.0))
        spread = max(spread, alone * math.sqrt(max(1.0 - begun / opened.value, 0.0)) if live > 1 else 0.0)
        value = delivered / max(begun - live / 2, begun / 2)
        ratio = Interval(value, max(least - 1.96 * spread, 0.0), most + 1.96 * spread)
        return opened * ratio

    def _by_files_inside(self, owner: m.Operator, body: m.Operator) -> Interval | None:
        """Elements of an interleave over files, from the bytes of all files."""
        one = body
        while self.inputs.get(one.id):
            (one, *more) = self.inputs[one.id]
            if more:
                return None
        if self._owner(one) is not owner or one.id not in self.files:
            return None
        records = self.length(one)
        delivered, read = self._count(owner), self._count(one)
        if records is None or delivered <= 0 or read <= 0:
            return None
        spread = self._deviation(owner, one, read, records.value, _CHILDREN_VARY)
        return records * Interval.around(delivered / read, spread if one is not body else 0.0)

    def _filtered(self, operator: m.Operator, source: m.Operator, below: Interval) -> Interval | None:
        hits, draws = self._count(operator), self._count(source)
        spread = self._clustering(operator, source)
        ends = []
        for whole in (below.value, below.low, below.high):
            # What nobody saw is made up: only what was seen tells of the rest.
            sure = min(self._seen_share(operator), self._seen_share(source))
            drawn = draws if sure == 1.0 else min(draws, whole) * sure
            ends.append(share(hits * drawn / draws if draws > 0 else 0.0, drawn, whole, spread))
        # Filter and input were not looked at in the same instant.
        return Interval(ends[0].value, max(min(e.low for e in ends) - 1, 0), max(e.high for e in ends) + 1)

    def _measured(self, operator: m.Operator, source: m.Operator, below: Interval) -> Interval | None:
        """An operator without a rule of its own: outputs over inputs so far."""
        made, taken = self._count(operator), self._count(source)
        if made <= 0 or taken <= 0:
            return None
        spread = self._deviation(operator, source, taken, below.value, _CHILDREN_VARY)
        return below * Interval.around(made / taken, spread)

    def _at_least_seen(self, operator: m.Operator, length: Interval) -> Interval:
        """No pass is shorter than what one pass has delivered already."""
        if self._repeated(operator) or self.last.iterators > 1 or self._owner(operator) is not None:
            return length
        counters = self._counters(operator)
        if counters is None or self._is_fused_below(operator):
            return length
        seen = min(counters.elements_seen, counters.elements)
        return Interval(max(length.value, seen), max(length.low, seen), max(length.high, seen))

    # What was counted.

    def _counters(self, operator: m.Operator) -> m.OperatorCounters | None:
        if not operator.HasField("running") or operator.running >= len(self.last.operators):
            return None
        return self.last.operators[operator.running]

    def _is_fused_below(self, operator: m.Operator) -> bool:
        """Whether TensorFlow counts the batches that it is fused with, not its own elements."""
        running = self.pipeline.running[operator.running]
        return running.type == "MapAndBatch" and running.operators[:1] != [operator.id]

    def _count(self, operator: m.Operator) -> float:
        """Elements so far, over all passes."""
        counters = self._counters(operator)
        if counters is None or self._is_fused_below(operator):
            inputs = self.inputs.get(operator.id, [])
            return self._count(inputs[0]) if inputs else 0.0
        return counters.elements * self._passed_over(operator)

    def _seen_share(self, operator: m.Operator) -> float:
        """Part of its elements that looks found; the rest was made up."""
        counters = self._counters(operator)
        if counters is None or counters.elements <= 0:
            return 1.0
        return min(counters.elements_seen / counters.elements, 1.0)

    def _passed_over(self, operator: m.Operator) -> float:
        """Elements that it went through for each that was counted.

        A shard has a flat map or a sequential interleave pass over what is not its own, which TensorFlow does not
        count.
        """
        if not operator.HasField("running") or not operator.parent:
            return 1.0
        consumer = self.operators[operator.parent]
        if consumer.type != "Shard" or operator.in_body:
            return 1.0
        uncounted = self.pipeline.running[operator.running].type in ("FlatMap", "Interleave")
        return float(max(consumer.count, 1)) if uncounted else 1.0

    def _is_root(self, operator: m.Operator) -> bool:
        """Whether each of its elements is one of the last operator's."""
        while operator.parent:
            operator = self.operators[operator.parent]
            if operator.type not in ("Prefetch", "Options"):
                return False
        return True

    def _column(self, operator: m.Operator) -> Array | None:
        """Elements per window."""
        if not operator.HasField("running") or self._is_fused_below(operator):
            inputs = self.inputs.get(operator.id, [])
            return self._column(inputs[0]) if inputs else None
        return self.windows.elements[:, operator.running] * self._passed_over(operator)

    def _deviation(
        self, operator: m.Operator, source: m.Operator, seen: float, whole: float, usual: float
    ) -> float:
        above, below = self._column(operator), self._column(source)
        if above is None or below is None:
            return math.inf
        return deviation_of_ratio(above, below, seen=seen, whole=whole, usual=usual)

    def _clustering(self, operator: m.Operator, source: m.Operator) -> float:
        """Squared spread of a filter's share over windows, relative to that of independent draws."""
        above, below = self._column(operator), self._column(source)
        if above is None or below is None:
            return 1.0
        used = below > 0
        hits, draws = above[used], below[used]
        p = hits.sum() / draws.sum() if draws.sum() > 0 else 0.0
        if len(draws) < 4 or not 0 < p < 1:
            return 1.0
        return float(np.mean((hits - p * draws) ** 2 / (draws * p * (1 - p))) * len(draws) / (len(draws) - 1))

    def _element_bytes(self, operator: m.Operator, length: Interval | None) -> Interval | None:
        counters = self._counters(operator)
        if counters is None or counters.elements_seen <= 0:
            return None
        scale = 1.0
        if self._is_fused_below(operator):
            scale = max(self._count(operator) / max(counters.elements, 1e-12), 1.0)
        seen = counters.elements_seen * scale
        whole = length.value if length is not None else math.inf
        value = counters.bytes_produced / seen
        return Interval.around(value, value * self._bytes_deviation(operator.running, seen, whole))

    def _bytes_deviation(self, running: int, seen: float, whole: float) -> float:
        """Relative standard deviation of the mean bytes of an element."""
        made, elements = self.windows.bytes[:, running], self.windows.seen[:, running]
        used = elements > 0
        mean = made[used].sum() / elements[used].sum() if used.any() else 0.0
        if mean <= 0:
            return 0.0
        found = deviation_of_ratio(made, elements, seen=seen, whole=whole, usual=_BYTES_VARY)
        return 0.0 if math.isinf(found) else found / float(mean)

    def _cached(self, operator: m.Operator) -> Interval | None:
        """A memory cache that is full says what its tensors weigh."""
        held, counters = self._held(operator), self._counters(operator)
        if held is None or counters is None or not counters.buffered_bytes:
            return None
        beside = held.value * CACHE_TENSOR_BYTES * (operator.components or USUAL_COMPONENTS)
        return Interval.exactly(counters.buffered_bytes + beside)

    # Places.

    def _owner(self, operator: m.Operator) -> m.Operator | None:
        """The interleave or flat map whose function's body holds the operator; None in the main graph."""
        while operator.parent:
            parent = self.operators[operator.parent]
            if operator.in_body:
                return parent
            operator = parent
        return None

    def _opened(self, owner: m.Operator) -> Interval | None:
        """Datasets that the function of an interleave makes in a pass: one for each element it takes."""
        inputs = self.inputs.get(owner.id, [])
        return self.length(inputs[0]) if len(inputs) == 1 else None

    def _repeated(self, operator: m.Operator) -> bool:
        while operator.parent:
            operator = self.operators[operator.parent]
            if operator.type == "Repeat":
                return True
        return False


#: What a reader may have read and not delivered yet, per open file: TensorFlow's buffers.
_READ_AHEAD_BYTES = 256 << 10


def _take(operator: m.Operator, below: Interval | None) -> Interval | None:
    if not operator.HasField("count") or operator.count < 0:
        return below
    count = float(operator.count)
    return Interval(count, 0.0, count) if below is None else below.within(0.0, count)


def _endless(below: Interval) -> Interval:
    """For ever, unless there is nothing to repeat."""
    return Interval(math.inf, math.inf, math.inf) if below.value > 0 else Interval.exactly(0.0)
