"""Cumulative counters of one iterator, made of snapshots of a model whose nodes come and go.

TensorFlow drops the nodes of finished children: those of interleave and flat_map, everything
under a repeat at the end of each epoch, and at the end of a sequence most of what stood before
the end. New ones start from zero under new ids. So each node's largest counts are kept by its
id, summed over the nodes at one place of the tree ("seen"), and what came and went between two
snapshots is made up from the counts of the consumer that survived ("elements").
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorboard_plugin_plumber.schema import measurement_pb2 as m

# Each output took exactly one input, all through a whole epoch.
_ONE_TO_ONE = re.compile(
    r"Prefetch|Map(V\d)?$|MapWithUnbounded|ParallelMap(V\d)?$|.*Shuffle|.*Repeat|FiniteTake|Take|Zip|Options|Scan|"
    r"AssertNext|AssertCardinality|SetStatsAggregator|MaxIntraOpParallelism|PrivateThreadPool|Root|Model$"
)
# The ratio of inputs to outputs holds at any moment: nothing is buffered but one output.
_STEADY_RATIO = re.compile(
    r"Batch|ParallelBatch|PaddedBatch|MapAndBatch|Filter|ParallelFilter|Shard|DenseToSparseBatch"
)
# A cache that serves takes nothing from its input: what it gave out says nothing about that.
_CACHE = re.compile(r"(Memory|File)?Cache")


@dataclass(frozen=True)
class Spread:
    """Sums over pairs of looks at one node, between which it finished n elements in p nanoseconds.

    With s = Σp / Σn, (Σp²/n - s Σp) / (looks - 1) is the variance of a single element's time.

    Attributes:
      looks: number of pairs.
      elements: Σ n.
      time_ns: Σ p.
      squares_ns2: Σ p²/n.
    """

    looks: int = 0
    elements: int = 0
    time_ns: int = 0
    squares_ns2: float = 0.0

    def __add__(self, other: Spread) -> Spread:
        return Spread(
            self.looks + other.looks,
            self.elements + other.elements,
            self.time_ns + other.time_ns,
            self.squares_ns2 + other.squares_ns2,
        )


@dataclass(frozen=True)
class Count:
    """What one running operator has done: totals over all of its nodes, seen or made up.

    Attributes:
      elements: produced, with what came and went unseen.
      seen: those of `elements` that the two below belong to.
      processing_ns: TensorFlow's processing time.
      bytes_produced: allocated bytes of the output.
      spread: of the processing time of single elements.
    """

    elements: float = 0.0
    seen: float = 0.0
    processing_ns: int = 0
    bytes_produced: int = 0
    spread: Spread = Spread()

    def __add__(self, other: Count) -> Count:
        return Count(
            self.elements + other.elements,
            self.seen + other.seen,
            self.processing_ns + other.processing_ns,
            self.bytes_produced + other.bytes_produced,
            self.spread + other.spread,
        )


@dataclass(frozen=True)
class Parameter:
    """One of AUTOTUNE's parameters.

    Attributes:
      name: "parallelism", "buffer_size", "cycle_length" ….
      value: in force.
      lowest: that it may become.
      highest: that it may become.
      tunable: AUTOTUNE rules it.
    """

    name: str
    value: float
    lowest: float
    highest: float
    tunable: bool


@dataclass
class Now:
    """What one running operator holds at the last snapshot that had it."""

    buffered_bytes: int = 0
    buffered_elements: int = 0
    parameters: tuple[Parameter, ...] = ()

    def parameter(self, name: str) -> Parameter | None:
        """The parameter of a name; None if the operator has no such parameter."""
        return next((one for one in self.parameters if one.name == name), None)


def as_message(count: Count, elements: float, now: Now) -> m.OperatorCounters:
    """What a sample says of one running operator.

    Args:
      count: its totals.
      elements: written instead of `count.elements`.
      now: what it holds.
    """
    message = m.OperatorCounters(
        elements=elements,
        elements_seen=count.seen,
        processing_time_ns=count.processing_ns,
        bytes_produced=count.bytes_produced,
        buffered_bytes=now.buffered_bytes,
        buffered_elements=now.buffered_elements,
        parameters=[
            m.Parameter(name=one.name, value=one.value, min=one.lowest, max=one.highest, tunable=one.tunable)
            for one in now.parameters
        ],
        spread_looks=count.spread.looks,
        spread_elements=count.spread.elements,
        spread_time_ns=count.spread.time_ns,
        spread_squares_ns2=count.spread.squares_ns2,
    )
    parallelism, buffer_size = now.parameter("parallelism"), now.parameter("buffer_size")
    if parallelism is not None:
        message.parallelism, message.parallelism_tunable = parallelism.value, parallelism.tunable
    if buffer_size is not None:
        message.buffer_size, message.buffer_size_tunable = buffer_size.value, buffer_size.tunable
    return message


@dataclass
class _Node:
    """One node of the model, by its largest counts."""

    index: int
    # Id of the node whose index is this one's consumer; 0 at the root.
    consumer: int
    # A second node of an operator that counts its elements already: only its time adds.
    alias: bool
    elements: int = 0
    processing_ns: int = 0
    bytes_produced: int = 0
    # The consumer's elements in the same snapshot.
    consumer_elements: int = 0
    # Elements and time at the last look that found it further; (0, 0) before the first element.
    looked_elements: int = 0
    looked_ns: int = 0


@dataclass
class _Total:
    """Sums over the nodes of one running operator."""

    seen: int = 0
    processing_ns: int = 0
    bytes_produced: int = 0
    # Σ of the consumers' elements when these nodes were last seen.
    matched: int = 0

    def add(self, node: _Node) -> None:
        self.processing_ns += node.processing_ns
        if not node.alias:
            self.seen += node.elements
            self.bytes_produced += node.bytes_produced
            self.matched += node.consumer_elements


@dataclass
class CacheWatch:
    """What has been seen of one cache: whether it ever served, and how often it began to fill."""

    filling_nodes: set[int] = field(default_factory=set)
    serves: bool = False
    fills: bool = False

    @property
    def state(self) -> str | None:
        """ "filling", "serving", "never completes"; None before anything is known."""
        if self.serves:
            return "serving"
        if len(self.filling_nodes) > 1:
            return "never completes"
        return "filling" if self.fills else None


class IteratorCounters:
    """Counters of one iterator, by index into `Pipeline.running`.

    Args:
      running: the operators that run, pre-order, index 0 the root.
      bodies: indices of the roots of function bodies: what the functions of interleave, flat_map
        and their like return, whose elements these hand on one by one.
    """

    def __init__(self, running: Sequence[m.RunningOperator], bodies: Collection[int]) -> None:
        self._consumer = [op.parent if op.HasField("parent") else -1 for op in running]
        self._types = [op.type for op in running]
        self._body_root = [i in bodies for i in range(len(running))]
        self._one_to_one = [
            self._body_root[i] or (c >= 0 and bool(_ONE_TO_ONE.match(self._types[c])))
            for i, c in enumerate(self._consumer)
        ]
        # Several bodies of one function, of which each input gets one: they share the consumer's elements.
        siblings = [[j for j in bodies if self._consumer[j] == c] for c in self._consumer]
        self._alternatives = [
            own if self._body_root[i] and len(own) > 1 else [] for i, own in enumerate(siblings)
        ]
        self._steady = [c >= 0 and bool(_STEADY_RATIO.match(self._types[c])) for c in self._consumer]
        self._from_cache = [c >= 0 and bool(_CACHE.match(self._types[c])) for c in self._consumer]
        self._caches = {i: CacheWatch() for i, type_ in enumerate(self._types) if _CACHE.match(type_)}
        self._live: dict[int, _Node] = {}
        self._ended = [_Total() for _ in running]
        self._spread = [Spread() for _ in running]
        self._now = [Now() for _ in running]
        self._base: list[Count] | None = None
        self.root_elements = 0

    def observe(self, model: Any, mapping: Mapping[int, int]) -> None:
        """Takes one snapshot.

        Args:
          model: a `tensorflow.data.model.ModelProto`.
          mapping: node id to index into the running operators, as `align` makes it. Nodes that
            are absent are passed over.
        """
        nodes = model.nodes
        live: dict[int, _Node] = {}
        latest: dict[int, Any] = {}
        # The second node of an operator: of a memory cache it is the one that holds the elements.
        second: dict[int, Any] = {}
        stack = [(model.output, 0)]
        while stack:
            node_id, consumer = stack.pop()
            if node_id not in nodes:
                continue
            proto = nodes[node_id]
            index = mapping.get(node_id)
            below = consumer
            if index is not None:
                node = self._live.pop(node_id, None)
                if node is None:
                    above = live.get(consumer)
                    alias = above is not None and above.index == index
                    node = _Node(index, above.consumer if alias and above else consumer, alias)
                above = live.get(node.consumer)
                node.elements = max(node.elements, proto.num_elements)
                node.processing_ns = max(node.processing_ns, proto.processing_time)
                node.bytes_produced = max(node.bytes_produced, proto.bytes_produced)
                node.consumer_elements = above.elements if above is not None else 0
                live[node_id] = node
                if not node.alias:
                    below = node_id
                    latest[index] = proto
                    self._take_spread(node)
                else:
                    second[index] = proto
            stack.extend((child, below) for child in proto.inputs)
        for node in self._live.values():  # they are gone, and their ids never come back
            self._ended[node.index].add(node)
        self._live = live
        for index, proto in latest.items():
            self._take_now(index, proto)
            if index in second:
                self._now[index].buffered_bytes += second[index].buffered_bytes
                self._now[index].buffered_elements += second[index].buffered_elements
        self.root_elements = max(self.root_elements, nodes[model.output].num_elements)
        if self._caches:
            self._watch_caches()

    def start_here(self) -> None:
        """Leaves out all that was counted before now, of an iterator made before the session."""
        self._base = None
        self._base = self.counts()

    def counts(self) -> list[Count]:
        """Totals so far, by index; `elements` never falls below `seen`."""
        totals = [_Total(t.seen, t.processing_ns, t.bytes_produced, t.matched) for t in self._ended]
        surplus = [0.0] * len(totals)
        for node in self._live.values():
            totals[node.index].add(node)
            if not node.alias:
                surplus[node.index] += max(0, node.elements - node.consumer_elements)
        counts: list[Count] = []
        for i, total in enumerate(totals):
            elements = float(total.seen)
            c = self._consumer[i]
            if c >= 0:
                above = counts[c]
                coverage = above.elements / above.seen if above.seen else 1.0
                if self._alternatives[i]:
                    seen = sum(totals[one].seen for one in self._alternatives[i])
                    elements = max(elements, above.elements * total.seen / max(seen, 1))
                elif self._one_to_one[i]:
                    elements = max(elements, above.elements + surplus[i])
                elif self._steady[i] and total.matched:
                    elements = max(elements, above.elements * total.seen / total.matched)
                elif not self._from_cache[i]:
                    elements *= coverage
            counts.append(
                Count(elements, total.seen, total.processing_ns, total.bytes_produced, self._spread[i])
            )
        if self._base is not None:
            counts = [_difference(now, before) for now, before in zip(counts, self._base, strict=True)]
        return counts

    def now(self) -> list[Now]:
        """What each operator holds and has in force, by index."""
        return self._now

    def alive(self) -> set[int]:
        """Indices of the operators that the last snapshot had."""
        return {node.index for node in self._live.values()}

    def caches(self) -> dict[int, CacheWatch]:
        """What was seen of each cache, by index."""
        return self._caches

    def _take_now(self, index: int, proto: Any) -> None:
        now = self._now[index]
        now.buffered_bytes = proto.buffered_bytes
        now.buffered_elements = proto.buffered_elements
        now.parameters = tuple(
            Parameter(one.name, _in_force(one), one.min, one.max, one.tunable) for one in proto.parameters
        )

    def _take_spread(self, node: _Node) -> None:
        """One more pair of looks, if elements were finished since the last one that saw some."""
        n = node.elements - node.looked_elements
        if not n:
            return
        p = node.processing_ns - node.looked_ns
        if node.looked_elements:  # what came before the first look holds first calls
            self._spread[node.index] += Spread(1, n, p, p * p / n)
        node.looked_elements, node.looked_ns = node.elements, node.processing_ns

    def _watch_caches(self) -> None:
        fed = {node.consumer for node in self._live.values() if not node.alias}
        for node_id, node in self._live.items():
            watch = self._caches.get(node.index)
            if watch is None or node.alias or not node.elements:
                continue
            watch.fills = node_id in fed
            if node_id in fed:
                watch.filling_nodes.add(node_id)
            elif node_id not in watch.filling_nodes:
                # Its input was never there: the elements come from what an earlier pass stored.
                watch.serves = True


def _difference(now: Count, before: Count) -> Count:
    return Count(
        max(0.0, now.elements - before.elements),
        max(0.0, now.seen - before.seen),
        max(0, now.processing_ns - before.processing_ns),
        max(0, now.bytes_produced - before.bytes_produced),
        now.spread,  # pairs of looks begin with the first look: nothing of it is from before
    )


def _in_force(parameter: Any) -> float:
    # `value` is the optimiser's trial where it tunes, and all there is where nothing is tunable.
    if parameter.tunable:
        return float(parameter.state_value)
    return float(parameter.state_value or parameter.value)
