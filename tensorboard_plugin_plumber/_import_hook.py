"""Sees to it that dataset construction is recorded, whichever import comes first.

If TensorFlow's `dataset_ops` is loaded, `capture.construction.install` runs at once; else it
runs right after that module was executed, before anybody can build a dataset. Only the standard
library is imported here, and nothing here may raise into the user's program.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

TARGET = "tensorflow.python.data.ops.dataset_ops"
_INSTALLER = "tensorboard_plugin_plumber.capture.construction"


def arm() -> None:
    """Installs the recording of dataset construction, now or when TensorFlow is loaded.

    Calling it again is harmless, and makes up for a first call that came from within TensorFlow's
    own import, which is too early.
    """
    if _is_initializing(sys.modules.get(TARGET)):
        _wait_for_other_thread()
    module = sys.modules.get(TARGET)
    if module is None:
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    elif not _is_initializing(module):
        _install()


def _wait_for_other_thread() -> None:
    """Returns when no other thread is importing the target any more."""
    try:
        importlib.import_module(TARGET)
    except Exception:  # the import failed: the thread that wants TensorFlow is told, not this one
        return


def _is_initializing(module: ModuleType | None) -> bool:
    """Whether the module is still being executed."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _install() -> None:
    global _warned
    try:
        importlib.import_module(_INSTALLER).install()
    except Exception as error:
        if _warned:
            return
        _warned = True
        # Not `warnings`: under `-W error` that would raise into the user's import of TensorFlow.
        import logging

        logging.getLogger("tensorboard_plugin_plumber").warning(
            "Plumber cannot record where tf.data pipelines are built; training is not affected. %s: %s",
            type(error).__name__,
            error,
        )


class _Finder:
    """A meta-path finder that finds nothing itself: it has the target's real loader watched."""

    def __init__(self) -> None:
        self._searching = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # The second condition: another package's hook may ask all finders in its turn.
        if fullname != TARGET or getattr(self._searching, "now", False):
            return None
        self._searching.now = True
        try:
            spec = self._find_real_spec(fullname, path, target)
        finally:
            self._searching.now = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _WatchedLoader(spec.loader)  # type: ignore[assignment]  # a loader by its methods
        return spec

    def _find_real_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None


class _WatchedLoader:
    """Stands in for the real loader until the module's code ran; the module keeps no trace of it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        # Only now: after an import that failed the next attempt is watched too.
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
        _install()


_finder = _Finder()
_warned = False
