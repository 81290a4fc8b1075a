"""Python's interpreter lock (GIL), as a thread that asks for it at random moments sees it.

A probe sleeps for a moment and then needs the lock, as any Python function does that comes back from its waiting. It
was held by somebody if the kernel put the thread to sleep once more before the probe had it: the share of such probes
is the share of the time in which the lock is held. While the probe holds the lock nobody else does, so that each
thread that wants it sleeps on one futex, whose address `_learn_futex` finds out once; the kernel tells what a thread
sleeps on in `/proc/self/task/<tid>/syscall`. So the threads of a pool that wait for the lock are counted, apart
from those that sleep, read, or have nothing to do. (A thread that was made to hand the lock over waits for something
else at that moment, so that the probe does not count whom it interrupted itself; on a crowded host it sometimes does.)

A probe costs some 0.1 ms of core time and has the lock change hands once. Linux only; elsewhere nothing is known.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

if sys.platform == "linux":
    from resource import RUSAGE_THREAD, getrusage

# A probe's sleep: its length is random, so that nothing that comes at regular intervals is in step with it.
_SLEEP_S = (5e-5, 1e-2)
# Threads of one pool that a probe looks into, at most.
_MOST_THREADS = 32
# To learn the lock's futex: a sleep of the shortest kind, and how long to hold the lock at most while it ends.
_MOMENT_S = 1e-5
_HOLD_S = 2e-3
_LESSONS = 12
_AGREEING = 3
# On a crowded host that may fail: so often it is tried.
_TRIES = 8
_LEAST_ADDRESS = 4096
# A condition variable sleeps on one of two neighbouring words.
_WORDS = ~7


@dataclass(frozen=True)
class Asleep:
    """Threads of one pool at one moment: how many.

    Attributes:
      on_lock: wait for the interpreter lock.
      blocked: are blocked in the kernel in another call than that of locks: asleep, reading, on a network.
      running: run, or wait for a core.
    """

    on_lock: float
    blocked: float
    running: float


@dataclass(frozen=True)
class Probe:
    """What one probe found.

    Attributes:
      waited: another thread held the lock.
      wait_s: how long the probe then waited for it, waiting for a core left out, seconds.
      pools: what the threads of each pool slept on; None where that cannot be seen.
    """

    waited: bool
    wait_s: float
    pools: tuple[Asleep | None, ...]


@dataclass(frozen=True)
class _Futex:
    """The system call, and the address, on which threads wait for the interpreter lock."""

    call: bytes
    address: int


@dataclass
class PoolOnLock:
    """Over all probes so far, the threads of one pipeline's pool.

    Attributes:
      probes: that could see what the threads sleep on.
      on_lock, blocked, running: Σ of those of `Asleep`.
      blocked_squares, running_squares, blocked_running: Σ of their squares and product.
    """

    probes: int = 0
    on_lock: float = 0.0
    blocked: float = 0.0
    running: float = 0.0
    blocked_squares: float = 0.0
    running_squares: float = 0.0
    blocked_running: float = 0.0

    def add(self, asleep: Asleep) -> None:
        """One more probe."""
        self.probes += 1
        self.on_lock += asleep.on_lock
        self.blocked += asleep.blocked
        self.running += asleep.running
        self.blocked_squares += asleep.blocked**2
        self.running_squares += asleep.running**2
        self.blocked_running += asleep.blocked * asleep.running


@dataclass
class LockTimes:
    """Over all probes so far.

    Attributes:
      probes, waits: how many, and how many of them found the lock held.
      wait_s: Σ of what they waited.
    """

    probes: int = 0
    waits: int = 0
    wait_s: float = 0.0

    def probe(self, pools: Sequence[tuple[Collection[int], PoolOnLock]]) -> None:
        """Probes once, and adds up.

        Args:
          pools: the threads of each pool, and where it is added up what they sleep on.
        """
        found = probe([ids for ids, _ in pools])
        if found is None:
            return
        self.probes += 1
        self.waits += found.waited
        self.wait_s += found.wait_s
        for (_, sums), asleep in zip(pools, found.pools, strict=True):
            if asleep is not None:
                sums.add(asleep)


def probe(pools: Sequence[Collection[int]]) -> Probe | None:
    """Asks for the interpreter lock, and looks at who else wants it.

    Args:
      pools: native ids of the threads of each pool.

    Returns:
      None where the kernel does not tell.
    """
    if sys.platform != "linux":
        return None
    futex = _known_futex()
    sleep_s = random.uniform(*_SLEEP_S)
    own_id = threading.get_native_id()
    # Opened beforehand: whom the probe makes hand the lock over soon waits for it like the others.
    watched = [_open_all(pool) if futex is not None else [] for pool in pools]
    queued_s = _run_queue_s(own_id)
    switches = getrusage(RUSAGE_THREAD).ru_nvcsw
    began_s = time.perf_counter()
    time.sleep(sleep_s)
    # From here on nothing lets go of the lock.
    seen = [[_read(descriptor) for descriptor in descriptors] for descriptors in watched]
    took_s = time.perf_counter() - began_s
    # The sleep itself gives the core away once.
    waited = getrusage(RUSAGE_THREAD).ru_nvcsw - switches > 1
    for descriptor in (d for descriptors in watched for d in descriptors):
        _libc().close(descriptor)
    wait_s = took_s - sleep_s - (_run_queue_s(own_id) - queued_s) if waited else 0.0
    found = tuple(_asleep(len(pool), texts, futex) for pool, texts in zip(pools, seen, strict=True))
    return Probe(waited, max(wait_s, 0.0), found)


def _asleep(threads: int, seen: Sequence[bytes], futex: _Futex | None) -> Asleep | None:
    """What the threads of a pool sleep on.

    Args:
      threads: of the pool.
      seen: of some of them, what the kernel says of their system call.
      futex: of the interpreter lock.
    """
    if futex is None or not seen:
        return None
    on_lock = blocked = running = 0
    for text in seen:
        call, address = _parse(text)
        if text.startswith(b"running"):
            running += 1
        elif call == futex.call:
            on_lock += address & _WORDS == futex.address
        elif call is not None:
            blocked += 1
    scale = threads / len(seen)
    return Asleep(on_lock * scale, blocked * scale, running * scale)


def _parse(text: bytes) -> tuple[bytes | None, int]:
    """The system call in which a thread sleeps, and its first argument."""
    words = text.split()
    if len(words) < 2 or not words[0].isdigit():  # it runs, or is gone
        return None, 0
    return words[0], int(words[1], 16)


def _run_queue_s(thread_id: int) -> float:
    """Seconds that a thread has waited for a core so far; 0 where the kernel does not tell."""
    descriptor = _open(thread_id, "schedstat")
    words = _read(descriptor).split()
    _libc().close(descriptor)
    return int(words[1]) * 1e-9 if len(words) > 1 else 0.0


def _open_all(pool: Collection[int]) -> list[int]:
    chosen = list(pool)[:_MOST_THREADS]
    return [d for d in (_open(thread_id, "syscall") for thread_id in chosen) if d >= 0]


# Python's own files let go of the lock at each call.


def _open(thread_id: int, file: str) -> int:
    return int(_libc().open(f"/proc/self/task/{thread_id}/{file}".encode(), os.O_RDONLY | os.O_CLOEXEC))


def _read(descriptor: int) -> bytes:
    buffer = ctypes.create_string_buffer(256)
    length = _libc().pread(descriptor, buffer, len(buffer) - 1, 0)
    return buffer.raw[: max(length, 0)]


_lock = threading.Lock()
_learnt: list[_Futex | None] = []
_library: list[ctypes.PyDLL] = []


def _libc() -> ctypes.PyDLL:
    """The C library, called with the interpreter lock held."""
    if not _library:
        library = ctypes.PyDLL(None)
        library.pread.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64]
        library.pread.restype = ctypes.c_ssize_t
        _library.append(library)
    return _library[0]


def _known_futex() -> _Futex | None:
    with _lock:
        if len(_learnt) < _TRIES and not any(_learnt):
            _learnt.append(_learn_futex())
        return _learnt[-1]


def _learn_futex() -> _Futex | None:
    """Where a thread sleeps that certainly wants the interpreter lock; None where that cannot be seen.

    Another thread does nothing but sleep for moments, while this one holds the lock for longer than that, a few times.
    """
    stopped = False

    def sleep() -> None:
        while not stopped:
            time.sleep(_MOMENT_S)

    other = threading.Thread(target=sleep, name="plumber-gil", daemon=True)
    other.start()
    found: Counter[_Futex] = Counter()
    for _ in range(_LESSONS):
        time.sleep(_MOMENT_S)
        end_s = time.perf_counter() + _HOLD_S
        (descriptor,) = _open_all([other.native_id or 0]) or (-1,)
        while time.perf_counter() < end_s:
            call, address = _parse(_read(descriptor))
            if call is not None and address >= _LEAST_ADDRESS:
                found[_Futex(call, address & _WORDS)] += 1
                break
        _libc().close(descriptor)
        if max(found.values(), default=0) >= _AGREEING:
            break
    stopped = True
    futex, agreeing = found.most_common(1)[0] if found else (None, 0)
    return futex if agreeing >= _AGREEING else None
