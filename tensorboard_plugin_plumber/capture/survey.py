"""What the operators of a pipeline hold, and how many they are: what keeps it from being serialised as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensorboard_plugin_plumber.capture.construction import inputs_of, is_transfer, tensor_bytes

# Below this, serialising costs a few milliseconds.
LARGE_BYTES = 1 << 20
# Above this, it takes a second and more, and gigabytes for a moment.
TOO_LARGE_BYTES = 64 << 20
_SOURCES = frozenset({"_TensorSliceDataset", "_TensorDataset"})
# Method of an operator of Plumber's own: given its input, the operator of TensorFlow's that it is written down as.
PLAIN = "plumber_plain"
# Operators that are described, at most. Datasets that are used more than once stand at each of their places.
_MOST_PLACES = 1000
# Operators one below the other, at most: what walks through them calls itself for each.
_DEEPEST = 250


def source_bytes(dataset: Any) -> int:
    """Bytes of the arrays that a source dataset holds; 0 for other operators."""
    if type(dataset).__name__ not in _SOURCES:
        return 0
    return sum(tensor_bytes(one) for one in getattr(dataset, "_tensors", ()))


@dataclass(frozen=True)
class Capture:
    """A tensor or variable that a function captures, at its position among the captured inputs."""

    position: int
    value: Any
    bytes: int


def captures_of(wrapper: Any) -> list[Capture]:
    """What a traced function captures and would be serialised with: eager tensors, and variables by handle."""
    function: Any = getattr(wrapper, "_function", None)
    try:
        variables = {id(one.handle): one for one in getattr(function.graph, "variables", ())}
    except (AttributeError, ReferenceError):
        variables = {}
    found = []
    for position, tensor in enumerate(getattr(function, "captured_inputs", ())):
        value = variables.get(id(tensor), tensor)
        if value is not tensor or hasattr(tensor, "_numpy"):
            found.append(Capture(position, value, tensor_bytes(value)))
    return found


class Survey:
    """What the operators of a pipeline hold, each looked at once.

    Attributes:
      changes: id() of a dataset -> whether it or one below it has to be copied.
      held_bytes: of arrays, captured tensors and variables, all together.
      transfers: it copies elements to a device.
      lowest: operators that are not so high above their farthest source are left out.
      order: the datasets, each after all that stand below it.
    """

    def __init__(self) -> None:
        self.changes: dict[int, bool] = {}
        self.held_bytes = 0
        self.transfers = False
        self.lowest = 0
        self.order: list[Any] = []
        self._heights: dict[int, int] = {}
        # Operators from a dataset down, each counted at every place where it stands.
        self._sizes: dict[int, int] = {}

    def look_at(self, dataset: Any) -> bool:
        """Looks at a dataset and all below; returns whether it has to be copied."""
        waiting = [dataset]
        while waiting:
            one = waiting[-1]
            inputs = () if is_transfer(one) else tuple(inputs_of(one))
            unknown = [below for below in inputs if id(below) not in self.changes]
            if unknown and id(one) not in self.changes:
                waiting += unknown
                continue
            waiting.pop()
            if id(one) not in self.changes:
                self._note(one, inputs)
        return self.changes[id(dataset)]

    def _note(self, dataset: Any, inputs: tuple[Any, ...]) -> None:
        """Notes what a dataset holds; its inputs are known."""
        held = source_bytes(dataset)
        captured = sum(one.bytes for wrapper in traced_of(dataset) for one in captures_of(wrapper))
        transfer = is_transfer(dataset)
        if transfer:
            self.transfers = True
        else:
            self.held_bytes += held + captured
        self._heights[id(dataset)] = 1 + max((self.height(one) for one in inputs), default=-1)
        self._sizes[id(dataset)] = 1 + sum(self._sizes[id(one)] for one in inputs)
        below = any(self.changes[id(one)] for one in inputs)
        guarded = hasattr(dataset, PLAIN)
        self.changes[id(dataset)] = transfer or below or guarded or max(held, captured) > LARGE_BYTES
        self.order.append(dataset)

    def height(self, dataset: Any) -> int:
        """Operators between a dataset and its farthest source."""
        return self._heights.get(id(dataset), 0)

    def leave_out(self, root: Any) -> int:
        """Chooses `lowest` so that not too many operators are left; returns how many are left out."""
        whole = self._sizes[id(root)]
        self.lowest = max(0, self.height(root) - _DEEPEST)
        kept = self._places(root, self.lowest, {})
        while kept > _MOST_PLACES and self.lowest < self.height(root):
            self.lowest += 1
            kept = self._places(root, self.lowest, {})
        if self.lowest:
            self.changes = dict.fromkeys(self.changes, True)
        return whole - kept

    def _places(self, dataset: Any, lowest: int, known: dict[int, int]) -> int:
        """Operators of at least that height, each counted at every place where it stands."""
        if self.height(dataset) < lowest:
            return 0
        if id(dataset) not in known:
            inputs = () if is_transfer(dataset) else inputs_of(dataset)
            known[id(dataset)] = 1 + sum(self._places(one, lowest, known) for one in inputs)
        return known[id(dataset)]


def is_traced(value: Any) -> bool:
    return type(value).__name__ == "StructuredFunctionWrapper"


def traced_of(dataset: Any) -> list[Any]:
    return [value for value in list(dataset.__dict__.values()) if is_traced(value)]
