"""The graph that a dataset really runs, with each operator traced back to what was written.

TensorFlow rewrites a dataset when it is iterated: it makes maps parallel, fuses map with batch,
drops what does nothing, injects prefetches. All these rewrites carry an operator's metadata name
along (`fused(a,b)`). So a *copy* of the written graph has each operator's name replaced by a tag,
the copy is finalised as an iterator would finalise it, and the tags that come back say which
written operators each running one executes. The user's dataset is only read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tensorflow.core.framework import dataset_metadata_pb2, graph_pb2
from tensorflow.python.framework import op_def_registry, tensor_util

from tensorboard_plugin_plumber.capture import parallel_filters

_DATASET_OP = re.compile(r"Dataset(V\d+)?$")
_NO_DATASETS = frozenset({"DeleteDataset", "FinalizeDataset", "RegisterDataset", "RegisterDatasetV2"})
_TAG = re.compile(r"#(\d+)")
# What TensorFlow names an operator that the user gave no name.
_AUTOMATIC_NAME = re.compile(r"\w+:\d+$")
_IGNORE_EXTERNAL_STATE = 1  # tf.data.experimental.ExternalStatePolicy.IGNORE
# Operators one below the other that are looked at; identities and calls that are followed.
_MAX_DEPTH = 300
_LARGE_CONSTANT = 4096
# Operators that carry options or bookkeeping and hand every element through.
TRANSPARENT = frozenset(
    {
        "ModelDataset",
        "PrivateThreadPoolDataset",
        "MaxIntraOpParallelismDataset",
        "OptionsDataset",
        "RewriteDataset",
    }
)
# Operators that iterate the datasets which their function returns, and that function's attribute.
_BODIES = {
    "FlatMapDataset": "f",
    "InterleaveDataset": "f",
    "ParallelInterleaveDataset": "f",
    "LegacyParallelInterleaveDataset": "f",
    "GroupByWindowDataset": "reduce_func",
}


@dataclass
class Scope:
    """A graph or a function body at one place of use: where names are looked up."""

    nodes: dict[str, Any]
    # Argument name -> (scope, input) of the caller; absent where the value is known only when it runs.
    arguments: dict[str, tuple[Scope, str]] = field(default_factory=dict)
    library: dict[str, Any] = field(default_factory=dict)
    # Library name of the function; "" in the main graph.
    function: str = ""
    # The operator that calls the function with elements of its input; None if none does.
    owner: Node | None = None


@dataclass
class Node:
    """One dataset operator, at one place of the tree."""

    op: str
    name: str
    proto: Any
    scope: Scope
    # Library name of the function whose body holds it; "" in the main graph.
    function: str
    tags: tuple[int, ...] = ()
    inputs: list[Node] = field(default_factory=list)
    # Roots of the datasets that its function returns.
    bodies: list[Node] = field(default_factory=list)
    _constants: dict[str, Any] = field(default_factory=dict, repr=False)

    @functools.cached_property
    def _named_inputs(self) -> list[tuple[str, str]]:
        return named_inputs(self.proto)

    def attribute(self, name: str) -> Any:
        """An attribute's value by its kind; None if the operator has no such attribute."""
        if name not in self.proto.attr:
            return None
        value = self.proto.attr[name]
        kind = value.WhichOneof("value")
        return None if kind is None else getattr(value, kind)

    def constant(self, argument: str) -> Any:
        """The Python value of an input that is a small constant; None if it is not."""
        if argument not in self._constants:
            reference = next((one for name, one in self._named_inputs if name == argument), None)
            self._constants[argument] = None if reference is None else constant_of(self.scope, reference)
        return self._constants[argument]

    def functions(self) -> dict[str, str]:
        """Attribute -> library name of each function the operator calls."""
        return {
            name: value.func.name for name, value in sorted(self.proto.attr.items()) if value.HasField("func")
        }

    def inputs_named(self, argument: str) -> list[Any]:
        """The producers (NodeDef) of an input, constants mostly; None for those known only when it runs."""
        return [
            _producer(self.scope, reference)[1] for name, reference in self._named_inputs if name == argument
        ]

    def walk(self) -> Iterator[Node]:
        """Itself and all below, inputs before bodies, in pre-order."""
        yield self
        for child in (*self.inputs, *self.bodies):
            yield from child.walk()


@dataclass(frozen=True)
class Graphs:
    """A dataset as written and as it runs."""

    written: Node
    running: Node
    library: dict[str, Any]
    # Tag -> the `name=` that the user gave, where one was given.
    names: dict[int, str]
    # Operators that are left out, at the far end of a pipeline of very many.
    left_out: int = 0


def is_dataset_op(op: str) -> bool:
    """Whether an op makes a dataset."""
    return bool(_DATASET_OP.search(op)) and op not in _NO_DATASETS


@functools.lru_cache(maxsize=1024)
def base_op(op: str) -> str:
    """An op's name without version and stage: "BatchDatasetV2" and "ExperimentalBatchDataset" -> "BatchDataset"."""
    return re.sub(r"^Experimental|V\d+$", "", op)


def written(dataset: Any) -> tuple[Node, dict[str, Any]]:
    """The tree of a dataset as written, and its function library.

    Raises:
      tf.errors.OpError, ValueError: the dataset cannot be serialised.
    """
    graph = serialise(dataset._variant_tensor)
    root = tree(graph)
    return root, root.scope.library


def read(dataset: Any) -> Graphs:
    """Serialises, tags and finalises a dataset; runs none of the user's code and draws no elements.

    Raises:
      tf.errors.OpError: the dataset cannot be serialised (a resource of an unknown kind, over 2 GB).
    """
    return finalise(serialise(dataset._variant_tensor), dataset)


def finalise(graph: Any, dataset: Any) -> Graphs:
    """Tags a serialised dataset and lets TensorFlow rewrite the copy as an iterator would."""
    from tensorflow.python.ops import gen_dataset_ops, gen_experimental_dataset_ops

    tagged = graph_pb2.GraphDef()
    tagged.CopyFrom(graph)
    count = 0
    names: dict[int, str] = {}
    for nodes in (tagged.node, *(function.node_def for function in tagged.library.function)):
        for node in nodes:
            if is_dataset_op(node.op) and "metadata" in node.attr:
                name = f"#{count}".encode()
                given = dataset_metadata_pb2.Metadata.FromString(node.attr["metadata"].s).name.decode(
                    errors="replace"
                )
                if given and not _AUTOMATIC_NAME.match(given):
                    names[count] = given
                node.attr["metadata"].s = dataset_metadata_pb2.Metadata(name=name).SerializeToString()
                count += 1
    variant = gen_experimental_dataset_ops.dataset_from_graph(tagged.SerializeToString())
    structure = dataset._flat_structure
    parallel = parallel_filters.asked_for(dataset.options())
    final = gen_dataset_ops.finalize_dataset(
        parallel_filters.left_alone(variant, structure) if parallel else variant,
        output_types=structure["output_types"],
        output_shapes=structure["output_shapes"],
    )
    runs = serialise(final)
    if parallel:
        parallel_filters.make_parallel(runs)
    library = {function.signature.name: function for function in tagged.library.function}
    return Graphs(tree(tagged), tree(runs), library, names)


def serialise(variant: Any) -> Any:
    """A dataset variant as a GraphDef.

    Raises:
      ValueError: TensorFlow gave nothing back (over 2 GB).
    """
    from tensorflow.python.ops import gen_dataset_ops

    data = gen_dataset_ops.dataset_to_graph_v2(
        variant, external_state_policy=_IGNORE_EXTERNAL_STATE, strip_device_assignment=False
    ).numpy()
    if not data:
        raise ValueError("the dataset is too large to be serialised")
    return graph_pb2.GraphDef.FromString(data)


def tree(graph: Any) -> Node:
    """The tree of dataset operators of a serialised dataset.

    Raises:
      ValueError: the graph does not return a dataset.
    """
    library = {function.signature.name: function for function in graph.library.function}
    scope = Scope({node.name: node for node in graph.node}, {}, library)
    returned = next((node.input[0] for node in graph.node if node.op == "_Retval"), None)
    root = None if returned is None else _dataset(scope, returned, "", 0)
    if root is None:
        raise ValueError("the serialised graph returns no dataset")
    return root


def _dataset(scope: Scope, reference: str, function: str, depth: int) -> Node | None:
    """The dataset operator that makes a value, options and bookkeeping skipped."""
    if depth > _MAX_DEPTH:
        return None
    where, proto, reference = _traced_back(scope, reference)
    if proto is None:
        return None
    where_function = function if where is scope else ""
    if proto.op in ("PartitionedCall", "StatefulPartitionedCall"):
        name = proto.attr["f"].func.name
        body = enter(where, name, [(where, one) for one in proto.input])
        returned = None if body is None else output_of(where.library[name], output_index(reference))
        return None if body is None or returned is None else _dataset(body, returned, name, depth + 1)
    if not is_dataset_op(proto.op):
        return None
    inputs = []
    for argument, one in named_inputs(proto):
        if argument.endswith("other_arguments") or argument.endswith("func_other_args"):
            continue
        child = _dataset(where, one, where_function, depth + 1)
        if child is not None:
            inputs.append(child)
    if proto.op in TRANSPARENT and inputs:
        return inputs[0]
    node = Node(proto.op, proto.name, proto, where, where_function, _tags(proto), inputs)
    attribute = _BODIES.get(base_op(proto.op))
    if attribute is not None and proto.attr[attribute].HasField("func"):
        node.bodies = _bodies(node, attribute, depth)
    return node


def _bodies(node: Node, attribute: str, depth: int) -> list[Node]:
    name = node.proto.attr[attribute].func.name
    function = node.scope.library.get(name)
    if function is None:
        return []
    captured = "reduce_func_other_arguments" if attribute == "reduce_func" else "other_arguments"
    references = [(node.scope, one) for argument, one in named_inputs(node.proto) if argument == captured]
    count = len(function.signature.input_arg)
    unknown: list[tuple[Scope, str] | None] = [None] * (count - len(references))
    body = enter(node.scope, name, [*unknown, *references], node)
    if body is None:
        return []
    found = []
    for index in range(len(function.signature.output_arg)):
        returned = output_of(function, index)
        found += _alternatives(body, returned, name, depth) if returned is not None else []
    return found


def _alternatives(scope: Scope, reference: str, function: str, depth: int) -> list[Node]:
    """The datasets that a value may be: several behind a condition."""
    where, proto, reference = _traced_back(scope, reference)
    if proto is not None and proto.op in ("If", "StatelessIf", "Case", "StatelessCase"):
        found = []
        # "then_branch" before "else_branch", as people write them.
        functions = sorted(proto.attr.items(), reverse=True)
        branches = [value.func for _, value in functions if value.HasField("func")]
        for value in proto.attr.values():
            branches += list(value.list.func)
        for branch in branches:
            inner = enter(where, branch.name, [(where, one) for one in list(proto.input)[1:]])
            if inner is not None:
                returned = output_of(where.library[branch.name], output_index(reference))
                found += _alternatives(inner, returned, branch.name, depth + 1) if returned else []
        return found
    one = _dataset(scope, reference, function, depth + 1)
    return [] if one is None else [one]


def enter(scope: Scope, name: str, references: Any, owner: Node | None = None) -> Scope | None:
    """The body of a function at one place of use; None if the library lacks it.

    Args:
      references: by argument, (scope, input) of the caller; None where it is known only when it runs.
      owner: the operator that calls it with elements of its input.
    """
    function = scope.library.get(name)
    if function is None:
        return None
    arguments = {}
    for argument, reference in zip(function.signature.input_arg, references, strict=False):
        if reference is not None:
            arguments[argument.name] = reference
    nodes = {node.name: node for node in function.node_def}
    return Scope(nodes, arguments, scope.library, name, owner)


def output_of(function: Any, index: int) -> str | None:
    """Reference, within a function's body, of one of its outputs."""
    outputs = function.signature.output_arg
    return function.ret[outputs[index].name] if index < len(outputs) else None


def output_index(reference: str) -> int:
    """ "call:output:1" -> 1."""
    last = reference.rsplit(":", 1)[-1]
    return int(last) if last.isdigit() else 0


def _producer(scope: Scope, reference: str) -> tuple[Scope, Any]:
    """Scope and NodeDef behind an input, identities and function arguments followed; NodeDef None if unknown."""
    where, proto, _ = _traced_back(scope, reference)
    return where, proto


def _traced_back(scope: Scope, reference: str) -> tuple[Scope, Any, str]:
    """As `_producer`, and the reference by which that scope knows the value."""
    for _ in range(_MAX_DEPTH):
        name = reference.split(":", 1)[0].lstrip("^")
        if name in scope.nodes:
            proto = scope.nodes[name]
            if proto.op in ("Identity", "IdentityN") and proto.input:
                index = output_index(reference) if proto.op == "IdentityN" else 0
                reference = proto.input[index]
                continue
            return scope, proto, reference
        if name not in scope.arguments:
            return scope, None, reference
        scope, reference = scope.arguments[name]
    return scope, None, reference


def named_inputs(proto: Any) -> list[tuple[str, str]]:
    """(argument name, reference) of each data input, lists spread out."""
    data = [one for one in proto.input if not one.startswith("^")]
    definition = op_def_registry.get(proto.op)
    if definition is None:
        return [("", one) for one in data]
    named: list[tuple[str, str]] = []
    for argument in definition.input_arg:
        if argument.number_attr:
            count = int(proto.attr[argument.number_attr].i)
        elif argument.type_list_attr:
            count = len(proto.attr[argument.type_list_attr].list.type)
        else:
            count = 1
        named += [(argument.name, one) for one in data[len(named) : len(named) + count]]
    return named


def constant_of(scope: Scope, reference: str) -> Any:
    """The Python value behind an input that is a small constant; None if it is not."""
    _, proto = _producer(scope, reference)
    if proto is None or proto.op != "Const":
        return None
    tensor = proto.attr["value"].tensor
    if tensor.ByteSize() > _LARGE_CONSTANT:
        return None
    for plain in () if tensor.tensor_shape.dim else (tensor.int64_val, tensor.int_val, tensor.bool_val):
        if plain:  # most constants are these, and NumPy takes its time
            return plain[0]
    value = tensor_util.MakeNdarray(tensor)
    if value.ndim:
        return value.tolist()
    one = value.item()
    return one.decode(errors="replace") if isinstance(one, bytes) else one


def leading_dimension(proto: Any) -> int | None:
    """Length of a constant's first dimension, without reading its content."""
    if proto is None or proto.op != "Const":
        return None
    dimensions = proto.attr["value"].tensor.tensor_shape.dim
    return int(dimensions[0].size) if dimensions else None


def _tags(proto: Any) -> tuple[int, ...]:
    if "metadata" not in proto.attr:
        return ()
    name = dataset_metadata_pb2.Metadata.FromString(proto.attr["metadata"].s).name
    return tuple(int(one) for one in _TAG.findall(name.decode(errors="replace")))
