"""Which running operator executes which of the user's operators."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from tensorboard_plugin_plumber.capture import graphs
from tensorboard_plugin_plumber.capture.graphs import Node
from tensorboard_plugin_plumber.capture.written import Written, kind_of

_FINITE_AND_NOT = {"RepeatDataset": "Repeat", "TakeDataset": "Take", "SkipDataset": "Skip"}
_MODEL_NAMES = {
    "TensorDataset": "FromTensor",
    "ShuffleDataset": "Shuffle",
    "ShuffleAndRepeatDataset": "ShuffleAndRepeat",
}
_FILTERS = frozenset({"Filter", "ParallelFilter"})


@dataclass
class Running:
    """One operator of the graph that runs."""

    node: Node
    parent: Running | None
    in_body: bool
    index: int
    # The user's operators it executes, downstream first; empty where TensorFlow injected it.
    operators: list[Written] = field(default_factory=list)
    children: list[Running] = field(default_factory=list)
    bodies: list[Running] = field(default_factory=list)
    injected: str = ""


def model_name(node: Node) -> str:
    """What TensorFlow's model calls an operator: "ParallelMapV2", "FiniteRepeat", "MemoryCache"."""
    base = graphs.base_op(node.op)
    if base in _FINITE_AND_NOT:
        count = node.constant("count")
        if count is None:
            return "Finite" + _FINITE_AND_NOT[base]
        if count == 0 and base != "SkipDataset":
            return "Empty" + _FINITE_AND_NOT[base]
        endless = {"RepeatDataset": "Forever", "TakeDataset": "Finite", "SkipDataset": "Empty"}
        return ("Finite" if count >= 0 else endless[base]) + _FINITE_AND_NOT[base]
    if base == "CacheDataset":
        return "FileCache" if node.constant("filename") else "MemoryCache"
    return _MODEL_NAMES.get(base, node.op.removeprefix("Experimental").replace("Dataset", ""))


def match(running: Node, written: Written) -> list[Running]:
    """The running operators in pre-order, each with the user's operators it executes.

    Tags say which written operators a running one came from. A written operator can stand at
    several places (one dataset used by both branches of a zip): the place is found by going down
    both trees together.
    """
    owner: dict[int, Written] = {}
    for one in written.walk():
        for node in one.nodes:
            owner[id(node)] = one
    found: list[Running] = []
    claimed: set[int] = set()
    _walk(running, [written.head], None, False, owner, claimed, found)
    for each in found:
        _give_back_filters(each)
    number = 0
    for each in found:
        if not each.operators:
            each.injected = f"injected{number}"
            number += 1
    return found


def _walk(
    node: Node,
    context: list[Node],
    parent: Running | None,
    in_body: bool,
    owner: dict[int, Written],
    claimed: set[int],
    found: list[Running],
) -> Running:
    one = Running(node, parent, in_body, len(found))
    found.append(one)
    sources = _sources(node, context, claimed)
    claimed.update(id(source) for source in sources)
    for source in sources:
        operator = owner.get(id(source))
        if operator is not None and operator not in one.operators:
            one.operators.append(operator)
    last = sources[-1] if sources else None
    one.children = _below(
        node.inputs, last.inputs if last is not None else context, context, one, False, owner, claimed, found
    )
    one.bodies = _below(
        node.bodies, last.bodies if last is not None else [], context, one, True, owner, claimed, found
    )
    return one


def _below(
    nodes: list[Node],
    sources: list[Node],
    context: list[Node],
    parent: Running,
    in_body: bool,
    owner: dict[int, Written],
    claimed: set[int],
    found: list[Running],
) -> list[Running]:
    below = []
    for index, node in enumerate(nodes):
        inside = [sources[index]] if len(nodes) == len(sources) else (sources or context)
        below.append(_walk(node, inside, parent, in_body, owner, claimed, found))
    return below


def _sources(node: Node, context: list[Node], claimed: set[int]) -> list[Node]:
    """Written operators that a running one executes, downstream first."""
    if not node.tags:
        # Some operators carry no name: the first one alike on the way down is it.
        for source in _chain(context):
            if source.op == node.op and not source.tags and id(source) not in claimed:
                return [source]
        return []
    wanted = set(node.tags)
    sources: list[Node] = []
    for root in context:
        for source in root.walk():
            if id(source) not in claimed and set(source.tags) & wanted:
                sources.append(source)
                wanted -= set(source.tags)
                if not wanted:
                    return sources
    return sources


def _give_back_filters(one: Running) -> None:
    """A filter that drops what the map below it has chosen, where TensorFlow fused map and predicate.

    The rewrite names the map only; the filter behind it is the user's, and has the count of what it lets through.
    """
    if one.operators or one.node.tags or kind_of(one.node.op) not in _FILTERS or len(one.children) != 1:
        return
    chosen = one.children[0].operators
    filters = list(itertools.takewhile(lambda operator: operator.type == "Filter", chosen))
    if len(filters) < len(chosen):
        one.operators = filters


def _chain(context: list[Node]) -> list[Node]:
    """Down the single inputs, as far as they are single."""
    nodes = []
    for node in context:
        while True:
            nodes.append(node)
            if len(node.inputs) != 1:
                break
            node = node.inputs[0]
    return nodes
