"""Core time and waiting that Plumber recovers, over functions, parallel calls, pools and crowds.

Each cell is a pipeline of one map whose function keeps its own books, diagnosed for a few seconds. The core time of one
element is what its thread used in the function and, to hand it over, between calls. What is recovered
must be within 15 % of the truth, 25 % on a crowded host, or be marked as uncertain. An error of core time or waiting is
taken relative to itself, but to no less than a fifth of the service time: the microseconds that a sleeping function
computes need not be known to 15 %.

python -m benchmarks.matrix [--seconds 3] [--only sleep,idle] [--json matrix.json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from benchmarks.ground_truth import (
    Books,
    MapFunction,
    hasher,
    python_burn,
    python_spin,
    recorded,
    sleep,
    spin,
)
from benchmarks.report import Machine, table, tell
from benchmarks.shapes import numbers

SECONDS = 3.0
CLOSE = 0.15
CLOSE_WHEN_CROWDED = 0.25
#: Of the service time: the least that errors are taken relative to.
LEAST = 0.2
PARALLEL = (1, 2, 8)
LARGE_POOL = 16
BURNERS = 2

_READ_BYTES = 4 << 20
_FILE_BYTES = 64 << 20


@dataclass(frozen=True)
class Cell:
    """One pipeline: its function, parallel calls, private pool (0: the default one) and burners beside it."""

    function: str
    parallel: int
    pool: int
    burners: int

    def __str__(self) -> str:
        pool = f"pool {self.pool}" if self.pool else "default pool"
        return f"{self.function}, {self.parallel} calls, {pool}, {'burners' if self.burners else 'idle'}"

    def is_chosen(self, words: Sequence[str]) -> bool:
        """Whether all of `words` name something of it; "2" and "8" name parallel calls."""
        pool = "pool16" if self.pool else "default"
        return {self.function, str(self.parallel), pool, "burners" if self.burners else "idle"} >= set(words)


@dataclass(frozen=True)
class Outcome:
    """What a cell cost in truth, and as recovered; seconds per element, intervals as (low, high)."""

    cell: Cell
    true_cpu_s: float
    true_wait_s: float
    cpu_s: float
    wait_s: float
    cpu_interval_s: tuple[float, float]
    wait_interval_s: tuple[float, float]
    uncertain: str
    calls: int

    @property
    def cpu_error(self) -> float:
        """Signed, relative."""
        return self._error(self.cpu_s, self.true_cpu_s)

    @property
    def wait_error(self) -> float:
        """Signed, relative."""
        return self._error(self.wait_s, self.true_wait_s)

    @property
    def is_close(self) -> bool:
        """Both are within what is allowed."""
        return self.is_within(crowded=self.cell.burners > 0)

    def is_within(self, *, crowded: bool) -> bool:
        """Both are within what is allowed on a host that others crowd, or leave alone."""
        allowed = CLOSE_WHEN_CROWDED if crowded else CLOSE
        return max(abs(self.cpu_error), abs(self.wait_error)) <= allowed

    @property
    def is_silently_wrong(self) -> bool:
        """What must never be."""
        return not self.is_close and not self.uncertain

    def _error(self, found_s: float, true_s: float) -> float:
        return (found_s - true_s) / max(true_s, LEAST * (self.true_cpu_s + self.true_wait_s))


def cells() -> list[Cell]:
    """All of them: idle hosts with the default pool first."""
    return [
        Cell(function, parallel, pool, burners)
        for burners, pool, function, parallel in product((0, BURNERS), (0, LARGE_POOL), FUNCTIONS, PARALLEL)
    ]


def measure(cell: Cell, seconds: float = SECONDS) -> Outcome:
    """Diagnoses one cell, with its burners running."""
    books = Books()
    with burning(cell.burners):
        row = _row(plumber.diagnose(dataset(cell, books), seconds=seconds).to_dict())
    truth = books.totals
    return Outcome(
        cell=cell,
        true_cpu_s=truth.cpu_per_call_s + truth.overhead_per_call_s,
        true_wait_s=truth.waited_per_call_s,
        cpu_s=row["cpu_s"],
        wait_s=row["wait_s"],
        cpu_interval_s=_interval(row, "cpu"),
        wait_interval_s=_interval(row, "wait"),
        uncertain=row["uncertain_why"] if row["uncertain"] else "",
        calls=truth.calls,
    )


def measure_all(words: Sequence[str] = (), seconds: float = SECONDS) -> list[Outcome]:
    """Diagnoses the cells that `words` choose; all of them take some six minutes."""
    outcomes = []
    for cell in cells():
        if cell.is_chosen(words):
            tell(f"matrix: {cell}")
            outcomes.append(measure(cell, seconds))
    return outcomes


def dataset(cell: Cell, books: Books) -> tf.data.Dataset:
    """The pipeline of a cell, its function keeping `books`."""
    calls = cell.parallel if cell.parallel > 1 else None
    mapped = numbers().map(FUNCTIONS[cell.function](books), num_parallel_calls=calls)
    options = tf.data.Options()
    if cell.pool:
        options.threading.private_threadpool_size = cell.pool
    return mapped.with_options(options)


@contextlib.contextmanager
def burning(processes: int) -> Iterator[None]:
    """Other processes that use all the core time they get."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def _row(answer: dict[str, Any]) -> dict[str, Any]:
    (row,) = (row for row in answer["operators"] if row["label"] in FUNCTIONS)
    return dict(row)


def _interval(row: dict[str, Any], name: str) -> tuple[float, float]:
    low, high = row[f"{name}_low_s"], row[f"{name}_high_s"]
    return (float("nan") if low is None else low, float("nan") if high is None else high)


def _python_sleep(books: Books) -> MapFunction:
    """Python and sleep in turns: each sleep ends in asking for the interpreter lock."""

    def call() -> float:
        for _ in range(4):
            python_burn(0.0003)
            time.sleep(0.0025)
        return 4 * 0.0025

    return recorded("python_sleep", books, call)


def _numpy(books: Books) -> MapFunction:
    """Universal functions of NumPy let go of the interpreter lock; these use the calling thread alone."""
    values = np.linspace(0.1, 1.0, 100_000)

    def call() -> float:
        result = values
        for _ in range(4):
            result = np.sin(result)
        return 0.0

    return recorded("numpy", books, call)


def _file_read(books: Books) -> MapFunction:
    """Reads a part of a file that the page cache does not hold; what it waits is on the reading thread's own clocks."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 it lives as long as the function
    block = os.urandom(1 << 20)
    for _ in range(_FILE_BYTES >> 20):
        file.write(block)
    file.flush()
    os.fsync(file.fileno())
    parts, turn, lock = _FILE_BYTES // _READ_BYTES, [0], threading.Lock()

    def call() -> float:
        with lock:
            turn[0] = (turn[0] + 1) % parts
            offset = turn[0] * _READ_BYTES
        begin = _Clocks.now()
        if hasattr(os, "posix_fadvise"):  # which waits for the kernel's own threads
            os.posix_fadvise(file.fileno(), offset, _READ_BYTES, os.POSIX_FADV_DONTNEED)
        os.pread(file.fileno(), _READ_BYTES, offset)
        return _Clocks.now().waited_since(begin)

    return recorded("file_read", books, call)


def _mixed(books: Books) -> MapFunction:
    """Python, a kernel that needs no interpreter, and a wait."""
    work = hasher(0.003)

    def call() -> float:
        python_burn(0.001)
        work()
        time.sleep(0.006)
        return 0.006

    return recorded("mixed", books, call)


FUNCTIONS: dict[str, Callable[[Books], MapFunction]] = {
    "spin": lambda books: spin(books, 0.006),
    "sleep": lambda books: sleep(books, 0.012),
    "python_spin": lambda books: python_spin(books, 0.005),
    "python_sleep": _python_sleep,
    "numpy": _numpy,
    "file_read": _file_read,
    "mixed": _mixed,
}


@dataclass(frozen=True)
class _Clocks:
    """Of the calling thread, seconds: on the clock, on a core, and waiting for one."""

    wall_s: float
    cpu_s: float
    run_queue_s: float

    @staticmethod
    def now() -> _Clocks:
        queue_ns = Path("/proc/thread-self/schedstat").read_bytes().split()[1]
        return _Clocks(time.perf_counter(), time.thread_time(), int(queue_ns) * 1e-9)

    def waited_since(self, begin: _Clocks) -> float:
        on_core = self.cpu_s - begin.cpu_s + self.run_queue_s - begin.run_queue_s
        return max(self.wall_s - begin.wall_s - on_core, 0.0)


def describe(outcomes: Sequence[Outcome]) -> str:
    """The table, and the count of what is close, uncertain and silently wrong."""
    head = [
        "function",
        "calls",
        "pool",
        "host",
        "true core ms",
        "core ms",
        "true wait ms",
        "wait ms",
        "errors",
        "verdict",
    ]
    rows = [
        [
            one.cell.function,
            one.cell.parallel,
            one.cell.pool or "default",
            "burners" if one.cell.burners else "idle",
            f"{1e3 * one.true_cpu_s:.3f}",
            f"{1e3 * one.cpu_s:.3f} ({_range(one.cpu_interval_s)})",
            f"{1e3 * one.true_wait_s:.3f}",
            f"{1e3 * one.wait_s:.3f} ({_range(one.wait_interval_s)})",
            f"{one.cpu_error:+.0%} {one.wait_error:+.0%}",
            ("close" if one.is_close else "WRONG" if not one.uncertain else "off")
            + (f", uncertain: {one.uncertain}" if one.uncertain else ""),
        ]
        for one in outcomes
    ]
    close, uncertain = sum(o.is_close for o in outcomes), sum(bool(o.uncertain) for o in outcomes)
    wrong = sum(o.is_silently_wrong for o in outcomes)
    errors = [max(abs(o.cpu_error), abs(o.wait_error)) for o in outcomes if not o.uncertain]
    said = f"{len(outcomes)} cells: {close} close, {uncertain} marked uncertain, {wrong} silently wrong"
    if errors:
        said += f"; of the others, median error {statistics.median(errors):.1%}, largest {max(errors):.1%}"
    return f"{table(head, rows)}\n\n{said}"


def _range(interval: tuple[float, float]) -> str:
    return "–".join(f"{1e3 * bound:.2f}" for bound in interval)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"of each diagnosis (default: {SECONDS:g})"
    )
    parser.add_argument(
        "--only", default="", help="cells of which all these words hold, as 'sleep,8,pool16,burners'"
    )
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    options = parser.parse_args()
    words = [word for word in options.only.split(",") if word]
    outcomes = measure_all(words, options.seconds)
    print(f"{Machine.here()}\n\n{describe(outcomes)}")
    if options.json:
        options.json.write_text(
            json.dumps([asdict(outcome) for outcome in outcomes], indent=1), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
