"""Remembers where and how every tf.data dataset was built.

`install` wraps two methods of `DatasetV2`: `__new__`, which sees the constructor arguments of
every subclass, and `__init__`, which every subclass calls last, when the operator exists. What is
remembered is a `Construction`:

* on the dataset object itself for datasets built eagerly, so that it lives exactly as long;
* in the `FunctionRecord` of the operator that owns the function for datasets built while a
  function body is traced (their Python objects die when the tracing ends).

Code objects are kept, user data is not: of the constructor arguments only datasets, functions and
small plain values stay, all of which the dataset holds anyway.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import types
import weakref
from dataclasses import dataclass, field
from typing import Any

from tensorboard_plugin_plumber.capture import bytecode, keras_inputs, places

_logger = logging.getLogger("tensorboard_plugin_plumber")
_ATTRIBUTE = "_plumber_construction"
_ARGUMENTS = "_plumber_arguments"
_ORIGINAL = "_plumber_original"
_SMALL_BYTES = 4096
_MOST_UNUSED = 8
# They give a dataset that does something else than what they are called on, and have no other effect.
_TRANSFORMATIONS = frozenset(
    {
        "batch", "bucket_by_sequence_length", "cache", "concatenate", "enumerate", "filter", "flat_map",
        "group_by_window", "ignore_errors", "interleave", "map", "padded_batch", "prefetch", "ragged_batch", "rebatch",
        "rejection_resample", "repeat", "scan", "shard", "shuffle", "skip", "snapshot", "sparse_batch", "take",
        "take_while", "unbatch", "unique", "window", "with_options",
    }
)  # fmt: skip

_lock = threading.Lock()
_installed = False
# FuncGraph -> operator name -> Construction: only while and just after a function is traced.
_traced: weakref.WeakKeyDictionary[Any, dict[str, Construction]] = weakref.WeakKeyDictionary()


class Dropped:
    """Stands for a constructor argument that was not kept: it may hold much of the user's data."""

    def __repr__(self) -> str:
        return "<dropped>"


DROPPED = Dropped()


@dataclass(frozen=True)
class FunctionRecord:
    """A Python function that was traced for an operator, without the data it closes over."""

    name: str
    # None where the callable has no Python code (a bound C function, a Keras layer's __call__ has).
    code: types.CodeType | None
    # Path, line and scope of its definition in the user's own file; None if it is not the user's.
    place: tuple[str, int, str] | None = None
    # Names that the code takes from its module and that are modules, functions or classes there.
    fixed: frozenset[str] = frozenset()
    # Operator name in the traced graph -> the dataset that the body built there.
    datasets: dict[str, Construction] = field(default_factory=dict, repr=False)
    # Library name of a function that the body calls (a branch, a tf.function) -> the same of that function.
    inner: dict[str, dict[str, Construction]] = field(default_factory=dict, repr=False)
    # The callable itself, for as long as somebody else keeps it; None where it cannot be held weakly.
    function: weakref.ref[Any] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Unused:
    """A call on a dataset whose result the code threw away."""

    method: str
    call: places.Call


@dataclass(frozen=True)
class Construction:
    """How one dataset object came to be."""

    class_name: str
    # The tf.data entry point that the caller used: "map", "from_generator", "__init__" ….
    method: str
    # Where the user wrote it; None if no frame of the user's was on the stack.
    call: places.Call | None
    # Who called the entry point: tells two calls apart that one line of the user's made.
    site: tuple[str, int] | None
    # Name of the traced function in the function library -> the Python function.
    functions: dict[str, FunctionRecord] = field(default_factory=dict)
    arguments: tuple[Any, ...] = field(default=(), repr=False)
    keywords: dict[str, Any] = field(default_factory=dict, repr=False)
    # What was made of it and thrown away, by place; at most _MOST_UNUSED.
    unused: dict[tuple[str, int], Unused] = field(default_factory=dict, repr=False, compare=False)


def construction_of(dataset: object) -> Construction | None:
    """What is known of a dataset object; None if it was built before `install`."""
    found = getattr(dataset, "__dict__", {}).get(_ATTRIBUTE)
    return found if isinstance(found, Construction) else None


def stand_for(made: Any, dataset: Any) -> None:
    """Says of a dataset that was made again that it is the user's, as the other one was."""
    found = construction_of(dataset)
    if found is not None:
        made.__dict__[_ATTRIBUTE] = found


def install() -> None:
    """Records every dataset that is built from now on. Calling it again does nothing.

    Raises:
      ImportError: TensorFlow is not installed.
    """
    global _installed
    from tensorflow.python.data.ops import dataset_ops

    with _lock:
        if _installed:
            return
        cls = dataset_ops.DatasetV2
        _wrap_new(cls)
        _wrap_init(cls)
        _wrap_rewrite(dataset_ops)
        _installed = True


def _wrap_new(cls: Any) -> None:
    def __new__(klass: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        inherited = super(cls, klass).__new__  # of a class beside it among the bases, else object's
        self = object.__new__(klass) if inherited is object.__new__ else inherited(klass, *args, **kwargs)
        if args or kwargs:
            self.__dict__[_ARGUMENTS] = (args, kwargs)
        return self

    cls.__new__ = __new__


def _wrap_init(cls: Any) -> None:
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, variant_tensor: Any) -> None:  # noqa: N807
        original(self, variant_tensor)
        try:
            _remember(self, variant_tensor, sys._getframe(1))
        except Exception:  # the one guard: whatever fails here must not reach the user's pipeline
            self.__dict__.pop(_ARGUMENTS, None)
            _logger.debug("a dataset's construction could not be recorded", exc_info=True)

    cls.__init__ = __init__


def _wrap_rewrite(dataset_ops: Any) -> None:
    """TensorFlow puts an anonymous dataset in the place of one that it rewrites at once: keep the original."""
    for name in ("apply_rewrite", "_apply_rewrite"):  # the latter until TensorFlow 2.17
        original = getattr(dataset_ops, name, None)
        if original is not None:
            setattr(dataset_ops, name, _remembering(original))


def _remembering(original: Any) -> Any:
    @functools.wraps(original)
    def apply_rewrite(dataset: Any, rewrite: Any) -> Any:
        rewritten = original(dataset, rewrite)
        rewritten.__dict__[_ORIGINAL] = dataset
        return rewritten

    return apply_rewrite


def original_of(dataset: Any) -> Any:
    """The dataset that was rewritten into this one; None if it is an original itself."""
    return getattr(dataset, "__dict__", {}).get(_ORIGINAL)


def inputs_of(dataset: Any) -> list[Any]:
    """The datasets that one takes its elements from.

    `Dataset.apply` overwrites what `_inputs` of a concatenation gives, with what it was itself applied to.
    """
    attributes = getattr(dataset, "__dict__", {})
    if "_dataset_to_concatenate" in attributes:
        return [attributes["_input_dataset"], attributes["_dataset_to_concatenate"]]
    try:
        return list(dataset._inputs())
    except Exception:  # a third party's class: whatever it does, its inputs are unknown
        return []


def distributed_by(dataset: Any) -> list[Any]:
    """The dataset that a client of a tf.data service takes the elements of, as far as the client knows it."""
    if not type(dataset).__name__.startswith("_DataServiceDataset"):
        return []
    return list(getattr(dataset, "_input_datasets", ()))


def is_transfer(dataset: Any) -> bool:
    """Whether a dataset copies its input's elements to a device: TensorFlow can serialise neither."""
    return type(dataset).__name__ == "_CopyToDeviceDataset"


def _remember(dataset: Any, variant_tensor: Any, frame: types.FrameType) -> None:
    arguments, keywords = dataset.__dict__.pop(_ARGUMENTS, ((), {}))
    method, call, site = places.locate(frame)
    graph = None if hasattr(variant_tensor, "numpy") else variant_tensor.graph
    functions = functions_of(dataset)
    if graph is None:
        arguments = tuple(_keep(value) for value in arguments)
        keywords = {name: _keep(value) for name, value in keywords.items()}
    else:
        arguments, keywords = (), {}  # symbolic tensors would keep the traced graph alive
    made = Construction(type(dataset).__name__, method, call, site, functions, arguments, keywords)
    dataset.__dict__[_ATTRIBUTE] = made
    if graph is not None:
        by_name = _traced.setdefault(graph, {})
        by_name.setdefault(variant_tensor.op.name, made)
    if call is not None and method in _TRANSFORMATIONS and call.method == method:
        _note_unused(dataset, Unused(method, call))


def _note_unused(dataset: Any, unused: Unused) -> None:
    """Notes a transformation whose result the next instruction drops with what it was made of."""
    if not bytecode.drops_result(unused.call.code, unused.call.instruction):
        return
    inputs = inputs_of(dataset)
    below = construction_of(inputs[0]) if inputs else None
    if below is not None and len(below.unused) < _MOST_UNUSED:
        below.unused.setdefault((unused.call.path, unused.call.frame_line), unused)


def functions_of(dataset: Any) -> dict[str, FunctionRecord]:
    """The Python functions behind a dataset object's traced functions, by library name."""
    found: dict[str, FunctionRecord] = {}
    for value in list(dataset.__dict__.values()):
        if type(value).__name__ != "StructuredFunctionWrapper":
            continue
        function = getattr(value, "_function", None)
        name = _library_name(function)
        if name is None:
            continue
        graph = getattr(function, "graph", None)
        datasets = _traced.get(graph, {}) if graph is not None else {}
        python_function = _given_generator(getattr(value, "_func", None))
        given = keras_inputs.given(python_function)
        if given is not None:
            python_function = given.function
        code = given.code if given is not None else places.code_of(python_function)
        found[name] = FunctionRecord(
            given.name if given is not None else places.function_name(python_function),
            code,
            places.definition_of(code),
            places.fixed_names(python_function, code),
            datasets,
            _datasets_of_calls(graph),
            _weakly(python_function),
        )
    return found


def _weakly(function: Any) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(function)
    except TypeError:
        return None


def _datasets_of_calls(graph: Any) -> dict[str, dict[str, Construction]]:
    """By library name of the functions that a traced function calls: the datasets built in them."""
    found = {}
    for name, function in getattr(graph, "_functions", {}).items():
        inner = getattr(function, "graph", None)
        datasets = _traced.get(inner) if inner is not None else None
        if datasets:
            found[str(name)] = datasets
    return found


def _given_generator(function: Any) -> Any:
    """The user's generator where the traced function is from_generator's own, else the function."""
    if getattr(function, "__name__", "") != "flat_map_fn" or not getattr(function, "__closure__", None):
        return function
    try:
        inner = dict(zip(function.__code__.co_freevars, function.__closure__, strict=False))[
            "get_iterator_id_fn"
        ].cell_contents
        state = dict(zip(inner.__code__.co_freevars, inner.__closure__, strict=False))[
            "generator_state"
        ].cell_contents
        return state._generator
    except (KeyError, AttributeError, ValueError):
        return function


def _library_name(function: Any) -> str | None:
    name = getattr(function, "name", None)
    if isinstance(name, bytes):
        return name.decode()
    return name if isinstance(name, str) else None


def _keep(value: Any, depth: int = 0) -> Any:
    """The value if it is small or held by the dataset anyway, else DROPPED."""
    if value is None or isinstance(value, (bool, int, float, complex, os.PathLike)):
        return value
    if isinstance(value, (str, bytes)):
        return value if len(value) <= _SMALL_BYTES else DROPPED
    size = getattr(value, "nbytes", None)  # numpy arrays and scalars
    if isinstance(size, int):
        return value if size <= _SMALL_BYTES else DROPPED
    if hasattr(value, "_numpy") and hasattr(value, "dtype"):  # an eager tensor
        return value if tensor_bytes(value) <= _SMALL_BYTES else DROPPED
    if isinstance(value, (tuple, list, dict)):
        if len(value) > 64 or depth > 3:
            return DROPPED
        if isinstance(value, dict):
            return {key: _keep(item, depth + 1) for key, item in value.items()}
        items = [_keep(item, depth + 1) for item in value]
        if isinstance(value, list):
            return items
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value if _is_structural(value) else DROPPED


def tensor_bytes(tensor: Any) -> int:
    """Bytes of an eager tensor's content; strings count 64 B each, unknown shapes nothing."""
    count = tensor.shape.num_elements()
    return int((count or 0) * (tensor.dtype.size or 64))


def _is_structural(value: Any) -> bool:
    """Datasets, functions, reducers, specs and options: the dataset holds them, or they hold no data."""
    if callable(value):
        return True
    kinds = {base.__name__ for base in type(value).__mro__}
    return bool(kinds & {"DatasetV2", "TypeSpec", "DType", "TensorShape", "OptionsBase", "Reducer"})
