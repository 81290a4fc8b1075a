"""The operators as the user wrote them, from the operators that TensorFlow made of them.

One call may make several operators (`TFRecordDataset` is a flat map over a slice of names, with a
reader in its body); one row per call is wanted. So the tree of the written graph is paired with
the user's dataset objects, which know their lines, and what one call made is put together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tensorboard_plugin_plumber.capture import construction, graphs, places
from tensorboard_plugin_plumber.capture.construction import Construction, FunctionRecord
from tensorboard_plugin_plumber.capture.graphs import Node

# Python classes that add no operator of their own.
_WRAPPERS = frozenset({"_RestructuredDataset", "_OptionsDataset", "DatasetV1Adapter"})
# Entry points that make more than one operator, and how the user names the whole.
_METHODS = {
    "from_generator": "Generator",
    "list_files": "ListFiles",
    "sample_from_datasets": "SampleFromDatasets",
    "choose_from_datasets": "ChooseFromDatasets",
    "enumerate": "Enumerate",
    "unbatch": "Unbatch",
    "rebatch": "Rebatch",
    "ragged_batch": "RaggedBatch",
    "bucket_by_sequence_length": "BucketBySequenceLength",
    "rejection_resample": "RejectionResample",
    "counter": "Counter",
    "Counter": "Counter",
    "snapshot": "Snapshot",
    "load": "Load",
    "enumerate_dataset": "Enumerate",
    "dense_to_ragged_batch": "RaggedBatch",
    "pad_to_cardinality": "PadToCardinality",
    "copy_to_device": "CopyToDevice",
    "prefetch_to_device": "PrefetchToDevice",
}
_TRANSFERS = frozenset({"copy_to_device", "prefetch_to_device"})
# Operators that the user knows by another name.
_NAMES = {"LegacyParallelInterleave": "ParallelInterleave", "DenseToSparseBatch": "SparseBatch"}
# What makes a reader is the call of a class: tf.data.TFRecordDataset(...).
_CALL_OF_A_CLASS = "__init__"
# Entry points whose parts repeat a class, so that the class cannot tell two calls apart.
_REPEATING = frozenset({"rejection_resample", "sample_from_datasets", "pad_to_cardinality"})
_READERS = {
    "TFRecordDataset": "TFRecord",
    "TextLineDataset": "TextLine",
    "FixedLengthRecordDataset": "FixedLengthRecord",
}


@dataclass
class Pair:
    """What the user's own objects say of one operator of the written graph."""

    construction: Construction | None = None
    dataset: Any = None
    functions: dict[str, FunctionRecord] = field(default_factory=dict)
    # It was made inside the constructor of its consumer.
    internal: bool = False
    # It was made together with the operator below it, and stands in front of that.
    wraps: bool = False


@dataclass
class Written:
    """One operator as the user wrote it."""

    head: Node
    type: str
    pair: Pair
    in_body: bool
    parent: Written | None
    # All TensorFlow operators it consists of, the head first.
    nodes: list[Node] = field(default_factory=list)
    functions: dict[str, FunctionRecord] = field(default_factory=dict)
    # id() of a node -> the live dataset object it was serialised from, where that is known.
    live: dict[int, Any] = field(default_factory=dict)
    children: list[Written] = field(default_factory=list)
    # Made by TensorFlow's own code around the user's pipeline (tf.distribute), not by the user.
    foreign: bool = False
    id: str = ""

    def walk(self) -> Iterator[Written]:
        """Itself and all below in pre-order."""
        yield self
        for child in self.children:
            yield from child.walk()


def kind_of(op: str) -> str:
    """ "ParallelMapDatasetV2" -> "ParallelMap"."""
    return graphs.base_op(op).removesuffix("Dataset")


def operators_of(root: Node, dataset: Any) -> Written:
    """The user's tree of operators.

    Args:
      root: tree of the written graph.
      dataset: the Python object it was serialised from.
    """
    pairs: dict[int, Pair] = {}
    _pair(root, dataset, pairs, None)
    written = _group(root, pairs, None, False)
    number = 0
    for one in written.walk():
        if not one.foreign:
            one.id = f"op{number}"
            number += 1
    return written


def _pair(node: Node, dataset: Any, pairs: dict[int, Pair], outer: Construction | None) -> None:
    """Pairs the tree below `node` with the objects below `dataset`.

    Args:
      outer: construction of a class that only wraps this dataset (`TFRecordDataset` around its flat map).
    """
    made, dataset = unwrap(dataset)
    outer = outer or made
    for _ in range(3):  # what a constructor made for itself is in the graph, not among the inputs
        if _fits(dataset, node) or len(node.inputs) != 1 or not _fits_below(dataset, node):
            break
        pairs[id(node)] = Pair(wraps=True)
        node = node.inputs[0]
    for _ in range(3):  # an object whose operator TensorFlow has replaced (automatic sharding)
        inputs = construction.inputs_of(dataset)
        if _fits(dataset, node) or len(inputs) != 1 or not _fits(unwrap(inputs[0])[1], node):
            break
        dataset = unwrap(inputs[0])[1]
    own = construction.construction_of(dataset)
    functions = dict(own.functions) if own is not None else construction.functions_of(dataset)
    pairs[id(node)] = Pair(outer or own, dataset, functions)
    inputs = construction.inputs_of(dataset) or construction.distributed_by(dataset)
    below = list(node.inputs)
    if len(inputs) == len(below):
        for child, one in zip(below, inputs, strict=False):
            if _fits(one, child) or not _skipped_internal(child, one):
                _pair(child, one, pairs, None)
            else:
                pairs[id(child)] = Pair(internal=True, construction=own)
                _pair(child.inputs[0], one, pairs, None)
    _pair_bodies(node, functions, pairs)


def _skipped_internal(node: Node, dataset: Any) -> bool:
    """The node was made inside its consumer's constructor: the object belongs to the node below."""
    return (
        len(node.inputs) == 1
        and kind_of(node.op) in ("Map", "ParallelMap")
        and _fits(unwrap(dataset)[1], node.inputs[0])
        and not _fits(unwrap(dataset)[1], node)
    )


def _pair_bodies(node: Node, functions: dict[str, FunctionRecord], pairs: dict[int, Pair]) -> None:
    """Finds the records of datasets built in function bodies: by function and operator name."""
    built: dict[str, dict[str, Construction]] = {}
    for name, record in functions.items():
        built.update(record.inner)
        built[name] = record.datasets
    for body in node.bodies:
        for one in _inputs_below(body):
            made = built.get(one.function, {}).get(one.name)
            if made is not None:
                pairs[id(one)] = Pair(made, None, dict(made.functions))
                _pair_bodies(one, made.functions, pairs)


def _inputs_below(node: Node) -> Iterator[Node]:
    """An operator and all that it takes its elements from, without what functions make."""
    yield node
    for child in node.inputs:
        yield from _inputs_below(child)


def unwrap(dataset: Any) -> tuple[Construction | None, Any]:
    """(construction of the outermost wrapper with a name of its own, the dataset with the operator)."""
    outer = None
    for _ in range(32):
        if dataset is None:
            break
        if type(dataset).__name__ in _WRAPPERS:
            inner = getattr(dataset, "_dataset", None) or getattr(dataset, "_input_dataset", None)
        elif construction.original_of(dataset) is not None:
            inner = construction.original_of(dataset)
        else:
            inner = getattr(dataset, "_impl", None)
            if inner is not None and outer is None:
                outer = construction.construction_of(dataset) or Construction(
                    type(dataset).__name__, "__init__", None, None
                )
        if inner is None:
            break
        dataset = inner
    return outer, dataset


def _fits(dataset: Any, node: Node) -> bool:
    if dataset is None:
        return False
    name = re.sub(r"(Dataset)?(V\d+)?$", "", type(unwrap(dataset)[1]).__name__.lstrip("_"))
    kind = kind_of(node.op)
    return name == kind or name == "Variant" or kind.endswith(name) or name in kind


def _fits_below(dataset: Any, node: Node) -> bool:
    below = node.inputs[0] if node.inputs else None
    return below is not None and _fits(dataset, below)


def _group(node: Node, pairs: dict[int, Pair], parent: Written | None, in_body: bool) -> Written:
    named = node
    while pairs.get(id(named), Pair()).wraps:
        named = named.inputs[0]
    pair = pairs.get(id(named), Pair())
    one = Written(node, "", pair, in_body, parent)
    _absorb(one, node, pairs)
    one.type = _type_of(one, named)
    site = pair.construction.site if pair.construction is not None else None
    one.foreign = site is not None and places.is_tensorflow_file(site[0]) and not in_body
    return one


def _absorb(one: Written, node: Node, pairs: dict[int, Pair]) -> None:
    """Adds an operator to the user's operator; what it does not absorb below becomes a child."""
    one.nodes.append(node)
    pair = pairs.get(id(node), Pair())
    one.functions.update(pair.functions)
    one.live[id(node)] = pair.dataset
    for children, in_body in ((node.inputs, False), (node.bodies, True)):
        for child in children:
            if _is_part(one, node, child, pairs):
                _absorb(one, child, pairs)
            else:
                one.children.append(_group(child, pairs, one, in_body))


def _is_part(one: Written, consumer: Node, child: Node, pairs: dict[int, Pair]) -> bool:
    """Whether the call that made the head made this operator too."""
    pair = pairs.get(id(child), Pair())
    if pair.internal or pairs.get(id(consumer), Pair()).wraps:
        return True
    if _is_reader_body(consumer, child) or _is_generator_part(consumer, child):
        return True
    head, made = one.pair.construction, pair.construction
    if head is None or made is None or head.site is None:
        return False
    if _is_file_names(consumer, child) and head.method == made.method and head.site == made.site:
        return True
    if head.method not in _METHODS and head.method != _CALL_OF_A_CLASS:
        return False  # a whole pipeline made by one call (make_csv_dataset): its operators are told apart
    if head.site != made.site or head.method != made.method:
        return False
    return made.class_name != head.class_name or head.method in _REPEATING


def _is_reader_body(consumer: Node, child: Node) -> bool:
    return (
        graphs.base_op(child.op) in _READERS
        and "read_one_file" in child.function
        and child in consumer.bodies
    )


def _is_file_names(consumer: Node, child: Node) -> bool:
    """The names that a reader was given, made into a dataset."""
    return any(_is_reader_body(consumer, body) for body in consumer.bodies) and kind_of(child.op) in (
        "Tensor",
        "TensorSlice",
    )


def _is_generator_part(consumer: Node, child: Node) -> bool:
    """from_generator's pieces, recognised by structure: a flat map over one tensor with a generator inside."""
    inside = [graphs.base_op(body.op) for body in consumer.bodies]
    if inside != ["GeneratorDataset"] or "flat_map_fn" not in consumer.bodies[0].function:
        return False
    return child in consumer.bodies or kind_of(child.op) == "Tensor"


def _type_of(one: Written, named: Node) -> str:
    made = one.pair.construction
    if made is not None and made.method in _TRANSFERS:
        return _METHODS[made.method]
    for node in one.nodes[1:] or one.nodes:
        if graphs.base_op(node.op) in _READERS:
            return _READERS[graphs.base_op(node.op)]
        if graphs.base_op(node.op) == "GeneratorDataset":
            return "Generator"
    if made is not None and made.method in _METHODS:
        return _METHODS[made.method]
    return _NAMES.get(kind_of(named.op), kind_of(named.op))
