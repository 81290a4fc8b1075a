"""What recording costs: CPU per step with over without on five pipelines, Plumber's own thread, and bytes.

    python -m benchmarks.overhead [--pairs 5] [--seconds 5] [--only jpeg,text] [--json overhead.json]

Judged by process CPU per step: wall time of runs this short is a coin toss. So is the CPU time of processes that run
one after the other on a host which others use, too: for minutes the same program can take a third more. So three
processes iterate one pipeline at the same time, in turns of a fifth of a second whose order rotates: one records, two
never import Plumber. A round's ratio is that of the first to the mean of the others; the ratio of these two, which
do the same, tells how far it can be believed. Steps are counted after a warm-up. The
CPU of Plumber's own thread is that of one more process for each pipeline, as its recording has it: over the first 20 s,
describing, calibrating and first looks included, and over what comes after the first seconds of these. With 5 pairs
all of it takes some 15 minutes.
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
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Interval, Machine, bootstrap, table, tell

REPOSITORY = Path(__file__).parents[1]
# Tracing, first calls, AUTOTUNE's first choices; and Plumber's first looks, which are many.
WARM_UP_S = 2.5
# Of one turn: short against the drift of a host, long against what buffers hold.
_TURN_S = 0.2
_NAMES = ("tiny", "jpeg", "text", "files", "python")
# Below so much work per step the ratio is told, but nothing is promised.
_WORK_THAT_COUNTS_S = 50e-6
# The promises: CPU per step, with over without; and of a core, for Plumber's thread.
_MOST_RATIO = 1.01
_MOST_SHARE = 0.005
# A short training, over which what is spent once is a share of a core; and when it is all spent.
SHORT_TRAINING_S = 20.0
_SETTLED_S = 5.0


@dataclass(frozen=True)
class Turn:
    """So many steps of one process: seconds per step."""

    cpu_s: float
    wall_s: float


@dataclass(frozen=True)
class Round:
    """One turn of each process: one that records, and two without Plumber."""

    with_: Turn
    without: Turn
    other: Turn

    @property
    def work_s(self) -> float:
        """CPU per step without, seconds."""
        return (self.without.cpu_s + self.other.cpu_s) / 2

    @property
    def cpu_ratio(self) -> float:
        return self.with_.cpu_s / self.work_s

    @property
    def wall_ratio(self) -> float:
        return 2 * self.with_.wall_s / (self.without.wall_s + self.other.wall_s)

    @property
    def control(self) -> float:
        """CPU per step, without over without."""
        return self.other.cpu_s / self.without.cpu_s


@dataclass(frozen=True)
class Shares:
    """CPU of Plumber's own thread, of a core.

    Attributes:
      first: over the first 20 s, all that is done once included.
      steady: from the fifth second on.
    """

    first: float
    steady: float


@dataclass(frozen=True)
class Cost:
    """What recording costs on one pipeline.

    Attributes:
      work_s: CPU per step without, seconds.
      cpu_ratio, wall_ratio: per step, with over without.
      control: CPU per step, without over without.
      of_pairs: the CPU ratio of the rounds of each pair of processes.
      rounds: how many there were.
      thread: of Plumber.
    """

    pipeline: str
    work_s: float
    cpu_ratio: Interval
    wall_ratio: Interval
    control: Interval
    of_pairs: tuple[float, ...]
    rounds: int
    thread: Shares

    @property
    def is_promised(self) -> bool:
        """Whether a step is enough work for the promise of 1 %."""
        return self.work_s > _WORK_THAT_COUNTS_S

    @property
    def missed(self) -> tuple[str, ...]:
        """The promises that it does not keep, in words."""
        found = []
        if self.is_promised and self.cpu_ratio.value > _MOST_RATIO:
            found.append(f"{self.pipeline}: CPU ×{self.cpu_ratio.value:.4f}")
        if self.thread.first > _MOST_SHARE:
            found.append(f"{self.pipeline}: thread {self.thread.first:.2%} of a core")
        return tuple(found)


@dataclass(frozen=True)
class Bytes:
    """What a session writes on a pipeline of `operators` operators: once, and while a sample a second is taken."""

    operators: int
    fixed: float
    per_minute: float


@dataclass(frozen=True)
class Overhead:
    costs: tuple[Cost, ...]
    bytes: Bytes


def take_turns(name: str, with_plumber: bool) -> None:
    """Iterates one pipeline in this process: reads numbers of steps, and prints the `Turn` that each was."""
    from benchmarks import feeds

    log_dir = tempfile.mkdtemp(prefix="plumber-overhead-")
    with _recording(log_dir) if with_plumber else contextlib.nullcontext():
        iterator = iter(feeds.make(name))
        print(json.dumps(_warm_up(iterator, WARM_UP_S)), flush=True)
        for line in sys.stdin:
            print(json.dumps(asdict(_turn(iterator, int(line)))), flush=True)


def _warm_up(iterator: Iterator[Any], seconds: float) -> float:
    """Steps/s over so long."""
    steps, began_s = 0, time.perf_counter()
    while time.perf_counter() < began_s + seconds:
        next(iterator)
        steps += 1
    return steps / seconds


def _turn(iterator: Iterator[Any], steps: int) -> Turn:
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    for _ in range(steps):
        next(iterator)
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    return Turn(cpu_s / steps, wall_s / steps)


def _recording(log_dir: str) -> contextlib.AbstractContextManager[None]:
    import tensorboard_plugin_plumber as plumber

    return plumber.trace(log_dir)


def shares(name: str, seconds: float) -> Shares:
    """CPU of Plumber's thread while this process iterates one pipeline for so long."""
    from benchmarks import feeds
    from tensorboard_plugin_plumber.events import reader

    log_dir = tempfile.mkdtemp(prefix="plumber-overhead-")
    dataset = feeds.make(name)
    with _recording(log_dir):
        iterator = iter(dataset)
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            next(iterator)
        del iterator
    (recording,) = reader.read(log_dir)
    last = recording.samples[-1]
    settled = next(s for s in recording.samples if s.elapsed_s >= min(_SETTLED_S, seconds / 2))
    steady_s = last.host.poller_cpu_s - settled.host.poller_cpu_s
    return Shares(last.host.poller_cpu_s / last.elapsed_s, steady_s / (last.elapsed_s - settled.elapsed_s))


class _Side:
    """A process that takes its turns; a context that ends it.

    Attributes:
      rate: of its warm-up, steps/s.
    """

    def __init__(self, name: str, with_plumber: bool) -> None:
        side = "with" if with_plumber else "without"
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.overhead", "--turns", name, "--side", side],
            env=_ENVIRONMENT,
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.rate = float(self._answer())

    def turn(self, steps: int) -> Turn:
        assert self._process.stdin is not None
        print(steps, file=self._process.stdin, flush=True)
        return Turn(**self._answer())

    def __enter__(self) -> _Side:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"a side failed:\n{self._errors.read()}")
        return json.loads(line)


def compare(name: str, seconds: float) -> list[Round]:
    """One pipeline in three processes, each with about `seconds` of turns."""
    with _Side(name, True) as with_, _Side(name, False) as without, _Side(name, False) as other:
        steps = max(int(_TURN_S * without.rate), 1)
        sides = (with_, without, other)
        rounds = []
        for number in range(max(round(seconds / _TURN_S), 3)):
            # Each follows each as often as any.
            order = sides[number % 3 :] + sides[: number % 3]
            turns = {id(side): side.turn(steps) for side in (order if number % 2 else order[::-1])}
            rounds.append(Round(*(turns[id(side)] for side in sides)))
    return rounds


_ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


def _apart(*arguments: str) -> dict[str, Any]:
    """What this module prints in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.overhead", *arguments]
    done = subprocess.run(
        command, env=_ENVIRONMENT, cwd=REPOSITORY, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"a side failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(
    pairs: int,
    seconds: float,
    bytes_seconds: float,
    names: Sequence[str] = _NAMES,
    *,
    thread_seconds: float = SHORT_TRAINING_S,
) -> Overhead:
    """What recording costs on each pipeline.

    Args:
      pairs: how often all of it is done.
      seconds: that each pipeline is measured for in each process.
      bytes_seconds: of the session for the bytes.
      names: of `feeds.FEEDS`.
      thread_seconds: that Plumber's own thread is looked at, on each pipeline.
    """
    thread = {}
    for name in names:
        thread[name] = Shares(**_apart("--shares", name, "--seconds", str(thread_seconds)))
        tell(
            f"Plumber's thread on {name}: {thread[name].first:.2%} at first, {thread[name].steady:.2%} steady"
        )
    rounds: dict[str, list[list[Round]]] = {name: [] for name in names}
    for number in range(pairs):
        for name in names:
            rounds[name].append(compare(name, seconds))
        costs = tuple(_cost(name, rounds[name], thread[name]) for name in names)
        found = (f"{cost.pipeline} ×{cost.of_pairs[-1]:.3f}" for cost in costs)
        tell(f"pair {number + 1} of {pairs}: {', '.join(found)}")
    return Overhead(costs, written_bytes(bytes_seconds))


def _cost(name: str, pairs: Sequence[Sequence[Round]], thread: Shares) -> Cost:
    rounds = [one for pair in pairs for one in pair]
    return Cost(
        name,
        statistics.median(one.work_s for one in rounds),
        bootstrap([one.cpu_ratio for one in rounds]),
        bootstrap([one.wall_ratio for one in rounds]),
        bootstrap([one.control for one in rounds]),
        tuple(statistics.median(one.cpu_ratio for one in pair) for pair in pairs),
        len(rounds),
        thread,
    )


def written_bytes(seconds: float) -> Bytes:
    """What one session of `seconds` writes: its samples, as if one came each second, and all else."""
    import tensorflow as tf
    from tensorboard.compat.proto import event_pb2

    import tensorboard_plugin_plumber as plumber
    from tensorboard_plugin_plumber.events import metadata, reader
    from tensorboard_plugin_plumber.events.record_file import read_records

    dataset = tf.data.Dataset.range(1000).shuffle(100).repeat()
    dataset = dataset.map(lambda x: tf.random.normal([64]) + tf.cast(x, tf.float32))
    dataset = dataset.filter(lambda x: x[0] > 0).map(tf.math.sin).batch(4)
    dataset = dataset.map(tf.math.tanh, num_parallel_calls=2).unbatch().batch(8).take(10**9).prefetch(2)
    log_dir = tempfile.mkdtemp(prefix="plumber-bytes-")
    with plumber.trace(log_dir):
        end = time.monotonic() + seconds
        for _ in dataset:
            time.sleep(0.01)
            if time.monotonic() > end:
                break
    (recording,) = reader.read(log_dir)
    (file,) = Path(log_dir).rglob("*tfevents*")
    records = read_records(file).data
    samples = [
        len(record)
        for record in records
        if any(v.tag == metadata.SAMPLE_TAG for v in event_pb2.Event.FromString(record).summary.value)
    ]
    fixed = file.stat().st_size - sum(samples)
    # The first ones are smaller: little was counted yet.
    usual = statistics.median(samples)
    return Bytes(len(recording.graph.pipelines[0].operators), fixed, usual * 60)


def describe(overhead: Overhead) -> str:
    size = overhead.bytes
    costs = table(
        [
            "pipeline",
            "CPU per step without",
            "CPU, with / without (95 %)",
            "control: without / without (95 %)",
            "wall, with / without (95 %)",
            "Plumber's thread: first 20 s",
            "steady",
        ],
        [
            [
                cost.pipeline if cost.is_promised else f"{cost.pipeline} (nothing promised)",
                f"{cost.work_s * 1e6:.0f} µs",
                cost.cpu_ratio,
                cost.control,
                cost.wall_ratio,
                f"{cost.thread.first:.2%}",
                f"{cost.thread.steady:.2%}",
            ]
            for cost in overhead.costs
        ],
    )
    written = table(
        ["bytes written", f"{size.operators} operators"],
        [["once", f"{size.fixed / 1e3:.1f} kB"], ["per minute", f"{size.per_minute / 1e3:.1f} kB"]],
    )
    first = overhead.costs[0]
    missed = [what for cost in overhead.costs for what in cost.missed]
    verdict = f"missed: {'; '.join(missed)}" if missed else "kept on all"
    promise = (
        f"CPU per step at most ×{_MOST_RATIO}, thread at most {_MOST_SHARE:.1%} of a core in 20 s: {verdict}"
    )
    head = f"{first.rounds} rounds of {len(first.of_pairs)} times three processes; shares are of one core"
    return f"{head}\n\n{costs}\n\n{promise}\n\n{written}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="of each pipeline (default: 5)")
    parser.add_argument("--bytes-seconds", type=float, default=20, help="of the session for the bytes")
    parser.add_argument("--only", default=",".join(_NAMES), help="some of the pipelines, comma-separated")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--side", choices=["with", "without"], help=argparse.SUPPRESS)
    parser.add_argument("--turns", help=argparse.SUPPRESS)
    parser.add_argument("--shares", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.shares:
        print(json.dumps(asdict(shares(options.shares, options.seconds))), flush=True)
        os._exit(0)
    if options.turns:
        take_turns(options.turns, options.side == "with")
        os._exit(0)  # TensorFlow may hang at the interpreter's end over a pipeline that calls Python
    names = options.only.split(",")
    if unknown := set(names) - set(_NAMES):
        parser.error(f"no pipeline {', '.join(sorted(unknown))}: there are {', '.join(_NAMES)}")
    overhead = measure(options.pairs, options.seconds, options.bytes_seconds, names)
    if options.json:
        options.json.write_text(json.dumps(asdict(overhead), indent=1), encoding="utf-8")
    print(f"{Machine.here()}\n\n{describe(overhead)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
