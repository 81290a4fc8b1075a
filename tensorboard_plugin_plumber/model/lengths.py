"""How many elements a pass of each operator has (docs/model.md, "Sizes").

What TensorFlow knows of a length is exact. The rest follows from the operators below by their rules (a take, a
batch), from whole passes that were counted, from the bytes of files over the bytes that one element takes, or from
what was seen of a pass so far, with an interval that is the wider the less was seen.

Below an interleave or flat map all instances of the function's dataset count together, over one pass of the
interleave.
"""

from __future__ import annotations

import math

import numpy as np

from tensorboard_plugin_plumber.model.counted import Counted
from tensorboard_plugin_plumber.model.intervals import Interval, share, smallest
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

INFINITE = -1
#: Coefficient of variation of the elements of a function's datasets where windows cannot tell.
_CHILDREN_VARY = 1.0
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
#: What a reader may have read and not delivered yet, per open file: TensorFlow's buffers.
_READ_AHEAD_BYTES = 256 << 10


class Lengths:
    """Lengths of the passes of one pipeline's operators.

    Args:
      counted: what was counted of it.
    """

    def __init__(self, counted: Counted) -> None:
        self._counted = counted
        self._found: dict[str, Interval | None] = {}

    def length(self, operator: m.Operator) -> Interval | None:
        """Elements of one pass; all infinite if it never ends; None if unknown."""
        if operator.id not in self._found:
            self._found[operator.id] = None  # whatever asks for itself learns nothing
            found = self._known(operator)
            if found is None:
                found = self._by_whole_passes(operator) or self._by_rule(operator)
                found = found and self._at_least_seen(operator, found)
            self._found[operator.id] = found
        return self._found[operator.id]

    def _known(self, operator: m.Operator) -> Interval | None:
        """What TensorFlow says."""
        if operator.cardinality == INFINITE:
            return Interval(math.inf, math.inf, math.inf)
        if operator.cardinality < 0:
            return None
        owner = self._counted.owner(operator)
        if owner is None:
            return Interval.exactly(float(operator.cardinality))
        opened = self._opened(owner)
        return None if opened is None else opened.map(lambda n: n * operator.cardinality)

    def _by_whole_passes(self, operator: m.Operator) -> Interval | None:
        """What whole passes, or a cache that is full, have counted."""
        held = self.held(operator)
        if held is not None:
            return held
        passes = self._counted.last.passes
        if not passes or not operator.HasField("running"):
            return None
        repeats = 1.0
        one = operator
        while one.parent:
            one = self._counted.operators[one.parent]
            if one.type in _CUTTING or one.type == "Cache":
                return None
            if one.type == "Repeat":
                if not one.HasField("count") or one.count <= 0:
                    return None
                repeats *= one.count
        counters = self._counted.counters(operator)
        if counters is None or not counters.pass_elements or self._counted.is_fused_below(operator):
            return None
        value = counters.pass_elements * self._counted.passed_over(operator) / passes / repeats
        if self._counted.is_root(operator):  # it outlives the sequence
            return Interval.exactly(value)
        unseen = max(counters.elements - counters.elements_seen, 0.0) / max(counters.elements, 1.0)
        doubt = value * max(unseen, _BETWEEN_LOOKS) + 1.0
        # It was dropped at its end, up to a look's time after it was last seen.
        missed = 0.0 if unseen else float(np.median(self._counted.windows.elements[:, operator.running]))
        return Interval(value, max(value - doubt, 0.0), value + max(doubt, min(missed, value)))

    def held(self, operator: m.Operator) -> Interval | None:
        """A memory cache that serves holds exactly one pass."""
        counters = self._counted.counters(operator)
        if operator.type != "Cache" or operator.cache_path or counters is None:
            return None
        if (
            self._counted.last.cache_states.get(operator.running) != "serving"
            or not counters.buffered_elements
        ):
            return None
        return Interval.exactly(float(counters.buffered_elements))

    def _by_rule(self, operator: m.Operator) -> Interval | None:
        kind, inputs = operator.type, self._counted.inputs.get(operator.id, [])
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
            seen = self._counted.count(operator) if not self._counted.repeated(operator) else 0.0
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
        files, counters = self._counted.files.get(operator.id), self._counted.counters(operator)
        if files is None or not files.complete or not files.bytes or counters is None:
            return None
        if not counters.HasField("read_bytes") or counters.elements <= 0 or counters.read_bytes <= 0:
            return None
        reads = counters.read_bytes / counters.elements
        value = files.bytes / reads
        known = self._counted.bytes_deviation(operator.running, counters.elements, value)
        # Readers read ahead of what they deliver: up to a buffer's length for each file that is open.
        ahead = min(_READ_AHEAD_BYTES * max(files.count, 1), files.bytes) / max(counters.read_bytes, 1.0)
        ahead *= max(1.0 - counters.elements / value, 0.0)
        relative = 1.96 * known
        return Interval(value, value * max(1 - relative, 0.0), value * (1 + relative) * (1 + ahead))

    def _of_opened(self, operator: m.Operator) -> Interval | None:
        """What a function's datasets deliver: their number times the elements of one."""
        bodies, opened = self._counted.bodies.get(operator.id, []), self._opened(operator)
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
        inputs = self._counted.inputs.get(operator.id, [])
        if opened is None or len(inputs) != 1:
            return None
        delivered, begun = self._counted.count(operator), self._counted.count(inputs[0])
        if delivered <= 0 or begun <= 0:
            return None
        live = 1.0 if operator.type == "Unbatch" else float(max(operator.cycle_length, 1))
        live *= _OPENED_AHEAD if operator.type == "ParallelInterleave" else 1.0
        ended = max(begun - live, 0.0)
        least, most = delivered / begun, delivered / ended if ended > 0 else math.inf
        spread = self._counted.deviation(operator, inputs[0], max(ended, 1.0), opened.value, _CHILDREN_VARY)
        # An interleave smooths what its windows show: how much its children differ does not show there.
        alone = _CHILDREN_VARY * least / math.sqrt(max(ended, 1.0))
        spread = max(spread, alone * math.sqrt(max(1.0 - begun / opened.value, 0.0)) if live > 1 else 0.0)
        value = delivered / max(begun - live / 2, begun / 2)
        ratio = Interval(value, max(least - 1.96 * spread, 0.0), most + 1.96 * spread)
        return opened * ratio

    def _by_files_inside(self, owner: m.Operator, body: m.Operator) -> Interval | None:
        """Elements of an interleave over files, from the bytes of all files."""
        one = body
        while self._counted.inputs.get(one.id):
            (one, *more) = self._counted.inputs[one.id]
            if more:
                return None
        if self._counted.owner(one) is not owner or one.id not in self._counted.files:
            return None
        records = self.length(one)
        delivered, read = self._counted.count(owner), self._counted.count(one)
        if records is None or delivered <= 0 or read <= 0:
            return None
        spread = self._counted.deviation(owner, one, read, records.value, _CHILDREN_VARY)
        return records * Interval.around(delivered / read, spread if one is not body else 0.0)

    def _filtered(self, operator: m.Operator, source: m.Operator, below: Interval) -> Interval | None:
        hits, draws = self._counted.count(operator), self._counted.count(source)
        spread = self._counted.clustering(operator, source)
        ends = []
        for whole in (below.value, below.low, below.high):
            # What nobody saw is made up: only what was seen tells of the rest.
            sure = min(self._counted.seen_share(operator), self._counted.seen_share(source))
            drawn = draws if sure == 1.0 else min(draws, whole) * sure
            ends.append(share(hits * drawn / draws if draws > 0 else 0.0, drawn, whole, spread))
        # Filter and input were not looked at in the same instant.
        return Interval(ends[0].value, max(min(e.low for e in ends) - 1, 0), max(e.high for e in ends) + 1)

    def _measured(self, operator: m.Operator, source: m.Operator, below: Interval) -> Interval | None:
        """An operator without a rule of its own: outputs over inputs so far."""
        made, taken = self._counted.count(operator), self._counted.count(source)
        if made <= 0 or taken <= 0:
            return None
        spread = self._counted.deviation(operator, source, taken, below.value, _CHILDREN_VARY)
        return below * Interval.around(made / taken, spread)

    def _at_least_seen(self, operator: m.Operator, length: Interval) -> Interval:
        """No pass is shorter than what one pass has delivered already."""
        if (
            self._counted.repeated(operator)
            or self._counted.last.iterators > 1
            or self._counted.owner(operator) is not None
        ):
            return length
        counters = self._counted.counters(operator)
        if counters is None or self._counted.is_fused_below(operator):
            return length
        seen = min(counters.elements_seen, counters.elements)
        return Interval(max(length.value, seen), max(length.low, seen), max(length.high, seen))

    def _opened(self, owner: m.Operator) -> Interval | None:
        """Datasets that the function of an interleave makes in a pass: one for each element it takes."""
        inputs = self._counted.inputs.get(owner.id, [])
        return self.length(inputs[0]) if len(inputs) == 1 else None


def _take(operator: m.Operator, below: Interval | None) -> Interval | None:
    if not operator.HasField("count") or operator.count < 0:
        return below
    count = float(operator.count)
    return Interval(count, 0.0, count) if below is None else below.within(0.0, count)


def _endless(below: Interval) -> Interval:
    """For ever, unless there is nothing to repeat."""
    return Interval(math.inf, math.inf, math.inf) if below.value > 0 else Interval.exactly(0.0)
