"""Where a guarded cache keeps its elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.rewrite.cache_graph import drawn, either, inside, succeeds, traced
from tensorboard_plugin_plumber.rewrite.cache_state import Kept, Key, State


class MemoryStore:
    """In memory: a table while it fills, then TensorFlow's own memory cache over the same tensors.

    Args:
      input_dataset: whose elements are kept.
      state: of the cache.

    Attributes:
      state, kept: as `cache_graph.Store` has them.
    """

    def __init__(self, input_dataset: Any, state: State) -> None:
        self.state = state
        self.kept = Kept(list(input_dataset._flat_types), list(input_dataset._flat_shapes))
        self._input = input_dataset._variant_tensor
        self._functions: list[Any] = []
        with tf.init_scope(), tf.device("/CPU:0"):
            # The cache lives as long as the second of these, and the datasets made from the first.
            self._handle, self._deleter = tf.raw_ops.AnonymousMemoryCache()

    def full(self, pending_bytes: Any) -> None:
        """All of it is moved at once, when it is whole."""

    def there(self) -> None:
        """Memory does not go."""

    def move(self, token: Any, first: Any, end: Any, segment: Any) -> Any:
        """Hands all tensors to the memory cache."""

        def fill() -> Any:
            cached = self._cached(elements_of(self.kept, first, end, self._functions))
            return drawn(cached, end - first, self.kept.types, self.kept.shapes, self._functions)

        return succeeds(fill, self._functions)

    def reader(self) -> Any:
        """The memory cache; its input is never read while that is whole."""
        return self._cached(self._input)

    def _cached(self, variant: Any) -> Any:
        return tf.raw_ops.CacheDatasetV2(
            input_dataset=variant,
            filename=tf.constant(""),
            cache=self._handle,
            output_types=self.kept.types,
            output_shapes=self.kept.shapes,
        )


def elements_of(kept: Kept, first: Any, end: Any, keep: list[Any]) -> Any:
    """Variant of a dataset of kept elements; its function goes to `keep`, for somebody to hold it."""
    get = inside(traced(kept.get, "plumber_cache_kept", [tf.TensorSpec([], tf.int64)]))
    keep.append(get)
    positions = tf.raw_ops.RangeDataset(
        start=first, stop=end, step=tf.constant(1, tf.int64), output_types=[tf.int64], output_shapes=[[]]
    )
    return tf.raw_ops.MapDataset(
        input_dataset=positions,
        other_arguments=get.captured_inputs,
        f=get,
        output_types=kept.types,
        output_shapes=kept.shapes,
    )


#: What a file of a file cache holds, about, or this part of the budget: it stays in memory until it is written.
#: TensorFlow logs a warning for each file cache that it completes, so there should not be many.
SEGMENT_BYTES = 32 << 20
MOST_SEGMENT_BYTES = 256 << 20
SEGMENT_PART = 64


class FileStore:
    """In files: TensorFlow's own file caches, one for each so many bytes.

    Args:
      input_dataset: whose elements are kept.
      state: of the cache.
      directory: where the files go; only this store writes there.
      budget_bytes: that it may hold.

    Attributes:
      state, kept: as `cache_graph.Store` has them.
    """

    def __init__(self, input_dataset: Any, state: State, directory: Path, budget_bytes: int) -> None:
        self.state = state
        self.kept = Kept(list(input_dataset._flat_types), list(input_dataset._flat_shapes))
        self._directory = str(directory)
        self._segment_bytes = max(SEGMENT_BYTES, min(budget_bytes // SEGMENT_PART, MOST_SEGMENT_BYTES))
        self._functions: list[Any] = []

    def full(self, pending_bytes: Any) -> Any:
        """What is in memory is enough for a file."""
        return pending_bytes >= self._segment_bytes

    def there(self) -> Any:
        """All files are."""
        writer, segments = self.state.read(Key.WRITER, Key.SEGMENTS)
        pattern = tf.strings.join([self._directory, "/", tf.strings.as_string(writer), "-*.index"])
        return tf.size(tf.io.matching_files(pattern), out_type=tf.int64) >= segments

    def move(self, token: Any, first: Any, end: Any, segment: Any) -> Any:
        """Writes a file."""

        def write() -> Any:
            cached = self._cached(elements_of(self.kept, first, end, self._functions), token, segment)
            return drawn(cached, end - first, self.kept.types, self.kept.shapes, self._functions)

        return succeeds(write, self._functions)

    def reader(self) -> Any:
        """The files, one behind the other."""
        writer, segments = self.state.read(Key.WRITER, Key.SEGMENTS)
        zero = tf.constant(0, tf.int64)

        def read(segment: Any, writer: Any) -> Any:
            # TensorFlow crashes where it restores an iterator over a file that is not there.
            index = tf.strings.join([self._name(writer, segment), ".index"])
            return either(
                tf.size(tf.io.matching_files(index)) > 0,
                lambda: self._cached(self._nothing(), writer, segment),
                self._nothing,
            )

        spec = tf.TensorSpec([], tf.int64)
        body = inside(traced(read, "plumber_cache_file", [spec, spec]))
        self._functions.append(body)
        return tf.raw_ops.FlatMapDataset(
            input_dataset=tf.raw_ops.RangeDataset(
                start=zero,
                stop=segments,
                step=tf.constant(1, tf.int64),
                output_types=[tf.int64],
                output_shapes=[[]],
            ),
            other_arguments=[writer, *body.captured_inputs],
            f=body,
            output_types=self.kept.types,
            output_shapes=self.kept.shapes,
        )

    def _name(self, writer: Any, segment: Any) -> Any:
        """Of a file, without what TensorFlow appends."""
        number = tf.strings.as_string(segment, width=6, fill="0")
        return tf.strings.join([self._directory, "/", tf.strings.as_string(writer), "-", number])

    def _cached(self, variant: Any, writer: Any, segment: Any) -> Any:
        return tf.raw_ops.CacheDatasetV2(
            input_dataset=variant,
            filename=self._name(writer, segment),
            cache=tf.raw_ops.DummyMemoryCache(),
            output_types=self.kept.types,
            output_shapes=self.kept.shapes,
        )

    def _nothing(self) -> Any:
        """A dataset that fails: TensorFlow would write what is missing anew, and the input is not there for it."""

        def fail(position: Any) -> list[Any]:
            with tf.control_dependencies([tf.debugging.Assert(False, ["a file of Plumber's cache is gone"])]):
                return self.kept.get(tf.identity(position))

        spec = tf.TensorSpec([], tf.int64)
        failing = inside(traced(fail, "plumber_cache_gone", [spec]))
        self._functions.append(failing)
        return tf.raw_ops.MapDataset(
            input_dataset=tf.raw_ops.TensorDataset(components=[tf.constant(0, tf.int64)], output_shapes=[[]]),
            other_arguments=failing.captured_inputs,
            f=failing,
            output_types=self.kept.types,
            output_shapes=self.kept.shapes,
        )
