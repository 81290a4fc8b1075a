"""What recording costs: CPU per step with over without on five pipelines, Plumber's own thread, and bytes.

    python -m benchmarks.overhead [--pairs 5] [--seconds 5] [--only jpeg,text] [--json overhead.json]

Judged by process CPU per step: wall time of runs this short is a coin toss. Each side of a pair is a process that
iterates the five pipelines of `benchmarks.feeds` one after the other; the side without never imports Plumber. Sides
alternate in order, so that a drift of the machine falls on both. A pipeline's steps are counted after a warm-up. The
CPU of Plumber's own thread is that of one more process for each pipeline, as its recording has it: over the first 20 s,
describing, calibrating and first looks included, and over what comes after the first seconds of these. With 5 pairs
all of it takes some 10 minutes.
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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Interval, Machine, bootstrap, table, tell

REPOSITORY = Path(__file__).parents[1]
# Tracing, first calls, AUTOTUNE's first choices; and Plumber's first looks, which are many.
WARM_UP_S = 2.5
# Of the trial that finds how many steps there are to take.
_TRIAL_S = 1.5
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
class Side:
    """One pipeline in one process: seconds per step."""

    cpu_s: float
    wall_s: float
    steps: int


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
      cpu_ratios: of the single pairs.
      thread: of Plumber.
    """

    pipeline: str
    work_s: float
    cpu_ratio: Interval
    wall_ratio: Interval
    cpu_ratios: tuple[float, ...]
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


def iterate(name: str, with_plumber: bool, steps: int) -> Side:
    """One pipeline in this process: a warm-up, then `steps` steps.

    Args:
      steps: 0 for as many as `_TRIAL_S` takes.
    """
    from benchmarks import feeds

    iterator = None
    log_dir = tempfile.mkdtemp(prefix="plumber-overhead-")
    with _recording(log_dir) if with_plumber else contextlib.nullcontext():
        iterator = iter(feeds.make(name))
        end_s = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < end_s:
            next(iterator)
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        if steps:
            for _ in range(steps):
                next(iterator)
        else:
            while time.perf_counter() < wall_s + _TRIAL_S:
                next(iterator)
                steps += 1
        cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
        del iterator
    return Side(cpu_s / steps, wall_s / steps, steps)


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


def _side_apart(with_plumber: bool, steps: Mapping[str, int]) -> dict[str, Side]:
    """All pipelines of one side, in a process of their own."""
    found = _apart("--side", "with" if with_plumber else "without", "--steps", json.dumps(steps))
    return {name: Side(**side) for name, side in found.items()}


def _apart(*arguments: str) -> dict[str, Any]:
    """What this module prints in a process of its own."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "benchmarks.overhead", *arguments]
    done = subprocess.run(
        command, env=environment, cwd=REPOSITORY, check=False, capture_output=True, text=True
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
      pairs: of processes, one with and one without.
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
    trial = _side_apart(False, dict.fromkeys(names, 0))
    steps = {name: max(int(seconds / side.wall_s), 1) for name, side in trial.items()}
    sides: list[dict[bool, dict[str, Side]]] = []
    for pair in range(pairs):
        order = (False, True) if pair % 2 == 0 else (True, False)
        sides.append({with_plumber: _side_apart(with_plumber, steps) for with_plumber in order})
        found = [
            f"{name} ×{sides[-1][True][name].cpu_s / sides[-1][False][name].cpu_s:.3f}" for name in names
        ]
        tell(f"pair {pair + 1} of {pairs}: {', '.join(found)}")
    costs = tuple(_cost(name, sides, thread[name]) for name in names)
    return Overhead(costs, written_bytes(bytes_seconds))


def _cost(name: str, sides: Sequence[Mapping[bool, Mapping[str, Side]]], thread: Shares) -> Cost:
    with_, without = [pair[True][name] for pair in sides], [pair[False][name] for pair in sides]
    cpu_ratios = [a.cpu_s / b.cpu_s for a, b in zip(with_, without, strict=True)]
    wall_ratios = [a.wall_s / b.wall_s for a, b in zip(with_, without, strict=True)]
    return Cost(
        name,
        statistics.median(side.cpu_s for side in without),
        bootstrap(cpu_ratios),
        bootstrap(wall_ratios),
        tuple(cpu_ratios),
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
            "CPU, with / without: median of pairs (95 %)",
            "wall, with / without (95 %)",
            "Plumber's thread: first 20 s",
            "steady",
        ],
        [
            [
                cost.pipeline if cost.is_promised else f"{cost.pipeline} (nothing promised)",
                f"{cost.work_s * 1e6:.0f} µs",
                cost.cpu_ratio,
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
    pairs = len(overhead.costs[0].cpu_ratios)
    missed = [what for cost in overhead.costs for what in cost.missed]
    verdict = f"missed: {'; '.join(missed)}" if missed else "kept on all"
    promise = (
        f"CPU per step at most ×{_MOST_RATIO}, thread at most {_MOST_SHARE:.1%} of a core in 20 s: {verdict}"
    )
    return f"{pairs} pairs of processes; shares are of one core\n\n{costs}\n\n{promise}\n\n{written}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="of each pipeline (default: 5)")
    parser.add_argument("--bytes-seconds", type=float, default=20, help="of the session for the bytes")
    parser.add_argument("--only", default=",".join(_NAMES), help="some of the pipelines, comma-separated")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--side", choices=["with", "without"], help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--shares", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.shares:
        print(json.dumps(asdict(shares(options.shares, options.seconds))), flush=True)
        os._exit(0)
    if options.side:
        sides = {name: iterate(name, options.side == "with", steps) for name, steps in options.steps.items()}
        print(json.dumps({name: asdict(side) for name, side in sides.items()}), flush=True)
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
