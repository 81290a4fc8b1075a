"""What storage delivers to 1, 2, 4 … readers at a time, tried out on files that a pipeline reads.

The kernel keeps what was read lately in memory, and such reads say nothing of the device. So files are
read past this page cache where the file system allows it (O_DIRECT), and elsewhere put out of it first. Whether
that worked the kernel tells: it counts what a process fetches from storage.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tensorboard_plugin_plumber.capture import procfs
from tensorboard_plugin_plumber.model.hull import concave_hull

#: Readers at a time, one round each.
READERS = (1, 2, 4, 8, 16)
#: A round lasts no longer, and reads no more.
_ROUND_S = 0.12
_ROUND_BYTES = 36 << 20
#: No round begins later.
_ROUNDS_S = 0.7
#: A reader that the storage lets down for so long is given up.
_PATIENCE_S = 2.0
#: What a reader asks for at a time. Less gives devices behind a network too little to do, more makes rounds last.
_BLOCK_BYTES = 1 << 20
#: What one reader reads of a file before it goes on with another part.
_PART_BYTES = 8 << 20
#: Less than this is read too fast to be timed.
_LEAST_BYTES = 1 << 20
#: More readers that bring less than this, twice, need not be followed by still more.
_LEAST_MORE = 0.05
#: Bytes that came from storage, over those that were read, from which on the device is what was measured.
_FROM_STORAGE = 0.9


@dataclass(frozen=True)
class ReadSpeed:
    """What was measured.

    Attributes:
      readers: how many at a time, ascending.
      bytes_per_s: what they got together, as measured.
      read_bytes: what was read in all.
      past_page_cache: it came from the device for certain.
    """

    readers: tuple[int, ...]
    bytes_per_s: tuple[float, ...]
    read_bytes: int
    past_page_cache: bool


class NotMeasured(Exception):
    """The storage cannot be measured; the message says why, as the end of a sentence."""


@dataclass(frozen=True)
class _Part:
    path: str
    offset: int
    size: int


def measure(paths: Sequence[str]) -> ReadSpeed:
    """Reads files for up to a second, 1, 2, 4 … readers at a time, and at most 256 MB.

    Args:
      paths: local files on one device; those that cannot be read are passed over.

    Raises:
      NotMeasured: see there.
    """
    if not hasattr(os, "preadv") or not hasattr(os, "posix_fadvise"):
        raise NotMeasured("this system cannot tell storage from the page cache")
    parts = [part for path in paths for part in _parts(path)]
    if sum(part.size for part in parts) < _LEAST_BYTES:
        raise NotMeasured("the files that are known are too small for it")
    direct = _allows_direct(parts[0].path)
    following = itertools.cycle(parts)
    deadline_s = time.perf_counter() + _ROUNDS_S
    total, speeds, certain = 0, list[float](), True
    for readers in READERS:
        if time.perf_counter() > deadline_s or _is_flat(speeds):
            break
        # The kernel reads ahead of a lone reader, but not where that goes past the page cache.
        ways = (True, False) if direct and readers == 1 else (direct,)
        rounds = [_round(_take(following, len(parts)), way, readers) for way in ways]
        total += sum(one.read_bytes for one in rounds)
        told = [one for one in rounds if one.from_storage]
        certain = certain and bool(told)
        speeds.append(max(one.bytes_per_s for one in told or rounds))
    return ReadSpeed(READERS[: len(speeds)], tuple(speeds), total, certain)


def curve_through(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners of the least concave function that is never below the points nor falls.

    Args:
      points: (readers, bytes/s), readers ascending.

    Returns:
      Some of the points: between them the function is linear, from nothing up to the first, flat behind the last.
    """
    rising = [(0.0, 0.0)]
    for point in points:
        if point[1] > rising[-1][1]:
            rising.append(point)
    return concave_hull(rising)[1:]


def _parts(path: str) -> Iterator[_Part]:
    try:
        size = os.stat(path).st_size
    except OSError:
        return
    for offset in range(0, size, _PART_BYTES):
        yield _Part(path, offset, min(_PART_BYTES, size - offset))


def _take(following: Iterator[_Part], most: int) -> list[_Part]:
    """The parts that come next, enough for a round, none of them twice."""
    found: list[_Part] = []
    size = 0
    while len(found) < most and size < _ROUND_BYTES:
        found.append(next(following))
        size += found[-1].size
    return found


def _is_flat(speeds: Sequence[float]) -> bool:
    """Whether the last two rounds brought nothing."""
    return len(speeds) > 2 and max(speeds[-2:]) < (1 + _LEAST_MORE) * max(speeds[:-2])


@dataclass(frozen=True)
class _RoundResult:
    bytes_per_s: float
    read_bytes: int
    # As the kernel counts it.
    from_storage: bool


def _round(parts: Sequence[_Part], direct: bool, readers: int) -> _RoundResult:
    """So many readers read parts of files until the time or the bytes of a round are used up.

    Raises:
      NotMeasured: nothing could be read, or not in time.
    """
    if not direct:
        _evict(parts)
    before = procfs.io_of().get("read_bytes")
    read, seconds = _Readers(parts, direct, readers).run()
    after = procfs.io_of().get("read_bytes")
    counted = before is not None and after is not None and after - before >= _FROM_STORAGE * read
    return _RoundResult(read / seconds, read, counted)


class _Readers:
    """The threads of one round."""

    def __init__(self, parts: Sequence[_Part], direct: bool, readers: int) -> None:
        self._direct = direct
        self._lock = threading.Lock()
        # Direct reads reach the device each time; what was put out of memory is out for one read.
        self._parts = itertools.cycle(parts) if direct else iter(parts)
        self._left = _ROUND_BYTES
        self._read = 0
        self._until_s = 0.0
        self._ended_s = 0.0
        self._begin = threading.Event()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(readers)]

    def run(self) -> tuple[int, float]:
        """Bytes that were read, and in how many seconds.

        Raises:
          NotMeasured: nothing could be read, or not in time.
        """
        for thread in self._threads:
            thread.start()
        began_s = time.perf_counter()
        self._until_s = began_s + _ROUND_S
        self._begin.set()
        for thread in self._threads:
            thread.join(max(began_s + _PATIENCE_S - time.perf_counter(), 0.0))
            if thread.is_alive():
                raise NotMeasured("it does not answer")
        if not self._read:
            raise NotMeasured("the files cannot be read")
        return self._read, self._ended_s - began_s

    def _work(self) -> None:
        with mmap.mmap(-1, _BLOCK_BYTES) as buffer:  # aligned, as direct reads need it
            self._begin.wait()
            while (part := self._next()) is not None:
                with contextlib.suppress(OSError):
                    self._read_part(part, buffer)

    def _next(self) -> _Part | None:
        with self._lock:
            done = self._left <= 0 or time.perf_counter() >= self._until_s
            return None if done else next(self._parts, None)

    def _read_part(self, part: _Part, buffer: mmap.mmap) -> None:
        with _opened(part.path, self._direct) as descriptor:
            for offset in range(part.offset, part.offset + part.size, _BLOCK_BYTES):
                read = os.preadv(descriptor, [buffer], offset)
                now_s = time.perf_counter()
                with self._lock:
                    self._read += read
                    self._left -= read
                    self._ended_s = max(self._ended_s, now_s)
                    if self._left <= 0 or now_s >= self._until_s:
                        return


@contextlib.contextmanager
def _opened(path: str, direct: bool = False) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _allows_direct(path: str) -> bool:
    try:
        with _opened(path, direct=True) as descriptor, mmap.mmap(-1, _BLOCK_BYTES) as buffer:
            return os.preadv(descriptor, [buffer], 0) > 0
    except (OSError, AttributeError):
        return False


def _evict(parts: Sequence[_Part]) -> None:
    """Puts parts of files out of the page cache, as far as nobody holds them there."""
    for part in parts:
        with contextlib.suppress(OSError), _opened(part.path) as descriptor:
            os.posix_fadvise(descriptor, part.offset, part.size, os.POSIX_FADV_DONTNEED)
