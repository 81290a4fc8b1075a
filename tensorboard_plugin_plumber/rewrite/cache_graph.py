"""A guarded cache as a dataset of stock operators, without Python while it runs.

```
AssertCardinality                            where the length is known
  FlatMap: which of the three, by the number    once per iterator; its result is in a checkpoint
    Map: what is to be done now, and a number drawn for this iterator
      one tensor
  filling:  Scan(input), where the length is known; its last element completes the cache
            Concatenate( Scan(input), a dataset of no elements that completes the cache ), where it is not
  serving:  the store's own reader
  off:      input
```

While it fills, each element costs a call of the scan's function, which puts its tensors into a table and counts
their bytes. What is kept becomes a cache of TensorFlow's only when it is whole, so until then it can be dropped
at any element, which passes all the same. One iterator fills at a time: the one that began last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from tensorboard_plugin_plumber.rewrite.cache_sizes import element_bytes
from tensorboard_plugin_plumber.rewrite.cache_state import NOBODY, Kept, Key, Mode, State, Why

#: After so many passes that were broken off with more than a few elements, a cache is not worth its filling.
MOST_BROKEN_OFF = 4
FEW_ELEMENTS = 32
#: From this part of a known length on, more than twice the limit in projection is too much.
TELLING_PART = 4

_INT64 = tf.TensorSpec([], tf.int64)
# First element, bytes and number of the segment that an iterator fills: three tensors.
_Segment = Any


class Store(Protocol):
    """Where elements are kept.

    Attributes:
      state: of the cache.
      kept: elements that are in memory, of the fill that goes on.
    """

    state: State
    kept: Kept

    def full(self, pending_bytes: Any) -> Any | None:
        """Whether what is in memory is to be moved on, bool; None where that is never asked."""
        ...

    def move(self, token: Any, first: Any, end: Any, segment: Any) -> Any:
        """Moves the elements from `first` to `end` on; returns whether that succeeded, bool."""
        ...

    def there(self) -> Any | None:
        """Whether what is kept is still there, bool; None where it cannot go."""
        ...

    def reader(self) -> Any:
        """Variant of a dataset that reads what is kept."""
        ...


class Graph:
    """Makes the operators around one input.

    Args:
      input_dataset: the dataset whose elements are to be kept.
      store: where.
      length: of the input; None if unknown.

    Attributes:
      variant: of the whole.
    """

    def __init__(self, input_dataset: Any, store: Store, length: int | None) -> None:
        self._input = input_dataset._variant_tensor
        self._spec = input_dataset.element_spec
        self._store = store
        self._state, self._kept = store.state, store.kept
        self._length = length
        self._types, self._shapes = list(input_dataset._flat_types), list(input_dataset._flat_shapes)
        # Functions live as long as somebody in Python holds them.
        self._functions: list[Any] = []
        self.variant = self._whole()

    def _function(self, python: Callable[..., Any], name: str, specs: Sequence[Any]) -> Any:
        """A function for an operator of tf.data."""
        made = inside(traced(python, name, specs))
        self._functions.append(made)
        return made

    def _whole(self) -> Any:
        control = tf.raw_ops.TensorDataset(components=[tf.constant(0, tf.int64)], output_shapes=[[]])
        choose = self._function(lambda start: self._choose(), "plumber_cache_choose", [_INT64])
        control = _ops().map_dataset(
            control,
            choose.captured_inputs,
            f=choose,
            output_types=[tf.int64, tf.int64],
            output_shapes=[[], []],
        )
        branch = self._function(self._branch, "plumber_cache", [_INT64, _INT64])
        variant = _ops().flat_map_dataset(
            control, branch.captured_inputs, f=branch, **self._outputs(), metadata=_named("plumber_cache")
        )
        if self._length is None:
            return variant
        return tf.raw_ops.AssertCardinalityDataset(
            input_dataset=variant, cardinality=tf.constant(self._length, tf.int64), **self._outputs()
        )

    def _outputs(self) -> dict[str, Any]:
        return {"output_types": self._types, "output_shapes": self._shapes}

    def _choose(self) -> list[Any]:
        """What an iterator does that begins now, and its number."""
        mode, broken_off = self._state.read(Key.MODE, Key.BROKEN_OFF)
        token = tf.cast(tf.timestamp() * 1e6, tf.int64)
        there = self._store.there()
        if there is not None:
            gone = tf.logical_and(_is(mode, Mode.SERVING), tf.logical_not(there))

            def lost() -> Any:
                self._state.write({Key.MODE: Mode.OFF, Key.WHY: Why.GONE})
                return tf.constant(int(Mode.OFF), tf.int64)

            mode = either(gone, lost, lambda: mode)

        def begin() -> Any:
            broken = broken_off + tf.cast(self._kept.size() > FEW_ELEMENTS, tf.int64)
            broken = tf.where(self._state.read(Key.OWNER)[0] == NOBODY, broken_off, broken)
            often = broken >= MOST_BROKEN_OFF
            now = tf.where(
                often, tf.constant(int(Mode.OFF), tf.int64), tf.constant(int(Mode.FILLING), tf.int64)
            )
            self._kept.drop()
            self._state.write(
                {
                    Key.MODE: now,
                    Key.WHY: tf.where(often, int(Why.NEVER_WHOLE), int(Why.NOT)),
                    Key.OWNER: token,
                    Key.BROKEN_OFF: broken,
                    Key.SEGMENTS: 0,
                    Key.FIRST: 0,
                }
            )
            return now

        return [either(_is(mode, Mode.FILLING), begin, lambda: mode), token]

    def _branch(self, mode: Any, token: Any) -> Any:
        """The dataset that one iterator reads."""

        def serving() -> Any:
            # A checkpoint of an iterator that was served brings what is kept along.
            self._state.write({Key.MODE: Mode.SERVING})
            return self._store.reader()

        return either(
            _is(mode, Mode.SERVING),
            serving,
            lambda: either(
                _is(mode, Mode.OFF), lambda: tf.identity(self._input), lambda: self._filling(token)
            ),
        )

    def _filling(self, token: Any) -> Any:
        zero = tf.constant(0, tf.int64)
        specs = [tf.TensorSpec(shape, kind) for shape, kind in zip(self._shapes, self._types, strict=True)]
        scan = self._function(self._pass_on, "plumber_cache_fill", [*[_INT64] * 6, *specs])
        filling = _experimental_ops().scan_dataset(
            self._input,
            # Position, bytes so far, number of the iterator; first element, bytes and number of the segment.
            [zero, zero, token, zero, zero, zero],
            scan.captured_inputs,
            f=scan,
            preserve_cardinality=True,
            use_default_device=False,
            **self._outputs(),
        )
        if self._length is not None:  # the last element completes the cache
            return filling
        end = self._function(self._at_the_end, "plumber_cache_end", [_INT64])
        last = _ops().flat_map_dataset(
            tf.raw_ops.TensorDataset(components=[token], output_shapes=[[]]),
            end.captured_inputs,
            f=end,
            **self._outputs(),
        )
        return _ops().concatenate_dataset(filling, last, **self._outputs())

    def _pass_on(
        self, position: Any, total: Any, token: Any, first: Any, pending: Any, segment: Any, *components: Any
    ) -> list[Any]:
        """Keeps an element, or gives up; hands it on."""
        weight = element_bytes(self._spec, components)
        total, pending, behind = total + weight, pending + weight, position + 1
        limit, owner, segments = self._state.read(Key.LIMIT, Key.OWNER, Key.SEGMENTS)
        mine = owner == token
        too_large = total > limit
        if self._length is not None:
            telling = tf.logical_and(behind * TELLING_PART >= self._length, limit > 0)
            # In floating point: bytes times elements can be large.
            projected = tf.cast(total, tf.float64) / tf.cast(behind, tf.float64) * float(self._length)
            clearly = projected > 2.0 * tf.cast(limit, tf.float64)
            too_large = tf.logical_or(too_large, tf.logical_and(telling, clearly))
        # An iterator that was set back to a checkpoint finds other elements kept than it knows of.
        continues = tf.logical_and(self._kept.size() == position - first, segments == segment)
        keeps = tf.logical_and(mine, tf.logical_and(continues, tf.logical_not(too_large)))
        unmoved = (first, pending, segment)

        def keep() -> _Segment:
            self._kept.put(position, list(components))
            if self._length is not None:
                return either(
                    behind == self._length,
                    lambda: self._complete(token, behind, *unmoved),
                    lambda: self._moved(token, behind, *unmoved),
                )
            return self._moved(token, behind, *unmoved)

        def give_up() -> _Segment:
            either(mine, lambda: self._let_go(too_large, limit), lambda: False)
            return unmoved

        first, pending, segment = either(keeps, keep, give_up)
        return [behind, total, token, first, pending, segment, *components]

    def _let_go(self, off: Any, limit: Any) -> bool:
        """Drops what is kept; either the cache is off, or only this iterator does not fill it."""
        why = tf.where(limit < 0, self._state.read(Key.WHY)[0], int(Why.TOO_LARGE))
        self._state.write(
            {
                Key.MODE: tf.where(off, int(Mode.OFF), int(Mode.FILLING)),
                Key.WHY: tf.where(off, why, int(Why.NOT)),
                Key.OWNER: NOBODY,
            }
        )
        self._kept.drop()
        return True

    def _moved(self, token: Any, behind: Any, first: Any, pending: Any, segment: Any) -> _Segment:
        """Moves what is kept on where there is enough of it; returns what the next segment begins with."""
        full = self._store.full(pending)
        if full is None:
            return first, pending, segment

        def move() -> _Segment:
            def moved() -> _Segment:
                self._state.write({Key.SEGMENTS: segment + 1, Key.FIRST: behind})
                self._kept.drop()
                return behind, tf.constant(0, tf.int64), segment + 1

            return either(
                self._store.move(token, first, behind, segment),
                moved,
                lambda: self._failed(first, pending, segment),
            )

        return either(full, move, lambda: (first, pending, segment))

    def _complete(self, token: Any, behind: Any, first: Any, pending: Any, segment: Any) -> _Segment:
        """Moves the rest on: from the next iterator on the cache serves."""

        def serves() -> _Segment:
            self._state.write(
                {
                    Key.MODE: Mode.SERVING,
                    Key.OWNER: NOBODY,
                    Key.WRITER: token,
                    Key.SEGMENTS: segment + 1,
                    Key.ELEMENTS: behind,
                }
            )
            self._kept.drop()
            return first, pending, segment

        return either(
            self._store.move(token, first, behind, segment),
            serves,
            lambda: self._failed(first, pending, segment),
        )

    def _failed(self, *unmoved: Any) -> Any:
        self._state.write({Key.MODE: Mode.OFF, Key.WHY: Why.NOT_KEPT, Key.OWNER: NOBODY})
        self._kept.drop()
        return unmoved

    def _at_the_end(self, token: Any) -> Any:
        """Completes the cache, if this iterator kept all that passed; variant of a dataset without elements."""
        owner, first, segment = self._state.read(Key.OWNER, Key.FIRST, Key.SEGMENTS)
        zero = tf.constant(0, tf.int64)
        unmoved = (first, zero, segment)
        either(
            owner == token,
            lambda: self._complete(token, first + self._kept.size(), *unmoved),
            lambda: unmoved,
        )
        return tf.raw_ops.TakeDataset(input_dataset=self._input, count=zero, **self._outputs())


def traced(python: Callable[..., Any], name: str, specs: Sequence[Any]) -> Any:
    """A concrete function of flat tensors for an operator of tf.data, which calls it as its own."""
    from tensorflow.python.eager import def_function

    return def_function.Function(
        python_function=python,
        name=name,
        input_signature=list(specs),
        autograph=False,
        experimental_attributes={"_tf_data_function": True},
    ).get_concrete_function()


def inside(function: Any) -> Any:
    """A function, known to the graph that calls it."""
    if not tf.executing_eagerly():
        function.add_to_graph(tf.compat.v1.get_default_graph())
    return function


def either(condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """`tf.cond`, but what is not taken costs nothing.

    TensorFlow makes one graph of both branches by default, each node of which is passed at every call: 3 times the
    time of a whole element that is kept.
    """
    from tensorflow.core.framework import attr_value_pb2

    result = tf.cond(condition, then, otherwise)
    operations = tf.compat.v1.get_default_graph().get_operations()
    made = next(one for one in reversed(operations) if one.type in ("If", "StatelessIf"))
    made._set_attr("_lower_using_switch_merge", attr_value_pb2.AttrValue(b=False))
    return result


def succeeds(does: Callable[[], Any], keep: list[Any]) -> Any:
    """Whether something succeeds, bool: the one way in a graph to go on where an operation fails.

    Args:
      does: makes the operations, in a function of its own; returns a scalar tensor of int64 that depends on them.
      keep: the functions go there, for somebody to hold them.
    """
    run = inside(traced(lambda start: does(), "plumber_cache_try", [_INT64]))
    count = inside(traced(lambda number, one: number + 1, "plumber_cache_count", [_INT64, _INT64]))
    keep += [run, count]
    one: dict[str, Any] = {"output_types": [tf.int64], "output_shapes": [[]]}
    zero = tf.constant(0, tf.int64)
    tried = tf.raw_ops.IgnoreErrorsDataset(
        input_dataset=_ops().map_dataset(
            tf.raw_ops.TensorDataset(components=[zero], output_shapes=[[]]), run.captured_inputs, f=run, **one
        ),
        **one,
    )
    return _ops().reduce_dataset(tried, [zero], [], f=count, **one)[0] > 0


def drawn(variant: Any, count: Any, types: list[Any], shapes: list[Any], keep: list[Any]) -> Any:
    """Draws all elements of a dataset, without a call for each; int64, when that is done.

    Args:
      variant: of the dataset.
      count: of its elements; with more than that a skip is a hundred times as slow.
      types, shapes: of its flat components.
      keep: a function goes there, for somebody to hold it.
    """
    specs = [tf.TensorSpec(shape, kind) for shape, kind in zip(shapes, types, strict=True)]
    never = inside(traced(lambda number, *components: number, "plumber_cache_draw", [_INT64, *specs]))
    keep.append(never)
    skipped = tf.raw_ops.SkipDataset(
        input_dataset=variant,
        count=count,
        output_types=types,
        output_shapes=shapes,
    )
    zero = tf.constant(0, tf.int64)
    return _ops().reduce_dataset(skipped, [zero], [], f=never, output_types=[tf.int64], output_shapes=[[]])[0]


def _is(mode: Any, wanted: Mode) -> Any:
    return tf.equal(mode, tf.constant(int(wanted), tf.int64))


def _named(name: str) -> bytes:
    from tensorflow.core.framework import dataset_metadata_pb2

    data: bytes = dataset_metadata_pb2.Metadata(name=name.encode()).SerializeToString()
    return data


def _ops() -> Any:
    from tensorflow.python.ops import gen_dataset_ops

    return gen_dataset_ops


def _experimental_ops() -> Any:
    from tensorflow.python.ops import gen_experimental_dataset_ops

    return gen_experimental_dataset_ops
