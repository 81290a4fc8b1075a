"""Datasets whose inside can be read although TensorFlow iterates them out of Python's sight.

Where a strategy fetches to devices, or a graph function or `reduce` runs through a dataset, Python
gets no handle of the iterator. A boundary is a generator dataset put in between: its state is an
iterator over the user's dataset, its next function fetches from that. The iterator is anonymous and
belongs to the generator's state, so it ends with the pass that it was made for; a pass that a graph
begins tells Python its handle through a Python function, once at its beginning and once at its end.

Elements, order, element spec and options stay; so does cardinality where anybody could ask for it.
The cost per element is measured by benchmarks/boundary.py.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.data.ops import options as options_lib
from tensorflow.python.data.util import structure
from tensorflow.python.eager import context, def_function
from tensorflow.python.framework import constant_op, dtypes, func_graph, ops, tensor_spec
from tensorflow.python.ops import array_ops, gen_dataset_ops, script_ops

from tensorboard_plugin_plumber.capture import guard, iterators, threads

_CPU = "/device:CPU:0"
_UNKNOWN_CARDINALITY = -2
# Functions are kept for good, one set for each kind of element: no program has that many.
_MAX_KINDS = 256
_SHOWN = "_plumber_shown"
_SOURCES = "_plumber_sources"
# Passes whose end was never told, which TensorFlow's own failures may cause, are dropped above so many.
_MAX_RUNNING = 1000

Listener = Callable[["Pass"], None]
_listeners: tuple[Listener, ...] = ()
_lock = threading.Lock()
_serials = itertools.count(1)


class Pass:
    """One pass over a user's dataset, read as TensorFlow's `OwnedIterator` is.

    Attributes:
      source: the dataset; listeners must not keep it.
      iterated_by: "strategy", "tf.function", "reduce" or "get_single_element".
      thread_ids: native ids of the threads that came with it; empty if unknown.
      whole: TensorFlow runs the dataset as it would on its own; else without the prefetch that it injects.
      last_model: the serialized model at its end, once a graph has ended it.
    """

    def __init__(
        self,
        resource: Any,
        source: Any,
        iterated_by: str,
        *,
        thread_ids: frozenset[int] = frozenset(),
        whole: bool = True,
    ) -> None:
        self.source = source
        self.iterated_by = iterated_by
        self.whole = whole
        self.thread_ids = thread_ids
        # Filled at its end: whoever is reading it just then would keep it beyond that.
        self.last_model: list[bytes] = []
        # Named as on OwnedIterator: whoever reads those can read this.
        self._iterator_resource = resource


def add_listener(listener: Listener) -> None:
    """Tells `listener` of each pass that begins from now on, in whatever thread begins it; it must be quick."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)


def remove_listener(listener: Listener) -> None:
    """Ends `add_listener`."""
    global _listeners
    with _lock:
        _listeners = tuple(one for one in _listeners if one is not listener)


def has_listeners() -> bool:
    """Whether anybody wants to hear of passes."""
    return bool(_listeners)


def tell(one: Pass) -> None:
    """Tells all listeners of a pass."""
    for listener in _listeners:
        listener(one)


def is_boundary(dataset: Any) -> bool:
    """Whether a dataset is a boundary itself."""
    return isinstance(dataset, _BoundaryDataset)


def is_in_graph(dataset: Any) -> bool:
    """Whether a dataset is being built into a graph, so that only its operators are known yet."""
    return not isinstance(dataset._variant_tensor, ops.EagerTensor)


def show(dataset: Any, iterated_by: str, *, whole: bool, cardinality: bool = False) -> Any:
    """A boundary around a dataset, for any number of passes; each tells the listeners of itself.

    Args:
      dataset: eager, or with an eager dataset below it in the function that is being traced.
      iterated_by: as in `Pass`.
      whole: nothing will be built on top but what takes the elements one by one. Else what comes on
        top is tuned as it would be without a boundary, and gets the prefetch that TensorFlow injects.
      cardinality: somebody may ask for it.

    Raises:
      ValueError: the dataset asks for what a boundary would change.
    """
    _check(dataset)
    if is_in_graph(dataset) or not context.executing_eagerly():
        return _make(dataset, iterated_by, whole=whole, cardinality=cardinality)[0]
    shown = dataset.__dict__.setdefault(_SHOWN, {})
    key = (iterated_by, whole, cardinality)
    if key not in shown:
        shown[key] = _make(dataset, iterated_by, whole=whole, cardinality=cardinality)[0]
    return shown[key]


def show_pass(
    dataset: Any, iterated_by: str, *, host: str = _CPU, cardinality: bool = False
) -> tuple[Any, Pass | None]:
    """A boundary for one pass, whose iterator is made at once, as TensorFlow would have made it.

    So a shuffle's seeds are drawn in the same order as without a boundary.

    Args:
      dataset, iterated_by, cardinality: as for `show`.
      host: device that holds the iterator; of this process.

    Returns:
      The dataset to iterate, and the pass; where a graph is being built, None: listeners hear of it
      whenever the graph runs.

    Raises:
      ValueError: the dataset asks for what a boundary would change.
    """
    _check(dataset)
    with ops.device(host):
        if is_in_graph(dataset) or not context.executing_eagerly():
            return _make(dataset, iterated_by, whole=True, cardinality=cardinality, once=True)
        functions = _functions(dataset.element_spec, "held")
        before = threads.thread_ids()
        resource = gen_dataset_ops.anonymous_iterator_v3(**_flat(dataset.element_spec))
        gen_dataset_ops.make_iterator(dataset._variant_tensor, resource)
        thread_ids = threads.thread_ids() - before
        generated = _BoundaryDataset(dataset.element_spec, [resource], functions, None)
    finished = _finish(generated, dataset, _outer_options(dataset.options()), cardinality)
    return finished, Pass(resource, dataset, iterated_by, thread_ids=thread_ids)


def _options_of(dataset: Any) -> Any:
    if is_in_graph(dataset):  # TensorFlow warns when asked by the public method
        return dataset._options_attr
    with ops.init_scope():
        return dataset.options()


def _check(dataset: Any) -> None:
    if _options_of(dataset).experimental_slack:
        raise ValueError("experimental_slack needs the pipeline's own prefetch to be the last operator")


def _make(
    dataset: Any, iterated_by: str, *, whole: bool, cardinality: bool, once: bool = False
) -> tuple[Any, None]:
    """A boundary whose passes tell of themselves; `once`: the only pass begins where it is made."""
    options = _options_of(dataset)
    inner = dataset if whole else without_injected_prefetch(dataset)
    source = _Source(dataset, iterated_by, whole)
    if not context.executing_eagerly():
        _keep_with_graph(source)
    ident = constant_op.constant(source.ident, dtypes.int64)
    if once:
        flat = _flat(dataset.element_spec)
        state = _begin_pass(inner._variant_tensor, ident, flat, with_variant=source.in_graph)
        functions = _functions(dataset.element_spec, "begun")
        generated = _BoundaryDataset(dataset.element_spec, list(state), functions, source)
    else:
        functions = _functions(dataset.element_spec, "in graph" if source.in_graph else "eager")
        generated = _BoundaryDataset(dataset.element_spec, [inner._variant_tensor, ident], functions, source)
    outer = _outer_options(options) if whole else _options_above(options)
    return _finish(generated, dataset, outer, cardinality), None


def _finish(generated: Any, dataset: Any, options: Any, cardinality: bool) -> Any:
    if cardinality:
        with ops.init_scope():
            known = int(gen_dataset_ops.dataset_cardinality(dataset._variant_tensor))
        if known != _UNKNOWN_CARDINALITY:
            from tensorflow.python.data.experimental.ops import cardinality as cardinality_ops

            generated = generated.apply(cardinality_ops.assert_cardinality(known))
    return generated.with_options(options)


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


def _options_above(inner: Any) -> Any:
    """What is built on a boundary runs with the user's options, but TensorFlow cannot rewrite it."""
    outer = options_lib.Options()
    outer.experimental_optimization.apply_default_optimizations = False
    outer.experimental_optimization.inject_prefetch = False
    return inner.merge(outer)


def without_injected_prefetch(dataset: Any) -> Any:
    """The dataset as a boundary runs it that is built upon: what TensorFlow would inject belongs on top."""
    options = options_lib.Options()
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


class _Source:
    """What the passes of one boundary go over. Passes know it by its number."""

    def __init__(self, dataset: Any, iterated_by: str, whole: bool) -> None:
        self.ident = next(_serials)
        self.iterated_by = iterated_by
        self.whole = whole
        self.in_graph = is_in_graph(dataset)
        # Where Python iterates, the boundary hangs on the dataset: held from here, neither would die.
        self._dataset: Callable[[], Any] = (
            weakref.ref(dataset) if context.executing_eagerly() else lambda: dataset
        )
        self._known: Any = None
        _sources[self.ident] = self

    def dataset(self, variant: Any) -> Any:
        """The dataset; None if it is gone.

        Args:
          variant: of this very dataset, made eagerly; None where the dataset itself is.
        """
        if variant is None:
            return self._dataset()
        if self._known is None:
            # The same operators with the same lines, as they turned out when the graph ran.
            built = self._dataset()
            self._known = object.__new__(type(built))
            self._known.__dict__.update(built.__dict__, _variant_tensor_attr=variant)
        return self._known


_sources: weakref.WeakValueDictionary[int, _Source] = weakref.WeakValueDictionary()


def _keep_with_graph(source: _Source) -> None:
    """A boundary in a graph is at work as long as the function that the user traced."""
    graph = ops.get_default_graph()
    while isinstance(graph.outer_graph, func_graph.FuncGraph):
        graph = graph.outer_graph
    kept = getattr(graph, _SOURCES, None)
    if kept is None:
        setattr(graph, _SOURCES, [source])
    else:
        kept.append(source)


def is_seen(graph: Any) -> bool:
    """Whether a traced function holds a boundary."""
    return bool(getattr(graph, _SOURCES, ()))


class _BoundaryDataset(dataset_ops.DatasetV2):  # type: ignore[misc]
    """The generator; its functions depend on the kind of element alone."""

    def __init__(self, element_spec: Any, arguments: list[Any], functions: _Functions, source: Any) -> None:
        self._element_spec = element_spec
        self._functions = functions
        self._source = source
        with ops.device(_CPU):
            variant = gen_dataset_ops.generator_dataset(
                arguments,
                [],
                [],
                init_func=functions.begin,
                next_func=functions.following,
                finalize_func=functions.end,
                **self._flat_structure,
            )
        super().__init__(variant)

    def _inputs(self) -> list[Any]:
        return []

    @property
    def element_spec(self) -> Any:
        return self._element_spec


@dataclass(frozen=True)
class _Functions:
    """What a generator calls: at its beginning, for each element, at its end."""

    begin: Any
    following: Any
    end: Any


_kinds: dict[Any, _Functions] = {}
_tracing = threading.RLock()


def _flat(element_spec: Any) -> dict[str, Any]:
    return {
        "output_types": structure.get_flat_tensor_types(element_spec),
        "output_shapes": structure.get_flat_tensor_shapes(element_spec),
    }


def _functions(element_spec: Any, begins: str) -> _Functions:
    """The functions for elements of one kind.

    Args:
      begins: "held", the handle of an iterator that Python holds is given; "begun", so is the state
        of a pass that the graph has begun; else the dataset is given and each pass begins when it is
        asked for: "eager", and Python knows the dataset, or "in graph", and it is told.

    Raises:
      ValueError: there are too many kinds.
    """
    flat = _flat(element_spec)
    shapes = tuple(None if one.rank is None else tuple(one.as_list()) for one in flat["output_shapes"])
    key = (begins, tuple(flat["output_types"]), shapes)
    with _tracing:
        if key not in _kinds:
            if len(_kinds) >= _MAX_KINDS:
                raise ValueError(f"more than {_MAX_KINDS} kinds of elements")
            with ops.init_scope(), ops.device(None):
                _kinds[key] = _trace(flat, begins)
        return _kinds[key]


def _trace(flat: dict[str, Any], begins: str) -> _Functions:
    state = [tensor_spec.TensorSpec([], dtypes.resource)]
    if begins != "held":
        # The second one owns the iterator: it ends with the generator's state.
        state += [tensor_spec.TensorSpec([], dtypes.variant), tensor_spec.TensorSpec([], dtypes.int64)]

    def begin(*arguments: Any) -> Any:
        if begins in ("held", "begun"):
            return tuple(array_ops.identity(one) for one in arguments)
        variant, ident = arguments
        return _begin_pass(variant, ident, flat, begins == "in graph")

    def following(handle: Any, *_: Any) -> Any:
        # In the calling thread: the other kernel hands each element over between threads.
        return tuple(gen_dataset_ops.iterator_get_next_sync(handle, **flat))

    def end(handle: Any, *_: Any) -> Any:
        if begins == "held":
            return constant_op.constant(0, dtypes.int64)
        name = gen_dataset_ops.iterator_to_string_handle(handle)
        return script_ops.numpy_function(_pass_ended, [name], dtypes.int64)

    given = state if begins in ("held", "begun") else [state[1], state[2]]

    def traced(function: Any, signature: list[Any]) -> Any:
        def on_cpu(*arguments: Any) -> Any:
            with ops.device(_CPU):
                return function(*arguments)

        return def_function.function(
            on_cpu, input_signature=signature, autograph=False
        ).get_concrete_function()

    return _Functions(traced(begin, given), traced(following, state), traced(end, state))


def _begin_pass(variant: Any, ident: Any, flat: dict[str, Any], with_variant: bool) -> tuple[Any, Any, Any]:
    """Makes an iterator and tells Python of it; returns its handle, its owner, and the source's number.

    The handle alone does not keep the iterator: Python's copy cannot make it live longer.
    """
    token = script_ops.numpy_function(_pass_begins, [], dtypes.int64)
    handle, owner = gen_dataset_ops.anonymous_iterator_v2(**flat)
    with ops.control_dependencies([token]):
        made = gen_dataset_ops.make_iterator(variant, handle)
    with ops.control_dependencies([made]):
        name = gen_dataset_ops.iterator_to_string_handle(handle)
        if with_variant:
            told = script_ops.eager_py_func(_pass_begun, [ident, token, name, variant], dtypes.int64)
        else:
            told = script_ops.numpy_function(_pass_begun, [ident, token, name], dtypes.int64)
    with ops.control_dependencies([told]):
        return array_ops.identity(handle), array_ops.identity(owner), array_ops.identity(ident)


# Called by graphs, in TensorFlow's threads: at the beginning and the end of a pass.

_before: dict[int, frozenset[int]] = {}
_running: dict[bytes, Pass] = {}
_NOTHING = np.int64(0)


def _pass_begins() -> Any:
    """An iterator is about to be made; returns the number of this pass, 0 if nobody listens."""
    if not _listeners:
        return _NOTHING
    with guard.protect("look into a graph function"):
        number = next(_serials)
        if len(_before) > _MAX_RUNNING:
            _before.clear()
        _before[number] = threads.thread_ids()
        return np.int64(number)
    return _NOTHING


def _pass_begun(ident: Any, token: Any, name: Any, variant: Any = None) -> Any:
    """An iterator was made."""
    with guard.protect("look into a graph function"):
        before = _before.pop(int(token), None)
        source = _sources.get(int(ident))
        dataset = source.dataset(variant) if source is not None else None
        if before is not None and source is not None and dataset is not None:
            handle = bytes(name.numpy() if hasattr(name, "numpy") else name)
            one = Pass(
                _handle_of(handle),
                dataset,
                source.iterated_by,
                thread_ids=threads.thread_ids() - before,
                whole=source.whole,
            )
            if len(_running) > _MAX_RUNNING:
                _running.clear()
            _running[handle] = one
            tell(one)
    return _NOTHING


def _pass_ended(name: Any) -> Any:
    """An iterator is about to go: whoever reads the pass reads it for the last time."""
    with guard.protect("look into a graph function"):
        one = _running.pop(bytes(name), None)
        if one is not None:
            with contextlib.suppress(iterators.NoModel, iterators.Gone):
                one.last_model.append(iterators.read_model(one._iterator_resource))
    return _NOTHING


def _handle_of(name: bytes) -> Any:
    with context.eager_mode(), ops.device(None):
        return gen_dataset_ops.iterator_from_string_handle_v2(
            constant_op.constant(name), output_types=[], output_shapes=[]
        )
