"""Makes a dataset again with other inputs or settings: the same class, the same traced functions, the same seeds.

Nothing of the user's is traced or drawn a second time: a constructor is called with the arguments that
the object still holds or that were recorded, and gets the functions and seeds that its first call made.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tensorboard_plugin_plumber.capture.construction import DROPPED, construction_of
from tensorboard_plugin_plumber.capture.once import Once
from tensorboard_plugin_plumber.capture.places import is_tensorflow_file
from tensorboard_plugin_plumber.capture.survey import is_traced

# Making these again would reach outside: register with a service, write, read a file's header.
_NEVER_AGAIN = ("DataService", "Save", "Load", "SnapshotChunk", "List")
_OTHER_ATTRIBUTES = {
    "dataset": "_input_dataset",
    "options": "_options_attr",
    "rerandomize_each_iteration": "_rerandomize",
}


class CannotRemake(Exception):
    """The operator cannot be made again without tracing or reaching outside."""


@dataclass(frozen=True)
class Seeds:
    """In the place of a constructor's `seed`: the two that its first call drew, or others to draw from."""

    seed: Any
    seed2: Any


class _Local(threading.local):
    # Functions already traced, to be taken in this order; None: functions are traced as always.
    traced: list[Any] | None = None


_local = _Local()


def remade(dataset: Any, arguments: dict[str, Any], functions: Sequence[Any]) -> Any:
    """A dataset of the same class.

    Args:
      dataset: the one to make again.
      arguments: of its constructor, as `arguments_of` gives them.
      functions: the wrappers of its traced functions, in the order in which the constructor made them.

    Raises:
      CannotRemake: its constructor reaches outside, or would trace a function, or refuses.
    """
    cls = type(dataset)
    if any(name in cls.__name__ for name in _NEVER_AGAIN):
        raise CannotRemake(f"{cls.__name__} reaches outside when it is made")
    if hasattr(dataset, "_seed") and "seed" in arguments and not isinstance(arguments["seed"], Seeds):
        arguments = arguments | {"seed": Seeds(dataset._seed, dataset._seed2)}
    try:
        return called(lambda: cls(**arguments), functions)
    except CannotRemake as error:
        if error.__cause__ is None:
            raise
        # Some constructors take plain numbers only, and keep tensors.
        plain = {name: _plain(value) for name, value in arguments.items()}
    try:
        return called(lambda: cls(**plain), functions)
    except CannotRemake as error:
        raise CannotRemake(f"{cls.__name__} cannot be made again: {error}") from error


def called(make: Callable[[], Any], functions: Sequence[Any]) -> Any:
    """What `make` makes, taking these traced functions in their order instead of tracing any.

    Raises:
      CannotRemake: it would trace a function; or it failed, and then that is the cause.
    """
    _patch()
    try:
        with _reusing(functions):
            return make()
    except CannotRemake:
        raise
    # A constructor runs code of TensorFlow's, of a third party's class, of an element spec's: whatever it
    # raises, the dataset that the user has is whole, and the caller does without another one.
    except Exception as error:
        raise CannotRemake(str(error).strip() or type(error).__name__) from error


def arguments_of(dataset: Any) -> dict[str, Any]:
    """Constructor arguments by name: from the attributes of the same name, else as recorded, else the default.

    Raises:
      CannotRemake: one of them is not known.
    """
    cls = type(dataset)
    recorded = _recorded(dataset)
    found = {}
    for name, parameter in _parameters(type(dataset)):
        live = _live(dataset, name)
        if live is not DROPPED:
            found[name] = live
        elif recorded.get(name, DROPPED) is not DROPPED:
            found[name] = recorded[name]
        elif parameter.default is inspect.Parameter.empty:
            raise CannotRemake(f"the argument {name} of {cls.__name__} is not known")
    return found


def arguments_with(dataset: Any, replace: Callable[[Any], Any]) -> dict[str, Any]:
    """`arguments_of`, with each dataset in them replaced.

    Raises:
      CannotRemake: one of them is not known, or was too large to be kept.
    """
    return {name: replaced(value, replace) for name, value in arguments_of(dataset).items()}


def replaced(value: Any, replace: Callable[[Any], Any]) -> Any:
    """An argument with each dataset in it replaced.

    Raises:
      CannotRemake: a part of it was too large to be kept.
    """
    from tensorflow.python.types import data as data_types

    if value is DROPPED:
        raise CannotRemake("one of its arguments was too large to be kept")
    if isinstance(value, data_types.DatasetV2):
        return replace(value)
    if isinstance(value, dict):
        return {name: replaced(one, replace) for name, one in value.items()}
    if isinstance(value, list):
        return [replaced(one, replace) for one in value]
    if isinstance(value, tuple):
        items = [replaced(one, replace) for one in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _plain(value: Any) -> Any:
    """A scalar tensor as the Python number or text in it; other values as they are."""
    if not (hasattr(value, "_numpy") and value.shape.rank == 0):
        return value
    content = value.numpy()
    if isinstance(content, bytes):
        return os.fsdecode(content)
    return content.item() if hasattr(content, "item") else content


def _parameters(cls: Any) -> tuple[tuple[str, inspect.Parameter], ...]:
    parameters = tuple(inspect.signature(cls.__init__).parameters.items())[1:]
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(parameter.kind in variable for _, parameter in parameters):
        raise CannotRemake(f"{cls} takes any arguments")
    return parameters


def _recorded(dataset: Any) -> dict[str, Any]:
    construction = construction_of(dataset)
    if construction is None:
        return {}
    names = [name for name, _ in _parameters(type(dataset))]
    return {**dict(zip(names, construction.arguments, strict=False)), **construction.keywords}


def _live(dataset: Any, name: str) -> Any:
    """An argument as the object still holds it; DROPPED if it does not."""
    value = dataset.__dict__.get(_OTHER_ATTRIBUTES.get(name, f"_{name}"), DROPPED)
    if is_traced(value):
        return value._func
    if name == "deterministic":
        return {"true": True, "false": False, "default": None}.get(value, DROPPED)
    return value


def _is_tensorflows(function: Any) -> bool:
    """A function of TensorFlow's own, which a constructor traces for itself."""
    code = getattr(function, "__code__", None)
    return code is not None and is_tensorflow_file(code.co_filename)


@contextlib.contextmanager
def _reusing(traced: Sequence[Any]) -> Iterator[None]:
    _local.traced = list(traced)
    try:
        yield
    finally:
        _local.traced = None


@Once
def _patch() -> None:
    """Lets a constructor take functions that are already traced, in this thread and while asked to, and seeds."""
    from tensorflow.python.data.ops import structured_function
    from tensorflow.python.data.util import random_seed

    cls = structured_function.StructuredFunctionWrapper
    original, get_seed = cls.__init__, random_seed.get_seed

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if _local.traced is None or (
            not _local.traced and _is_tensorflows(args[0] if args else kwargs["func"])
        ):
            original(self, *args, **kwargs)
        elif _local.traced:
            self.__dict__.update(_local.traced.pop(0).__dict__)
        else:
            raise CannotRemake("a function would be traced again")

    def get_the_same_seed(seed: Any) -> Any:
        return (seed.seed, seed.seed2) if isinstance(seed, Seeds) else get_seed(seed)

    cls.__init__ = __init__
    random_seed.get_seed = get_the_same_seed
