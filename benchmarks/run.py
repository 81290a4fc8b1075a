"""Every benchmark, as tables on stdout and all numbers in one JSON file.

make bench                                    all of it: about 20 minutes
make bench ARGS=--smoke                       each once, short: does it run, not what does it say
make bench ARGS="--only accuracy,solve_time"
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import accuracy, cases, demo_reference, matrix, overhead, solve_time
from benchmarks.report import Machine, table, tell
from tensorboard_plugin_plumber.demo import photographs


@dataclass(frozen=True)
class Result:
    """What one benchmark found: for people, and for programs."""

    text: str
    numbers: Any


def _overhead(smoke: bool) -> Result:
    found = overhead.measure(1, 1, 4, thread_seconds=4) if smoke else overhead.measure(5, 5, 20)
    return Result(overhead.describe(found), asdict(found))


def _accuracy(smoke: bool) -> Result:
    found = accuracy.measure(2 if smoke else 5)
    return Result(accuracy.describe(found), [{**asdict(one), "error": one.error} for one in found])


def _solve_time(smoke: bool) -> Result:
    found = solve_time.measure(networks=3 if smoke else 15)
    return Result(solve_time.describe(found), asdict(found))


def _matrix(smoke: bool) -> Result:
    found = matrix.measure_all(["1", "default", "idle"], 2) if smoke else matrix.measure_all()
    return Result(matrix.describe(found), [asdict(one) for one in found])


def _demo_reference(smoke: bool) -> Result:
    found = demo_reference.measure(photographs.prepare().pattern, 1 if smoke else 5)
    cells = ["demo in an eager loop", f"{found.wait_fraction:.3f}", f"{found.steps_per_s:.1f}"]
    return Result(table(["reference", "wait fraction", "steps/s"], [cells]), asdict(found))


def _cases(smoke: bool) -> Result:
    commit = cases.head()
    chosen = cases.drawn(commit)[: 1 if smoke else None]
    text, record = cases.run(chosen, 3 if smoke else 5)
    return Result(f"drawn by {commit}\n\n{text}", record)


BENCHMARKS: Mapping[str, Callable[[bool], Result]] = {
    "solve_time": _solve_time,
    "accuracy": _accuracy,
    "matrix": _matrix,
    "demo_reference": _demo_reference,
    "overhead": _overhead,
    "cases": _cases,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(BENCHMARKS), help="some of them, comma-separated")
    parser.add_argument("--smoke", action="store_true", help="each once and short")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - BENCHMARKS.keys():
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: there are {', '.join(BENCHMARKS)}")
    machine = Machine.here()
    print(machine)
    numbers: dict[str, Any] = {"machine": asdict(machine)}
    for name in chosen:
        tell(f"benchmark {name} …")
        result = BENCHMARKS[name](options.smoke)
        numbers[name] = result.numbers
        print(f"\n## {name}\n\n{result.text}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
