"""What Keras makes of the inputs of `fit` that are no tf.data pipeline, or of a pipeline and class weights.

Keras builds operators of its own around arrays, generators and objects of `PyDataset`. They have no line of the
user's but the one that calls `fit`, and names that the user has never seen: so their labels say whose they are, and
the one that runs the user's Python is named after that.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_PACKAGES = ("keras", "tf_keras")
# The classes whose `__getitem__` makes a batch, in Keras 3 and before.
_BATCHERS = ("PyDataset", "Sequence")
# Where Keras's adapters keep what they were given.
_HELD = ("py_dataset", "generator", "_keras_sequence")
_DEPTH = 4


@dataclass(frozen=True)
class Given:
    """The user's own Python behind a function of Keras's.

    Attributes:
      name: "PyDataset Photographs", or the generator function's.
      function: its `__getitem__`; None for a generator that runs already.
      code: of that function or generator; None where it is not Python's.
    """

    name: str
    function: Any
    code: types.CodeType | None


def given(function: Any) -> Given | None:
    """What the user gave to `fit`, where `function` is the generator that Keras has made of it; else None."""
    if not _is_keras_file(getattr(getattr(function, "__code__", None), "co_filename", "")):
        return None
    return next(_search(function, _DEPTH), None)


def _search(value: Any, depth: int) -> Iterator[Given]:
    """The user's objects that a function of Keras's holds on to."""
    if depth == 0:
        return
    if isinstance(value, types.GeneratorType):
        yield Given(value.gi_code.co_name, None, value.gi_code)
        return
    kind = next((base.__name__ for base in type(value).__mro__ if _is_batcher(base)), None)
    if kind is not None:
        getitem = type(value).__getitem__
        yield Given(f"{kind} {type(value).__name__}", getitem, getattr(getitem, "__code__", None))
        return
    held: list[Any] = [getattr(value, "__self__", None)]
    for cell in getattr(value, "__closure__", None) or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    held += [getattr(value, name, None) for name in _HELD]
    for one in held:
        if one is not None and not isinstance(one, types.ModuleType):
            yield from _search(one, depth - 1)


def _is_batcher(base: type) -> bool:
    return base.__name__ in _BATCHERS and base.__module__.partition(".")[0] in _PACKAGES


def is_keras_site(site: tuple[str, int] | None) -> bool:
    """Whether Keras's own code, not the user's, called tf.data there.

    Args:
      site: as in `construction.Construction`.
    """
    return site is not None and _is_keras_file(site[0])


def makes_an_epoch() -> bool:
    """Whether tf-keras is just making an iterator for training: it does so before it says that an epoch begins."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "enumerate_epochs" and _is_keras_file(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def say(pipeline: m.Pipeline, ids: Iterable[str]) -> None:
    """Says in labels and a note which operators Keras built, and from what.

    Args:
      pipeline: with its operators.
      ids: `Operator.id` of those that Keras built.
    """
    built = set(ids)
    ours = [operator for operator in pipeline.operators if operator.id in built]
    if not ours:
        return
    whole = all(operator.id in built or operator.injected for operator in pipeline.operators)
    source = next((operator for operator in ours if operator.type == "Generator"), None)
    if source is not None and source.function.source.line:
        place = source.function.source
        line = f" ({os.path.basename(place.path)}:{place.line})" if place.line else ""
        kind = "" if " " in source.label else "generator "
        what = f"the {kind}{source.label}{line} that it was given"
    elif source is not None:
        source, what = None, "the Python generator that it was given"
    else:
        what = "the arrays that it was given" if whole else "class weights"
    for operator in ours:
        if operator is not source:
            operator.label = f"Keras's {operator.label}"
    names = ", ".join(dict.fromkeys(operator.type for operator in ours))
    verb = f"built this pipeline ({names}) from" if whole else f"added {names} to this pipeline for"
    pipeline.notes.append(
        f"Keras itself {verb} {what}: the line of these operators is that of the call of Keras."
    )
    if source is not None and not pipeline.autotune_enabled:
        pipeline.notes.append(
            f"Keras reads {source.label} ahead in workers of its own and turns tf.data's counters off for it."
        )


def _is_keras_file(path: str) -> bool:
    return any(
        path.startswith(folder + os.sep)
        for name in _PACKAGES
        for folder in getattr(sys.modules.get(name), "__path__", None) or ()
    )
