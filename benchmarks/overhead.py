"""What recording costs: CPU per step with over without on five pipelines, Plumber's own thread, and bytes.

    python -m benchmarks.overhead [--pairs 7] [--seconds 3] [--only jpeg,text]

Each side of a pair is a process that iterates the five pipelines of `benchmarks.feeds` one after the
other; the side without never imports Plumber. Sides alternate in order, so that a drift of the machine falls
on both. A pipeline's steps are counted after a warm-up, in which it is also described: what that costs, once, is
told apart. So is the CPU time of Plumber's own thread, as its recording has it.
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

from benchmarks.report import Interval, Machine, bootstrap, table, tell

REPOSITORY = Path(__file__).parents[1]
# Tracing, first calls, AUTOTUNE's first choices; and Plumber's first looks, which are many.
WARM_UP_S = 2.5
# Of the trial that finds how many steps there are to take.
_TRIAL_S = 1.5
_NAMES = ("tiny", "jpeg", "text", "files", "python")
# Below so much work per step the ratio is told, but nothing is promised.
_WORK_THAT_COUNTS_S = 50e-6
# A short training: over it, what is spent once is a share of a core.
_SHORT_TRAINING_S = 20.0


@dataclass(frozen=True)
class Side:
    """One pipeline in one process: seconds per step.

    Attributes:
      once_cpu_s: CPU time of Plumber's own thread up to the end of the warm-up, seconds.
      poller_share: of a core, after the warm-up.
    """

    cpu_s: float
    wall_s: float
    steps: int
    once_cpu_s: float = 0.0
    poller_share: float = 0.0


@dataclass(frozen=True)
class Cost:
    """What recording costs on one pipeline.

    Attributes:
      work_s: CPU per step without, seconds.
      cpu_ratio, wall_ratio: per step, with over without.
      once_cpu_s: what Plumber's thread spends once, seconds: describing, calibrating, first looks.
      poller_share: of a core, in steady state.
    """

    pipeline: str
    work_s: float
    cpu_ratio: Interval
    wall_ratio: Interval
    cpu_ratios: tuple[float, ...]
    once_cpu_s: float
    poller_share: float

    @property
    def short_share(self) -> float:
        """Plumber's thread in a training of 20 s, describing included: of a core."""
        return self.poller_share + self.once_cpu_s / _SHORT_TRAINING_S

    @property
    def is_promised(self) -> bool:
        """Whether a step is enough work for the promise of 1 %."""
        return self.work_s > _WORK_THAT_COUNTS_S


@dataclass(frozen=True)
class Bytes:
    """What a session writes on a pipeline of `operators` operators."""

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
        began_s, cpu_s, wall_s = time.time(), time.process_time(), time.perf_counter()
        if steps:
            for _ in range(steps):
                next(iterator)
        else:
            while time.perf_counter() < wall_s + _TRIAL_S:
                next(iterator)
                steps += 1
        cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
        del iterator
    once_cpu_s, share = _poller(log_dir, began_s) if with_plumber else (0.0, 0.0)
    return Side(cpu_s / steps, wall_s / steps, steps, once_cpu_s, share)


def _recording(log_dir: str) -> contextlib.AbstractContextManager[None]:
    import tensorboard_plugin_plumber as plumber

    return plumber.trace(log_dir)


def _poller(log_dir: str, began_s: float) -> tuple[float, float]:
    """CPU of Plumber's thread until `began_s`, and its share of a core from then on."""
    from tensorboard_plugin_plumber.events import reader

    (recording,) = reader.read(log_dir)
    before = [s for s in recording.samples if s.wall_time_s <= began_s][-1]
    last = recording.samples[-1]
    cpu_s = last.host.poller_cpu_s - before.host.poller_cpu_s
    return before.host.poller_cpu_s, cpu_s / (last.wall_time_s - before.wall_time_s)


def _side_apart(with_plumber: bool, steps: Mapping[str, int]) -> dict[str, Side]:
    """All pipelines of one side, in a process of their own."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    side = "with" if with_plumber else "without"
    command = [sys.executable, "-m", "benchmarks.overhead", "--side", side, "--steps", json.dumps(steps)]
    done = subprocess.run(
        command, env=environment, cwd=REPOSITORY, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"a side failed:\n{done.stderr}")
    return {name: Side(**side) for name, side in json.loads(done.stdout.splitlines()[-1]).items()}


def measure(pairs: int, seconds: float, bytes_seconds: float, names: Sequence[str] = _NAMES) -> Overhead:
    """What recording costs on each pipeline.

    Args:
      pairs: of processes, one with and one without.
      seconds: that each pipeline is measured for in each process.
      bytes_seconds: of the longer session for the bytes.
      names: of `feeds.FEEDS`.
    """
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
    return Overhead(tuple(_cost(name, sides) for name in names), written_bytes(bytes_seconds))


def _cost(name: str, sides: Sequence[Mapping[bool, Mapping[str, Side]]]) -> Cost:
    with_, without = [pair[True][name] for pair in sides], [pair[False][name] for pair in sides]
    cpu_ratios = [a.cpu_s / b.cpu_s for a, b in zip(with_, without, strict=True)]
    wall_ratios = [a.wall_s / b.wall_s for a, b in zip(with_, without, strict=True)]
    return Cost(
        name,
        statistics.median(side.cpu_s for side in without),
        bootstrap(cpu_ratios),
        bootstrap(wall_ratios),
        tuple(cpu_ratios),
        statistics.median(side.once_cpu_s for side in with_),
        statistics.median(side.poller_share for side in with_),
    )


def written_bytes(seconds: float) -> Bytes:
    """Two sessions, of `seconds` and of a quarter of it: what differs is the rate, what is left is fixed."""
    long, operators = _session_bytes(seconds)
    short, _ = _session_bytes(seconds / 4)
    per_second = (long - short) / (seconds * 3 / 4)
    return Bytes(operators, short - per_second * seconds / 4, per_second * 60)


def _session_bytes(seconds: float) -> tuple[int, int]:
    """Bytes that one session wrote, and the operators of its pipeline."""
    import tensorflow as tf

    import tensorboard_plugin_plumber as plumber
    from tensorboard_plugin_plumber.events import reader

    dataset = tf.data.Dataset.range(1000).shuffle(100).repeat()
    dataset = dataset.map(lambda x: tf.random.normal([64]) + tf.cast(x, tf.float32))
    dataset = dataset.filter(lambda x: x[0] > 0).map(lambda x: x * 2).batch(4)
    dataset = dataset.map(tf.math.tanh, num_parallel_calls=2).unbatch().batch(8).take(10**9).prefetch(2)
    log_dir = tempfile.mkdtemp(prefix="plumber-bytes-")
    with plumber.trace(log_dir):
        end = time.monotonic() + seconds
        for _ in dataset:
            time.sleep(0.01)
            if time.monotonic() > end:
                break
    (recording,) = reader.read(log_dir)
    files = [path for path in Path(log_dir).rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files), len(recording.graph.pipelines[0].operators)


def describe(overhead: Overhead) -> str:
    size = overhead.bytes
    costs = table(
        [
            "pipeline",
            "CPU per step without",
            "CPU, with / without: median of pairs (95 %)",
            "wall, with / without (95 %)",
            "Plumber's thread: steady",
            "once",
            "in 20 s",
        ],
        [
            [
                cost.pipeline if cost.is_promised else f"{cost.pipeline} (nothing promised)",
                f"{cost.work_s * 1e6:.0f} µs",
                cost.cpu_ratio,
                cost.wall_ratio,
                f"{cost.poller_share:.2%}",
                f"{cost.once_cpu_s * 1e3:.0f} ms",
                f"{cost.short_share:.2%}",
            ]
            for cost in overhead.costs
        ],
    )
    written = table(
        ["bytes written", f"{size.operators} operators"],
        [["fixed", f"{size.fixed / 1e3:.1f} kB"], ["per minute", f"{size.per_minute / 1e3:.1f} kB"]],
    )
    pairs = len(overhead.costs[0].cpu_ratios)
    return f"{pairs} pairs of processes; shares are of one core\n\n{costs}\n\n{written}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3, help="of each pipeline (default: 3)")
    parser.add_argument("--bytes-seconds", type=float, default=40, help="of the longer session for the bytes")
    parser.add_argument("--only", default=",".join(_NAMES), help="some of the pipelines, comma-separated")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--side", choices=["with", "without"], help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
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
