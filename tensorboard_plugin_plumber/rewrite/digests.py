"""What an element holds, to the last bit, as a few bytes that can be compared and counted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

_BYTES = 16
#: Elements of a dataset inside an element that are looked at.
MOST_INNER = 100_000


class NotTold(Exception):
    """A component cannot be looked into; the message says which."""


@dataclass(frozen=True)
class Digest:
    """Of one element.

    Attributes:
      content: the same for the same kinds, types, shapes and contents; floats count by their bytes.
      size: bytes of its contents.
    """

    content: bytes
    size: int


class _Sink:
    """Takes the parts of one element."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=_BYTES)
        self._size = 0

    def mark(self, text: str) -> None:
        self._hash.update(text.encode() + b";")

    def content(self, content: Any) -> None:
        self._hash.update(content)
        self._size += len(content)

    def digest(self) -> Digest:
        return Digest(self._hash.digest(), self._size)


def digest(element: Any) -> Digest:
    """Of all components.

    Args:
      element: as an eager iterator gives it. Datasets in it are read, TensorArrays too.

    Raises:
      NotTold: a component is of a kind that cannot be read.
      tf.errors.OpError: what a dataset in it raises.
    """
    sink = _Sink()
    _add(sink, element)
    return sink.digest()


def rows(element: Any) -> list[bytes] | None:
    """Digests of the examples of a batch; None where it is none: a component has no first dimension, or another."""
    parts = tf.nest.flatten(element)
    if not parts or not all(isinstance(part, tf.Tensor) and part.shape.rank for part in parts):
        return None
    arrays = [part.numpy() for part in parts]
    if any(len(one) != len(arrays[0]) for one in arrays):
        return None
    return [_row([one[index] for one in arrays]) for index in range(len(arrays[0]))]


def _row(values: list[Any]) -> bytes:
    sink = _Sink()
    for one in values:
        _add_array(sink, one)
    return sink.digest().content


def _add(sink: _Sink, element: Any) -> None:
    """Adds one structure: which components there are, then each of them."""
    if isinstance(element, dict):
        sink.mark(f"dict {len(element)}")
        for name in sorted(element, key=repr):
            sink.mark(repr(name))
            _add(sink, element[name])
    elif isinstance(element, tuple | list):
        sink.mark(f"tuple {len(element)}")
        for one in element:
            _add(sink, one)
    else:
        _add_component(sink, element)


def _add_component(sink: _Sink, part: Any) -> None:
    kind = type(part).__name__
    if part is None or kind == "NoneTensor":
        sink.mark("none")
    elif isinstance(part, tf.data.Dataset):
        for one in _inner(part):
            found = digest(one)
            sink.mark("inner")
            sink.content(found.content)
        sink.mark("end")
    elif isinstance(part, tf.experimental.Optional):
        present = bool(part.has_value())
        sink.mark("some" if present else "nothing")
        if present:
            _add(sink, part.get_value())
    elif isinstance(part, tf.TensorArray):
        size = int(part.size())
        sink.mark(f"array {size}")
        for index in range(size):
            _add_component(sink, part.read(index))
    elif isinstance(part, tf.Tensor):
        if part.dtype in (tf.variant, tf.resource):
            raise NotTold(f"a component of type {part.dtype.name} cannot be looked into")
        _add_array(sink, part.numpy())
    elif tf.is_tensor(part):  # made of several: ragged, sparse, an extension type
        sink.mark(kind)
        for one in tf.nest.flatten(part, expand_composites=True):
            _add_component(sink, one)
    else:
        raise NotTold(f"a component of type {kind} cannot be looked into")


def _inner(dataset: Any) -> Iterator[Any]:
    for index, one in enumerate(dataset):
        if index == MOST_INNER:
            raise NotTold(f"a dataset in an element has more than {MOST_INNER:,} elements")
        yield one


def _add_array(sink: _Sink, value: Any) -> None:
    if isinstance(value, bytes | str):
        value = np.array(value, object)
    array = np.asarray(value)
    sink.mark(f"{array.dtype.name} {array.shape}")
    if array.dtype.hasobject:
        for text in array.ravel():
            content = text if isinstance(text, bytes) else str(text).encode()
            sink.mark(str(len(content)))
            sink.content(content)
    elif array.size:
        sink.content(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
