"""The directories of file caches: one for each run, locked while the run lives, and nothing else ever deleted.

```
<directory>/plumber-caches/.lock             held for moments, while directories are made or cleared away
<directory>/plumber-caches/<run>/owner.lock  locked by whoever uses the run: alone while it fills, then shared
                                 complete.json         written last, for a cache that is kept: what it holds
                                 <writer>-<segment>.*  TensorFlow's
```

The kernel lets go of a lock when its process ends, however it ends: a run that nobody holds and that is not
complete was interrupted, and is cleared away by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tensorboard_plugin_plumber.model import words

FOLDER = "plumber-caches"
_FORMAT = 1
_RUN = re.compile(r"run-[0-9a-f]{32}$")
_LOCK, _COMPLETE, _HALF = "owner.lock", "complete.json", "complete.json.part"
_OURS = re.compile(rf"({re.escape(_LOCK)}|{re.escape(_COMPLETE)}|{re.escape(_HALF)}|\d+-\d{{6,}}[._].*)$")
#: What a cache leaves free of a file system: this part of it, and at most so much.
DISK_RESERVE_PART = 0.05
MOST_DISK_RESERVE_BYTES = 10 << 30


class NoRoom(Exception):
    """A directory cannot take a cache; the message says why."""


@dataclass(frozen=True)
class Contents:
    """What a complete cache holds.

    Attributes:
      digest: of the pipeline that made it.
      writer, segments: in the names of its files.
      elements: how many there are.
    """

    digest: str
    writer: int
    segments: int
    elements: int


class Run:
    """A directory that this process uses.

    Attributes:
      path: of the directory.
      contents: of a cache that another run completed; None in a new directory.
    """

    def __init__(self, path: Path, lock: int, contents: Contents | None) -> None:
        self.path = path
        self.contents = contents
        self._lock: int | None = lock
        self._process = os.getpid()

    def complete(self, contents: Contents) -> None:
        """Lets later processes use it too. What it says is on the disk before it is said.

        Raises:
          OSError: it cannot be written.
        """
        for file in self._files(contents):
            _to_disk(file)
        half = self.path / _HALF
        half.write_text(json.dumps({"format": _FORMAT, **asdict(contents)}))
        _to_disk(half)
        half.replace(self.path / _COMPLETE)
        _to_disk(self.path)
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def _files(self, contents: Contents) -> list[Path]:
        return [one for one in self.path.iterdir() if one.name.startswith(f"{contents.writer}-")]

    def empty(self) -> None:
        """Deletes what TensorFlow wrote."""
        for file in self.path.iterdir():
            if _OURS.match(file.name) and file.name != _LOCK:
                with contextlib.suppress(OSError):
                    file.unlink()

    def close(self, *, keep: bool) -> None:
        """Lets go of it; clears it away unless it is to be kept, complete, or another process uses it."""
        if self._lock is None or os.getpid() != self._process:  # a fork's copy: the directory is the parent's
            return
        lock, self._lock = self._lock, None
        with contextlib.suppress(OSError), _directory_lock(self.path.parent):
            if not (keep and (self.path / _COMPLETE).exists()) and _locked_alone(lock):
                _clear_away(self.path)
        with contextlib.suppress(OSError):
            os.close(lock)
        _remove_if_empty(self.path.parent)


def open_run(directory: str | os.PathLike[str], digest: str | None) -> Run:
    """A complete cache of the same pipeline, else a new directory; interrupted ones are cleared away first.

    Args:
      directory: the user's, made if it is not there.
      digest: of the pipeline; None if no other run's cache may be used.

    Raises:
      NoRoom: nothing can be written there.
    """
    folder = Path(directory).absolute() / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _directory_lock(folder):
            for path in sorted(folder.iterdir()):
                found = _taken_over(path, digest) if _RUN.match(path.name) else None
                if found is not None:
                    return found
            path = folder / f"run-{uuid.uuid4().hex}"
            path.mkdir()
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Run(path, lock, None)
    except OSError as error:
        raise NoRoom(f"no cache can be made in {folder}: {error.strerror or error}") from error


def check_room(directory: str | os.PathLike[str], needed_bytes: int) -> None:
    """Whether a file system can take so much.

    Raises:
      NoRoom: it cannot; the message has the numbers.
    """
    place = Path(directory).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    left = room_left(place)
    if left < needed_bytes:
        raise NoRoom(
            f"a cache of up to {words.size(needed_bytes)} does not fit into {directory}: its file system has "
            f"{words.size(max(0, left))} to spare, beside what is left free for others"
        )


def room_left(place: str | os.PathLike[str]) -> int:
    """Bytes that a cache may still take of a directory's file system; negative where the reserve is touched."""
    usage = shutil.disk_usage(place)
    return usage.free - min(int(DISK_RESERVE_PART * usage.total), MOST_DISK_RESERVE_BYTES)


def _taken_over(path: Path, digest: str | None) -> Run | None:
    """A run that another process left: used, cleared away, or let alone. Called under the directory's lock."""
    try:
        lock = os.open(path / _LOCK, os.O_RDWR)
    except FileNotFoundError:
        _clear_away(path)  # its process ended before it made the lock: that happens under the directory's
        return None
    except OSError:
        return None
    contents = _contents(path)
    if contents is not None and contents.digest == digest and _locked(lock, fcntl.LOCK_SH):
        return Run(path, lock, contents)
    if contents is None and _locked_alone(lock):
        _clear_away(path)
    os.close(lock)
    return None


def _contents(path: Path) -> Contents | None:
    """What a run says it holds, where that is whole."""
    try:
        said = json.loads((path / _COMPLETE).read_text())
        if said.pop("format") != _FORMAT:
            return None
        contents = Contents(**said)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    indices = (path / f"{contents.writer}-{segment:06}.index" for segment in range(contents.segments))
    return contents if all(one.exists() for one in indices) else None


def _locked(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _locked_alone(lock: int) -> bool:
    return _locked(lock, fcntl.LOCK_EX)


def _clear_away(path: Path) -> None:
    """Deletes a run's own files, and its directory if nothing else is in it."""
    with contextlib.suppress(OSError):
        for file in path.iterdir():
            if _OURS.match(file.name):
                with contextlib.suppress(OSError):
                    file.unlink()
        path.rmdir()


def _remove_if_empty(folder: Path) -> None:
    """Removes the folder of all runs if there are none; somebody may make one at the same moment."""
    with contextlib.suppress(OSError):
        if [one.name for one in folder.iterdir()] == [".lock"]:
            with _directory_lock(folder):
                if [one.name for one in folder.iterdir()] == [".lock"]:
                    (folder / ".lock").unlink()
                    folder.rmdir()


@contextlib.contextmanager
def _directory_lock(folder: Path) -> Iterator[None]:
    """One process at a time makes and clears away."""
    while True:
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Whoever removed the folder meanwhile held another file's lock.
        with contextlib.suppress(OSError):
            if os.stat(folder / ".lock").st_ino == os.fstat(lock).st_ino:
                break
        os.close(lock)
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        os.close(lock)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
