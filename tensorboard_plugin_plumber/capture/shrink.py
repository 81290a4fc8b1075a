"""A small stand-in for a pipeline that holds much data.

To see what TensorFlow makes of a pipeline it has to be serialised, and a source made from arrays
is serialised with all of its data, several times over. So a pipeline over large arrays is first
copied with a tiny array in the place of each large one: the operators above are made again from
their live attributes and recorded constructor arguments, with the functions that are already traced.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Iterator
from typing import Any

from tensorboard_plugin_plumber.capture.construction import DROPPED, construction_of, tensor_bytes
from tensorboard_plugin_plumber.capture.places import is_tensorflow_file

# Below this, serialising costs a few milliseconds.
LARGE_BYTES = 1 << 20
# Above this, it takes a second and more, and gigabytes for a moment.
TOO_LARGE_BYTES = 64 << 20
_SOURCES = frozenset({"_TensorSliceDataset", "_TensorDataset"})
# Making these again would reach outside: register with a service, write, read a file's header.
_NEVER_AGAIN = ("DataService", "Save", "Load", "Snapshot", "List")


_OTHER_ATTRIBUTES = {"dataset": "_input_dataset", "options": "_options_attr"}


class CannotCopy(Exception):
    """The operator cannot be made again without tracing or reaching outside."""


class _Local(threading.local):
    # Functions already traced, to be taken in this order; None: functions are traced as always.
    traced: list[Any] | None = None


_local = _Local()
_lock = threading.Lock()
_patched = False


def without_large_sources(dataset: Any) -> Any:
    """The dataset itself if it holds little, else a copy of the same operators over tiny sources.

    Random state, the user's functions and data are left alone.

    Raises:
      CannotCopy: it holds too much to be serialised, and cannot be copied.
    """
    captured = _captured_bytes(dataset)
    if captured > TOO_LARGE_BYTES:
        raise CannotCopy(f"its functions capture {captured >> 20} MB of tensors")
    if not _is_large(dataset):
        return dataset
    _patch()
    try:
        return _copy(dataset, {})
    except CannotCopy:
        if _held(dataset) > TOO_LARGE_BYTES:
            raise
        return dataset


def source_bytes(dataset: Any) -> int:
    """Bytes of the arrays that a source dataset holds; 0 for other operators."""
    if type(dataset).__name__ not in _SOURCES:
        return 0
    return sum(tensor_bytes(one) for one in getattr(dataset, "_tensors", ()))


def _is_large(dataset: Any) -> bool:
    return source_bytes(dataset) > LARGE_BYTES or any(_is_large(one) for one in dataset._inputs())


def _captured_bytes(dataset: Any) -> int:
    """Bytes of the tensors and variables that the functions hold: they are serialised with them."""
    total = 0
    for value in list(dataset.__dict__.values()):
        function = getattr(value, "_function", None) if _is_traced(value) else None
        for tensor in getattr(function, "captured_inputs", ()):
            if hasattr(tensor, "_numpy"):
                total += tensor_bytes(tensor)
        for variable in getattr(getattr(function, "graph", None), "variables", ()):
            total += tensor_bytes(variable)
    return total + sum(_captured_bytes(one) for one in dataset._inputs())


def _held(dataset: Any) -> int:
    return source_bytes(dataset) + sum(_held(one) for one in dataset._inputs())


def _copy(dataset: Any, copies: dict[int, Any]) -> Any:
    if id(dataset) in copies:
        return copies[id(dataset)]
    if source_bytes(dataset) > LARGE_BYTES:
        made = _tiny_source(dataset)
    elif not _is_large(dataset):
        made = dataset
    else:
        made = _made_again(dataset, copies)
    copies[id(dataset)] = made
    return made


def _tiny_source(dataset: Any) -> Any:
    """A source of the same class and element spec with one small element.

    Shapes inside an element are cut to one where they are large: nothing is iterated, and the
    operators above take their shapes from the element spec.
    """
    import tensorflow as tf

    slices = type(dataset).__name__ == "_TensorSliceDataset"
    tensors = []
    for tensor in dataset._tensors:
        count = max(1, tensor.shape[0] or 1) if slices else 1
        if tensor_bytes(tensor) // count <= LARGE_BYTES // 16:
            tensors.append(tensor[:1] if slices else tensor)
        elif tensor.dtype == tf.variant:
            raise CannotCopy("a source holds large ragged or sparse elements")
        else:
            tensors.append(tf.fill([min(size, 1) for size in tensor.shape], tf.zeros([], tensor.dtype)))
    made = object.__new__(type(dataset))
    made.__dict__.update(dataset.__dict__)
    make = tf.raw_ops.TensorSliceDataset if slices else tf.raw_ops.TensorDataset
    variant = make(
        components=tensors,
        output_shapes=[one.shape[1:] if slices else one.shape for one in tensors],
        metadata=dataset._metadata.SerializeToString(),
    )
    made.__dict__.update(_tensors=tensors, _variant_tensor_attr=variant)
    return made


def _made_again(dataset: Any, copies: dict[int, Any]) -> Any:
    cls = type(dataset)
    if any(name in cls.__name__ for name in _NEVER_AGAIN):
        raise CannotCopy(f"{cls.__name__} reaches outside when it is made")
    arguments = {name: _replaced(value, copies) for name, value in _arguments(dataset).items()}
    if hasattr(dataset, "_seed"):
        # A given seed keeps the constructor from drawing one, which would advance TensorFlow's random state.
        arguments["seed"] = 1
    functions = [value for value in dataset.__dict__.values() if _is_traced(value)]
    try:
        return _called(cls, arguments, functions)
    except (TypeError, ValueError, AttributeError):
        # Some constructors take plain numbers only, and keep tensors.
        arguments = {name: _plain(value) for name, value in arguments.items()}
    try:
        return _called(cls, arguments, functions)
    except (TypeError, ValueError, AttributeError) as error:
        raise CannotCopy(f"{cls.__name__} cannot be made again: {error}") from error


def _called(cls: Any, arguments: dict[str, Any], functions: list[Any]) -> Any:
    with _reusing(functions):
        return cls(**arguments)


def _plain(value: Any) -> Any:
    """A scalar tensor as the Python number or bytes in it; other values as they are."""
    if not (hasattr(value, "_numpy") and value.shape.rank == 0):
        return value
    content = value.numpy()
    return content.item() if hasattr(content, "item") else content


def _arguments(dataset: Any) -> dict[str, Any]:
    """Constructor arguments by name: from the attributes of the same name, else as recorded, else the default."""
    cls = type(dataset)
    recorded = _recorded(dataset)
    found = {}
    for name, parameter in _parameters(type(dataset)):
        live = _live(dataset, name)
        if live is not DROPPED:
            found[name] = live
        elif recorded.get(name, DROPPED) is not DROPPED:
            found[name] = recorded[name]
        elif parameter.default is inspect.Parameter.empty:
            raise CannotCopy(f"the argument {name} of {cls.__name__} is not known")
    return found


def _parameters(cls: Any) -> tuple[tuple[str, inspect.Parameter], ...]:
    parameters = tuple(inspect.signature(cls.__init__).parameters.items())[1:]
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(parameter.kind in variable for _, parameter in parameters):
        raise CannotCopy(f"{cls} takes any arguments")
    return parameters


def _recorded(dataset: Any) -> dict[str, Any]:
    construction = construction_of(dataset)
    if construction is None:
        return {}
    names = [name for name, _ in _parameters(type(dataset))]
    return {**dict(zip(names, construction.arguments, strict=False)), **construction.keywords}


def _live(dataset: Any, name: str) -> Any:
    """An argument as the object still holds it; DROPPED if it does not."""
    value = dataset.__dict__.get(_OTHER_ATTRIBUTES.get(name, f"_{name}"), DROPPED)
    if _is_traced(value):
        return value._func
    if name == "deterministic":
        return {"true": True, "false": False, "default": None}.get(value, DROPPED)
    return value


def _is_tensorflows(function: Any) -> bool:
    """A function of TensorFlow's own, which a constructor traces for itself."""
    code = getattr(function, "__code__", None)
    return code is not None and is_tensorflow_file(code.co_filename)


def _is_traced(value: Any) -> bool:
    return type(value).__name__ == "StructuredFunctionWrapper"


def _replaced(value: Any, copies: dict[int, Any]) -> Any:
    from tensorflow.python.types import data as data_types

    if value is DROPPED:
        raise CannotCopy("one of its arguments was too large to be kept")
    if isinstance(value, data_types.DatasetV2):
        return _copy(value, copies)
    if isinstance(value, dict):
        return {name: _replaced(one, copies) for name, one in value.items()}
    if isinstance(value, list):
        return [_replaced(one, copies) for one in value]
    if isinstance(value, tuple):
        items = [_replaced(one, copies) for one in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


@contextlib.contextmanager
def _reusing(traced: list[Any]) -> Iterator[None]:
    _local.traced = list(traced)
    try:
        yield
    finally:
        _local.traced = None


def _patch() -> None:
    """Lets a constructor take functions that are already traced, in this thread and while asked to."""
    global _patched
    from tensorflow.python.data.ops import structured_function

    with _lock:
        if _patched:
            return
        _patched = True
        cls = structured_function.StructuredFunctionWrapper
        original = cls.__init__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            if _local.traced is None or (
                not _local.traced and _is_tensorflows(args[0] if args else kwargs["func"])
            ):
                original(self, *args, **kwargs)
            elif _local.traced:
                self.__dict__.update(_local.traced.pop(0).__dict__)
            else:
                raise CannotCopy("a function would be traced again")

        cls.__init__ = __init__
