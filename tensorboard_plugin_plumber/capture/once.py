"""What is done once in a process, whoever asks for it first."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable


class Once:
    """A function that does something at its first call, and nothing at all others.

    Threads that call it meanwhile wait for the first. A first call that fails is not repeated: half of what it
    patches may be in place.

    Args:
      install: does it.

    Attributes:
      begun: it was called.
    """

    def __init__(self, install: Callable[[], None]) -> None:
        functools.update_wrapper(self, install)
        self.begun = False
        self._install = install
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            if self.begun:
                return
            self.begun = True
            self._install()
