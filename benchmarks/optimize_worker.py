"""One way to run one pipeline, in a process of its own: caches, thread pools and AUTOTUNE's state are nobody else's.

`optimize.py` starts it, and asks by lines on stdin: `ready`, `setup`, `epoch` or `turn SECONDS`. Each is
answered by one line of JSON on what was stdout. The ways without Plumber never import it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.optimize_families import FAMILIES, Family, Tuning
from benchmarks.predict import others_s

#: Seconds of an endless pipeline before anything counts: calls in flight, AUTOTUNE.
WARM_UP_S = 2.0
#: Calls and threads of the way that somebody who knows of the pool would write by hand.
BY_HAND = 128


@dataclass(frozen=True)
class Way:
    """How a pipeline is run.

    Attributes:
      tuning: what is set by hand, from the number of cores.
      memory: None for a run without Plumber; else what `optimize` may add: "free" (its default), "little" (half of
        the data) or "none".
    """

    tuning: Callable[[int], Tuning]
    memory: str | None = None


WAYS: Mapping[str, Way] = {
    "naive": Way(lambda cores: Tuning()),
    "HEURISTIC": Way(lambda cores: Tuning(calls=cores, prefetch=2 * cores)),
    "AUTOTUNE": Way(lambda cores: Tuning(calls=tf.data.AUTOTUNE, prefetch=tf.data.AUTOTUNE)),
    "by-hand": Way(lambda cores: Tuning(calls=BY_HAND, prefetch=2 * cores, pool=BY_HAND)),
    "optimize": Way(lambda cores: Tuning(), "free"),
    "optimize-little-memory": Way(lambda cores: Tuning(), "little"),
    "optimize-no-cache": Way(lambda cores: Tuning(), "none"),
}


@dataclass(frozen=True)
class Turn:
    """What was counted while a pipeline ran.

    Attributes:
      steps, seconds: elements of the dataset, and how long they took.
      cpu_s: core time of the process.
      loop_cpu_s: core time of the thread that asks for the steps.
      stored_bytes: read from storage, not from the page cache.
      foreign_cores: cores that other processes used meanwhile.
    """

    steps: int
    seconds: float
    cpu_s: float
    loop_cpu_s: float
    stored_bytes: int
    foreign_cores: float


@dataclass(frozen=True)
class Tried:
    """One plan that `optimize` tried: the kinds of its changes, and what became of it."""

    kinds: tuple[str, ...]
    verdict: str
    why: str


@dataclass(frozen=True)
class Setup:
    """How a pipeline came to be.

    Attributes:
      seconds: until there was a dataset to iterate over, tracing included.
      finite: it has epochs.
      phases_s: of these, by phase of `optimize`.
      changed: the dataset is not the one that was written.
      changes: what was changed, in words.
      tried: the plans.
      limit: what the report says binds now.
      promised: steps/s that the plan in force promised.
      warnings: that Plumber gave.
    """

    seconds: float
    finite: bool = True
    phases_s: Mapping[str, float] = field(default_factory=dict)
    changed: bool = False
    changes: tuple[str, ...] = ()
    tried: tuple[Tried, ...] = ()
    limit: str = ""
    promised: float | None = None
    warnings: tuple[str, ...] = ()


class Runner:
    """Runs one pipeline in one way."""

    def __init__(self, family: Family, way: Way, directory: Path, budget_s: float) -> None:
        self._family, self._way, self._directory, self._budget_s = family, way, directory, budget_s
        self._dataset: Any = None

    def setup(self) -> Setup:
        """Makes the dataset; must come first."""
        tuning = self._way.tuning(len(os.sched_getaffinity(0)))
        if self._way.memory is None:
            begin = time.perf_counter()
            self._dataset = self._family.make(self._directory, tuning)
            return Setup(time.perf_counter() - begin, not self._family.endless)
        from benchmarks.optimize_calls import optimized  # Plumber is in this process from here on

        found = optimized(
            lambda: self._family.make(self._directory, tuning), self._memory_bytes(), self._budget_s
        )
        self._dataset = found.dataset
        return replace(found.setup, finite=not self._family.endless)

    def _memory_bytes(self) -> int | None:
        if self._way.memory == "free":
            return None
        files = [path.stat().st_size for path in self._directory.iterdir() if path.is_file()]
        return sum(files) // 2 if self._way.memory == "little" else 0

    def epoch(self) -> Turn:
        """One pass over all elements."""
        return self._counted(lambda: sum(1 for _ in self._dataset))

    def turn(self, seconds: float) -> Turn:
        """Whole passes until so much time is over; of an endless dataset a stretch of that time, warmed up."""
        if not self._family.endless:
            return self._counted(lambda: self._passes(seconds))
        elements = iter(self._dataset)
        _take(elements, WARM_UP_S)
        return self._counted(lambda: _take(elements, seconds))

    def _passes(self, seconds: float) -> int:
        until, steps = time.perf_counter() + seconds, 0
        while not steps or time.perf_counter() < until:
            steps += sum(1 for _ in self._dataset)
        return steps

    def _counted(self, run: Callable[[], int]) -> Turn:
        others, stored = others_s(), _stored_bytes()
        cpu, loop, begin = time.process_time(), time.thread_time(), time.perf_counter()
        steps = run()
        seconds = time.perf_counter() - begin
        return Turn(
            steps,
            seconds,
            time.process_time() - cpu,
            time.thread_time() - loop,
            _stored_bytes() - stored,
            (others_s() - others) / seconds,
        )


def _take(elements: Iterator[Any], seconds: float) -> int:
    until, steps = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        next(elements)
        steps += 1
    return steps


def _stored_bytes() -> int:
    """Bytes that this process has had read from storage; 0 where the kernel does not say."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--budget", type=float, default=20.0, help="budget_s of optimize")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what else is printed must not spoil the answers
    runner = Runner(FAMILIES[options.family], WAYS[options.way], options.directory, options.budget)
    for line in sys.stdin:
        command, *arguments = line.split()
        answer: dict[str, Any] = {}
        if command == "setup":
            answer = asdict(runner.setup())
        elif command == "epoch":
            answer = asdict(runner.epoch())
        elif command == "turn":
            answer = asdict(runner.turn(float(arguments[0])))
        answer["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # TensorFlow hangs at the interpreter's end over pipelines in Python


if __name__ == "__main__":
    main()
