"""Runs a user's function that makes a dataset, named on the command line as TARGET."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import tensorflow as tf

_FORM = "'file.py:function' or 'module:function', for example train.py:make_dataset"


class TargetError(Exception):
    """The user's function cannot be had or fails; the message is one line that says how to mend it."""


@dataclass(frozen=True)
class Target:
    """A function of no arguments that returns a dataset.

    Attributes:
      place: the file or module, as given.
      function: its name.
    """

    place: str
    function: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """Reads "file.py:function" or "module:function".

        Raises:
          TargetError: it has no such form.
        """
        place, colon, function = text.rpartition(":")
        if not (place and colon and function):
            raise TargetError(f"'{text}' is no TARGET: write {_FORM}.")
        return cls(place, function)

    @property
    def is_file(self) -> bool:
        """Whether `place` is a file, not a module."""
        return self.place.endswith(".py") or os.sep in self.place

    def load(self) -> tf.data.Dataset:
        """Imports the user's code and calls the function.

        The import path and `sys.argv` are what `python file.py`, or `python -m module`, would have, but
        `__name__` is not "__main__". TensorFlow is imported by whoever comes first.

        Raises:
          TargetError: the code cannot be imported, the function does not exist, needs arguments or
            raises, or what it returns is no dataset.
        """
        function = self._find()
        _check_needs_no_arguments(self, function)
        dataset = _run_user_code(f"{self} failed", function)
        import tensorflow as tf

        if not isinstance(dataset, tf.data.Dataset):
            raise TargetError(
                f"{self} returned {_a(type(dataset).__name__)}: it must return a tf.data.Dataset."
            )
        return dataset

    def _find(self) -> Callable[[], Any]:
        module = self._import_file() if self.is_file else self._import_module()
        found: Any = module
        for name in self.function.split("."):
            found = getattr(found, name, None)
        if not callable(found):
            what = "is not a function" if found is not None else "does not exist"
            own = [name for name, value in vars(module).items() if _is_own_function(value, module)]
            hint = f": {self.place} has {', '.join(own)}" if own else f": {self.place} defines no function"
            raise TargetError(f"'{self.function}' {what}{hint}.")
        function: Callable[[], Any] = found
        return function

    def _import_file(self) -> ModuleType:
        path = Path(self.place)
        if not path.is_file():
            raise TargetError(f"There is no file '{self.place}': TARGET is {_FORM}.")
        path = path.resolve()
        sys.path.insert(0, str(path.parent))
        sys.argv = [self.place]
        # Not the file's own name: a file may be called like a module that it imports.
        spec = importlib.util.spec_from_file_location(f"plumber_target_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise TargetError(f"'{self.place}' is not a Python file: its name must end in .py.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        _run_user_code(
            f"'{self.place}' cannot be imported", functools.partial(spec.loader.exec_module, module)
        )
        return module

    def _import_module(self) -> ModuleType:
        sys.path.insert(0, os.getcwd())
        sys.argv = [self.place]
        module: ModuleType = _run_user_code(
            f"Module '{self.place}' cannot be imported", lambda: importlib.import_module(self.place)
        )
        return module

    def __str__(self) -> str:
        return f"{self.place}:{self.function}"


def take_over_stdout() -> TextIO:
    """Sends to stderr whatever this process prints from now on, and returns the real stdout.

    It holds for the rest of the process: what the user's code prints from a thread or at exit, or from
    C++, would spoil the one answer as well.
    """
    sys.stdout.flush()
    answer = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding or "utf-8", errors="replace")
    os.dup2(2, 1)
    return answer


def _run_user_code(complaint: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a script may call sys.exit when it is imported
        raise TargetError(f"{complaint}: {describe_error(error)}") from error


def describe_error(error: BaseException) -> str:
    """One line: type, first line of the message, and the innermost line of the user's code."""
    if isinstance(error, SystemExit):
        message = f"it calls sys.exit({error.code!r})"
    else:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        message = f"{type(error).__name__}: {first}" if first else type(error).__name__
    place = _user_line(error)
    return f"{message} ({place})" if place else message


def _user_line(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{os.path.basename(error.filename)}:{error.lineno}"
    package = str(Path(__file__).parent) + os.sep
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        installed = f"{os.sep}site-packages{os.sep}" in frame.filename or "importlib" in frame.filename
        if not installed and not frame.filename.startswith((package, "<")):
            return f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return ""


def _check_needs_no_arguments(target: Target, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some callables have none: calling them will tell
        return
    try:
        signature.bind()
    except TypeError:
        raise TargetError(
            f"{target} needs arguments {signature}: name a function of no arguments that calls it."
        ) from None


def _is_own_function(value: object, module: ModuleType) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__


def _a(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
