"""Which file names reach a reader: followed through the written graph, without running anything.

Names begin as constants (tensor slices, `list_files`) or as patterns, and pass through operators
and function arguments to the operation that opens the file. What cannot be followed (Python, file
contents, arithmetic on strings) ends the search with a note that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tensorboard_plugin_plumber.capture import graphs
from tensorboard_plugin_plumber.capture.graphs import Node, Scope
from tensorboard_plugin_plumber.capture.listings import Chained, Constants, Joined, Listing, Live, Sliced

_MAX_DEPTH = 64
# Operators whose elements are those of their input: the same components, the same names.
_PASSING = frozenset(
    {
        "PrefetchDataset",
        "CacheDataset",
        "BatchDataset",
        "ParallelBatchDataset",
        "PaddedBatchDataset",
        "UnbatchDataset",
        "RebatchDataset",
        "AssertCardinalityDataset",
        "AssertNextDataset",
        "OptionsDataset",
        "SnapshotDataset",
        "DirectedInterleaveDataset",
    }
)
_SHUFFLING = frozenset({"ShuffleDataset", "ShuffleAndRepeatDataset"})
_CHOOSING = frozenset(
    {"FilterDataset", "ParallelFilterDataset", "TakeWhileDataset", "UniqueDataset", "SamplingDataset"}
)
_MAPPING = {"MapDataset": "f", "ParallelMapDataset": "f"}
# Operations on tensors that hand each string through.
_SAME_STRINGS = frozenset(
    {"Identity", "Reshape", "ExpandDims", "Squeeze", "EnsureShape", "StopGradient", "Snapshot", "Unpack"}
)
_SOME_STRINGS = frozenset({"GatherV2", "StridedSlice", "Slice", "RandomShuffle"})


@dataclass(frozen=True)
class Names:
    """Names that may reach a place, none of them read yet.

    Attributes:
      listing: makes the list, which may ask the file system; None where nothing is known.
      found_by: "constant", "list_files", "pattern".
      complete: no other files can reach it, and all of these do.
      in_order: they come in the order of the list.
      once: none comes twice in a pass.
      by_elements: they come with the elements of an interleave around the reader.
      note: what keeps it from being complete, for people.
    """

    listing: Callable[[], Listing] | None = None
    found_by: str = ""
    complete: bool = True
    in_order: bool = True
    once: bool = True
    note: str = ""
    by_elements: bool = False


def unknown(note: str) -> Names:
    """Names of which nothing is known, and why."""
    return Names(complete=False, note=note)


def together(parts: list[Names]) -> Names:
    """All that may reach a place on several ways."""
    known = [part for part in parts if part.listing is not None]
    notes = list(dict.fromkeys(part.note for part in parts if part.note))
    if not known:
        return unknown("; ".join(notes))
    if len(parts) == 1:
        return parts[0]
    makers = [part.listing for part in known if part.listing is not None]
    return Names(
        lambda: Chained([make() for make in makers]),
        "/".join(dict.fromkeys(part.found_by for part in known)),
        all(part.complete for part in parts),
        False,
        all(part.once for part in parts),
        "; ".join(notes),
        any(part.by_elements for part in parts),
    )


class Flow:
    """Follows names through one written graph.

    Args:
      live: the live dataset object of an operator, where there is one; None where not.
      lists_files: whether an operator belongs to a call of `list_files`.
    """

    def __init__(self, live: Callable[[Node], Any], lists_files: Callable[[Node], bool]) -> None:
        self._live = live
        self._lists_files = lists_files

    def into(self, scope: Scope, reference: str, depth: int = 0) -> Names:
        """The strings that a tensor may hold."""
        if depth > _MAX_DEPTH:
            return unknown("the names come from too far away")
        scope, reference = _outwards(scope, reference)
        name = reference.split(":", 1)[0].lstrip("^")
        proto = scope.nodes.get(name)
        if proto is None:
            return self._argument(scope, name, depth)
        if proto.op == "Const":
            tensor = proto.attr["value"].tensor
            return Names(lambda: Constants(tensor), "constant")
        if proto.op == "MatchingFiles":
            patterns = self.into(scope, proto.input[0], depth + 1)
            return _matched(patterns)
        if proto.op in _SAME_STRINGS:
            return self.into(scope, proto.input[0], depth + 1)
        if proto.op in _SOME_STRINGS:
            found = self.into(scope, proto.input[0], depth + 1)
            return replace(found, in_order=False)
        data = [one for one in proto.input if not one.startswith("^")]
        if proto.op in ("Pack", "ConcatV2"):
            strings = data[:-1] if proto.op == "ConcatV2" else data
            return together([self.into(scope, one, depth + 1) for one in strings])
        if proto.op in ("StringJoin", "Add", "AddV2"):
            return self._joined(scope, proto, data, depth)
        if proto.op in ("PartitionedCall", "StatefulPartitionedCall"):
            called = proto.attr["f"].func.name
            body = graphs.enter(scope, called, [(scope, one) for one in data])
            returned = None if body is None else graphs.output_of(scope.library[called], _index(reference))
            if body is not None and returned is not None:
                return self.into(body, returned, depth + 1)
        if "PyFunc" in proto.op:
            return unknown("the names come from Python")
        if proto.op in ("ReadFile", "ParseExampleV2", "ParseSingleExample", "ReadVariableOp"):
            return unknown(f"the names come from data ({proto.op})")
        return unknown(f"the names are computed ({proto.op})")

    def out_of(self, node: Node, component: int, depth: int = 0) -> Names:
        """The strings that a component of a dataset's elements may hold."""
        if depth > _MAX_DEPTH:
            return unknown("the names come from too far away")
        base = graphs.base_op(node.op)
        if base in ("TensorSliceDataset", "TensorDataset"):
            return self._held(node, component, depth)
        if base == "MatchingFilesDataset":
            references = _references(node, "patterns")
            return _matched(self.into(node.scope, references[0], depth + 1))
        if base == "ZipDataset":
            for child in node.inputs:
                width = _width(child)
                if component < width:
                    return self.out_of(child, component, depth + 1)
                component -= width
        if base == "ConcatenateDataset":
            return together([self.out_of(child, component, depth + 1) for child in node.inputs])
        if base == "DirectedInterleaveDataset":
            return together([self.out_of(child, component, depth + 1) for child in node.inputs[1:]])
        if node.bodies:
            return together([self.out_of(body, component, depth + 1) for body in node.bodies])
        if not node.inputs:
            return unknown(
                "the names come from a generator"
                if "Generator" in node.op
                else f"the names come from {graphs.base_op(node.op).removesuffix('Dataset')}"
            )
        if base in _MAPPING:
            name = node.proto.attr[_MAPPING[base]].func.name
            body = self.enter(node, name)
            returned = None if body is None else graphs.output_of(node.scope.library[name], component)
            if body is None or returned is None:
                return unknown("the names come from a map")
            return self.into(body, returned, depth + 1)
        below = self.out_of(node.inputs[0], component, depth + 1)
        if base in _PASSING:
            return below
        if base in _SHUFFLING:
            return replace(below, in_order=False)
        if base == "RepeatDataset":
            return replace(below, in_order=False, once=False)
        if base in _CHOOSING:
            return _incomplete(below, "an operator chooses some of the names")
        if base in ("TakeDataset", "SkipDataset", "ShardDataset"):
            return _cut(below, node, base)
        return unknown(f"the names come through {base.removesuffix('Dataset')}")

    def enter(self, node: Node, function: str) -> Scope | None:
        """The body of a function that an operator calls with the elements of its input."""
        definition = node.scope.library.get(function)
        if definition is None:
            return None
        captured = [
            (node.scope, one)
            for argument, one in graphs.named_inputs(node.proto)
            if argument in ("other_arguments", "predicate_other_arguments")
        ]
        elements = len(definition.signature.input_arg) - len(captured)
        return graphs.enter(node.scope, function, [*[None] * elements, *captured], node)

    def _argument(self, scope: Scope, name: str, depth: int) -> Names:
        """Names that a function is called with: a component of what its operator reads."""
        owner = scope.owner
        if owner is None or not owner.inputs or "reduce_func" in owner.functions():
            return unknown("the names are known only when it runs")
        arguments = [one.name for one in scope.library[scope.function].signature.input_arg]
        if name not in arguments:
            return unknown("the names are known only when it runs")
        found = self.out_of(owner.inputs[0], arguments.index(name), depth + 1)
        # A reader that was given a list of names is an interleave of its own over them.
        given = bool(owner.bodies) and "read_one_file" not in scope.function
        return replace(found, by_elements=found.by_elements or given)

    def _held(self, node: Node, component: int, depth: int) -> Names:
        """Names in the tensors that a source holds."""
        found_by = "list_files" if self._lists_files(node) else "constant"
        dataset = self._live(node)
        tensors = getattr(dataset, "_tensors", None)
        if tensors is not None and component < len(tensors) and hasattr(tensors[component], "numpy"):
            tensor = tensors[component]
            if tensor.dtype.name != "string":
                return unknown("the names are not strings of their own")
            return Names(lambda: Live(tensor), found_by)
        references = _references(node, "components")
        if component >= len(references):
            return unknown("the names are known only when it runs")
        found = self.into(node.scope, references[component], depth + 1)
        return replace(found, found_by=found_by) if found.found_by == "constant" else found

    def _joined(self, scope: Scope, proto: Any, data: list[str], depth: int) -> Names:
        """Strings put together of constants and of one that varies."""
        texts = [_constant_text(scope, one) for one in data]
        varying = [i for i, text in enumerate(texts) if text is None]
        if len(varying) > 1 or not data:
            return unknown("the names are put together of parts")
        separator = proto.attr["separator"].s.decode(errors="replace") if proto.op == "StringJoin" else ""
        place = varying[0] if varying else 0
        before = "".join(f"{text}{separator}" for text in texts[:place])
        behind = "".join(f"{separator}{text}" for text in texts[place + 1 :])
        found = self.into(scope, data[place], depth + 1)
        make = found.listing
        return found if make is None else replace(found, listing=lambda: Joined(make(), before, behind))


def functions_of(flow: Flow, node: Node) -> Iterator[Scope]:
    """The bodies of all functions that an operator calls, and of all that these call."""
    for name in node.functions().values():
        body = flow.enter(node, name)
        if body is not None:
            yield from _called(body, 0)


def _called(scope: Scope, depth: int) -> Iterator[Scope]:
    yield scope
    if depth > _MAX_DEPTH:
        return
    for proto in scope.nodes.values():
        data = [(scope, one) for one in proto.input if not one.startswith("^")]
        if proto.op in ("If", "StatelessIf", "Case", "StatelessCase"):
            data = data[1:]
        elif proto.op not in ("PartitionedCall", "StatefulPartitionedCall"):
            data = []
        if graphs.is_dataset_op(proto.op):
            continue  # an operator of a tree of its own
        for value in proto.attr.values():
            for function in (value.func, *value.list.func):
                body = graphs.enter(scope, function.name, data) if function.name else None
                if body is not None:
                    yield from _called(body, depth + 1)


def _outwards(scope: Scope, reference: str) -> tuple[Scope, str]:
    """A function's argument as what the caller passed, as far as that is known."""
    for _ in range(_MAX_DEPTH):
        name = reference.split(":", 1)[0].lstrip("^")
        if name in scope.nodes or name not in scope.arguments:
            break
        scope, reference = scope.arguments[name]
    return scope, reference


def _references(node: Node, argument: str) -> list[str]:
    return [one for name, one in graphs.named_inputs(node.proto) if name == argument]


def _width(node: Node) -> int:
    """Components of one element."""
    return len(node.proto.attr["output_types"].list.type) or 1


def _constant_text(scope: Scope, reference: str) -> str | None:
    value = graphs.constant_of(scope, reference)
    return value if isinstance(value, str) else None


def _index(reference: str) -> int:
    return graphs.output_index(reference)


def _incomplete(names: Names, note: str) -> Names:
    return replace(
        names, complete=False, in_order=False, note="; ".join(one for one in (names.note, note) if one)
    )


def _matched(patterns: Names) -> Names:
    make = patterns.listing
    if make is None:
        return patterns
    return replace(patterns, listing=lambda: _glob(make()), found_by="pattern", in_order=True)


def _glob(patterns: Listing) -> Listing:
    import tensorflow as tf

    from tensorboard_plugin_plumber.capture.listings import Fixed

    found: list[str] = []
    for pattern in patterns.pick(range(min(len(patterns), _MAX_DEPTH))):
        found += tf.io.gfile.glob(pattern)
    return Fixed(sorted(found))


def _cut(below: Names, node: Node, base: str) -> Names:
    """What take, skip and shard leave of the names."""
    make = below.listing
    argument = {"TakeDataset": "count", "SkipDataset": "count", "ShardDataset": "num_shards"}[base]
    count, index = node.constant(argument), node.constant("index")
    known = isinstance(count, int) and (base != "ShardDataset" or isinstance(index, int))
    if make is None or (base == "TakeDataset" and count == -1):
        return below
    if not known or not below.complete:
        return _incomplete(below, f"{base.removesuffix('Dataset').lower()} leaves some of the names")

    def positions(size: int) -> range:
        if base == "ShardDataset":
            return range(size)[index::count]
        return range(size)[:count] if base == "TakeDataset" else range(size)[count:]

    def listing() -> Listing:
        whole = make()
        return Sliced(whole, positions(len(whole)))

    def some() -> Listing:
        whole = make()
        chosen = positions(len(whole))
        step = max(len(whole) // max(len(chosen), 1), 1)
        return Sliced(whole, range(len(whole))[::step][: len(chosen)])

    if below.in_order:
        return replace(below, listing=listing)
    return _incomplete(
        replace(below, listing=some),
        f"{base.removesuffix('Dataset').lower()} leaves some of the names in another order than listed",
    )
