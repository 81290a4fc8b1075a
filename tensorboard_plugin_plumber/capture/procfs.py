"""Reads the kernel's small files: a few µs each, where Python's own file objects take twice that."""

from __future__ import annotations

import os

_MOST_BYTES = 65536


def read(path: str) -> bytes:
    """The content of a file below /proc, whole where it is small.

    Raises:
      OSError: it cannot be read, or what it speaks of has ended.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(descriptor, _MOST_BYTES)]
        while len(parts[-1]) == _MOST_BYTES:
            parts.append(os.read(descriptor, _MOST_BYTES))
        return b"".join(parts)
    finally:
        os.close(descriptor)


def io_of(task: str = "self") -> dict[str, int]:
    """What a task has read and written so far, by the kernel's names ("rchar", "read_bytes" …); empty if unknown.

    Args:
      task: "self" for the process, "self/task/…" for one of its threads.
    """
    try:
        lines = read(f"/proc/{task}/io").decode().splitlines()
        return {key: int(value) for key, _, value in (line.partition(": ") for line in lines)}
    except (OSError, ValueError):
        return {}
