"""`plumber.optimize`: one line that makes a dataset faster, and keeps it the same."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypedDict, Union, overload

import numpy as np
import tensorflow as tf

from tensorboard_plugin_plumber.model.questions import NOTHING_BARRED
from tensorboard_plugin_plumber.progress import progress
from tensorboard_plugin_plumber.report import Report
from tensorboard_plugin_plumber.rewrite.given_plan import with_plan
from tensorboard_plugin_plumber.rewrite.optimizer import Attempt, Optimized, Wishes, optimized
from tensorboard_plugin_plumber.rewrite.reuse import reapplied
from tensorboard_plugin_plumber.rewrite.saved_plan import SavedPlan, load
from tensorboard_plugin_plumber.rewrite.variants import fastest
from tensorboard_plugin_plumber.tracing import checked_rate

if TYPE_CHECKING:
    from typing_extensions import Unpack

_logger = logging.getLogger("tensorboard_plugin_plumber")
_P = ParamSpec("_P")
#: What may be handed over as another way to write a pipeline.
Variant = Union["tf.data.Dataset", Callable[..., "tf.data.Dataset"]]
# The frames in which tf.distribute asks for a worker's dataset.
_DISTRIBUTING = "_create_datasets_from_function_with_input_context"


@dataclass(frozen=True)
class Optimization:
    """What `optimize` gives with `return_report=True`.

    Attributes:
      dataset: the faster dataset; the original itself where nothing was faster.
      report: the analysis with the plan that is in force and what was measured; None where it could not be traced.
      attempts: the plans that were tried, in order, and what became of them.
    """

    dataset: tf.data.Dataset
    report: Report | None = None
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True)
class _Options:
    wishes: Wishes
    variants: tuple[Variant, ...]
    plan: SavedPlan | None
    return_report: bool


class OptimizeOptions(TypedDict, total=False):
    """The options of `optimize`, but for `return_report`, which rules what it returns."""

    budget_s: float
    memory_fraction: float
    memory_bytes: float | None
    epochs: float | None
    consumer_rate: float | None
    allow_reorder: bool
    python_threads: bool
    service: str | None
    variants: Sequence[Variant] | None
    plan: Any


@overload
def optimize(
    x: Callable[_P, tf.data.Dataset], /, *, return_report: Literal[True], **options: Unpack[OptimizeOptions]
) -> Callable[_P, Optimization]: ...
@overload
def optimize(
    x: Callable[_P, tf.data.Dataset],
    /,
    *,
    return_report: Literal[False] = False,
    **options: Unpack[OptimizeOptions],
) -> Callable[_P, tf.data.Dataset]: ...
@overload
def optimize(
    x: None = None, /, *, return_report: Literal[True], **options: Unpack[OptimizeOptions]
) -> Callable[[Callable[_P, tf.data.Dataset]], Callable[_P, Optimization]]: ...
@overload
def optimize(
    x: None = None, /, *, return_report: Literal[False] = False, **options: Unpack[OptimizeOptions]
) -> Callable[[Callable[_P, tf.data.Dataset]], Callable[_P, tf.data.Dataset]]: ...
@overload
def optimize(
    x: tf.data.Dataset, /, *, return_report: Literal[True], **options: Unpack[OptimizeOptions]
) -> Optimization: ...
@overload
def optimize(
    x: tf.data.Dataset, /, *, return_report: Literal[False] = False, **options: Unpack[OptimizeOptions]
) -> tf.data.Dataset: ...
def optimize(
    x: Any = None,
    /,
    *,
    budget_s: float = 20,
    memory_fraction: float = 0.5,
    memory_bytes: float | None = None,
    epochs: float | None = None,
    consumer_rate: float | None = None,
    allow_reorder: bool = False,
    python_threads: bool = True,
    service: str | None = None,
    variants: Sequence[Variant] | None = None,
    plan: Any = None,
    return_report: bool = False,
) -> Any:
    """A dataset that gives the same elements, faster.

        dataset = plumber.optimize(dataset)

        @plumber.optimize
        def make_dataset(): ...

    A copy of the dataset runs on its own for some seconds; a plan is solved for, made, proven to give the same elements
    and raced against the original. What was no faster is not kept: the original object itself comes back.
    Whatever goes wrong, it comes back too, with one warning that says why. A function that is decorated is
    traced once per distinct arguments, and its plan is used again.

    Args:
      x: a dataset; a function that returns one, to decorate it; or None, for a decorator with options.
      budget_s: seconds for all of it, the filling of caches apart.
      memory_fraction: share of the free memory that caches and buffers may take, above 0 and up to 1.
      memory_bytes: bytes that they may add instead; never more than is free.
      epochs: passes that training makes over the data; unknown counts as many.
      consumer_rate: steps/s that training could take; unknown counts as more than the pipeline can give.
      allow_reorder: elements may come in another order than the original's. No plan makes use of it yet, but for
        saved plans and variants, which may then give them in any order.
      python_threads: Python functions may be called from several threads at once.
      service: address of a tf.data service. Not supported yet.
      variants: other ways to write the dataset: datasets, or functions that return them and take what a decorated
        function takes. The fastest that gives the same elements is kept.
      plan: a plan to use instead of a trace: the file that `plumber optimize --plan-out` wrote, a log directory that
        a training was recorded in, or a `SavedPlan`. A pipeline that is not the plan's comes back as it is.
      return_report: give an `Optimization`, which has the dataset and the report.

    Raises:
      TypeError, ValueError: an argument makes no sense.
      OSError, NothingRecorded, NotAnswerable: there is no plan where `plan` says.
    """
    if service is not None:
        raise ValueError(
            f"service={service!r}: no plan hands work to a tf.data service yet; leave it out, or call "
            ".distribute(...) on the optimized dataset"
        )
    if plan is not None and variants:
        raise ValueError(
            "plan and variants: a saved plan is of one way to write a pipeline; give one of them"
        )
    wishes = Wishes(
        budget_s=_positive("budget_s", budget_s),
        memory_fraction=_positive("memory_fraction", memory_fraction, most=1.0),
        memory_bytes=None if memory_bytes is None else _positive("memory_bytes", memory_bytes, least=0.0),
        epochs=None if epochs is None else _positive("epochs", epochs, least=1.0),
        consumer_rate=None if consumer_rate is None else checked_rate("consumer_rate", consumer_rate),
        allow_reorder=bool(allow_reorder),
        python_threads=bool(python_threads),
    )
    saved = None if plan is None else load(plan, what_if=wishes.what_if(NOTHING_BARRED))
    options = _Options(wishes, _checked_variants(variants), saved, bool(return_report))
    if isinstance(x, tf.data.Dataset):
        return _given(_once(x, options, options.variants), options)
    if callable(x):
        return _decorated(x, options)
    if x is None:
        return functools.partial(_decorated_checked, options=options)
    raise TypeError(
        f"optimize takes a tf.data.Dataset or a function that returns one, not a {type(x).__name__}"
    )


def _decorated_checked(function: Any, *, options: _Options) -> Any:
    if not callable(function) or isinstance(function, tf.data.Dataset):
        raise TypeError(
            f"optimize(...) with options decorates a function that returns a tf.data.Dataset, "
            f"not a {type(function).__name__}: a dataset comes first, optimize(dataset, ...)"
        )
    return _decorated(function, options)


class _Plans:
    """The plans of one decorated function, by its arguments."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_arguments: dict[Hashable, Optimized] = {}
        # What is compared by identity must not be replaced by another object at the same address.
        self.held: dict[int, Any] = {}


def _decorated(function: Callable[..., Any], options: _Options) -> Callable[..., Any]:
    plans = _Plans()

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        dataset = function(*args, **kwargs)
        if not isinstance(dataset, tf.data.Dataset):
            raise TypeError(
                f"{getattr(function, '__name__', 'the function')} returned a {type(dataset).__name__}: "
                "a function that optimize decorates returns a tf.data.Dataset"
            )
        variants = tuple(
            functools.partial(one, *args, **kwargs) if callable(one) else one for one in options.variants
        )
        key = (_frozen(args, plans.held), _frozen(kwargs, plans.held))
        again = functools.partial(function, *args, **kwargs)
        return _given(_once(dataset, options, variants, again, plans, key), options)

    return make


def _given(found: Optimization, options: _Options) -> Any:
    return found if options.return_report else found.dataset


def _once(
    dataset: Any,
    options: _Options,
    variants: tuple[Variant, ...],
    again: Callable[[], Any] | None = None,
    plans: _Plans | None = None,
    key: Hashable = None,
) -> Optimization:
    """The dataset optimized; the dataset itself, and one warning, where that fails."""
    refusal = _refusal()
    if refusal:
        _warn(refusal)
        return Optimization(dataset)
    plans = plans or _Plans()
    try:
        with plans.lock, progress("Optimizing the dataset") as say:
            known = plans.by_arguments.get(key)
            found = reapplied(known, dataset) if known is not None else None
            if found is None:
                found = _found(dataset, options, variants, again, say)
                plans.by_arguments[key] = found
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        _warn(f"{type(error).__name__}: {first}", traceback=_logger.isEnabledFor(logging.DEBUG))
        return Optimization(dataset)
    if found.failure:
        _warn(found.failure)
    return Optimization(found.dataset, found.report, found.attempts)


def _found(
    dataset: Any,
    options: _Options,
    variants: tuple[Variant, ...],
    again: Callable[[], Any] | None,
    say: Callable[[str], None],
) -> Optimized:
    if options.plan is not None:
        return with_plan(options.plan, dataset, options.wishes, say, again=again)
    if variants:
        return fastest(dataset, variants, options.wishes, say)
    return optimized(dataset, options.wishes, say)


def _refusal() -> str:
    """Why a dataset cannot be optimized here; empty where it can."""
    if not tf.executing_eagerly():
        return "a graph is being built, and what is in it cannot be run on its own"
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _DISTRIBUTING and "distribute" in frame.f_code.co_filename.split(os.sep):
            return "tf.distribute is asking for it (distribute_datasets_from_function)"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _warn(why: str, *, traceback: bool = False) -> None:
    # Not `warnings`: under `-W error` that would raise into the user's program.
    _logger.warning("Plumber leaves the dataset as it is: %s", why, exc_info=traceback)


def _positive(name: str, value: Any, *, least: float | None = None, most: float = float("inf")) -> float:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: a number is wanted")
    number = float(value)
    enough = number > 0 if least is None else number >= least
    if not (enough and number <= most and number != float("inf")):
        low = "greater than zero" if least is None else f"{least:g} or more"
        raise ValueError(f"{name}={value!r}: must be {low}" + (f", at most {most:g}" if most == 1.0 else ""))
    return number


def _checked_variants(variants: Any) -> tuple[Variant, ...]:
    if variants is None:
        return ()
    if not isinstance(variants, Sequence) or not all(
        callable(one) or isinstance(one, tf.data.Dataset) for one in variants
    ):
        raise TypeError("variants is a list of datasets, or of functions that return one")
    return tuple(variants)


def _frozen(value: Any, held: dict[int, Any]) -> Hashable:
    """What is equal for arguments that ask for the same dataset; others are compared by identity, and held."""
    if isinstance(value, Mapping):
        return (type(value), frozenset((_frozen(k, held), _frozen(v, held)) for k, v in value.items()))
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = [_frozen(one, held) for one in value]
        return (type(value), frozenset(parts) if isinstance(value, (set, frozenset)) else tuple(parts))
    if tf.is_tensor(value) and hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        content = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).digest()
        return (np.ndarray, value.dtype.str, value.shape, content)
    try:
        hash(value)
    except TypeError:
        held[id(value)] = value
        return (object, id(value))
    return (type(value), value)
