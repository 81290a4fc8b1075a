"""A small dataset whose function costs little but its call, put together as TensorFlow serialises datasets.

Python's own way to it (tracing the function, the options, the rewrites that fuse) takes several times as long as all
that is measured on it. Each operation here is of a kind that a training has used already where that can be: TensorFlow
takes a millisecond and more to find the kernel of a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorflow.core.framework import (
    attr_value_pb2,
    dataset_options_pb2,
    function_pb2,
    graph_pb2,
    node_def_pb2,
    op_def_pb2,
    types_pb2,
)
from tensorflow.python.framework import dtypes, ops, tensor_shape
from tensorflow.python.ops import gen_dataset_ops, gen_experimental_dataset_ops, script_ops

_INT64, _BOOL, _VARIANT = types_pb2.DT_INT64, types_pb2.DT_BOOL, types_pb2.DT_VARIANT
_OPERATIONS = 5
_COMPONENTS = 2
_FUNCTION = "plumber_calibration"


class Calls:
    """An iterator over batches of calls.

    Args:
      python: the function is one in Python.
      batch: calls per batch.
      batches: there are.

    Attributes:
      resource: the iterator's.
    """

    def __init__(self, *, python: bool, batch: int, batches: int) -> None:
        graph = _dataset(_python_function() if python else _native_function(), batch, batches)
        variant = gen_experimental_dataset_ops.dataset_from_graph(graph.SerializeToString())
        self._spec: dict[str, Any] = {
            "output_types": [dtypes.int64] * _COMPONENTS,
            "output_shapes": [tensor_shape.TensorShape([None])] * _COMPONENTS,
        }
        # Named as Python names it for iterators of its own, so that TensorFlow knows the kernel.
        with ops.device(variant.device):
            self.resource = gen_dataset_ops.anonymous_iterator_v3(**self._spec)
            gen_dataset_ops.make_iterator(variant, self.resource)

    def take(self) -> None:
        """Makes one batch of calls."""
        gen_dataset_ops.iterator_get_next(self.resource, **self._spec)


def _dataset(function: Any, batch: int, batches: int) -> Any:
    called = {"f": _value(func=attr_value_pb2.NameAttrList(name=_FUNCTION)), "Targuments": _types([])}
    options = {"serialized_options": _value(s=_options().SerializeToString())}
    nodes = [
        _constant("start", _INT64, 0),
        _constant("stop", _INT64, batch * batches),
        _constant("step", _INT64, 1),
        _constant("size", _INT64, batch),
        _constant("drop", _BOOL, False),
        _node("range", "RangeDataset", ["start", "stop", "step"], **_spec(1, batched=False)),
        _node("map", "MapDataset", ["range"], **called, **_spec(_COMPONENTS, batched=False)),
        _node("batches", "BatchDatasetV2", ["map", "size", "drop"], **_spec(_COMPONENTS, batched=True)),
        _node("options", "OptionsDataset", ["batches"], **options, **_spec(_COMPONENTS, batched=True)),
        _node("dataset", "_Retval", ["options"], index=_value(i=0), T=_value(type=_VARIANT)),
    ]
    return graph_pb2.GraphDef(node=nodes, library=function_pb2.FunctionDefLibrary(function=[function]))


def _options() -> Any:
    """As written: nothing fused, nothing run ahead, one thread."""
    options = dataset_options_pb2.Options()
    options.autotune_options.enabled = True
    options.autotune_options.cpu_budget = 1
    options.optimization_options.apply_default_optimizations = False
    options.optimization_options.inject_prefetch = False
    options.threading_options.private_threadpool_size = 1
    return options


def _native_function() -> Any:
    nodes, before = [], "x"
    for number in range(_OPERATIONS):
        nodes.append(_node(f"sum{number}", "AddV2", [before, "x"], T=_value(type=_INT64)))
        before = f"sum{number}:z:0"
    return _function(nodes, before, stateful=False)


def _python_function() -> Any:
    token = script_ops._py_funcs.insert(_same)
    call = {"token": _value(s=token.encode()), "Tin": _types([_INT64]), "Tout": _types([_INT64])}
    scalar = _value(shape=tensor_shape.TensorShape([]).as_proto())
    nodes = [
        _node("call", "PyFunc", ["x"], **call),
        _node("shaped", "EnsureShape", ["call:output:0"], shape=scalar, T=_value(type=_INT64)),
    ]
    return _function(nodes, "shaped:output:0", stateful=True)


def _same(value: Any) -> Any:
    return value


def _function(nodes: Sequence[Any], outcome: str, *, stateful: bool) -> Any:
    """A function that returns an outcome and its argument."""
    argument = op_def_pb2.OpDef.ArgDef
    signature = op_def_pb2.OpDef(
        name=_FUNCTION,
        input_arg=[argument(name="x", type=_INT64)],
        output_arg=[argument(name="outcome", type=_INT64), argument(name="same", type=_INT64)],
        is_stateful=stateful,
    )
    returns = {"outcome": outcome, "same": "x"}
    return function_pb2.FunctionDef(signature=signature, node_def=nodes, ret=returns)


def _node(name: str, op: str, inputs: Sequence[str], **attributes: Any) -> Any:
    return node_def_pb2.NodeDef(name=name, op=op, input=inputs, attr=attributes)


def _constant(name: str, kind: int, value: int) -> Any:
    tensor = attr_value_pb2.AttrValue()
    tensor.tensor.dtype = kind
    tensor.tensor.tensor_shape.SetInParent()  # rank 0
    (tensor.tensor.bool_val if kind == _BOOL else tensor.tensor.int64_val).append(value)
    return _node(name, "Const", [], dtype=_value(type=kind), value=tensor)


def _spec(components: int, *, batched: bool) -> dict[str, Any]:
    shape = tensor_shape.TensorShape([None] if batched else []).as_proto()
    shapes = attr_value_pb2.AttrValue.ListValue(shape=[shape] * components)
    return {"output_types": _types([_INT64] * components), "output_shapes": _value(list=shapes)}


def _types(types: Sequence[int]) -> Any:
    return _value(list=attr_value_pb2.AttrValue.ListValue(type=types))


def _value(**value: Any) -> Any:
    return attr_value_pb2.AttrValue(**value)
