"""A small stand-in for a pipeline that holds much data, or that TensorFlow cannot serialise.

To see what TensorFlow makes of a pipeline it has to be serialised: a source made from arrays with
all of its data, a function with all the tensors and variables that it captures, several times over;
and one that copies to a device not at all. So such a pipeline is first copied, with tiny arrays in
the places of the large ones, and a source in the place of what copies to a device: the operators
above are made again from their live attributes and recorded constructor arguments, with the
functions that are already traced.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tensorboard_plugin_plumber.capture.construction import (
    DROPPED,
    construction_of,
    is_transfer,
    tensor_bytes,
)
from tensorboard_plugin_plumber.capture.places import is_tensorflow_file
from tensorboard_plugin_plumber.capture.survey import (
    LARGE_BYTES,
    TOO_LARGE_BYTES,
    Survey,
    captures_of,
    is_traced,
    source_bytes,
    traced_of,
)

# Making these again would reach outside: register with a service, write, read a file's header.
_NEVER_AGAIN = ("DataService", "Save", "Load", "SnapshotChunk", "List")
# Name of the source that stands in for a transfer to a device.
TRANSFER = "plumber's stand-in for a transfer to a device"
LEFT_OUT = "plumber's stand-in for what is left out"

_OTHER_ATTRIBUTES = {"dataset": "_input_dataset", "options": "_options_attr"}


class CannotCopy(Exception):
    """The operator cannot be made again without tracing or reaching outside."""


class _Local(threading.local):
    # Functions already traced, to be taken in this order; None: functions are traced as always.
    traced: list[Any] | None = None


_local = _Local()
_lock = threading.Lock()
_patched = False


@dataclass(frozen=True)
class Serialisable:
    """A dataset, or a copy of it, that can be serialised.

    Attributes:
      dataset: to be serialised only.
      left_out: operators at the far end of the original that the copy lacks.
    """

    dataset: Any
    left_out: int = 0


def serialisable(dataset: Any) -> Serialisable:
    """The dataset itself if it can be serialised at little cost, else a copy of the same operators that can.

    Random state, the user's functions and data are left alone.

    Raises:
      CannotCopy: it holds too much to be serialised, or what cannot be, and cannot be copied.
    """
    survey = Survey()
    survey.look_at(dataset)
    left_out = survey.leave_out(dataset)
    if not survey.changes[id(dataset)]:
        return Serialisable(dataset)
    _patch()
    copier = _Copier(survey)
    try:
        for one in survey.order:  # from below, so that copying one never has to copy a long chain below it
            if survey.height(one) >= survey.lowest:
                copier.copy(one)
        return Serialisable(copier.copy(dataset), left_out)
    except CannotCopy:
        if survey.held_bytes > TOO_LARGE_BYTES or survey.transfers or left_out:
            raise
        return Serialisable(dataset)


class _SmallFunction:
    """A traced function that captures tiny tensors in the places of large ones; only to be serialised."""

    def __init__(self, function: Any, captured_inputs: list[Any], kept: list[Any]) -> None:
        self._function = function
        self._kept = kept  # variables live as long as their handles are used
        self.captured_inputs = captured_inputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def _with_small_captures(wrapper: Any) -> Any:
    """The wrapper of a traced function, or one that captures little."""
    import tensorflow as tf

    captures = captures_of(wrapper)
    if sum(one.bytes for one in captures) <= LARGE_BYTES:
        return wrapper
    captured, kept = list(wrapper._function.captured_inputs), []
    for one in captures:
        if one.bytes <= LARGE_BYTES // 16:
            continue
        tiny = tf.zeros([min(size, 1) for size in one.value.shape], one.value.dtype)
        if hasattr(one.value, "handle"):
            kept.append(tf.Variable(tiny, trainable=False))
            tiny = kept[-1].handle
        captured[one.position] = tiny
    made = object.__new__(type(wrapper))
    made.__dict__.update(wrapper.__dict__, _function=_SmallFunction(wrapper._function, captured, kept))
    return made


class _Copier:
    """Copies of datasets, each made once."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._copies: dict[int, Any] = {}

    def copy(self, dataset: Any) -> Any:
        """The dataset itself where nothing has to change, else a copy."""
        made = self._copies.get(id(dataset))
        if made is None:
            made = self._copies[id(dataset)] = self._copy(dataset)
        return made

    def _copy(self, dataset: Any) -> Any:
        if self._survey.height(dataset) < self._survey.lowest:
            return _stand_in(dataset, LEFT_OUT)
        if is_transfer(dataset):
            return _stand_in(dataset, TRANSFER)
        if source_bytes(dataset) > LARGE_BYTES:
            return _tiny_source(dataset)
        if not self._survey.look_at(dataset):
            return dataset
        arguments = {name: self._replaced(value) for name, value in _arguments(dataset).items()}
        return _made_again(dataset, arguments)

    def _replaced(self, value: Any) -> Any:
        from tensorflow.python.types import data as data_types

        if value is DROPPED:
            raise CannotCopy("one of its arguments was too large to be kept")
        if isinstance(value, data_types.DatasetV2):
            return self.copy(value)
        if isinstance(value, dict):
            return {name: self._replaced(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._replaced(one) for one in value]
        if isinstance(value, tuple):
            items = [self._replaced(one) for one in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        return value


def _stand_in(dataset: Any, name: str) -> Any:
    """A source of one element with the element spec of a dataset, known by its name; nothing is iterated."""
    import tensorflow as tf
    from tensorflow.core.framework import dataset_metadata_pb2

    flat = dataset._flat_structure
    types, shapes = flat["output_types"], flat["output_shapes"]
    if tf.variant in types:
        raise CannotCopy("a source with ragged or sparse elements would have to stand in for a dataset")
    made = object.__new__(type(dataset))
    made.__dict__.update(dataset.__dict__)
    made.__dict__["_variant_tensor_attr"] = tf.raw_ops.TensorDataset(
        components=[
            tf.zeros([min(size or 0, 1) for size in shape] if shape.rank else [], dtype)
            for dtype, shape in zip(types, shapes, strict=True)
        ],
        output_shapes=shapes,
        metadata=dataset_metadata_pb2.Metadata(name=name.encode()).SerializeToString(),
    )
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


def _made_again(dataset: Any, arguments: dict[str, Any]) -> Any:
    cls = type(dataset)
    if any(name in cls.__name__ for name in _NEVER_AGAIN):
        raise CannotCopy(f"{cls.__name__} reaches outside when it is made")
    if hasattr(dataset, "_seed"):
        # A given seed keeps the constructor from drawing one, which would advance TensorFlow's random state.
        arguments["seed"] = 1
    functions = [_with_small_captures(one) for one in traced_of(dataset)]
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
    if is_traced(value):
        return value._func
    if name == "deterministic":
        return {"true": True, "false": False, "default": None}.get(value, DROPPED)
    return value


def _is_tensorflows(function: Any) -> bool:
    """A function of TensorFlow's own, which a constructor traces for itself."""
    code = getattr(function, "__code__", None)
    return code is not None and is_tensorflow_file(code.co_filename)


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
