"""Cumulative counters of one iterator, made of snapshots of a model whose nodes come and go.

TensorFlow drops the nodes of finished children: those of interleave and flat_map, everything
under a repeat at the end of each epoch, and at the end of a sequence most of what stood before
the end. New ones start from zero under new ids. Here each node is followed by its id, and each
instance of a subtree (a life) is weighted by how likely it was to be found; `unseen` makes totals
of the sums.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorboard_plugin_plumber.capture.counts import Count, Now, Parameter, Spread
from tensorboard_plugin_plumber.capture.edges import CACHE, Edge, openers, places, survivors
from tensorboard_plugin_plumber.capture.lives import Ages, Life, Node
from tensorboard_plugin_plumber.capture.tally import Tally, kinds, leads
from tensorboard_plugin_plumber.capture.unseen import Held, Sums, totals
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

# So many elements tell how the first ones of a life are.
_EARLY = 3


@dataclass
class CacheWatch:
    """What has been seen of one cache: whether it ever served, and how often it began to fill."""

    filling_nodes: set[int] = field(default_factory=set)
    serves: bool = False
    fills: bool = False
    # The most elements that one pass was seen to give.
    most: int = 0

    @property
    def state(self) -> str | None:
        """ "filling", "serving", "never completes"; None before anything is known."""
        if self.serves:
            return "serving"
        if len(self.filling_nodes) > 1:
            return "never completes"
        return "filling" if self.fills else None


class Layout:
    """What the counters of all iterators of one pipeline have in common.

    Args:
      running: the operators that run, pre-order, index 0 the root.
      bodies: indices of the roots of function bodies: what the functions of interleave, flat_map
        and their like return, whose elements these hand on one by one.

    Attributes:
      places: of the operators.
      kinds: of their elements in `flushed.flushed`, by operator.
      leads: as `tally.leads` has them.
      caches: indices of the caches.
      concatenated: by index of a concatenation: its first input and its second.
      openers: by root of a function's body, the operator of which each element begins one.
      survives: by operator, whether it lives as long as the iterator.
      ends: by operator, the index behind the last one of its subtree: they stand in pre-order.
    """

    def __init__(self, running: Sequence[m.RunningOperator], bodies: Collection[int]) -> None:
        self.places = places(running, bodies)
        self.kinds = kinds(running)
        self.leads = leads(self.places)
        self.caches = tuple(i for i, op in enumerate(running) if CACHE.match(op.type))
        self.concatenated: dict[int, tuple[int, int]] = {}
        for i, place in enumerate(self.places):
            if place.edge is Edge.CONCATENATE:
                self.concatenated[place.consumer] = (self.concatenated.get(place.consumer, (i, i))[0], i)
        self.openers = openers(self.places)
        self.survives = survivors(self.places)
        self.ends = list(range(1, len(running) + 1))
        for i in reversed(range(1, len(running))):
            above = self.places[i].consumer
            self.ends[above] = max(self.ends[above], self.ends[i])


class IteratorCounters:
    """Counters of one iterator, by index into `Pipeline.running`.

    Args:
      layout: of its pipeline.
      at_start: `flushed.flushed` when the iterator was made; None if that is not known.
    """

    def __init__(self, layout: Layout, at_start: Mapping[str, int] | None = None) -> None:
        self._places = layout.places
        self._tally = (
            Tally(layout.kinds, layout.places, layout.leads, at_start) if at_start is not None else None
        )
        if self._tally is not None and not self._tally.is_needed:
            self._tally = None
        self._caches = {i: CacheWatch() for i in layout.caches}
        self._concatenated = layout.concatenated
        self._openers = layout.openers
        self._survives = layout.survives
        self._ends = layout.ends
        self._live: dict[int, Node] = {}
        self._sums = [Sums() for _ in layout.places]
        self._held = [Held() for _ in layout.places]
        self._ages = [Ages() for _ in layout.places]
        # By root of what lives: nodes.
        self._sizes = [0] * len(layout.places)
        self._ids = 0
        # Elements at the first look.
        self._at_first: list[float] | None = None
        self._spread = [Spread() for _ in layout.places]
        # The last message of each operator's last node.
        self._latest: dict[int, Any] = {}
        # And of its second node: of a memory cache it is the one that holds the elements.
        self._second: dict[int, Any] = {}
        # That were given before the session.
        self._ids_before = 0
        self._looked_s: float | None = None
        self.root_elements = 0

    def observe(
        self,
        model: Any,
        mapping: Mapping[int, int],
        now_s: float | None = None,
        flushed: Mapping[str, int] | None = None,
    ) -> None:
        """Takes one snapshot.

        Args:
          model: a `tensorflow.data.model.ModelProto`.
          mapping: node id to index into the running operators, as `align` makes it. Nodes that
            are absent are passed over.
          now_s: `perf_counter` at which it was taken; now if left out.
          flushed: `flushed.flushed` at that time, if it is known.
        """
        now_s = time.perf_counter() if now_s is None else now_s
        period_ns = 0.0 if self._looked_s is None else max(0.0, now_s - self._looked_s) * 1e9
        self._looked_s = now_s
        self._ids = model.id_counter - 1
        self._held = [Held() for _ in self._places]
        strangers: dict[int, int] = {}
        before, self._live = self._live, {}
        for node_id, consumer, proto in self._walk(model, mapping, strangers):
            node = before.get(node_id) or self._new_node(mapping[node_id], consumer)
            node.take(proto)
            self._live[node_id] = node
            if node.alias:
                self._second[node.index] = proto
            else:
                self._latest[node.index] = proto
                self._second.pop(node.index, None)
                self._take_spread(node)
                self._hold(node, self._live.get(consumer), proto, mapping)
        self.root_elements = max(self.root_elements, model.nodes[model.output].num_elements)
        self._add_up(period_ns, strangers)
        if self._caches:
            self._watch_caches()
        if self._tally is not None and flushed is not None:
            self._tally.look(model, mapping, flushed, self._estimated)

    def start_here(self, model: Any, mapping: Mapping[int, int]) -> None:
        """Leaves out all that was counted before now, of an iterator made before the session.

        Args:
          model: the one that was observed, as the only one so far.
          mapping: likewise.
        """
        for node in self._live.values():
            node.start_here()
        self._sums = [Sums() for _ in self._places]
        self._held = [Held() for _ in self._places]
        self._ages = [Ages() for _ in self._places]
        self._at_first = None
        self._ids_before = self._ids
        if self._tally is not None:
            self._tally.adopt(model, mapping)

    def counts(self) -> list[Count]:
        """Totals so far, by index; `elements` never falls below `seen`."""
        counts: list[Count] = []
        for sums, elements, spread in zip(self._sums, self._elements(), self._spread, strict=True):
            # The times belong to as many elements as there were, if more were made up than that.
            share = min(1.0, elements / sums.elements) if sums.elements else 1.0
            counts.append(
                Count(
                    elements,
                    share * sums.elements,
                    round(share * sums.processing_ns),
                    round(share * sums.bytes_produced),
                    spread,
                )
            )
        return counts

    def now(self) -> list[Now]:
        """What each operator holds and has in force, by index."""
        return [_now(self._latest.get(i), self._second.get(i)) for i in range(len(self._places))]

    def alive(self) -> set[int]:
        """Indices of the operators that the last snapshot had."""
        return {node.index for node in self._live.values()}

    def caches(self) -> dict[int, CacheWatch]:
        """What was seen of each cache, by index."""
        return self._caches

    def _elements(self) -> list[float]:
        estimated = self._estimated()
        if self._tally is None:
            return estimated
        births = self._births()
        exact = self._tally.exact(estimated, [sums.found for sums in self._sums], births)
        return self._estimated(births | exact) if exact else estimated

    def _estimated(self, births: Mapping[int, float] | None = None) -> list[float]:
        fills = {
            i: float(watch.most) if watch.serves else float("inf")
            for i, watch in self._caches.items()
            if len(watch.filling_nodes) == 1
        }
        births = self._births() if births is None else births
        lives = {
            place: births.get(opener, self._sums[opener].elements)
            for place, opener in self._openers.items()
            if opener in births or self._survives[opener]
        }
        return totals(self._places, self._sums, self._held, fills, births, self._begun(lives), lives)

    def _begun(self, lives: Mapping[int, float]) -> dict[int, float]:
        """By index: elements that were being made when a look found their life with none, for all lives.

        A look that finds a life at its first element finds nothing of it. Of each life that is one element, or less
        where the life is found waiting with it.
        """
        found = {}
        for i, place in enumerate(self._places):
            sums = self._sums[i]
            if not (place.finest and place.edge is Edge.RATIO and place.life in lives and sums.early):
                continue
            stretch, wait_ns, once_ns = self._costs(place.life, lives[place.life])
            making_ns = stretch * self._ages[place.life].worked_ns / sums.elements
            waiting_ns = wait_ns * sums.early_consumer / sums.early + once_ns
            found[i] = lives[place.life] * making_ns / (making_ns + waiting_ns) if making_ns else 0.0
        return found

    def _births(self) -> dict[int, float]:
        """Elements of what begins lives, by index, where the ids that TensorFlow has given tell them.

        Ids are counted up. All that was given belongs to the nodes that live as long as the iterator, and to so
        many for each life. Where the lives of one place alone are not known from counts, they are the rest.
        """
        opened = self._openers
        unknown = [place for place in opened if not self._survives[opened[place]]]
        if len(unknown) != 1 or any(not self._sizes[place] for place in opened):
            return {}
        rest = float(self._ids - (self._ids_before or self._sizes[0]))
        for place, opener in opened.items():
            if place != unknown[0]:
                rest -= self._sizes[place] * self._sums[opener].elements
        return {opened[unknown[0]]: max(0.0, rest / self._sizes[unknown[0]])}

    def _walk(
        self, model: Any, mapping: Mapping[int, int], strangers: dict[int, int]
    ) -> Iterator[tuple[int, int, Any]]:
        """Each node that is an operator's, after its consumer: its id, its consumer's, its message."""
        nodes = model.nodes
        stack = [(model.output, 0)]
        while stack:
            node_id, consumer = stack.pop()
            if node_id not in nodes:
                continue
            proto = nodes[node_id]
            below = consumer
            if node_id not in mapping:
                strangers[consumer] = strangers.get(consumer, 0) + 1
            else:
                yield node_id, consumer, proto
                if consumer == 0 or mapping[node_id] != mapping[consumer]:
                    below = node_id
            stack.extend((child, below) for child in proto.inputs)

    def _is_body(self, index: int) -> bool:
        return self._places[index].edge is Edge.BODY

    def _new_node(self, index: int, consumer: int) -> Node:
        above = self._live.get(consumer)
        place = self._places[index]
        if above is not None and above.index == index:
            return Node(index, True, above.life)
        if above is not None and place.edge is not Edge.BODY and (above.life.fresh or not place.comes_again):
            again = not above.life.fresh and self._sums[index].elements > 0
            return Node(index, False, above.life, again=again)
        life = Life(index, above=above.life if above is not None else None)
        life.root = Node(index, False, life)
        return life.root

    def _hold(self, node: Node, above: Node | None, proto: Any, mapping: Mapping[int, int]) -> None:
        """Pairs a node's elements with its consumer's, and notes what lies between them."""
        place, held = self._places[node.index], self._held[node.index]
        held.buffered += proto.buffered_elements
        for index in place.shuffled:
            # What stood before it may be gone while it still hands on what it holds.
            self._held[index].inputs += proto.buffered_elements
        if place.bodies:
            node.children = sum(
                1 for child in proto.inputs if child in mapping and self._is_body(mapping[child])
            )
        if above is None or above.life is not node.life:
            return
        x, y = float(node.elements), float(above.elements)
        if place.edge is Edge.ONE_TO_ONE:
            if not self._places[above.index].shuffled:
                held.inputs += max(0.0, x - y)
        elif place.edge is Edge.CONCATENATE:
            # The second begins when the first has ended and is gone.
            first = node.elements if place.first_input else above.elements - node.elements
            above.first_made = min(first, above.elements)
        else:
            # Each child that is being read stands for half of the input it was made of.
            taken = max(0.0, x - place.batch * y) if place.edge is Edge.BATCH else min(x, above.children / 2)
            held.inputs += taken
            node.pair = (x - taken, y)
            if node.again:
                node.paired, node.again = node.pair, False

    def _add_up(self, period_ns: float, strangers: Mapping[int, int]) -> None:
        """Adds what the look found of the nodes that live now."""
        fresh: list[Node] = []
        old: list[Life] = []
        for node in self._live.values():
            life = node.life
            if life.root is node:
                self._ages[node.index].lived_ns += period_ns
                if not life.fresh:
                    old.append(life)
                    life.handed_on = node.elements - node.before[0]
            if life.fresh:
                fresh.append(node)
                life.size += 1
            else:
                life.worked_ns += self._work(node)
                self._add(node, 1.0)
        for life in old:
            ages = self._ages[life.place]
            ages.worked_ns += life.worked_ns
            if life.worked_ns or life.handed_on:
                ages.add(life.worked_ns, life.handed_on, period_ns)
            life.worked_ns = 0.0
        for consumer, count in strangers.items():
            above = self._live.get(consumer) or next(iter(self._live.values()), None)
            if above is not None and above.life.fresh:
                above.life.size += count
        if fresh:
            self._add_fresh(fresh, period_ns)

    def _add_fresh(self, fresh: list[Node], period_ns: float) -> None:
        """Weighs the lives that this look found first, and adds what it found of them."""
        so_far = self._elements()
        if self._at_first is None:
            self._at_first = so_far
        for ages, elements, at_first in zip(self._ages, so_far, self._at_first, strict=True):
            ages.handed_on = elements - at_first
        worked: dict[Life, float] = {}
        for node in fresh:
            worked[node.life] = worked.get(node.life, 0.0) + self._work(node)
        self._pass_work_on(worked)
        for life, work in worked.items():
            ages = self._ages[life.place]
            if life.above is not None and period_ns > 0 and life.root is not None:
                opener = self._openers.get(life.place)
                stretch, wait_ns, once_ns = self._costs(
                    life.place, so_far[opener] if opener is not None else 0.0
                )
                age = stretch * work + wait_ns * life.root.elements + once_ns
                begun_ns = self._begun_ns(life.place)
                if work < begun_ns:  # it works at its first element: that is no waiting
                    ages.lived_ns -= period_ns
                age = max(age, begun_ns)
                life.weight = period_ns / min(period_ns, age) if age > 0 else 1.0
            ages.worked_ns += life.weight * work
        for node in fresh:
            self._add(node, node.life.weight)
            own, consumers = node.pair
            if consumers > 0:
                self._sums[node.index].ahead += node.elements - consumers
                self._sums[node.index].ahead_lives += 1
            if 0 < own <= _EARLY:
                self._sums[node.index].early += own
                self._sums[node.index].early_consumer += consumers
        for life in worked:
            life.fresh = False
            self._sizes[life.place] = max(self._sizes[life.place], life.size)

    def _pass_work_on(self, worked: dict[Life, float]) -> None:
        """Counts the work of lives within a life as the outer one's, too."""
        for life in reversed(list(worked)):
            above = life.above
            if above in worked and life.root is not None:
                # Its elements stand for children that are gone in what was counted so far.
                gone = life.root.elements * self._ages[life.place].work_ns
                worked[above] += worked[life] - gone

    def _begun_ns(self, place: int) -> float:
        """Half of the longest element of what stands in the lives of a place: the one that is being made."""
        longest = 0.0
        for i in range(place, self._ends[place]):
            sums = self._sums[i]
            own = sums.processing_ns / sums.elements if sums.elements else 0.0
            longest = max(longest, own + self._places[i].overhead_ns)
        return longest / 2

    def _costs(self, place: int, lives: float) -> tuple[float, float, float]:
        """κ, g, and what of b has passed on average; only parallel interleaves have children wait for their turn."""
        waits_for_turn = self._places[self._places[place].consumer].opens_ahead
        stretch, wait_ns, once_ns = self._ages[place].costs(lives if waits_for_turn else 0.0)
        return stretch, wait_ns, once_ns / 4

    def _work(self, node: Node) -> float:
        """What a node did since the last look, ns."""
        elements, processing_ns, _ = node.before
        own = float(node.processing_ns - processing_ns)
        if node.alias:
            return own
        own += (node.elements - elements) * self._places[node.index].overhead_ns
        for body in self._places[node.index].bodies:
            # With what its children did that came and went.
            own += (node.elements - elements) * self._ages[body].work_ns
        return own

    def _add(self, node: Node, weight: float) -> None:
        """Adds what a node did since the last look."""
        sums = self._sums[node.index]
        elements, processing_ns, bytes_produced = node.before
        node.before = (node.elements, node.processing_ns, node.bytes_produced)
        sums.processing_ns += weight * (node.processing_ns - processing_ns)
        if node.alias:
            return
        sums.elements += weight * (node.elements - elements)
        sums.found += node.elements - elements
        sums.most = max(sums.most, node.elements)
        sums.finds += node.elements > elements
        sums.bytes_produced += weight * (node.bytes_produced - bytes_produced)
        if node.pair != node.paired:
            sums.paired += weight * (node.pair[0] - node.paired[0])
            sums.paired_consumer += weight * (node.pair[1] - node.paired[1])
            sums.found_paired += node.pair[0] - node.paired[0]
            sums.found_consumer += node.pair[1] - node.paired[1]
            node.paired = node.pair
        if node.index in self._concatenated:
            self._add_concatenated(node, weight)

    def _add_concatenated(self, node: Node, weight: float) -> None:
        made = node.elements - node.all_before
        node.all_before = node.elements
        by_first = node.first_made - node.first_before
        node.first_before = node.first_made
        first, second = self._concatenated[node.index]
        second_made = node.elements - node.first_made
        if second_made > 0 and not node.second_seen:
            node.second_seen = True
            self._sums[first].ahead += node.first_made
            self._sums[first].ahead_lives += 1
        for index, own in ((first, by_first), (second, made - by_first)):
            self._sums[index].paired += weight * own
            self._sums[index].paired_consumer += weight * made
            self._sums[index].found_paired += own
            self._sums[index].found_consumer += made

    def _take_spread(self, node: Node) -> None:
        """One more pair of looks, if elements were finished since the last one that saw some."""
        n = node.elements - node.looked_elements
        if not n:
            return
        p = node.processing_ns - node.looked_ns
        if node.looked_elements or node.older[0]:  # what came before the first look holds first calls
            self._spread[node.index] += Spread(1, n, p, p * p / n)
        node.looked_elements, node.looked_ns = node.elements, node.processing_ns

    def _watch_caches(self) -> None:
        fed = {node.life for node in self._live.values() if self._places[node.index].edge is Edge.CACHE}
        for node_id, node in self._live.items():
            watch = self._caches.get(node.index)
            if watch is None or node.alias or not node.elements:
                continue
            watch.fills = node.life in fed
            watch.most = max(watch.most, node.elements)
            if watch.fills:
                watch.filling_nodes.add(node_id)
            elif node_id not in watch.filling_nodes:
                # Its input was never there: the elements come from what an earlier pass stored.
                watch.serves = True


def _now(proto: Any, second: Any) -> Now:
    if proto is None:
        return Now()
    return Now(
        proto.buffered_bytes + (second.buffered_bytes if second is not None else 0),
        proto.buffered_elements + (second.buffered_elements if second is not None else 0),
        tuple(Parameter(one.name, _in_force(one), one.min, one.max, one.tunable) for one in proto.parameters),
    )


def _in_force(parameter: Any) -> float:
    # `value` is the optimiser's trial where it tunes, and all there is where nothing is tunable.
    if parameter.tunable:
        return float(parameter.state_value)
    return float(parameter.state_value or parameter.value)
