"""A pipeline with other settings: what stands above a change is made again, all else is kept.

An operator is made again from its live attributes and recorded constructor arguments, with the functions
that are already traced and the seeds that are already drawn (`capture.remake`). Variables, tables and
sources are the very same objects.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction, settings
from tensorboard_plugin_plumber.capture.remake import CannotRemake, arguments_with, called, remade
from tensorboard_plugin_plumber.capture.survey import PLAIN, Survey, traced_of
from tensorboard_plugin_plumber.capture.written import unwrap

if TYPE_CHECKING:
    from tensorboard_plugin_plumber.rewrite.split import Split


class Refused(Exception):
    """A change cannot be made; the message says which and why."""


@dataclass(frozen=True)
class Edit:
    """What changes at one operator.

    Attributes:
      calls: its `num_parallel_calls`, `tf.data.AUTOTUNE` included; None leaves it.
      unbounded: its calls run outside the iterator's thread pool; None leaves it.
      cache: a cache on its output, at this path, "" in memory, or what puts one on a dataset; None for no cache.
      prefetch: a prefetch of so many elements on its output, behind the cache; None for none.
      split: a map's function in two halves.
      through: the first half goes below the shuffles and repeats at the end of the map's input.
    """

    calls: int | None = None
    unbounded: bool | None = None
    cache: str | Callable[[Any], Any] | None = None
    prefetch: int | None = None
    split: Split | None = None
    through: bool = False


@dataclass(frozen=True)
class Edits:
    """What changes in a pipeline.

    Attributes:
      operators: by id() of the dataset object that has the operator.
      threadpool_size: of the iterator's private pool; None leaves it.
    """

    operators: Mapping[int, Edit] = field(default_factory=dict)
    threadpool_size: int | None = None


def rebuilt(dataset: Any, edits: Edits, *, apart: bool = False) -> Any:
    """The dataset with the edits made; the given one is not touched.

    Args:
      dataset: an eager `tf.data.Dataset`.
      edits: what changes.
      apart: what does not change is made again too, sources apart, as by `copied`.

    Raises:
      Refused: one of the edits cannot be made.
    """
    with tf.init_scope():
        made = _Rebuilder(dataset, edits.operators, everything=apart).go()
        if edits.threadpool_size is not None:
            options = tf.data.Options()
            options.threading.private_threadpool_size = edits.threadpool_size
            made = made.with_options(options)
    return made


def copied(dataset: Any) -> Any:
    """A dataset of its own over the same sources: iterating it advances no state of the original's operators.

    Raises:
      Refused: one of the operators cannot be made again.
    """
    with tf.init_scope():
        return _Rebuilder(dataset, {}, everything=True).go()


def has_memory_cache(dataset: Any) -> bool:
    """Whether a cache of the dataset's keeps elements in memory, in its own hands, from one iterator to the next."""
    survey = Survey()
    survey.look_at(dataset)
    return any(
        hasattr(one, PLAIN) or (type(one).__name__ == "CacheDataset" and one._filename.numpy() == b"")
        for one in survey.order
    )


class _Rebuilder:
    """Datasets made again, each once.

    Args:
      root: the last operator.
      edits: by id() of the dataset object that has the operator.
      everything: also make again what does not change, sources apart.
    """

    def __init__(self, root: Any, edits: Mapping[int, Edit], *, everything: bool = False) -> None:
        self._root = root
        self._edits = edits
        self._everything = everything
        self._made: dict[int, Any] = {}
        survey = Survey()
        survey.look_at(root)
        self._order = survey.order
        # What goes on an operator's output goes on the outermost of the objects that stand for it.
        self._outermost: dict[int, Edit] = {}
        waiting = dict(edits)
        for one in reversed(self._order):
            edit = waiting.pop(id(unwrap(one)[1]), None)
            if edit is not None:
                self._outermost[id(one)] = edit
        self._out_of_reach = bool(waiting)

    def go(self) -> Any:
        """The pipeline made again."""
        if self._out_of_reach:
            raise Refused("an operator that is to change stands where it cannot be reached")
        try:
            for one in self._order:  # from below, so that no long chain has to be walked down
                self._again(one)
            return self._again(self._root)
        except CannotRemake as error:
            raise Refused(str(error)) from error

    def _again(self, dataset: Any) -> Any:
        """The dataset itself where nothing has to change, else one made again."""
        made = self._made.get(id(dataset))
        if made is None:
            made = self._changed(dataset)
            edit = self._outermost.get(id(dataset))
            if edit is not None and edit.cache is not None:
                made = made.cache(edit.cache) if isinstance(edit.cache, str) else edit.cache(made)
            if edit is not None and edit.prefetch is not None:
                made = made.prefetch(edit.prefetch)
            self._made[id(dataset)] = made
        return made

    def _changed(self, dataset: Any) -> Any:
        edit = self._edits.get(id(dataset), Edit())
        inputs = construction.inputs_of(dataset)
        moved = construction.original_of(dataset) is None and any(
            self._again(one) is not one for one in inputs
        )
        set_anew = edit.calls is not None or edit.unbounded is not None
        if edit.split is not None:
            return self._in_halves(dataset, edit, edit.split)
        # A random source that draws anew for each iterator counts them.
        apart = self._everything and (inputs or getattr(dataset, "_rerandomize", None))
        if not (moved or set_anew or apart):
            return dataset
        arguments = arguments_with(dataset, self._again)
        apart = _apart(dataset, arguments) if self._everything else None
        make = _PARALLEL_FORMS.get(type(dataset).__name__) if set_anew else None
        if make is not None:
            made = called(lambda: make(dataset, arguments, edit), traced_of(dataset))
        else:
            made = remade(dataset, _with_settings(dataset, arguments, edit), traced_of(dataset))
        if apart is not None:
            weakref.finalize(made, shutil.rmtree, apart, ignore_errors=True)
        construction.stand_for(made, dataset)
        return made

    def _in_halves(self, dataset: Any, edit: Edit, split: Split) -> Any:
        from tensorboard_plugin_plumber.rewrite.split import applied

        below = self._again(dataset._input_dataset)
        return applied(
            split, dataset, below, between=lambda first: first, through=edit.through, pipeline=self._root
        )


def _apart(dataset: Any, arguments: dict[str, Any]) -> str | None:
    """Has the copy of a file cache that is not complete fill files of its own; returns their directory.

    Two caches at one path would be in each other's way.
    """
    if type(dataset).__name__ != "CacheDataset":
        return None
    path = os.fsdecode(dataset._filename.numpy())
    if not path or tf.io.gfile.exists(f"{path}.index"):
        return None
    directory = tempfile.mkdtemp(prefix="plumber-cache-")
    arguments["filename"] = os.path.join(directory, "cache")
    return directory


def _with_settings(dataset: Any, arguments: dict[str, Any], edit: Edit) -> dict[str, Any]:
    changed = dict(arguments)
    for name, value in (("num_parallel_calls", edit.calls), ("use_unbounded_threadpool", edit.unbounded)):
        if value is None:
            continue
        if name not in arguments:
            raise Refused(f"{type(dataset).__name__} has no {name}")
        changed[name] = value
    if edit.calls is not None and "cycle_length" in arguments:
        # Where TensorFlow chooses it, it goes by the calls; and the order goes by it.
        changed["cycle_length"] = settings.resolved_cycle(
            int(arguments["cycle_length"]), int(arguments["num_parallel_calls"])
        )
    return changed


# The parallel form of each sequential one. What was in order stays in order, whatever the options say of
# parallel operators.


def _parallel_map(dataset: Any, arguments: dict[str, Any], edit: Edit) -> Any:
    if not arguments.get("preserve_cardinality", True):
        raise Refused("a map of TensorFlow 1 does not keep the cardinality")
    unbounded = {} if edit.unbounded is None else {"use_unbounded_threadpool": edit.unbounded}
    return arguments["input_dataset"].map(
        arguments["map_func"],
        num_parallel_calls=_calls(edit),
        deterministic=True,
        name=arguments.get("name"),
        **unbounded,
    )


def _parallel_interleave(dataset: Any, arguments: dict[str, Any], edit: Edit) -> Any:
    return arguments["input_dataset"].interleave(
        arguments["map_func"],
        # The parallel form would take another one.
        cycle_length=settings.resolved_cycle(int(arguments["cycle_length"]), None),
        block_length=arguments["block_length"],
        num_parallel_calls=_calls(edit),
        deterministic=True,
        name=arguments.get("name"),
    )


def _parallel_batch(dataset: Any, arguments: dict[str, Any], edit: Edit) -> Any:
    return arguments["input_dataset"].batch(
        # As a tensor its value would be no part of the element spec.
        int(arguments["batch_size"]),
        drop_remainder=bool(arguments["drop_remainder"]),
        num_parallel_calls=_calls(edit),
        deterministic=True,
        name=arguments.get("name"),
    )


def _calls(edit: Edit) -> int:
    if edit.calls is None:
        raise Refused("a sequential operator has no calls that could leave the pool")
    return edit.calls


_PARALLEL_FORMS: dict[str, Callable[[Any, dict[str, Any], Edit], Any]] = {
    "_MapDataset": _parallel_map,
    "_InterleaveDataset": _parallel_interleave,
    "_BatchDataset": _parallel_batch,
}
