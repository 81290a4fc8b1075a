"""Caches that may be put into a pipeline without ever harming training.

`cached(dataset, MemoryCache(budget_bytes))` gives the elements of `dataset` again: the first complete pass keeps
them, later passes are served by TensorFlow's own cache. Unlike with `Dataset.cache`, what is kept is watched while
it grows. When more than the budget passes, or surely will, when the process may not use much more memory or the
disk is nearly full, or when elements cannot be written, what is kept is dropped at that element: this pass and
all later ones go on with the input's own elements, the same in the same order, and one warning says why.

Cardinality, element spec and options are the input's, but for the policy for external state in checkpoints: it
becomes IGNORE where none was set, because the cache's functions have a state that no checkpoint needs. Checkpoints
of iterators can be saved and restored in the middle of a pass; of a memory cache that serves they hold the elements,
as those of `Dataset.cache` do. Passes that are broken off keep nothing; after several of some length, the cache is
off.

Whether a cache is legal, `capture.legality` says: the input's elements must be the same in each pass.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from tensorboard_plugin_plumber.capture.survey import Survey
from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.rewrite import cache_watch
from tensorboard_plugin_plumber.rewrite.cache_digest import NotTheSame, pipeline_digest
from tensorboard_plugin_plumber.rewrite.cache_files import (
    Contents,
    NoRoom,
    Run,
    check_room,
    open_run,
    room_left,
)
from tensorboard_plugin_plumber.rewrite.cache_graph import MOST_BROKEN_OFF, Graph, Store
from tensorboard_plugin_plumber.rewrite.cache_sizes import NotCounted, must_be_countable
from tensorboard_plugin_plumber.rewrite.cache_state import NOBODY, Key, Mode, State, Why
from tensorboard_plugin_plumber.rewrite.cache_stores import FileStore, MemoryStore


class NotCacheable(Exception):
    """No guarded cache can stand there; the message says why."""


@dataclass(frozen=True)
class MemoryCache:
    """A cache in memory.

    Attributes:
      budget_bytes: that it may hold at most, with what TensorFlow keeps beside each tensor.
    """

    budget_bytes: int


@dataclass(frozen=True)
class FileCache:
    """A cache in files.

    Attributes:
      directory: where; made if it is not there. Its files lie in a folder of their own below.
      budget_bytes: that it may hold at most.
      projected_bytes: upper end of what it will hold; None: the budget. It must be free, beside a reserve.
      keep: leave it there for later processes with the same pipeline and files; else it is cleared away at the
        end of the process, or with the dataset. Checkpoints of a pass that it serves can be restored only where
        it is still there.
    """

    directory: str
    budget_bytes: int
    projected_bytes: int | None = None
    keep: bool = False


CacheSpec = MemoryCache | FileCache


@dataclass(frozen=True)
class Status:
    """How a guarded cache fares.

    Attributes:
      state: "empty", "filling", "serving" or "off".
      elements: that it holds, once it serves.
      reason: why it is off, as the warning says it; else empty.
    """

    state: str
    elements: int = 0
    reason: str = ""


def cached(dataset: Any, spec: CacheSpec) -> Any:
    """The dataset with a guarded cache on its output.

    Args:
      dataset: an eager `tf.data.Dataset` whose elements are the same in each pass.
      spec: where elements are kept, and how many bytes at most.

    Raises:
      NotCacheable: it is endless, its elements cannot be weighed, or there is no room on the disk.
    """
    with tf.init_scope(), tf.device("/CPU:0"):
        return _GuardedCacheDataset(dataset, spec)


def statuses(dataset: Any) -> tuple[Status, ...]:
    """Those of all guarded caches of a pipeline, the ones nearest to its sources first."""
    survey = Survey()
    survey.look_at(dataset)
    return tuple(one.status() for one in survey.order if isinstance(one, _GuardedCacheDataset))


class _GuardedCacheDataset(dataset_ops.UnaryUnchangedStructureDataset):  # type: ignore[misc]
    """The operator. Made again by the same arguments, it is another cache, and empty."""

    def __init__(self, input_dataset: Any, spec: CacheSpec) -> None:
        self._input_dataset = input_dataset
        self._spec = spec
        length = int(input_dataset.cardinality())
        if length == tf.data.INFINITE_CARDINALITY:
            raise NotCacheable("a cache of an endless dataset would never be whole")
        try:
            must_be_countable(input_dataset)
            self._keeper = _Keeper(input_dataset, spec)
        except (NotCounted, NoRoom, NotTheSame) as error:
            raise NotCacheable(str(error)) from error
        graph = Graph(input_dataset, self._keeper.store, length if length >= 0 else None)
        # Functions and handles live as long as this object, which iterators hold.
        self._made = graph
        # TensorFlow does not look for options behind the functions that lead to the input.
        variant = tf.raw_ops.OptionsDataset(
            input_dataset=graph.variant,
            serialized_options=_options_of(input_dataset)._to_proto().SerializeToString(),
            **self._flat_structure,
        )
        super().__init__(input_dataset, variant)
        cache_watch.look_after(self._keeper)

    def status(self) -> Status:
        """How it fares."""
        return self._keeper.status()

    def plumber_plain(self, input_dataset: Any) -> Any:
        """What stands for it where a pipeline is only written down (`capture.shrink`): its tables cannot be."""
        return input_dataset.cache(self._keeper.prefix)


def _options_of(dataset: Any) -> Any:
    """Its options, such that iterators above a cache can be saved."""
    policies = tf.data.experimental.ExternalStatePolicy
    options = dataset.options()
    if options.experimental_symbolic_checkpoint:
        raise NotCacheable("symbolic checkpoints were asked for, which TensorFlow cannot make of any cache")
    if options.experimental_external_state_policy == policies.FAIL:
        raise NotCacheable(
            "checkpoints were asked to fail where functions have state, as those of a cache do"
        )
    if options.experimental_external_state_policy is not None:
        return options
    # The table's contents need not be in a checkpoint: what is restored does without.
    ignoring = tf.data.Options()
    ignoring.experimental_external_state_policy = policies.IGNORE
    return options.merge(ignoring)


class _Keeper:
    """What is to be done in Python: watch, say, clear away."""

    def __init__(self, input_dataset: Any, spec: CacheSpec) -> None:
        self._spec = spec
        self._run: Run | None = None
        self._digest = ""
        self._done = False
        if isinstance(spec, MemoryCache):
            self.state = State(spec.budget_bytes)
            self.store: Store = MemoryStore(input_dataset, self.state)
            return
        check_room(
            spec.directory, spec.budget_bytes if spec.projected_bytes is None else spec.projected_bytes
        )
        self._digest = pipeline_digest(input_dataset) if spec.keep else ""
        self._run = run = open_run(spec.directory, self._digest or None)
        # Not with this object: iterators may be asked for elements until the very end.
        weakref.finalize(self, run.close, keep=spec.keep)
        known = {}
        if run.contents is not None:
            known = {
                Key.MODE: Mode.SERVING,
                Key.WRITER: run.contents.writer,
                Key.SEGMENTS: run.contents.segments,
                Key.ELEMENTS: run.contents.elements,
            }
        self.state = State(spec.budget_bytes, known)
        self.store = FileStore(input_dataset, self.state, run.path, spec.budget_bytes)

    @property
    def prefix(self) -> str:
        """Of its files, "" in memory."""
        return "" if self._run is None else str(self._run.path / "elements")

    def status(self) -> Status:
        mode, why, owner, elements = self.state.numbers(Key.MODE, Key.WHY, Key.OWNER, Key.ELEMENTS)
        if mode == Mode.SERVING:
            return Status("serving", elements)
        if mode == Mode.OFF:
            return Status("off", 0, self._reason(Why(why)))
        return Status("empty" if owner == NOBODY else "filling")

    def look(self) -> bool | None:
        """Called by the watch, again and again."""
        mode, why, owner, limit = self.state.numbers(Key.MODE, Key.WHY, Key.OWNER, Key.LIMIT)
        if mode == Mode.OFF:
            self._put_away(Why(why))
            return None
        if mode == Mode.SERVING:
            self._complete()
            return None if self._run is None else False
        if owner == NOBODY:
            return False
        if limit >= 0:
            self._stop_in_time()
        return True

    def _stop_in_time(self) -> None:
        """Lets the fill end at its next element, where memory or disk are nearly used up."""
        if cache_watch.memory_left() < 0:
            self.state.tell({Key.WHY: Why.MEMORY, Key.LIMIT: -1})
        elif self._run is not None and room_left(self._run.path) < 0:
            self.state.tell({Key.WHY: Why.DISK, Key.LIMIT: -1})

    def _complete(self) -> None:
        if self._done or self._run is None or self._run.contents is not None or not self._spec_keeps():
            return
        self._done = True
        writer, segments, elements = self.state.numbers(Key.WRITER, Key.SEGMENTS, Key.ELEMENTS)
        self._run.complete(Contents(self._digest, writer, segments, elements))

    def _spec_keeps(self) -> bool:
        return isinstance(self._spec, FileCache) and self._spec.keep

    def _put_away(self, why: Why) -> None:
        # Files that have served may still be read by an iterator.
        if self._run is not None and why != Why.GONE:
            self._run.empty()
        cache_watch.give_back()
        cache_watch.say(
            f"Plumber's cache was undone, and training goes on without it, with the same elements: "
            f"{self._reason(why)}."
        )

    def _reason(self, why: Why) -> str:
        budget = words.size(self._spec.budget_bytes)
        where = f"files in {self._spec.directory}" if isinstance(self._spec, FileCache) else "memory"
        return {
            Why.TOO_LARGE: f"the elements are more than the {budget} that it may hold",
            Why.MEMORY: "this process may not use much more memory",
            Why.DISK: f"the file system of {where.removeprefix('files in ')} is nearly full",
            Why.NOT_KEPT: f"elements could not be kept in {where}",
            Why.NEVER_WHOLE: f"{MOST_BROKEN_OFF} passes ended before the end of the data, so it never got whole",
            Why.GONE: f"its {where} are no longer there",
        }.get(why, "")
