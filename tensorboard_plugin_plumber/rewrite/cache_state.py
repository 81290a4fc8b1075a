"""What the functions inside a guarded cache and Python know of it together: a few numbers in a table on the host.

A table instead of variables: a strategy's scope, a variable creator or a checkpoint of the user's would take hold
of those. Handles are anonymous, so that everything dies with the datasets that hold it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import tensorflow as tf


class Mode(enum.IntEnum):
    """What an iterator that begins now does."""

    FILLING = 0  # hands its input on, and keeps it
    SERVING = 1  # reads what is kept
    OFF = 2  # hands its input on


class Why(enum.IntEnum):
    """Why a cache is off."""

    NOT = 0
    TOO_LARGE = 1  # more bytes than its budget passed, or surely will
    MEMORY = 2  # the process may not use much more memory
    DISK = 3  # the file system is nearly full
    NOT_KEPT = 4  # what passed could not be written or moved
    NEVER_WHOLE = 5  # iterators began again and again before the end
    GONE = 6  # its files are no longer there


class Key(enum.IntEnum):
    """What is known."""

    MODE = 0
    WHY = 1
    #: Bytes that it may hold; below 0: it is to stop.
    LIMIT = 2
    #: Who fills it: the number that this iterator drew when it began; NOBODY.
    OWNER = 3
    #: Iterators that began to fill it and had passed more than a few elements when the next one began.
    BROKEN_OFF = 4
    #: Of the file cache: files that are whole, and the number of the iterator that wrote them.
    SEGMENTS = 5
    WRITER = 6
    #: Position of the first element that no whole file holds.
    FIRST = 7
    #: How many there are, once it serves.
    ELEMENTS = 8


NOBODY = -1


class State:
    """The numbers, by `Key`. Methods work in functions, where they become operations, and outside.

    Args:
      limit_bytes: that the cache may hold.
      known: others that are known from the beginning.
    """

    def __init__(self, limit_bytes: int, known: Mapping[Key, int] | None = None) -> None:
        begin = dict.fromkeys(Key, 0) | {Key.LIMIT: limit_bytes, Key.OWNER: NOBODY} | dict(known or {})
        with tf.init_scope(), tf.device("/CPU:0"):
            self._handle = tf.raw_ops.AnonymousMutableHashTable(key_dtype=tf.int64, value_dtype=tf.int64)
            self.write(begin)

    def read(self, *keys: Key) -> list[Any]:
        """Their values, each a scalar tensor of int64."""
        found = tf.raw_ops.LookupTableFindV2(
            table_handle=self._handle,
            keys=tf.constant([int(key) for key in keys], tf.int64),
            default_value=tf.constant(0, tf.int64),
        )
        return list(tf.unstack(found, num=len(keys)))

    def write(self, values: Mapping[Key, Any]) -> None:
        """Sets values, Python's or tensors of int64, all at once."""
        tf.raw_ops.LookupTableInsertV2(
            table_handle=self._handle,
            keys=tf.constant([int(key) for key in values], tf.int64),
            values=tf.stack([tf.cast(value, tf.int64) for value in values.values()]),
        )

    def numbers(self, *keys: Key) -> list[int]:
        """Their values for Python."""
        with tf.init_scope(), tf.device("/CPU:0"):
            return [int(value) for value in self.read(*keys)]

    def tell(self, values: Mapping[Key, int]) -> None:
        """Sets values from Python."""
        with tf.init_scope(), tf.device("/CPU:0"):
            self.write(values)


class Kept:
    """Elements that passed, by their position: tensors held, nothing copied.

    Args:
      types: of an element's flat components.
      shapes: theirs.
    """

    def __init__(self, types: list[Any], shapes: list[Any]) -> None:
        self.types, self.shapes = types, shapes
        with tf.init_scope(), tf.device("/CPU:0"):
            self._handle = tf.raw_ops.AnonymousMutableHashTable(key_dtype=tf.int64, value_dtype=tf.variant)

    def put(self, position: Any, components: list[Any]) -> None:
        """Holds an element."""
        tf.raw_ops.LookupTableInsertV2(
            table_handle=self._handle,
            keys=position,
            values=tf.raw_ops.OptionalFromValue(components=components),
        )

    def get(self, position: Any) -> list[Any]:
        """The element at a position; in a function, its run fails where there is none."""
        found = tf.raw_ops.LookupTableFindV2(
            table_handle=self._handle, keys=position, default_value=tf.raw_ops.OptionalNone()
        )
        return list(
            tf.raw_ops.OptionalGetValue(optional=found, output_types=self.types, output_shapes=self.shapes)
        )

    def size(self) -> Any:
        """How many there are, int64."""
        return tf.raw_ops.LookupTableSizeV2(table_handle=self._handle)

    def drop(self) -> None:
        """Lets go of all."""
        nothing = tf.zeros([0], tf.int64)
        none = tf.raw_ops.LookupTableFindV2(
            table_handle=self._handle, keys=nothing, default_value=tf.raw_ops.OptionalNone()
        )
        tf.raw_ops.LookupTableImportV2(table_handle=self._handle, keys=nothing, values=none)
