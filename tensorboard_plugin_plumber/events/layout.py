"""Where recordings live: `<log_dir>/plumber/<hostname>-<worker index>`, one live process each.

A directory of its own, because TensorBoard may follow only the newest event file of a
directory: a second one beside the user's own would freeze the user's scalars.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import socket
from types import TracebackType

try:
    import fcntl
except ImportError:  # not on Windows; there a name is simply not protected
    fcntl = None  # type: ignore[assignment]

DIRECTORY = "plumber"
_LOCK_NAME = ".lock"
# More live processes of one name than that share the last directory.
_MAX_DUPLICATES = 1000


class Claim:
    """A recording's directory, held by this process until `release`."""

    def __init__(self, path: str, lock: int | None) -> None:
        self.path = path
        self._lock = lock

    def release(self) -> None:
        """Lets another process have the directory's name."""
        if self._lock is not None:
            if fcntl is not None:
                # Said, not left to closing: a forked child has the descriptor, too, and may live long.
                fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_remote(path: str) -> bool:
    """Whether the path names another file system, as "gs://bucket/logs"."""
    return "://" in path


def worker_index() -> int:
    """Index of this worker from TF_CONFIG; 0 without it or where it makes no sense."""
    try:
        return max(0, int(json.loads(os.environ["TF_CONFIG"])["task"]["index"]))
    except (KeyError, TypeError, ValueError):
        return 0


def host_name() -> str:
    """Name of this host, fit for a directory's name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname()) or "localhost"


def directory_for(log_dir: str | os.PathLike[str]) -> Claim:
    """Claims and makes the directory in which this process records.

    A second live process of the same host and index gets `.1`, then `.2`, … Where the file system
    has no locks (another machine's, a bucket), the plain name is taken.

    Args:
      log_dir: what the user gave to the callback.

    Raises:
      OSError: the directory cannot be made.
    """
    log_dir = os.fspath(log_dir)
    name = f"{host_name()}-{worker_index()}"
    if is_remote(log_dir):
        return Claim(posixpath.join(log_dir, DIRECTORY, name), None)
    base = os.path.join(os.path.abspath(os.path.expanduser(log_dir)), DIRECTORY, name)
    path = base
    for duplicate in range(1, _MAX_DUPLICATES):
        os.makedirs(path, exist_ok=True)
        lock = _try_lock(path)
        if lock is not _HELD:
            return Claim(path, lock)
        path = f"{base}.{duplicate}"
    return Claim(path, None)


def split_run(name: str) -> tuple[str, str] | None:
    """Run and host of one of TensorBoard's run names; None if no recording is stored there.

    "fit/plumber/node1-0" is ("fit", "node1-0"), and "plumber/node1-0" is (".", "node1-0").
    """
    parts = name.replace(os.sep, "/").strip("/").split("/")
    if len(parts) < 2 or parts[-2] != DIRECTORY:
        return None
    return "/".join(parts[:-2]) or ".", parts[-1]


_HELD = -1


def _try_lock(directory: str) -> int | None:
    """An open descriptor that holds the lock, None where nothing can be locked, `_HELD` if another has it."""
    if fcntl is None:
        return None
    descriptor = os.open(os.path.join(directory, _LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return _HELD
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
