"""Sums by kind of an iterator that is older than the session."""

from __future__ import annotations

from typing import Any

import pytest
from tensorflow.core.framework import model_pb2

from tensorboard_plugin_plumber.capture.counters import IteratorCounters, Layout
from tensorboard_plugin_plumber.capture.edges import places
from tensorboard_plugin_plumber.capture.tally import Tally, kinds, leads
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

# A map over a flat_map (its input: a range) of a filter over a map over a range.
RUNNING = [
    m.RunningOperator(type="Map"),
    m.RunningOperator(type="FlatMap", parent=0),
    m.RunningOperator(type="Range", parent=1),
    m.RunningOperator(type="Filter", parent=1, in_body=True),
    m.RunningOperator(type="Map", parent=3, in_body=True),
    m.RunningOperator(type="Range", parent=4, in_body=True),
]
KINDS = ("Root", "FlatMap", "Filter", "Map", "Range")


class Process:
    """What TensorFlow keeps for monitoring."""

    def __init__(self) -> None:
        self.flushed = dict.fromkeys(KINDS, 1000)


class Running:
    """An iterator whose children have some elements each, of which a tenth is handed on."""

    def __init__(self, process: Process) -> None:
        self.process, self.added = process, dict[int, int]()
        self.proto = model_pb2.ModelProto(output=1, id_counter=5)
        self.mapping: dict[int, int] = {2: 0, 3: 1, 4: 2}
        for id_, name, below in ((1, "Root", (2,)), (2, "Map", (3,)), (3, "FlatMap", (4,)), (4, "Range", ())):
            self._node(id_, name, below)
        self.made = 0
        self.counters: Any = None

    def _node(self, id_: int, name: str, below: tuple[int, ...]) -> None:
        node = self.proto.nodes[id_]
        node.id, node.name = id_, name
        node.inputs.extend(below)

    def begin_child(self) -> int:
        first = self.proto.id_counter
        self.proto.id_counter += 3
        for i, name in enumerate(("Filter", "Map", "Range")):
            self._node(first + i, name, (first + i + 1,) if i < 2 else ())
            self.mapping[first + i] = 3 + i
        self.proto.nodes[3].inputs.append(first)
        self.proto.nodes[4].num_elements += 1
        return first

    def work(self, child: int, elements: int) -> None:
        """Some elements of a child, a multiple of ten."""
        self.made += elements
        for id_, share in ((1, 10), (2, 10), (3, 10), (child, 10), (child + 1, 1), (child + 2, 1)):
            self.proto.nodes[id_].num_elements += elements // share

    def end_child(self, child: int) -> None:
        self.proto.nodes[3].inputs.remove(child)
        for id_ in range(child, child + 3):
            self._flush(id_)
            del self.proto.nodes[id_], self.mapping[id_]

    def flush(self) -> None:
        """As TensorFlow does when it optimises."""
        for id_ in list(self.proto.nodes):
            self._flush(id_)

    def _flush(self, id_: int) -> None:
        node = self.proto.nodes[id_]
        self.process.flushed[node.name] += node.num_elements - self.added.get(id_, 0)
        self.added[id_] = node.num_elements

    def follow(self, *, before_session: bool = False) -> None:
        self.counters = IteratorCounters(Layout(RUNNING, [3]), dict(self.process.flushed))
        if before_session:
            self.counters.observe(self.proto, self.mapping, 0.0)
            self.counters.start_here(self.proto, self.mapping)

    def look(self, now_s: float) -> None:
        self.counters.observe(self.proto, dict(self.mapping), now_s, dict(self.process.flushed))

    @property
    def counted(self) -> float:
        return float(self.counters.counts()[4].elements)


def test_of_an_iterator_from_before_the_session_all_that_is_made_in_it_is_counted() -> None:
    # GIVEN one whose nodes have added some of their elements, and a child half read
    process = Process()
    one = Running(process)
    for number in range(160):
        child = one.begin_child()
        one.work(child, 10)
        one.end_child(child)
        if number == 100:
            one.flush()
    child = one.begin_child()
    one.work(child, 100)
    one.follow(before_session=True)
    before = one.made

    # WHEN it goes on, with children that no look finds, and adds its elements on the way
    one.work(child, 100)
    one.look(1.0)
    one.end_child(child)
    for size in (400, 10, 800, 30):
        child = one.begin_child()
        one.work(child, size)
        one.end_child(child)
    one.look(2.0)
    one.flush()
    one.look(3.0)
    child = one.begin_child()
    one.work(child, 50)
    one.look(4.0)

    assert one.counted == pytest.approx(one.made - before, rel=0.02)


def test_an_estimate_of_nothing_is_no_reason_to_doubt_a_sum() -> None:
    # GIVEN a shuffle that is refilled in each pass, and hands all of it on between two looks
    running = [
        m.RunningOperator(type="Prefetch"),
        m.RunningOperator(type="ForeverRepeat", parent=0),
        m.RunningOperator(type="BatchV2", parent=1, batch_size=6),
        m.RunningOperator(type="Shuffle", parent=2),
        m.RunningOperator(type="Generator", parent=3),
    ]
    where = places(running, [])
    names = kinds(running)
    sums = Tally(names, where, leads(where), dict.fromkeys(("Root", *names), 0))
    model = model_pb2.ModelProto(output=1)
    model.nodes[1].name = "Root"

    # WHEN all nodes but the root's were dropped
    flushed = {"Root": 0, "Prefetch": 0, "Repeat": 0, "Batch": 0, "Shuffle": 420, "Generator": 466}
    sums.look(model, {}, flushed, lambda: [0.0] * 5)
    exact = sums.exact([70, 70, 70, 0, 46], [70, 70, 0, 0, 378], ())

    # THEN what was found of the operator below vouches for the sum
    assert exact == {3: 420}
