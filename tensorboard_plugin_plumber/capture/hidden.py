"""Finds the places where TensorFlow iterates datasets out of Python's sight, and puts a boundary into each.

| hidden | seen by |
|---|---|
| a strategy's iterators, made by Python or inside a tf.function | the multi-device iterator's constructor |
| `for x in dataset` in a tf.function | the loop that autograph makes of it, while it is traced |
| datasets as arguments of a tf.function | its call |
| `iter(dataset)` in a tf.function | the iterator's constructor, while it is traced |
| `dataset.reduce`, `get_single_element` | the methods |

All of it does nothing while nobody listens, inside the functions of datasets, where a model is being
saved, and for datasets whose iterators run in another process. A function that was traced before
anybody listened keeps its hidden loop: that is said once. One that was traced while somebody did
keeps its boundary, which then costs what a boundary costs and tells nobody.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.python.data.experimental.ops import get_single_element
from tensorflow.python.data.ops import (
    dataset_autograph,
    dataset_ops,
    iterator_ops,
    multi_device_iterator_ops,
    structured_function,
)
from tensorflow.python.distribute import input_lib
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import device, dtypes, ops
from tensorflow.python.saved_model import save_context

from tensorboard_plugin_plumber.capture import boundary, guard, iterators
from tensorboard_plugin_plumber.capture.boundary import Listener, Pass
from tensorboard_plugin_plumber.capture.once import Once

_PASS = "_plumber_pass"
_CPU = "/device:CPU:0"
# Making boundaries may take so much of the user's threads' time at once, and then this share of it.
_MAKING_S = 0.5
_MAKING_SHARE = 0.005
# Datasets are looked for among so many members of a function's argument, so deep.
_MAX_MEMBERS = 16
_MAX_DEPTH = 2

_made_s = 0.0
_began_s = time.monotonic()
# Functions that were looked at.
_judged: weakref.WeakSet[Any] = weakref.WeakSet()


class _Local(threading.local):
    # Functions of datasets that this thread is tracing.
    dataset_functions = 0


_local = _Local()


def listen(listener: Listener) -> Callable[[], None]:
    """From now on, tells of each pass over a dataset that would be hidden.

    Args:
      listener: called in whatever thread begins the pass, before its first element; it must be
        quick, and must not keep the pass or its source.

    Returns:
      A function that ends it. What was made meanwhile keeps its boundary.
    """
    _install()
    boundary.add_listener(listener)
    return lambda: boundary.remove_listener(listener)


@Once
def _install() -> None:
    for what, patch in (
        ("distributed datasets", _patch_devices),
        ("iterators inside a tf.function", _patch_iterators),
        ("loops inside a tf.function", _patch_loops),
        ("datasets that a tf.function is given", _patch_calls),
        ("dataset.reduce", _patch_methods),
        ("functions of datasets", _patch_dataset_functions),
    ):
        with guard.protect(f"look into {what}"):
            patch()


def _looks() -> bool:
    """Whether a pass that begins here and now may and should be seen."""
    return (
        boundary.has_listeners()
        and not iterators.is_private()
        and _local.dataset_functions == 0
        and not save_context.in_save_context()
        and (context.executing_eagerly() or ops.inside_function())
    )


def _shown(dataset: Any, iterated_by: str, *, whole: bool, cardinality: bool = False) -> Any:
    """What to iterate in place of the dataset: a boundary, or the dataset itself where that cannot be."""
    if not _looks() or not _is_visible(dataset):
        return dataset
    with guard.protect("look into a graph function"), _budget() as within:
        if within:
            return boundary.show(dataset, iterated_by, whole=whole, cardinality=cardinality)
    return dataset


@contextlib.contextmanager
def _budget() -> Iterator[bool]:
    """Counts the time that making a boundary takes; says whether there is any left."""
    global _made_s
    began_s = time.monotonic()
    within = _made_s < _MAKING_S + _MAKING_SHARE * (began_s - _began_s)
    try:
        yield within
    finally:
        _made_s += time.monotonic() - began_s


def _is_visible(dataset: Any) -> bool:
    """Whether a dataset is made eagerly, or stands on one that is, and runs in this process.

    A function that makes its datasets all by itself may be exported, to where Plumber is not; one
    that holds a dataset made eagerly cannot be. One that is given to a function was seen at the call.
    """
    if not isinstance(dataset, dataset_ops.DatasetV2) or _has_remote_devices():
        return False
    leaves = list(_leaves(dataset))
    hidden = any(boundary.is_boundary(one) or _is_given(one) for one in leaves)
    return not hidden and any(not boundary.is_in_graph(one) for one in leaves)


def _leaves(dataset: Any) -> Iterator[Any]:
    """The eager datasets that one in a graph stands on, and the sources that were made in the graph."""
    inputs = dataset._inputs()
    if not boundary.is_in_graph(dataset) and not boundary.is_boundary(dataset):
        while len(inputs) == 1 and not boundary.is_boundary(dataset):  # through assertions and options
            dataset = inputs[0]
            inputs = dataset._inputs()
        yield dataset
    elif inputs:
        for one in inputs:
            yield from _leaves(one)
    else:
        yield dataset


def _is_given(dataset: Any) -> bool:
    return boundary.is_in_graph(dataset) and bool(dataset._variant_tensor.op.type == "Placeholder")


def _has_remote_devices() -> bool:
    """Whether functions may run on parameter servers' workers, in other processes."""
    server = getattr(context.context(), "_server_def", None)
    return server is not None and any(job.name == "ps" for job in server.cluster.job)


def _patch_devices() -> None:
    cls = multi_device_iterator_ops.OwnedMultiDeviceIterator
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, dataset: Any = None, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        shown, one = None, None
        if dataset is not None and _looks():
            with guard.protect("look into a distributed pipeline"):
                shown, one = _boundary_for_devices(dataset, **kwargs)
        if shown is None:
            original(self, dataset, *args, **kwargs)
            return
        try:
            original(self, shown, *args, **kwargs)
        except Exception as error:
            guard.warn("look into a distributed pipeline", error)
            original(self, dataset, *args, **kwargs)
            return
        if one is not None:
            with guard.protect("follow a distributed pipeline"):
                # It lives as long as the iterator; whoever keeps the iterator keeps its inside.
                self.__dict__[_PASS] = one
                boundary.tell(one)

    cls.__init__ = __init__


def _boundary_for_devices(
    dataset: Any,
    source_device: str = _CPU,
    prefetch_buffer_size: int | None = None,
    **_: Any,
) -> tuple[Any, Pass | None]:
    """A boundary around a distributed dataset, or None where its iterators run in another process."""
    if not _is_visible(dataset):
        return None, None
    place = device.DeviceSpec.from_string(source_device)
    here = device.DeviceSpec.from_string(context.context().device_name or "")
    if place.job not in (None, "localhost") and (place.job, place.task) != (here.job, here.task):
        return None, None
    # What the multi-device iterator would have told the pipeline itself.
    source = boundary.without_injected_prefetch(dataset) if prefetch_buffer_size == 0 else dataset
    return boundary.show_pass(source, "strategy", host=source_device, cardinality=True)


def _patch_iterators() -> None:
    cls = iterator_ops.OwnedIterator
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, dataset: Any = None, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if dataset is not None and not context.executing_eagerly() and _looks() and _is_visible(dataset):
            with guard.protect("look into a graph function"):
                dataset = boundary.show_pass(dataset, "tf.function")[0]
        original(self, dataset, *args, **kwargs)

    cls.__init__ = __init__


def _patch_loops() -> None:
    original = dataset_autograph._general_purpose_scan

    @functools.wraps(original)
    def scan(ds: Any, *args: Any, **kwargs: Any) -> Any:
        return original(_shown(ds, "tf.function", whole=False), *args, **kwargs)

    dataset_autograph._general_purpose_scan = scan


def _patch_methods() -> None:
    cls = dataset_ops.DatasetV2
    for name in ("reduce", "get_single_element"):
        setattr(cls, name, _seeing(getattr(cls, name), name))
    get_single_element.get_single_element = _seeing(
        get_single_element.get_single_element, "get_single_element"
    )


def _seeing(original: Any, name: str) -> Any:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return original(_shown(self, name, whole=True), *args, **kwargs)

    return method


def _patch_dataset_functions() -> None:
    cls = structured_function.StructuredFunctionWrapper
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        _local.dataset_functions += 1
        try:
            original(self, *args, **kwargs)
        finally:
            _local.dataset_functions -= 1

    cls.__init__ = __init__


def _patch_calls() -> None:
    cls = polymorphic_function.Function
    original = cls.__call__

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if not boundary.has_listeners():
            return original(self, *args, **kwargs)
        shown_args, shown_kwargs = args, kwargs
        with guard.protect("look into a graph function"):
            if self not in _judged:
                _judge(self)
            if any(map(_may_hold_datasets, args)) or any(map(_may_hold_datasets, kwargs.values())):
                shown_args, shown_kwargs = _shown_member(args), _shown_member(kwargs)
        # The user's own datasets stay alive in this frame for as long as the call takes.
        return original(self, *shown_args, **shown_kwargs)

    cls.__call__ = __call__


_CONTAINERS = (tuple, list, dict)
_DISTRIBUTED = (input_lib.DistributedDataset, input_lib.DistributedDatasetsFromFunction)


def _may_hold_datasets(argument: Any) -> bool:
    return isinstance(argument, (dataset_ops.DatasetV2, *_DISTRIBUTED, *_CONTAINERS))


def _shown_member(value: Any, depth: int = 0) -> Any:
    """A function's argument with boundaries in the place of its datasets; mostly the argument itself."""
    if isinstance(value, dataset_ops.DatasetV2):
        return _shown(value, "tf.function", whole=False, cardinality=True)
    if isinstance(value, _DISTRIBUTED):
        return _shown_distributed(value)
    if type(value) not in _CONTAINERS or len(value) > _MAX_MEMBERS or depth > _MAX_DEPTH:
        return value
    members = value.values() if isinstance(value, dict) else value
    shown = [_shown_member(one, depth + 1) for one in members]
    if all(one is other for one, other in zip(shown, members, strict=True)):
        return value
    return dict(zip(value, shown, strict=True)) if isinstance(value, dict) else type(value)(shown)


def _shown_distributed(distributed: Any) -> Any:
    """A copy of a distributed dataset over boundaries."""
    name = "_cloned_datasets" if hasattr(distributed, "_cloned_datasets") else "_datasets"
    options = distributed._options
    prefetches = options is None or options.experimental_per_replica_buffer_size > 0
    shown = copy.copy(distributed)
    shown.__dict__[name] = [
        _shown(one, "strategy", whole=prefetches, cardinality=True) for one in getattr(distributed, name)
    ]
    return shown


def _judge(function: Any) -> None:
    """Says once of a function that was traced too early that its loop over a dataset cannot be seen."""
    _judged.add(function)
    cache = getattr(function, "_function_cache", None)
    for concrete in cache.values() if cache is not None else ():
        holds_dataset = any(one.dtype == dtypes.variant for one in concrete.captured_inputs)
        if holds_dataset and not boundary.is_seen(concrete.graph):
            guard.warn(
                f"look into the tf.function {getattr(function, 'name', '')!r}",
                RuntimeError(
                    "it was traced before Plumber looked, and the dataset that it iterates was fixed then. "
                    "Call it for the first time inside plumber.trace, or give it the dataset as an argument"
                ),
            )
