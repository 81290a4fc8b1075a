"""Which node of an iterator's live model is which running operator.

The model's tree follows the running graph, but not wholly: children of interleave and flat map
come and go and stand several times, at the end of a sequence operators drop their input, some
operators are two nodes (a cache and what fills it). Both trees are walked together; names decide.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorboard_plugin_plumber.capture.describe import Description

# Names that one operator goes by, depending on its arguments or its state.
_ALIASES = {
    "FiniteRepeat": "Repeat",
    "ForeverRepeat": "Repeat",
    "EmptyRepeat": "Repeat",
    "FiniteTake": "Take",
    "EmptyTake": "Take",
    "FiniteSkip": "Skip",
    "EmptySkip": "Skip",
    "MemoryCache": "Cache",
    "FileCache": "Cache",
    "Tensor": "FromTensor",
    # Which filters TensorFlow made parallel is worked out, not read.
    "ParallelFilter": "Filter",
}
# Second nodes of an operator: they stand directly below its first and count the same elements.
_SECOND = re.compile(
    r"^(MemoryCacheImpl|MemoryCacheReader|MemoryCacheWriter|FileCacheImpl|FileCacheReader"
    r"|FileCacheWriter|MemoryReader|MemoryWriter|FileReader|FileWriter|Snapshot\w+|ParallelFilterImpl"
    r"|PassthroughWriter)$"
)
# What reads a snapshot: all below it reads files for it, in ways that the graph does not show.
_WHOLE = frozenset({"Load", "SnapshotReader"})
_LOOK_AHEAD = 3


def align(
    description: Description, model_proto: Any, known: Mapping[int, int] | None = None
) -> dict[int, int]:
    """Model node id -> index into `description.pipeline.running`.

    Args:
      model_proto: a `tensorflow.data.model.ModelProto`, as `get_model_proto` gives it.
      known: what an earlier model of the same iterator gave: what is left of several alike keeps its place.

    Returns:
      Many nodes may map to one index (instances of an interleave's body; a cache and its
      implementation, directly below each other); nodes that belong to nothing are absent.
    """
    running = description.pipeline.running
    found: dict[int, int] = {}
    if not running:
        return found
    aligner = _Aligner(description, model_proto.nodes, known or {})
    start = aligner.root(model_proto.output)
    if start is not None:
        aligner.match(start, 0, found)
    return found


class _Aligner:
    """One walk over one model."""

    def __init__(self, description: Description, nodes: Any, known: Mapping[int, int]) -> None:
        self._names = [normal(one.type) for one in description.pipeline.running]
        self._inputs = description.inputs
        self._bodies = description.bodies
        self._nodes = nodes
        self._concatenates = [one.type.startswith("Concatenate") for one in description.pipeline.running]
        self._known = known

    def root(self, output: int) -> int | None:
        """The node of the pipeline's own root: below the model's "Root" and what only passes on."""
        node = output
        for _ in range(4):
            if node not in self._nodes:
                return None
            if self._fits(node, 0):
                return int(node)
            below = self._nodes[node].inputs
            if len(below) != 1:
                return None
            node = below[0]
        return None

    def match(self, node: int, index: int, found: dict[int, int]) -> None:
        """Maps a node and all below it."""
        found[node] = index
        children = self._children(node)
        while len(children) == 1 and _is_second(self._nodes[children[0]].name):
            found[children[0]] = index
            node = children[0]
            children = self._children(node)
        if self._nodes[node].name in _WHOLE:
            self._take_all(children, index, found)
            return
        if all(child in self._known for child in children):
            for child in children:
                self.match(child, self._known[child], found)
            return
        if len(children) == 1 and self._concatenates[index]:
            self._match_concatenated(node, children[0], self._inputs[index], found)
            return
        if not self._bodies[index]:
            self._match_in_order(children, self._inputs[index], found)
            return
        inputs = self._inputs[index]
        rest = children
        if children and inputs and self._is_input(children[0], inputs[0], self._bodies[index]):
            taken = children[: len(inputs)]
            self._match_in_order(taken, inputs, found)
            rest = children[len(inputs) :]
        bodies = self._bodies[index]
        for child in rest:
            best = bodies[0]
            if len(bodies) > 1:
                best = max(bodies, key=lambda body: self._score(child, body, _LOOK_AHEAD))
            if self._fits(child, best):
                self.match(child, best, found)

    def _take_all(self, nodes: list[int], index: int, found: dict[int, int]) -> None:
        for node in nodes:
            found[node] = index
            self._take_all(self._children(node), index, found)

    def _match_in_order(self, children: list[int], indices: tuple[int, ...], found: dict[int, int]) -> None:
        """Inputs keep their order; some may be gone."""
        at = 0
        # Elements of a window are datasets too: they have no input, and are no operator.
        children = [
            child for child in children if self._nodes[child].name != "Window" or self._children(child)
        ]
        for position, child in enumerate(children):
            # As many of the rest as there are children left must stay for them.
            last = len(indices) - (len(children) - position - 1)
            choice = None
            best = 0
            before = self._known.get(child)
            if before in indices[at:last]:
                at, last = indices.index(before), indices.index(before) + 1
            for candidate in range(at, max(last, at)):
                score = self._score(child, indices[candidate], _LOOK_AHEAD)
                if score > best:
                    choice, best = candidate, score
            if choice is not None:
                self.match(child, indices[choice], found)
                at = choice + 1

    def _match_concatenated(
        self, node: int, child: int, inputs: tuple[int, ...], found: dict[int, int]
    ) -> None:
        """One input lives at a time. The first is made together with the concatenate, so their ids are close."""
        first = self._nodes[child].id - self._nodes[node].id <= self._size(inputs[0])
        for index in inputs if first else inputs[::-1]:
            if self._fits(child, index):
                self.match(child, index, found)
                return

    def _size(self, index: int) -> int:
        """Operators of a subtree, function bodies left out."""
        return 1 + sum(self._size(below) for below in self._inputs[index])

    def _children(self, node: int) -> list[int]:
        nodes = self._nodes
        return [child for child in nodes[node].inputs if child in nodes]

    def _is_input(self, child: int, index: int, bodies: tuple[int, ...]) -> bool:
        """Whether an interleave's first child is its input, not an instance of its body."""
        as_input = self._score(child, index, _LOOK_AHEAD)
        as_body = max(self._score(child, body, _LOOK_AHEAD) for body in bodies)
        # Alike: the input is made before any body, and lives as long as there is something to open.
        return as_input > 0 and as_input >= as_body

    def _fits(self, node: int, index: int) -> bool:
        return normal(self._nodes[node].name) == self._names[index]

    def _score(self, node: int, index: int, depth: int) -> int:
        """How many operators agree, from the two down; 0 if the two themselves do not."""
        if not self._fits(node, index):
            return 0
        score = 1
        if depth > 1:
            inputs = self._inputs[index]
            children = self._children(node)
            if len(children) == 1 and _is_second(self._nodes[children[0]].name):
                children = self._children(children[0])
            for child, below in zip(children, inputs, strict=False):
                score += self._score(child, below, depth - 1)
        return score


def _is_second(name: str) -> bool:
    return _SECOND.match(name) is not None


@functools.lru_cache(maxsize=1024)
def normal(name: str) -> str:
    """A name without version and variants: "FiniteRepeat" -> "Repeat", "BatchV2" -> "Batch"."""
    short = re.sub(r"V\d+$", "", name)
    return _ALIASES.get(short, short)
