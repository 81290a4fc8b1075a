"""What an element weighs while a cache keeps it, as operations in a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.model.sizes import CACHE_TENSOR_BYTES

#: What a table holds for an element beside its tensors (benchmarks/cache_guarded.py).
ENTRY_BYTES = 150
_STRING_BYTES = 24  # of a string tensor per string, short ones inside


class NotCounted(Exception):
    """A component's bytes cannot be counted; the message says which."""


def element_bytes(spec: Any, components: Sequence[Any]) -> Any:
    """Bytes of an element and of what is needed to hold it, a scalar tensor of int64.

    Args:
      spec: of the dataset's elements.
      components: the flat tensors of an element, as operators of tf.data hand them on.

    Raises:
      NotCounted: an element has components that are neither tensors nor made of some.
    """
    from tensorflow.python.data.util import structure

    element = structure.from_compatible_tensor_list(spec, list(components))
    fixed, counted = ENTRY_BYTES, []
    for tensor in tf.nest.flatten(element, expand_composites=True):
        if not isinstance(tensor, tf.Tensor) or tensor.dtype in (tf.variant, tf.resource):
            raise NotCounted(f"its elements have a component of which no bytes can be told ({tensor!r})")
        fixed += CACHE_TENSOR_BYTES
        values = tensor.shape.num_elements()
        if tensor.dtype == tf.string:
            counted.append(tf.reduce_sum(tf.cast(tf.strings.length(tensor), tf.int64) + _STRING_BYTES))
        elif values is not None:
            fixed += values * tensor.dtype.size
        else:
            counted.append(tf.size(tensor, out_type=tf.int64) * tensor.dtype.size)
    return tf.add_n([tf.constant(fixed, tf.int64), *counted])


def must_be_countable(dataset: Any) -> None:
    """Looks at the element spec alone.

    Raises:
      NotCounted: as `element_bytes`.
    """
    with tf.Graph().as_default():
        element_bytes(
            dataset.element_spec,
            [
                tf.compat.v1.placeholder(kind, shape)
                for kind, shape in zip(dataset._flat_types, dataset._flat_shapes, strict=True)
            ],
        )
