"""Runs `plumber diagnose` on eight of the cases, drawn by the commit, with the cases' own runner.

    python -m benchmarks.cases [--seconds 5] [--all] [--commit HASH]

Which eight is not ours to choose: random.Random(commit hash).sample(sorted(numbers), 8).
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import Machine

CASES = Path(__file__).parent / "cases"
DRAWN = 8


def numbers() -> list[str]:
    """The cases that there are, sorted."""
    return sorted(path.name[:2] for path in CASES.glob("[0-9][0-9]_*.py"))


def drawn(commit: str) -> list[str]:
    return random.Random(commit).sample(numbers(), DRAWN)


def head() -> str:
    """The full hash of the commit that is checked out."""
    command = ["git", "-C", str(CASES), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def run(chosen: list[str], seconds: float) -> tuple[str, dict[str, Any]]:
    """The runner's table, and its record: scores, answers, and what an expert would look for."""
    with tempfile.NamedTemporaryFile(suffix=".json") as record:
        plumber = shlex.join([sys.executable, "-m", "tensorboard_plugin_plumber.cli"])
        command = [sys.executable, str(CASES / "run_cases.py"), "--diagnose", "--plumber", plumber]
        options = ["--only", ",".join(chosen), "--seconds", str(seconds), "--json", record.name]
        done = subprocess.run([*command, *options], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"run_cases.py ended with exit status {done.returncode}")
        return done.stdout, json.loads(Path(record.name).read_text(encoding="utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5, help="of each diagnosis (default: 5)")
    parser.add_argument("--all", action="store_true", help="run all of them")
    parser.add_argument("--commit", help="draw by this hash (default: the commit checked out)")
    options = parser.parse_args()
    commit = options.commit or head()
    chosen = numbers() if options.all else drawn(commit)
    print(f"{Machine.here()}\n\n{'all' if options.all else f'drawn by {commit}'}: {', '.join(chosen)}\n")
    print(run(chosen, options.seconds)[0], end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
