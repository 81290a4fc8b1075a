"""Finds the tf.data iterators of the process, and reads their models without keeping them alive.

Importing this module loads TensorFlow.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tensorflow.core.framework import model_pb2
from tensorflow.python.data.ops import iterator_ops, multi_device_iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.framework import errors, ops
from tensorflow.python.ops import gen_experimental_dataset_ops

from tensorboard_plugin_plumber.capture import guard, threads
from tensorboard_plugin_plumber.capture.once import Once


class NoModel(Exception):
    """The iterator has no model: autotune is off."""


class Gone(Exception):
    """The iterator has ended, which its handle did not prevent."""


@dataclass(frozen=True)
class Made:
    """An iterator that was just made, or that was there before the session.

    Attributes:
      iterator: the `OwnedIterator`; observers must not keep it.
      dataset: the dataset it iterates over; observers must not keep it.
      thread_ids: native ids of the threads that came with it; empty if unknown.
      before_session: it may have delivered elements already.
      on_device: it fetches from a pipeline that runs elsewhere, for one device of a strategy.
    """

    iterator: Any
    dataset: Any
    thread_ids: frozenset[int] = frozenset()
    before_session: bool = False
    on_device: bool = False


class Observer(Protocol):
    """Hears of each iterator, in the thread that makes it."""

    def iterator_made(self, made: Made) -> None: ...


class _Local(threading.local):
    # Who alone hears of the iterators that this thread makes; None: everybody.
    audience: tuple[Observer, ...] | None = None


_local = _Local()
# TensorFlow's words for a handle whose iterator is no more.
_GONE = "does not exist"
_lock = threading.Lock()
_observers: tuple[Observer, ...] = ()
_serials = itertools.count()
# Iterators that are alive, for sessions that begin after them.
_alive: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


@Once
def install() -> None:
    """Begins to notice iterators; costs each of them a microsecond while nobody observes."""
    original = iterator_ops.OwnedIterator.__init__

    @functools.wraps(original)
    def noticed(self: Any, dataset: Any = None, *args: Any, **kwargs: Any) -> None:
        audience = _observers if _local.audience is None else _local.audience
        if dataset is None or not context.executing_eagerly():
            original(self, dataset, *args, **kwargs)
            return
        before = threads.thread_ids() if audience else frozenset()
        original(self, dataset, *args, **kwargs)
        with guard.protect("follow an iterator"):
            if _local.audience is None:
                _alive[next(_serials)] = self
            if audience:
                made = Made(self, dataset, threads.thread_ids() - before, on_device=_is_on_device(dataset))
                for observer in audience:
                    observer.iterator_made(made)

    iterator_ops.OwnedIterator.__init__ = noticed


def add_observer(observer: Observer, *, adopt: bool) -> None:
    """Tells `observer` of each iterator made from now on.

    Args:
      adopt: also tell it now of those that are alive already.
    """
    global _observers
    if adopt and not install.begun:
        _find_alive()
    install()
    with _lock:
        _observers = (*_observers, observer)
    if adopt:
        for iterator in list(_alive.values()):
            if not _is_on_device(iterator._dataset):
                observer.iterator_made(Made(iterator, iterator._dataset, before_session=True))


def _find_alive() -> None:
    """Finds the iterators that were made before anybody noticed: a tenth of a second, once per process."""
    for candidate in gc.get_objects():
        # By type: `isinstance` would wake lazily imported modules and proxies.
        if type(candidate) is iterator_ops.OwnedIterator and hasattr(candidate, "_dataset"):
            resource = getattr(candidate, "_iterator_resource", None)
            if isinstance(resource, ops.EagerTensor):
                _alive[next(_serials)] = candidate


def remove_observer(observer: Observer) -> None:
    """Ends `add_observer`."""
    global _observers
    with _lock:
        _observers = tuple(other for other in _observers if other is not observer)


@contextlib.contextmanager
def seen_only_by(*audience: Observer) -> Iterator[None]:
    """Iterators that this thread makes inside are Plumber's own: nobody else hears of them."""
    before = _local.audience
    _local.audience = audience
    try:
        yield
    finally:
        _local.audience = before


def is_private() -> bool:
    """Whether this thread iterates inside `seen_only_by`."""
    return _local.audience is not None


class Handle:
    """Reads the model of one iterator for as long as the user keeps it.

    Args:
      iterator: an `OwnedIterator` made eagerly, or a `boundary.Pass`.
      at_end: called with the last model, or None if it cannot be read, in whatever thread drops
        the iterator; must be quick and take no lock.
      has_model: False where autotune is known to be off.
    """

    def __init__(
        self, iterator: Any, at_end: Callable[[bytes | None], None], *, has_model: bool = True
    ) -> None:
        self._reference = weakref.ref(iterator)
        # The resource, not the iterator: it lives just until the callback has read it.
        resource = iterator._iterator_resource if has_model else None
        kept = getattr(iterator, "last_model", None)
        self._finalizer = weakref.finalize(iterator, _read_last, resource, kept, at_end)
        # At interpreter exit the session has written its last sample, and TensorFlow may be gone.
        self._finalizer.atexit = False

    def read(self) -> bytes | None:
        """The serialized model; None if the iterator is gone.

        Raises:
          NoModel: autotune is off.
        """
        iterator = self._reference()
        if iterator is None:
            return None
        with contextlib.suppress(Gone):
            return read_model(iterator._iterator_resource)
        return None

    @property
    def is_dropped(self) -> bool:
        """Whether the iterator is gone; `at_end` may still be reading it, in another thread."""
        return self._reference() is None

    def detach(self) -> None:
        """Forgets the iterator; `at_end` will not be called."""
        self._finalizer.detach()


def _is_on_device(dataset: Any) -> bool:
    """Whether the dataset is one that `MultiDeviceIterator` makes on a device."""
    generators = (
        multi_device_iterator_ops._PerDeviceGenerator,
        multi_device_iterator_ops._ReincarnatedPerDeviceGenerator,
    )
    while not isinstance(dataset, generators):
        inputs = dataset._inputs()
        if len(inputs) != 1:
            return False
        (dataset,) = inputs
    return True


def read_model(resource: Any) -> bytes:
    """The serialized model of an iterator's resource.

    Raises:
      NoModel: autotune is off.
      Gone: there is no iterator, or none yet.
    """
    try:
        if context.executing_eagerly() and not context.context().device_name:
            return _model_of(resource)
        # Its own mode and device: the caller may be in the middle of tracing a function.
        with context.eager_mode(), ops.device(None):
            return _model_of(resource)
    except errors.NotFoundError as error:
        if _GONE in str(error):
            raise Gone from error
        raise NoModel from error
    except errors.FailedPreconditionError as error:
        raise Gone from error


def _model_of(resource: Any) -> bytes:
    content: bytes = gen_experimental_dataset_ops.iterator_get_model_proto(resource).numpy()
    return content


def parse_model(content: bytes) -> Any:
    """A `tensorflow.data.model.ModelProto`."""
    return model_pb2.ModelProto.FromString(content)


def _read_last(resource: Any, kept: list[bytes] | None, at_end: Callable[[bytes | None], None]) -> None:
    """Reads the model once more, unless it was kept when the iterator ended."""
    content = kept[0] if kept else None
    if resource is not None and content is None:
        with guard.protect("read the last counters of an iterator"), contextlib.suppress(NoModel, Gone):
            content = read_model(resource)
    at_end(content)
