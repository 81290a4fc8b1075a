"""Keeps the lines that TensorFlow logs while it starts off the command line's stderr.

`TF_CPP_MIN_LOG_LEVEL` rules what TensorFlow logs later, but not what it logs while it is imported.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

_LOG_LINE = re.compile(
    rb"[IW]\d{4} .*|\d{4}-\d\d-\d\d [\d:.]+: [IW] .*|WARNING: All log messages before .*|"
    rb"To enable the following instructions: .*|"
    # No error: TensorFlow 2.18 and 2.19 say so wherever they are imported.
    rb"E\d{4} .* Unable to register cu\w+ factory: .*"
)


def quiet_tensorflow() -> None:
    """Has TensorFlow log nothing, from its import on, unless the user's environment asks for more."""
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") != "0" and "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds nothing itself: it has the import of TensorFlow watched, once, whoever imports it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader = spec.loader
            execute: Callable[[ModuleType], None] = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module
                with _without_log_lines():
                    execute(module)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


@contextmanager
def _without_log_lines() -> Iterator[None]:
    """Lets through to stderr whatever is written there but log lines that tell of no error, at the end."""
    sys.stderr.flush()
    real = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(real, 2)
            kept.seek(0)
            for line in kept:
                if not _LOG_LINE.match(line):
                    os.write(real, line)
            os.close(real)
