"""What recording costs: CPU and wall time per step of a fit with the callback over without, and bytes.

    python -m benchmarks.overhead [--pairs 9] [--seconds 20] [--bytes-seconds 60]

Each side of a pair is a fit in a process of its own, on the demo's JPEG pipeline; the side without
never imports Plumber. Sides alternate in order, so that a drift of the machine falls on both.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

from benchmarks.report import Interval, Machine, bootstrap, table, tell

REPOSITORY = Path(__file__).parents[1]
# Steps of warm-up in each fit's process: tracing, first calls, AUTOTUNE's first choices.
WARM_UP_STEPS = 24


@dataclass(frozen=True)
class Side:
    """One fit: seconds per step."""

    cpu_s: float
    wall_s: float
    steps: int


@dataclass(frozen=True)
class Bytes:
    """What a session writes on a pipeline of `operators` operators."""

    operators: int
    fixed: float
    per_minute: float


@dataclass(frozen=True)
class Overhead:
    cpu_ratio: Interval
    wall_ratio: Interval
    cpu_ratios: tuple[float, ...]
    wall_ratios: tuple[float, ...]
    bytes: Bytes


def _load(name: str) -> ModuleType:
    """A module of the demo by its file alone, without importing Plumber's package."""
    path = REPOSITORY / "tensorboard_plugin_plumber" / "demo" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"demo_{name}", path)
    if specification is None or specification.loader is None:
        raise ImportError(f"{path} is not a module")
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


def fit(with_callback: bool, steps: int) -> Side:
    """One fit of `steps` steps in this process, warm-up before it."""
    callbacks = []
    if with_callback:
        import tensorboard_plugin_plumber as plumber

        callbacks = [plumber.PlumberCallback(tempfile.mkdtemp(prefix="plumber-overhead-"))]
    photographs, train = _load("photographs"), _load("train")
    dataset = train.make_dataset(photographs.prepare().pattern).repeat()
    model = train.make_model()
    model.fit(dataset, steps_per_epoch=WARM_UP_STEPS, verbose=0, shuffle=False)
    cpu, wall = time.process_time(), time.perf_counter()
    model.fit(dataset, steps_per_epoch=steps, verbose=0, shuffle=False, callbacks=callbacks)
    return Side((time.process_time() - cpu) / steps, (time.perf_counter() - wall) / steps, steps)


def _fit_apart(with_callback: bool, steps: int) -> Side:
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "benchmarks.overhead", "--fit", "with" if with_callback else "without"]
    done = subprocess.run(
        [*command, "--steps", str(steps)],
        env=environment,
        cwd=REPOSITORY,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"a fit failed:\n{done.stderr}")
    return Side(**json.loads(done.stdout.splitlines()[-1]))


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


def measure(pairs: int, seconds: float, bytes_seconds: float) -> Overhead:
    """`pairs` pairs of fits of about `seconds` each, and one of sessions for the bytes."""
    trial = _fit_apart(False, 60)
    steps = max(int(seconds * 1.1 / trial.wall_s), 1)
    cpu_ratios, wall_ratios = [], []
    for pair in range(pairs):
        order = (False, True) if pair % 2 == 0 else (True, False)
        sides = {with_callback: _fit_apart(with_callback, steps) for with_callback in order}
        cpu_ratios.append(sides[True].cpu_s / sides[False].cpu_s)
        wall_ratios.append(sides[True].wall_s / sides[False].wall_s)
        tell(f"pair {pair + 1} of {pairs}: CPU x{cpu_ratios[-1]:.4f}, wall x{wall_ratios[-1]:.4f}")
    return Overhead(
        bootstrap(cpu_ratios),
        bootstrap(wall_ratios),
        tuple(cpu_ratios),
        tuple(wall_ratios),
        written_bytes(bytes_seconds),
    )


def describe(overhead: Overhead) -> str:
    size = overhead.bytes
    return table(
        ["overhead", "measured"],
        [
            ["CPU per step, with / without: median of pairs (95 %)", overhead.cpu_ratio],
            ["wall per step, with / without: median of pairs (95 %)", overhead.wall_ratio],
            ["pairs", len(overhead.cpu_ratios)],
            [f"bytes, {size.operators} operators: fixed", f"{size.fixed / 1e3:.1f} kB"],
            [f"bytes, {size.operators} operators: per minute", f"{size.per_minute / 1e3:.1f} kB"],
        ],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=20, help="of each fit (default: 20)")
    parser.add_argument("--bytes-seconds", type=float, default=60, help="of the longer session for the bytes")
    parser.add_argument("--fit", choices=["with", "without"], help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        print(json.dumps(asdict(fit(options.fit == "with", options.steps))))
        return 0
    print(f"{Machine.here()}\n\n{describe(measure(options.pairs, options.seconds, options.bytes_seconds))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
