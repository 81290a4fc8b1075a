"""Filters that TensorFlow makes parallel: it cannot serialise the graph that it runs then.

`experimental_optimization.filter_parallelization` turns filters into an operator whose serialisation
lacks an input, and fails. So the copy that is described is finalised without that rewrite, the last of
all that touch filters, and the filters that it would have taken are made parallel in the outcome.
"""

from __future__ import annotations

from typing import Any

from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import op_def_registry

_FILTER, _PARALLEL = "FilterDataset", "ParallelFilterDataset"
_CALLS = "plumber_parallel_calls_of_filters"
_AUTOTUNE = -1
# These are as stateful as what they call.
_FRAMES = frozenset({"StatefulPartitionedCall", "If", "While", "Case"})
_HARMLESS = frozenset({"Assert"})


def asked_for(options: Any) -> bool:
    """Whether a dataset's options ask for parallel filters. TensorFlow makes none where autotune is off."""
    return options.experimental_optimization.filter_parallelization is True and (
        options.autotune.enabled is not False
    )


def left_alone(variant: Any, structure: dict[str, Any]) -> Any:
    """The variant of a dataset with the option off, all else as it is."""
    import tensorflow as tf
    from tensorflow.python.ops import gen_dataset_ops

    options = tf.data.Options()
    options.experimental_optimization.filter_parallelization = False
    return gen_dataset_ops.options_dataset(
        variant,
        serialized_options=options._to_proto().SerializeToString(),
        output_types=structure["output_types"],
        output_shapes=structure["output_shapes"],
    )


def make_parallel(graph: graph_pb2.GraphDef) -> None:
    """Makes those filters parallel, in place, that TensorFlow would: those whose functions keep no state."""
    library = {function.signature.name: function for function in graph.library.function}
    chosen = [
        node
        for node in graph.node
        if node.op == _FILTER and not _keeps_state(node.attr["predicate"].func.name, library)
    ]
    if not chosen:
        return
    for node in chosen:
        node.op = _PARALLEL
        node.input.append(_CALLS)
    calls = graph.node.add(name=_CALLS, op="Const")
    calls.attr["dtype"].type = calls.attr["value"].tensor.dtype = 9  # DT_INT64
    calls.attr["value"].tensor.tensor_shape.SetInParent()
    calls.attr["value"].tensor.int64_val.append(_AUTOTUNE)


def _keeps_state(name: str, library: dict[str, Any]) -> bool:
    function = library.get(name)
    if function is None:
        return True
    for node in function.node_def:
        definition = op_def_registry.get(node.op)
        if node.op in _HARMLESS or (definition is not None and not definition.is_stateful):
            continue
        if node.op not in _FRAMES:
            return True
        called = [value.func.name for value in node.attr.values() if value.HasField("func")]
        called += [one.name for value in node.attr.values() for one in value.list.func]
        if any(_keeps_state(one, library) for one in called):
            return True
    return False
