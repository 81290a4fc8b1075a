"""A small stand-in for a pipeline that holds much data, or that TensorFlow cannot serialise.

To see what TensorFlow makes of a pipeline it has to be serialised: a source made from arrays with
all of its data, a function with all the tensors and variables that it captures, several times over;
and one that copies to a device not at all. So such a pipeline is first copied, with tiny arrays in
the places of the large ones, and a source in the place of what copies to a device: the operators
above are made again from their live attributes and recorded constructor arguments, with the
functions that are already traced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensorboard_plugin_plumber.capture.construction import is_transfer, tensor_bytes
from tensorboard_plugin_plumber.capture.remake import CannotRemake, arguments_with, remade
from tensorboard_plugin_plumber.capture.survey import (
    LARGE_BYTES,
    PLAIN,
    TOO_LARGE_BYTES,
    Survey,
    captures_of,
    source_bytes,
    traced_of,
)

# Name of the source that stands in for a transfer to a device.
TRANSFER = "plumber's stand-in for a transfer to a device"
LEFT_OUT = "plumber's stand-in for what is left out"


class CannotCopy(CannotRemake):
    """What a source holds has no small stand-in."""


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
      CannotRemake: it holds too much to be serialised, or what cannot be, and cannot be copied.
    """
    survey = Survey()
    survey.look_at(dataset)
    left_out = survey.leave_out(dataset)
    if not survey.changes[id(dataset)]:
        return Serialisable(dataset)
    copier = _Copier(survey)
    try:
        for one in survey.order:  # from below, so that copying one never has to copy a long chain below it
            if survey.height(one) >= survey.lowest:
                copier.copy(one)
        return Serialisable(copier.copy(dataset), left_out)
    except CannotRemake:
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
        if hasattr(dataset, PLAIN):
            return getattr(dataset, PLAIN)(self.copy(dataset._input_dataset))
        arguments = arguments_with(dataset, self.copy)
        return _made_again(dataset, arguments)


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
    return remade(dataset, arguments, [_with_small_captures(one) for one in traced_of(dataset)])
