"""A saved plan in force: what becomes of each call that the user's code makes."""

from __future__ import annotations

import contextvars
import functools
import inspect
import logging
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from tensorboard_plugin_plumber.capture import places
from tensorboard_plugin_plumber.rewrite.call_sites import arguments, methods
from tensorboard_plugin_plumber.rewrite.call_sites.checks import check_cacheable, check_function
from tensorboard_plugin_plumber.rewrite.call_sites.sites import (
    Called,
    NotHere,
    Site,
    Sites,
    can_be_made,
    made_by_class,
    place_of,
)
from tensorboard_plugin_plumber.rewrite.saved_plan import matching
from tensorboard_plugin_plumber.rewrite.saved_plan.values import SavedChange, SavedPlan

_logger = logging.getLogger("tensorboard_plugin_plumber")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_NEVER_MADE = "no such call was made"
# On a dataset that a class made: (the application, what stands behind it there).
_FOLLOWED = "_plumber_followed"
_entered: contextvars.ContextVar[tuple[AbstractContextManager[None], ...]] = contextvars.ContextVar(
    "plumber_entered", default=()
)


@dataclass(frozen=True)
class Applied:
    """What became of a plan.

    Attributes:
      changes: those that were made.
      missed: a sentence for each that was not.
      notes: what is different on this host, a sentence each.
    """

    changes: tuple[SavedChange, ...]
    missed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def applying(
    saved: SavedPlan,
    *,
    memory_share: float = matching.MEMORY_SHARE,
    memory_bytes: float | None = None,
    cached: Callable[[Any, SavedChange], Any] | None = None,
) -> Application:
    """A context in which the datasets that are built get the plan's settings; also a decorator.

        with applying(saved) as application:
            dataset = application.finished(make_dataset())
        print(application.applied())

        @applying(saved)
        def make_dataset(): ...

    It holds in the thread (the context, with asyncio) that enters it. Where a call cannot be changed it is made as it
    is written; the first time there is a warning.

    Args:
      saved: the plan; its lines must be those of today: `match_dataset(saved, dataset).plan` has them.
      memory_share, memory_bytes: what memory caches may take, as for `match_dataset`.
      cached: puts the cache of a change on a dataset; by default `Dataset.cache` does.
    """
    cores, allowed = matching.limits_here(memory_share=memory_share, memory_bytes=memory_bytes)
    affordable, too_large = matching.affordable(saved, saved.operators, allowed)
    return Application(
        saved, tuple(affordable), (*matching.on_cores(saved, cores), *too_large), cached or _cached
    )


class Application:
    """A plan that can be put in force; see `applying`."""

    def __init__(
        self,
        saved: SavedPlan,
        changes: Iterable[SavedChange],
        notes: tuple[str, ...],
        cached: Callable[[Any, SavedChange], Any],
    ) -> None:
        changes = tuple(changes)
        self._saved, self._notes, self._cached = saved, notes, cached
        self._sites = Sites(saved, (one for one in changes if can_be_made(one)))
        self._pool = next((one for one in changes if one.kind == "threadpool"), None)
        self._lock = threading.Lock()
        # By change: why it was not made so far; "" once it was.
        self._outcomes: dict[SavedChange, str] = {
            one: _NEVER_MADE if can_be_made(one) or one is self._pool else "no call can make it"
            for one in changes
        }
        self._warned = False
        self._pooled: weakref.WeakSet[Any] = weakref.WeakSet()

    def __enter__(self) -> Application:
        context = methods.watched(self)
        context.__enter__()
        _entered.set((*_entered.get(), context))
        return self

    def __exit__(self, *error: object) -> None:
        *others, context = _entered.get()
        _entered.set(tuple(others))
        context.__exit__(None, None, None)

    def __call__(self, function: Callable[_P, Any]) -> Callable[_P, Any]:
        """Decorates a function that returns a dataset."""

        @functools.wraps(function)
        def make(*args: _P.args, **kwargs: _P.kwargs) -> Any:
            with self:
                return self.finished(function(*args, **kwargs))

        return make

    def finished(self, dataset: Any) -> Any:
        """The dataset with what belongs at the end of its pipeline: the size of its thread pool."""
        return self._guarded(lambda: self._with_pool(self._followed(dataset)), dataset)

    def applied(self) -> Applied:
        """What was applied so far."""
        with self._lock:
            outcomes = dict(self._outcomes)
        missed = (
            f"{one.code or one.kind}{self._where(one)} is left out: {why}."
            for one, why in outcomes.items()
            if why
        )
        return Applied(tuple(one for one, why in outcomes.items() if not why), tuple(missed), self._notes)

    def call(
        self,
        name: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: types.FrameType,
    ) -> Any:
        """Makes a call, with what the plan makes of it where it is one of the plan's; see `methods.Watcher`."""
        call = self._guarded(lambda: places.called_directly(frame, name), None)
        if call is None:
            return original(*args, **kwargs)
        given = args
        args = self._guarded(lambda: (self._followed(given[0]), *given[1:]) if given else given, given)
        site = self._guarded(lambda: self._site_of(call, original, args, kwargs), None)
        made = original(*args, **kwargs) if site is None else self._made(site, original, args, kwargs)
        return self._guarded(lambda: self._at_the_end(call, args, made), made)

    def _guarded(self, do: Callable[[], _T], otherwise: _T) -> _T:
        """What `do` gives; nothing of Plumber's own that fails may reach the user's program."""
        try:
            return do()
        except Exception as error:
            self._warn(error)
            return otherwise

    def _warn(self, error: Exception) -> None:
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            _logger.warning(
                "Plumber makes a call as it is written, without the saved plan: %s: %s",
                type(error).__name__,
                first,
                exc_info=_logger.isEnabledFor(logging.DEBUG),
            )

    def _outcome(self, changes: Iterable[SavedChange], why: str, site: Site | None = None) -> None:
        """Notes what became of changes, and of those that share their calls."""
        changes = list(changes)
        if site is not None:
            kinds = {one.kind for one in changes}
            changes += [one for one in site.also if one.kind in kinds]
        with self._lock:
            for one in changes:
                if self._outcomes[one]:  # one call of several that was changed counts
                    self._outcomes[one] = why

    def _where(self, change: SavedChange) -> str:
        return f" at {self._saved.operator(change.operator)}" if change.operator else ""

    def _site_of(
        self,
        call: places.Call,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Site | None:
        """What becomes of a call; None if nothing does."""
        if not self._sites.know_file(call.path):
            return None
        place = place_of(call)
        if not self._sites.at(place):
            return None
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        called = Called(
            place,
            tuple(_datasets_in(list(given.values()))),
            next((one for one in given.values() if callable(one) and not _is_dataset(one)), None),
            given,
        )
        return self._chosen(called)

    def _chosen(self, called: Called) -> Site | None:
        try:
            site = self._sites.of(called)
        except NotHere as reason:
            sites = self._sites.at(called.place)
            self._outcome((one for site in sites for one in (*site.changes, *site.also)), str(reason))
            return None
        return site if site.changes else None

    def _made(
        self,
        site: Site,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """What the call gives with the plan's arguments, and with what follows on it."""
        changes = tuple(change for _, change in site.arguments)
        failed: Exception | None = None
        made: Any = None
        if changes:
            try:
                bound = arguments.bound(site, original, args, kwargs)
                made = original(*bound.args, **bound.kwargs)
                check_function(site, made)
            except Exception as error:
                made, failed = None, error
        if made is None:
            made = original(*args, **kwargs)  # what is the user's own error rises from here
        if failed is None:
            self._outcome(changes, "", site)
        else:
            why = str(failed) if isinstance(failed, NotHere) else _first_line(failed)
            self._outcome(changes, why, site)
            if not isinstance(failed, NotHere):
                self._warn(failed)
        return self._guarded(lambda: self._with_what_follows(site, made), made)

    def _with_what_follows(self, site: Site, made: Any) -> Any:
        """A dataset with the cache and the prefetch that the plan puts behind it."""
        for change in (site.cache, site.prefetch):
            if change is None:
                continue
            try:
                check_function(site, made)
                if change is site.cache:
                    check_cacheable(site, made)
                    made = self._cached(made, change)
                else:
                    made = made.prefetch(arguments.number(change.to))
            except NotHere as reason:
                self._outcome([change], str(reason), site)
            else:
                self._outcome([change], "", site)
        return made

    def _followed(self, dataset: Any) -> Any:
        """The dataset, with what follows on it where the call of a class made it, of which we are not told."""
        place = made_by_class(dataset) if _is_dataset(dataset) else None
        if place is None or not self._sites.at(place):
            return dataset
        owner, known = dataset.__dict__.get(_FOLLOWED, (None, None))
        if owner is not self:
            site = self._chosen(Called(place))
            known = dataset if site is None else self._with_what_follows(site, dataset)
            dataset.__dict__[_FOLLOWED] = (self, known)
        return known

    def _at_the_end(self, call: places.Call, args: tuple[Any, ...], made: Any) -> Any:
        """The size of the pool, where the call makes the pipeline's last operator or gives it options."""
        if self._pool is None:
            return made
        options = call.method == "with_options" and args and args[0] in self._pooled
        last = self._sites.know_file(call.path) and place_of(call) == self._sites.last
        return self._with_pool(made) if options or last else made

    def _with_pool(self, dataset: Any) -> Any:
        if self._pool is None or not _is_dataset(dataset):
            return dataset
        size = arguments.number(self._pool.to)
        if dataset.options().threading.private_threadpool_size != size:
            dataset = arguments.with_pool(dataset, size)
        self._pooled.add(dataset)
        self._outcome([self._pool], "")
        return dataset


def _cached(dataset: Any, change: SavedChange) -> Any:
    return dataset.cache("" if change.to == "memory" else str(change.to))


def _is_dataset(value: Any) -> bool:
    return hasattr(value, "_variant_tensor") and hasattr(value, "element_spec")


def _datasets_in(value: Any) -> Iterator[Any]:
    """The datasets in nested tuples, lists and dictionaries."""
    if _is_dataset(value):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _datasets_in(one)


def _first_line(error: Exception) -> str:
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"TensorFlow refuses it ({text.rstrip('.')})"
