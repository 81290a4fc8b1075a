"""Makes a pipeline visible that TensorFlow would hide behind a device's generator.

Under `MirroredStrategy` and `OneDeviceStrategy` Python sees only iterators that fetch to devices;
the user's pipeline runs inside a resource nobody has a handle of. A boundary puts a generator
dataset in between whose state is an iterator over the user's dataset: its handle gives the model.
It costs some 60 µs per element of the root.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from tensorflow.python.data.ops import dataset_ops, from_generator_op, multi_device_iterator_ops
from tensorflow.python.data.ops import options as options_lib
from tensorflow.python.data.util import structure
from tensorflow.python.eager import context
from tensorflow.python.framework import constant_op, device, dtypes, errors, ops, tensor_spec
from tensorflow.python.ops import array_ops, gen_dataset_ops, gen_experimental_dataset_ops

from tensorboard_plugin_plumber.capture import guard

_UNKNOWN_CARDINALITY = -2
_ATTRIBUTE = "_plumber_boundary"
_lock = threading.Lock()
_listeners: tuple[Callable[[Any, Boundary], None], ...] = ()
_installed = False


class Boundary:
    """A dataset with the same elements whose inside can be read.

    Attributes:
      dataset: to be iterated in place of the original.
      source: the original.

    Its iterator lives as long as this object and whoever iterates `dataset`.
    """

    def __init__(self, dataset: Any, source: Any, resource: Any) -> None:
        self.dataset = dataset
        self.source = source
        # Named as on TensorFlow's OwnedIterator: whoever reads those can read this.
        self._iterator_resource = resource

    def read(self) -> bytes | None:
        """The serialized `ModelProto` of the user's pipeline; None before it is iterated, or if autotune is off."""
        try:
            with context.eager_mode(), ops.device(None):
                content: bytes = gen_experimental_dataset_ops.iterator_get_model_proto(
                    self._iterator_resource
                ).numpy()
                return content
        except (errors.NotFoundError, errors.FailedPreconditionError):
            return None


def install_boundary(on_open: Callable[[Any, Boundary], None]) -> Callable[[], None]:
    """From now on, shows the pipelines that multi-device iterators hide.

    Args:
      on_open: called with the user's dataset and its boundary, in the thread that makes the
        iterator, before the first element. It must not keep the dataset.

    Returns:
      A function that ends it. Iterators made meanwhile keep their boundaries.
    """
    global _listeners
    with _lock:
        _patch()
        _listeners = (*_listeners, on_open)

    def uninstall() -> None:
        global _listeners
        with _lock:
            _listeners = tuple(one for one in _listeners if one is not on_open)

    return uninstall


def open_boundary(dataset: Any, *, host: str = "/device:CPU:0", single_pass: bool = False) -> Boundary:
    """Puts a boundary around a dataset: same elements, order, element spec, cardinality.

    Args:
      dataset: made eagerly; its options stay in force for itself.
      host: device whose resources hold the named iterator; of this process.
      single_pass: it will be iterated once. The iterator is then made now, as TensorFlow would
        have made it, so that a shuffle's seeds are drawn in the same order as without a boundary.

    Raises:
      ValueError: the dataset asks for what a boundary would change.
    """
    options = dataset.options()
    if options.experimental_slack:
        raise ValueError("experimental_slack needs the pipeline's own prefetch to be the last operator")
    flat = {
        "output_types": structure.get_flat_tensor_types(dataset.element_spec),
        "output_shapes": structure.get_flat_tensor_shapes(dataset.element_spec),
    }

    # The iterator's handle is handed from call to call. A function that captured it would keep it, and
    # all its threads, until Python's cyclic garbage collector comes by.
    def begin(iterator: Any) -> Any:
        if single_pass:
            return iterator
        with ops.control_dependencies([gen_dataset_ops.make_iterator(dataset._variant_tensor, iterator)]):
            return array_ops.identity(iterator)

    def following(iterator: Any) -> Any:
        return tuple(gen_dataset_ops.iterator_get_next(iterator, **flat))

    def end(iterator: Any) -> Any:
        return constant_op.constant(0, dtypes.int64)

    with ops.device(host):
        # Anonymous, not named: TensorFlow caches the kernels of named ones, and those keep the iterator
        # with all its threads for good. This one ends with its last handle.
        resource = gen_dataset_ops.anonymous_iterator_v3(**flat)
        if single_pass:
            gen_dataset_ops.make_iterator(dataset._variant_tensor, resource)
        # Tensors go through as the pipeline encodes them (ragged and sparse ones as variants).
        encoded = tuple(
            tensor_spec.TensorSpec(shape, dtype)
            for shape, dtype in zip(flat["output_shapes"], flat["output_types"], strict=True)
        )
        generated = from_generator_op._GeneratorDataset(resource, begin, following, end, encoded)
        wrapped = dataset_ops._RestructuredDataset(generated, dataset.element_spec)
        cardinality = int(gen_dataset_ops.dataset_cardinality(dataset._variant_tensor))
        if cardinality != _UNKNOWN_CARDINALITY:
            from tensorflow.python.data.experimental.ops import cardinality as cardinality_ops

            wrapped = wrapped.apply(cardinality_ops.assert_cardinality(cardinality))
        wrapped = wrapped.with_options(_outer_options(options))
    return Boundary(wrapped, dataset, resource)


def _outer_options(inner: Any) -> Any:
    """The boundary itself must add nothing: no prefetch, no tuning, no threads of its own that matter."""
    outer = options_lib.Options()
    outer.autotune.enabled = False
    outer.experimental_optimization.apply_default_optimizations = False
    outer.experimental_optimization.inject_prefetch = False
    if inner.deterministic is not None:
        outer.deterministic = inner.deterministic
    outer.experimental_distribute.auto_shard_policy = inner.experimental_distribute.auto_shard_policy
    outer.threading.private_threadpool_size = 1
    return outer


def _patch() -> None:
    """Wraps the multi-device iterator's constructor; does nothing while nobody listens."""
    global _installed
    if _installed:
        return
    _installed = True
    cls = multi_device_iterator_ops.OwnedMultiDeviceIterator
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, dataset: Any = None, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        boundary = None
        if dataset is not None and _listeners and context.executing_eagerly():
            with guard.protect("look into a distributed pipeline"):
                boundary = _boundary_for(
                    dataset, kwargs.get("source_device"), kwargs.get("prefetch_buffer_size")
                )
        if boundary is None:
            original(self, dataset, *args, **kwargs)
            return
        try:
            original(self, boundary.dataset, *args, **kwargs)
        except Exception as error:
            guard.warn("look into a distributed pipeline", error)
            original(self, dataset, *args, **kwargs)
            return
        with guard.protect("follow a distributed pipeline"):
            # It lives as long as the iterator; whoever keeps the iterator keeps its inside.
            self.__dict__[_ATTRIBUTE] = boundary
            for listener in _listeners:
                listener(dataset, boundary)

    cls.__init__ = __init__


def _boundary_for(
    dataset: Any, source_device: str | None, prefetch_buffer_size: int | None
) -> Boundary | None:
    """A boundary around a distributed dataset, or None where its iterators run in another process."""
    if not isinstance(dataset, dataset_ops.DatasetV2) or not isinstance(
        dataset._variant_tensor, ops.EagerTensor
    ):
        return None
    host = source_device or "/device:CPU:0"
    place = device.DeviceSpec.from_string(host)
    here = device.DeviceSpec.from_string(context.context().device_name or "")
    local = place.job in (None, "localhost") or (place.job, place.task) == (here.job, here.task)
    if not local:
        return None
    source = dataset
    if prefetch_buffer_size == 0:
        # What the multi-device iterator would have told the pipeline itself.
        options = options_lib.Options()
        options.experimental_optimization.inject_prefetch = False
        source = dataset.with_options(options)
    return open_boundary(source, host=host, single_pass=True)
