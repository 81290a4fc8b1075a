"""Looks after guarded caches while they fill: what the process may still use, what is to be said and cleared away."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import threading
import weakref
from typing import Protocol

import psutil

from tensorboard_plugin_plumber.capture import cgroups, guard, host

_logger = logging.getLogger("tensorboard_plugin_plumber")
# Between two looks, while something fills and while nothing does.
_SOON_S = 0.1
_LATER_S = 1.0
#: What a cache leaves of the memory that the process may use, and at least.
MEMORY_RESERVE_PART = 0.05
MEMORY_RESERVE_BYTES = 128 << 20


class Watched(Protocol):
    """Something that is looked after."""

    def look(self) -> bool | None:
        """Does what there is to do: True if it is at work, False if it waits for work, None if all is done."""
        ...


def memory_left() -> int:
    """Bytes that this process may still take before it or the host runs out of memory, the reserve taken off."""
    left = [int(psutil.virtual_memory().available)]
    for group in cgroups.groups():
        limit, used = group.memory_limit(), group.memory_used()
        if limit is not None and used is not None:
            left.append(limit - used)
    usable, _ = host.usable_memory()
    return min(left) - max(int(MEMORY_RESERVE_PART * usable), MEMORY_RESERVE_BYTES)


def give_back() -> None:
    """Asks the C library to hand memory that was let go of back to the system."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def say(sentence: str) -> None:
    """One warning in the user's log."""
    # As in `guard`: the user's own logging handlers may raise.
    with contextlib.suppress(Exception):
        _logger.warning("%s", sentence)


class _Watch:
    """The thread; there is one while anything is looked after."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: list[weakref.ref[Watched]] = []
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def add(self, one: Watched) -> None:
        with self._lock:
            if not self._watched and self._thread is None:
                atexit.register(self.stop)
            self._watched.append(weakref.ref(one))
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="plumber-caches", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Ends the thread: TensorFlow must not be asked anything while the interpreter ends."""
        self._stop.set()
        thread = self._thread
        if thread is not None:
            thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            busy = self._look()
            with self._lock:
                if not self._watched or self._stop.is_set():
                    self._thread = None
                    return
            self._stop.wait(_SOON_S if busy else _LATER_S)

    def _look(self) -> bool:
        with self._lock:
            watched = list(self._watched)
        busy = False
        done = []
        for reference in watched:
            one = reference()
            state = None
            if one is not None:
                with guard.protect("look after a cache"):
                    state = one.look()
            if state is None:
                done.append(reference)
            busy = busy or bool(state)
            del one
        with self._lock:
            self._watched = [one for one in self._watched if one not in done]
        return busy


_watch = _Watch()


def look_after(one: Watched) -> None:
    """Calls `one.look` again and again from a thread, for as long as somebody else holds it and it is not done."""
    _watch.add(one)
