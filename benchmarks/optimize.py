"""What `plumber.optimize` gains over pipelines as written, tuned by rule, and tuned by AUTOTUNE.

    make bench-optimize                                    all of it: about two hours on an idle machine
    make bench-optimize ARGS=--smoke                       everything once on little data: does it run
    make bench-optimize ARGS="--only resnet,latency-20ms --json numbers.json --plot picture.png"

In each repeat every way to run a pipeline has a fresh process of its own (`optimize_worker.py`), in an order drawn
anew. They take turns, never two at once: first each makes its dataset and runs its first epoch, then each runs
later epochs, in several rounds. Rates are compared within a repeat. Where a comparison comes close to a loss, more
repeats follow. All is saved after each repeat; a run with the `--directory` of an earlier one adds to it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import numpy as np
import psutil

from benchmarks import optimize_plot, optimize_results
from benchmarks.optimize_results import NAIVE, Outcome, Repeat, outcome_of, undecided
from benchmarks.report import Machine, tell

REPEATS = 5
ROUNDS = 2
TURN_S = 2.0
#: Turns in which other processes used more cores than this are counted.
FOREIGN_CORES = 0.15
SMOKE_SCALE, SMOKE_TURN_S, SMOKE_BUDGET_S = 0.02, 0.2, 2.0
#: Pipelines that a smoke run tries side by side: its numbers say nothing.
SMOKE_AT_ONCE = 4
SMOKE_ALL = ("gnmt", "latency-20ms")
CACHING = (NAIVE, "HEURISTIC", "AUTOTUNE", "optimize", "optimize-little-memory", "optimize-no-cache")
WAITING = (NAIVE, "HEURISTIC", "AUTOTUNE", "by-hand", "optimize")
PIPELINES = {
    **dict.fromkeys(optimize_results.FIVE, CACHING),
    **dict.fromkeys(
        ("latency-5ms", "latency-20ms", "latency-50ms", "latency-http", "latency-files"), WAITING
    ),
}


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
      repeats, most_repeats: fresh processes for each way: at least, and where a comparison is close.
      rounds: turns of each process after its first epoch.
      turn_s: how long a turn is at least, seconds.
      scale: share of the data.
      budget_s: of each `optimize`.
    """

    repeats: int = REPEATS
    most_repeats: int = optimize_results.MOST_REPEATS
    rounds: int = ROUNDS
    turn_s: float = TURN_S
    scale: float = 1.0
    budget_s: float = 20.0


class Worker:
    """One process that runs a pipeline in one way."""

    def __init__(self, family: str, way: str, directory: Path, budget_s: float, log: TextIO) -> None:
        command = [sys.executable, "-m", "benchmarks.optimize_worker", family, way, str(directory)]
        self._name = f"{family}, {way}"
        self._process = subprocess.Popen(
            [*command, "--budget", str(budget_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, question: str) -> dict[str, Any]:
        """The answer to a line.

        Raises:
          RuntimeError: the process is gone.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{question}\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._name}: the worker ended; its log says why")
        return dict(json.loads(answer))


def measure(family: str, ways: Sequence[str], effort: Effort, directory: Path) -> list[Repeat]:
    """All repeats of one pipeline, with those that `directory` holds already; they are saved there."""
    saved = directory / f"{family}.json"
    repeats: list[Repeat] = json.loads(saved.read_text(encoding="utf-8")) if saved.exists() else []
    log_path = directory / f"{family}.log"
    with _data(family, effort.scale) as (data, server), log_path.open("a", encoding="utf-8") as log:
        while asked := _still_asked(ways, repeats, effort):
            tell(f"{family}: repeat {len(repeats) + 1}, {len(asked)} ways")
            order = np.random.default_rng(len(repeats)).permutation(len(asked))
            shuffled = [asked[i] for i in order]
            repeats.append(_repeat(family, shuffled, effort, data, server, log))
            saved.write_text(json.dumps(repeats, indent=1), encoding="utf-8")
    return repeats


def _still_asked(ways: Sequence[str], repeats: Sequence[Repeat], effort: Effort) -> list[str]:
    """The ways of the next repeat; none if enough is known."""
    whole = sum(all(way in one for way in ways) for one in repeats)
    if whole < effort.repeats:
        return list(ways)
    if len(repeats) >= effort.most_repeats:
        return []
    close = [way for way in ways if way in optimize_results.OPTIMIZED and undecided(repeats, way)]
    others = [way for way in (NAIVE, optimize_results.AUTOTUNE) if way in ways]
    return [*others, *close] if close else []


def _repeat(
    family: str, ways: Sequence[str], effort: Effort, data: Path, server: psutil.Process | None, log: TextIO
) -> Repeat:
    with contextlib.ExitStack() as stack:
        workers = {way: stack.enter_context(Worker(family, way, data, effort.budget_s, log)) for way in ways}
        for worker in workers.values():
            worker.ask("ready")  # all import TensorFlow before anything is measured
        found: dict[str, dict[str, Any]] = {}
        for way, worker in workers.items():
            setup = worker.ask("setup")
            first = worker.ask("epoch") if setup["finite"] else None
            found[way] = {"setup": setup, "first": first, "turns": []}
        for _ in range(effort.rounds):
            for way, worker in workers.items():
                before = _cpu_s(server)
                turn = worker.ask(f"turn {effort.turn_s}")
                turn["server_cpu_s"] = _cpu_s(server) - before
                found[way]["turns"].append(turn)
        for way in ways:
            found[way]["peak_bytes"] = max(turn["peak_bytes"] for turn in found[way]["turns"])
            turns = found[way]["turns"]
            rate = sum(turn["steps"] for turn in turns) / sum(turn["seconds"] for turn in turns)
            tell(f"  {way}: {rate:.4g} steps/s; {'; '.join(found[way]['setup']['changes'])}")
    return found


def _cpu_s(process: psutil.Process | None) -> float:
    if process is None:
        return 0.0
    times = process.cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def _data(family: str, scale: float) -> Iterator[tuple[Path, psutil.Process | None]]:
    """The folder of a pipeline's data, and the server that it asks, if it has one."""
    from benchmarks import optimize_data
    from benchmarks.optimize_families import FAMILIES, HTTP_S

    data = FAMILIES[family].data
    if data is not None:
        tell(f"{family}: data")
        yield optimize_data.prepare(data, scale), None
        return
    with tempfile.TemporaryDirectory(prefix="plumber-bench-") as name:
        if family != "latency-http":
            yield Path(name), None
            return
        command = [sys.executable, "-m", "benchmarks.optimize_server", str(HTTP_S), name]
        server = subprocess.Popen(command)
        try:
            while not (address := Path(name) / "address").exists() or not address.read_text(encoding="utf-8"):
                if server.poll() is not None:
                    raise RuntimeError("the server did not start")
                time.sleep(0.05)
            yield Path(name), psutil.Process(server.pid)
        finally:
            server.kill()
            server.wait()


def _report(repeats: Mapping[str, Sequence[Repeat]], machine: Machine) -> list[Outcome]:
    """Prints all tables, and the goals."""
    outcomes = [
        outcome_of(family, way, found, machine.cores)
        for family, found in repeats.items()
        for way in PIPELINES[family]
        if any(way in one for one in found)
    ]
    sections: list[tuple[str, Callable[[], str]]] = [
        ("Rates and totals", lambda: optimize_results.describe(outcomes)),
        ("What optimize did", lambda: optimize_results.describe_setups(outcomes)),
        ("Plans by kind of change", lambda: optimize_results.describe_kinds(repeats)),
        ("Goals", lambda: "\n".join(str(goal) for goal in optimize_results.goals(outcomes))),
    ]
    for title, text in sections:
        print(f"\n## {title}\n\n{text()}")
    turns = [
        turn
        for family, found in repeats.items()
        if family != "latency-http"
        for one in found
        for way in one.values()
        for turn in way["turns"]
    ]
    disturbed = sum(turn["foreign_cores"] > FOREIGN_CORES for turn in turns)
    print(
        f"\n{disturbed} of {len(turns)} turns in which other processes used more than {FOREIGN_CORES:g} cores"
    )
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="some of the pipelines, comma-separated; `latency` is all that wait")
    parser.add_argument("--ways", help="some of the ways to run them, comma-separated")
    parser.add_argument("--smoke", action="store_true", help="each once, on little data")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="fresh processes for each way")
    parser.add_argument(
        "--most-repeats",
        type=int,
        default=optimize_results.MOST_REPEATS,
        help="where a comparison is close to a loss",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the data")
    parser.add_argument("--budget", type=float, default=20.0, help="budget_s of each optimize")
    parser.add_argument("--directory", type=Path, help="for what was measured (default: a temporary one)")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--plot", type=Path, help="draw the rates into this file (.png or .svg)")
    options = parser.parse_args()
    names = _chosen(options.only)
    if unknown := set(names) - PIPELINES.keys():
        parser.error(f"no pipeline {', '.join(sorted(unknown))}: there are {', '.join(PIPELINES)}")
    asked = {name: options.ways or (_tried(name) if options.smoke else None) for name in names}
    ways = {name: _some(PIPELINES[name], asked[name]) for name in names}
    effort = Effort(
        options.repeats,
        max(options.repeats, options.most_repeats),
        scale=options.scale,
        budget_s=options.budget,
    )
    if options.smoke:
        effort = Effort(1, 1, 1, SMOKE_TURN_S, SMOKE_SCALE, SMOKE_BUDGET_S)
    directory = options.directory or Path(tempfile.mkdtemp(prefix="plumber-optimize-"))
    directory.mkdir(parents=True, exist_ok=True)
    machine = Machine.here()
    print(machine, flush=True)
    with ThreadPoolExecutor(SMOKE_AT_ONCE if options.smoke else 1) as pool:
        found = pool.map(lambda name: measure(name, ways[name], effort, directory), names)
        repeats = dict(zip(names, found, strict=True))
    outcomes = _report(repeats, machine)
    print(f"\nAll repeats, and the workers' logs: {directory}")
    if options.json:
        content = {
            "machine": asdict(machine),
            "outcomes": [{**asdict(one), "share": one.share} for one in outcomes],
            "goals": [asdict(goal) for goal in optimize_results.goals(outcomes)],
            "repeats": repeats,
        }
        options.json.write_text(json.dumps(content, indent=1), encoding="utf-8")
    if options.plot:
        optimize_plot.draw(outcomes, options.plot, str(machine))
    return 0


def _chosen(only: str | None) -> list[str]:
    """The pipelines that are asked for, in the order of `PIPELINES`' where a name stands for several."""
    if not only:
        return list(PIPELINES)
    groups = {"latency": [name for name in PIPELINES if name.startswith("latency")]}
    return list(dict.fromkeys(name for word in only.split(",") for name in groups.get(word, [word])))


def _some(ways: Sequence[str], only: str | None) -> list[str]:
    """Those ways that are asked for."""
    return [way for way in ways if not only or way in only.split(",")]


def _tried(name: str) -> str | None:
    """The ways by which a smoke run tries a pipeline: all where that is quick, else two."""
    return None if name in SMOKE_ALL else f"{NAIVE},{optimize_results.FREE}"


if __name__ == "__main__":
    sys.exit(main())
