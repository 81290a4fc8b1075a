"""Plans from where users keep them: a file, a log directory, or a value."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tensorboard_plugin_plumber.answers import Answers
from tensorboard_plugin_plumber.events import catalog, reader
from tensorboard_plugin_plumber.model.questions import AS_MEASURED, WhatIf
from tensorboard_plugin_plumber.rewrite.saved_plan.text import Damaged, from_json, to_json
from tensorboard_plugin_plumber.rewrite.saved_plan.values import SavedPlan, saved


def load(plan: SavedPlan | str | os.PathLike[str], *, what_if: WhatIf = AS_MEASURED) -> SavedPlan:
    """The plan that is meant: a `SavedPlan` itself, that of a JSON file, or that of a log directory.

    Args:
      plan: the value, or a path.
      what_if: limits for the plan of a log directory; a saved plan stays as it is.

    Raises:
      TypeError: it is neither.
      OSError: the file cannot be read.
      Damaged: the file is no saved plan.
      NothingRecorded (of `events.reader`), NotAnswerable (of `model.analyse`): the directory holds no plan.
    """
    if isinstance(plan, SavedPlan):
        return plan
    if not isinstance(plan, (str, os.PathLike)):
        raise TypeError(f"plan is a {type(plan).__name__}: a path of a plan or of a log directory is wanted")
    path = Path(plan)
    if path.is_dir():
        return from_log_dir(path, what_if=what_if)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no plan at {path}") from None
    except UnicodeDecodeError as error:
        raise Damaged(f"{path} is no saved plan: it is no text") from error
    try:
        return from_json(text)
    except Damaged as error:
        raise Damaged(f"{path} is no saved plan that can be used: {error}") from error


def save(plan: SavedPlan, path: str | os.PathLike[str]) -> None:
    """Writes the plan into a file: whole, or not at all.

    Raises:
      OSError: it cannot be written.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(to_json(plan))
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def from_log_dir(
    path: str | os.PathLike[str],
    *,
    run: str | None = None,
    host: str | None = None,
    pipeline: str | None = None,
    what_if: WhatIf = AS_MEASURED,
) -> SavedPlan:
    """The plan for what was recorded, while training goes on or after it; nothing is run for it.

    Args:
      path: as given to TensorBoard.
      run, host: as `plumber report` takes them; by default the newest run, and its slowest host.
      pipeline: its id or label; by default the training pipeline with most steps.
      what_if: limits to put in place of the measured ones.

    Raises:
      NothingRecorded (of `events.reader`): there is no recording.
      NotFound (of `events.catalog`): no such run, host or pipeline.
      NotAnswerable (of `model.analyse`): too little was recorded so far.
    """
    recording = catalog.choose(reader.read(path), run=run, host=host)
    chosen = catalog.choose_pipeline(recording, pipeline)
    return saved(Answers(recording, chosen.id).to(what_if), chosen)
