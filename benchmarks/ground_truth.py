"""Map functions of known cost, which keep their own books while they run.

Each function counts its calls and adds up, inside itself, the CPU time of the thread that runs it
and the wall time; so what a test or a benchmark expects does not come from what it tests. Four
kinds of cost:

* `spin`: uses a core without holding the GIL, as a native kernel does (hashing in C);
* `python_spin`: uses a core and holds the GIL;
* `sleep`: waits, using nothing, as a read from slow storage does;
* `native_spin`: TensorFlow operations only, no Python; it reports its own time within its output.

Drop every iterator over the first three before the interpreter ends, or TensorFlow hangs.
"""

from __future__ import annotations

import functools
import hashlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

MapFunction = Callable[[tf.Tensor], tf.Tensor]

_BLOCK = bytes(1 << 20)


@dataclass(frozen=True)
class Totals:
    """Calls so far and what they took, seconds."""

    calls: int
    cpu_s: float
    wall_s: float
    waited_s: float = 0.0
    between_calls: int = 0
    between_cpu_s: float = 0.0

    def __sub__(self, earlier: Totals) -> Totals:
        return Totals(
            self.calls - earlier.calls,
            self.cpu_s - earlier.cpu_s,
            self.wall_s - earlier.wall_s,
            self.waited_s - earlier.waited_s,
            self.between_calls - earlier.between_calls,
            self.between_cpu_s - earlier.between_cpu_s,
        )

    @property
    def cpu_per_call_s(self) -> float:
        return self.cpu_s / self.calls

    @property
    def wait_per_call_s(self) -> float:
        """Wall time without CPU time: for a function that sleeps, its sleep."""
        return (self.wall_s - self.cpu_s) / self.calls

    @property
    def overhead_per_call_s(self) -> float:
        """CPU time of the calling thread from the end of one call to the beginning of its next one."""
        return self.between_cpu_s / self.between_calls if self.between_calls else 0.0

    @property
    def waited_per_call_s(self) -> float:
        """What the function says that it waited for something outside: neither for a core nor for the GIL."""
        return self.waited_s / self.calls


class Books:
    """The counters of one map function; shared by the threads that run it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = Totals(0, 0.0, 0.0)

    def add(
        self, cpu_s: float, wall_s: float, waited_s: float = 0.0, between_cpu_s: float | None = None
    ) -> None:
        """One more call; `between_cpu_s`: what its thread used since its last call, None if that is unknown."""
        with self._lock:
            total = self._totals
            self._totals = Totals(
                total.calls + 1,
                total.cpu_s + cpu_s,
                total.wall_s + wall_s,
                total.waited_s + waited_s,
                total.between_calls + (between_cpu_s is not None),
                total.between_cpu_s + (between_cpu_s or 0.0),
            )

    @property
    def totals(self) -> Totals:
        with self._lock:
            return self._totals


def spin(books: Books, seconds: float) -> MapFunction:
    """Identity that uses about `seconds` of a core for each element, the GIL free."""
    return recorded("spin", books, _waiting(0.0, hasher(seconds)))


def python_spin(books: Books, seconds: float) -> MapFunction:
    """Identity that uses `seconds` of a core for each element and holds the GIL meanwhile."""
    return recorded("python_spin", books, _waiting(0.0, lambda: python_burn(seconds)))


def sleep(books: Books, seconds: float) -> MapFunction:
    """Identity that waits `seconds` for each element."""
    return recorded("sleep", books, _waiting(seconds, lambda: time.sleep(seconds)))


def hasher(seconds: float) -> Callable[[], None]:
    """Uses about `seconds` of a core, the GIL free.

    One call into C, so that the GIL is asked for once: with many short ones, waiting for it
    would be most of what is measured.
    """
    blocks = seconds / _hash_s()
    data = memoryview(_BLOCK * math.ceil(blocks + 1))[: int(len(_BLOCK) * blocks)]

    def work() -> None:
        hashlib.blake2b(data)

    return work


@functools.cache
def _hash_s() -> float:
    """Seconds of a core that hashing one block takes: the best of some."""

    def once() -> float:
        begin = time.thread_time()
        hashlib.blake2b(_BLOCK)
        return time.thread_time() - begin

    return min(once() for _ in range(20))


def python_burn(seconds: float) -> None:
    """Uses `seconds` of a core in Python, which holds the GIL."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(200))


def recorded(name: str, books: Books, work: Callable[[], float]) -> MapFunction:
    """Identity that does `work` for each element and enters it in `books`.

    Args:
      name: of the function.
      work: returns the seconds that it waited for something outside.
    """

    # By thread: what is local to a thread of TensorFlow's lasts for one call only.
    ended: dict[int, float] = {}

    def call(value: np.ndarray) -> np.ndarray:
        cpu, wall = time.thread_time(), time.perf_counter()
        thread = threading.get_ident()
        between = cpu - ended[thread] if thread in ended else None
        waited = work()
        ended[thread] = time.thread_time()
        books.add(ended[thread] - cpu, time.perf_counter() - wall, waited, between)
        return value

    def function(value: tf.Tensor) -> tf.Tensor:
        result = tf.numpy_function(call, [value], value.dtype)
        result.set_shape(value.shape)
        return result

    return named(name, function)


def _waiting(seconds: float, work: Callable[[], None]) -> Callable[[], float]:
    def call() -> float:
        work()
        return seconds

    return call


def native_spin(rounds: int, size: int = 192) -> MapFunction:
    """A map function of TensorFlow operations only: a noise image goes through JPEG `rounds` times.

    It maps a float64 scalar x, seconds so far, to x + its own wall time, so that the elements
    carry the sum of what their making took. Being stateful it stays sequential, as an
    augmentation with unseeded randomness does. JPEG's kernels run in the calling thread alone
    (a matrix product would spread over TensorFlow's own pool); and they are few and large: what
    TensorFlow's executor does before the first and after the last is outside the clock.
    """

    def function(seconds: tf.Tensor) -> tf.Tensor:
        start = tf.timestamp()
        with tf.control_dependencies([start]):
            image = tf.cast(tf.random.uniform([size, size, 3], 0, 256, tf.int32), tf.uint8)
        for _ in range(rounds):
            image = tf.io.decode_jpeg(tf.io.encode_jpeg(image, quality=95))
        # An assertion, as TensorFlow prunes a control edge from an operation without effects.
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_max(image) > 0, [seconds])]):
            end = tf.timestamp()
        return seconds + (end - start)

    return named("native_spin", function)


def named(name: str, function: MapFunction) -> MapFunction:
    """The function under another name, so that its operator can be told from others."""
    function.__name__ = function.__qualname__ = name
    return function
