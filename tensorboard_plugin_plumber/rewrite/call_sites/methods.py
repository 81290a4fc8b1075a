"""The methods of `tf.data.Dataset`, watched while somebody wants to know of their calls.

They are wrapped on TensorFlow's class when the first watcher comes, and put back when the last one goes. A watcher
sees only the calls of its own context: other threads call the methods as ever.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

#: Of an object, and of the class alone.
METHODS = (
    "batch", "bucket_by_sequence_length", "cache", "concatenate", "enumerate", "filter", "flat_map", "group_by_window",
    "ignore_errors", "interleave", "map", "padded_batch", "prefetch", "ragged_batch", "rebatch", "rejection_resample",
    "repeat", "scan", "shard", "shuffle", "skip", "snapshot", "sparse_batch", "take", "take_while", "unbatch",
    "unique", "window", "with_options",
)  # fmt: skip
STATIC_METHODS = (
    "choose_from_datasets", "counter", "from_generator", "from_tensor_slices", "from_tensors", "list_files", "load",
    "random", "range", "sample_from_datasets", "zip",
)  # fmt: skip

_Method: TypeAlias = Callable[..., Any]


class Watcher(Protocol):
    """What is told of each call."""

    def call(
        self,
        name: str,
        original: _Method,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: types.FrameType,
    ) -> Any:
        """Makes the call, in its own way.

        Args:
          name: of the method.
          original: TensorFlow's own, unbound.
          args, kwargs: what it was called with, `self` first.
          frame: the caller's.
        """


_watcher: contextvars.ContextVar[Watcher | None] = contextvars.ContextVar("plumber_watcher", default=None)
_lock = threading.Lock()
_watching = 0
# By name: what stood in the class, and what stands there now.
_wrapped: dict[str, tuple[Any, Any]] = {}


@contextlib.contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """While it is entered, the calls of this context go to the watcher instead of the one around it."""
    _begin()
    before = _watcher.get()
    _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.set(before)
        _end()


def _begin() -> None:
    global _watching
    from tensorflow.python.data.ops import dataset_ops

    cls = dataset_ops.DatasetV2
    with _lock:
        _watching += 1
        if _watching > 1:
            return
        for name in (*METHODS, *STATIC_METHODS):
            found = cls.__dict__.get(name)
            if found is not None:  # of this version
                wrapper = _wrapping(name, found)
                _wrapped[name] = (found, wrapper)
                setattr(cls, name, wrapper)


def _end() -> None:
    global _watching
    from tensorflow.python.data.ops import dataset_ops

    cls = dataset_ops.DatasetV2
    with _lock:
        _watching -= 1
        if _watching:
            return
        for name, (original, wrapper) in _wrapped.items():
            if cls.__dict__.get(name) is wrapper:  # else somebody has wrapped it too, and calls on to it
                setattr(cls, name, original)
        _wrapped.clear()


def _wrapping(name: str, found: Any) -> Any:
    static = isinstance(found, staticmethod)
    original: _Method = found.__func__ if static else found

    @functools.wraps(original)  # its module too: autograph does not convert what is TensorFlow's
    def method(*args: Any, **kwargs: Any) -> Any:
        watcher = _watcher.get()
        if watcher is None:
            return original(*args, **kwargs)
        return watcher.call(name, original, args, kwargs, sys._getframe(1))

    return staticmethod(method) if static else method
