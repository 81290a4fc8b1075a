"""Counters of synthetic models: parameters, the spread of looks, and what is made up of children nobody saw."""

from __future__ import annotations

from typing import Any

import pytest
from tensorflow.core.framework import model_pb2

from tensorboard_plugin_plumber.capture.counters import IteratorCounters, Layout
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

# A flat_map (its input: a range) of a map over a filter over a range.
FLAT_MAP = [
    m.RunningOperator(type="FlatMap"),
    m.RunningOperator(type="Range", parent=0),
    m.RunningOperator(type="Map", parent=0, in_body=True),
    m.RunningOperator(type="Filter", parent=2, in_body=True),
    m.RunningOperator(type="Range", parent=3, in_body=True),
]
CHAIN = [m.RunningOperator(type="Map"), m.RunningOperator(type="Range", parent=0)]


class Model:
    """A model of one chain of operators, node 1 the root, and of children of its root."""

    def __init__(self) -> None:
        self.proto = model_pb2.ModelProto(output=1, id_counter=2)
        self.mapping: dict[int, int] = {}

    def node(self, id_: int, index: int, above: int, elements: int, time_ns: int = 0) -> Any:
        """Adds a node, or gives it new counts."""
        if id_ not in self.proto.nodes and above:
            self.proto.nodes[above].inputs.append(id_)
        node = self.proto.nodes[id_]
        node.id, node.num_elements, node.processing_time = id_, elements, time_ns
        self.mapping[id_] = index
        self.proto.id_counter = max(self.proto.id_counter, id_ + 1)
        return node

    def drop(self, id_: int, above: int) -> None:
        """Takes a node and all below it away."""
        for child in list(self.proto.nodes[id_].inputs):
            self.drop(child, id_)
        self.proto.nodes[above].inputs.remove(id_)
        del self.proto.nodes[id_], self.mapping[id_]


def test_parameters_are_all_there_with_the_value_in_force() -> None:
    model = Model()
    node = model.node(1, 0, 0, 10)
    node.parameters.add(name="parallelism", value=7, state_value=2, min=1, max=16, tunable=True)
    node.parameters.add(name="cycle_length", value=4, min=4, max=4)
    model.node(2, 1, 1, 10)
    counters = IteratorCounters(Layout(CHAIN, []))

    counters.observe(model.proto, model.mapping, 0.0)
    parallelism, cycle = counters.now()[0].parameters

    # THEN what AUTOTUNE tries out is not what is in force
    assert (parallelism.name, parallelism.value, parallelism.lowest, parallelism.highest) == (
        "parallelism",
        2,
        1,
        16,
    )
    assert parallelism.tunable
    assert (cycle.name, cycle.value, cycle.tunable) == ("cycle_length", 4, False)
    assert counters.now()[1].parameters == ()


def test_spread_is_of_pairs_of_looks_between_which_elements_were_finished() -> None:
    model = Model()
    counters = IteratorCounters(Layout(CHAIN, []))
    # elements and time: the first has the first call in it; at the third look only time has passed
    for look, (elements, time_ns) in enumerate([(1, 9000), (3, 9400), (3, 9500), (7, 10300)]):
        model.node(1, 0, 0, elements, time_ns)
        counters.observe(model.proto, model.mapping, float(look))

    spread = counters.counts()[0].spread

    assert (spread.looks, spread.elements, spread.time_ns) == (2, 6, 1300)
    assert spread.squares_ns2 == pytest.approx(400**2 / 2 + 900**2 / 4)


def test_spread_of_an_iterator_begins_where_the_session_does() -> None:
    model = Model()
    model.node(1, 0, 0, 100, 1_000_000)
    counters = IteratorCounters(Layout(CHAIN, []))
    counters.observe(model.proto, model.mapping, 0.0)
    counters.start_here(model.proto, model.mapping)
    model.node(1, 0, 0, 110, 1_100_000)
    counters.observe(model.proto, model.mapping, 1.0)

    (count, _) = counters.counts()

    assert (count.elements, count.processing_ns) == (10, 100_000)
    assert (count.spread.looks, count.spread.elements, count.spread.time_ns) == (1, 10, 100_000)


def test_long_children_are_seen_more_often_and_count_no_more_for_that() -> None:
    # GIVEN children in turn: long ones, 90 elements of which each tenth is kept, and ten short ones of ten elements
    # that are all kept; each element takes 1 ms, and a look is taken every 97 ms
    element_ns = 1_000_000
    model = Model()
    model.node(1, 0, 0, 0)
    model.node(2, 1, 1, 0)
    counters = IteratorCounters(Layout(FLAT_MAP, [2]))
    next_look_ms, now_ms, made, kept, taken, next_id = 1.0, 0.0, 0, 0, 0, 3
    for child in range(6000):
        size, each = (90, 10) if child % 11 == 0 else (10, 1)
        root, next_id = next_id, next_id + 3
        model.node(2, 1, 1, child + 1)
        for element in range(size):
            now_ms += 1.0
            mine = (element + child % each) // each  # the one that is being made does not count yet
            if now_ms >= next_look_ms:
                next_look_ms += 97.0
                model.node(1, 0, 0, kept + mine)
                model.node(root, 2, 1, mine)
                model.node(root + 1, 3, root, mine)
                model.node(root + 2, 4, root + 1, element, element * element_ns)
                counters.observe(model.proto, model.mapping, now_ms / 1e3)
        made, kept, taken = made + size, kept + size // each, taken + 1
        if root in model.mapping:
            model.drop(root, 1)
    model.node(1, 0, 0, kept)
    counters.observe(model.proto, model.mapping, now_ms / 1e3)

    elements = [count.elements for count in counters.counts()]

    # THEN 1.7 elements are made for each that is kept, and not 5 as in the lives that looks find
    assert elements[:4] == pytest.approx([kept, taken, kept, kept])
    assert elements[4] == pytest.approx(made, rel=0.1)


def test_children_within_children_are_counted_by_the_ids_that_were_given() -> None:
    # GIVEN a flat_map inside of a flat_map, of whose children most come and go between two looks
    running = [
        m.RunningOperator(type="FlatMap"),
        m.RunningOperator(type="Range", parent=0),
        m.RunningOperator(type="FlatMap", parent=0, in_body=True),
        m.RunningOperator(type="Range", parent=2, in_body=True),
        m.RunningOperator(type="Range", parent=2, in_body=True),
    ]
    model = Model()
    counters = IteratorCounters(Layout(running, [2, 4]))
    model.node(1, 0, 0, 0)
    model.node(2, 1, 1, 0)
    next_id, opened, kept = 3, 0, 0
    for outer in range(100):
        root, next_id = next_id, next_id + 2
        for inner in range(outer % 4 + 1):
            child, next_id, opened, kept = next_id, next_id + 1, opened + 1, kept + 5
            if (outer + inner) % 7 == 0:
                model.node(1, 0, 0, kept)
                model.node(2, 1, 1, outer + 1)
                model.node(root, 2, 1, 5 * (inner + 1))
                model.node(root + 1, 3, root, inner + 1)
                model.node(child, 4, root, 5)
                model.proto.id_counter = next_id
                counters.observe(model.proto, model.mapping, opened * 0.01)
                model.drop(root, 1)

    *_, last = [count.elements for count in counters.counts()][:4]

    # THEN the inner ones are what the ids leave over
    assert last == pytest.approx(opened, rel=0.03)


def children_by_sums(*, root_added: int) -> float:
    """Elements of the range under the filter, where looks find one child and sums tell of the rest."""
    model = Model()
    at_start = {"Root": 5, "Range": 7, "Map": 0, "Filter": 0, "FlatMap": 0}
    counters = IteratorCounters(Layout(FLAT_MAP, [2]), at_start)
    model.node(1, 0, 0, 100)
    model.node(2, 1, 1, 50)
    for id_, index, above, elements in ((3, 2, 1, 2), (4, 3, 3, 2), (5, 4, 4, 4)):
        model.node(id_, index, above, elements)
    # 50 of the flat_map's input, and 1000 of the children's
    flushed = {"Root": 5 + root_added, "Range": 7 + 1050, "Map": 100, "Filter": 100, "FlatMap": 0}
    counters.observe(model.proto, model.mapping, 1.0, flushed)
    return counters.counts()[4].elements


def test_sums_by_kind_tell_of_children_that_no_look_found() -> None:
    assert children_by_sums(root_added=0) == pytest.approx(1000)


def test_sums_in_which_an_iterator_has_been_that_nobody_follows_are_not_taken() -> None:
    # GIVEN more elements at a root than this iterator has made
    assert children_by_sums(root_added=500) == pytest.approx(200, rel=0.1)
