"""The examples run as they are and record what they promise."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
README = EXAMPLES.parent / "README.md"


@dataclass(frozen=True)
class Promise:
    """What the report of an example says: its run, and the steps of its training."""

    run: str
    steps: int


PROMISES = {
    "fit": Promise("fit", 40 * 16),
    "custom_loop": Promise("loop", 60 * 16),
    "jax_loop": Promise("jax", 60 * 16),
    "mirrored_strategy": Promise("mirrored", 20 * 16 * 2),  # one for each device,
}


def run(*command: str, cwd: Path) -> str:
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def report(cwd: Path) -> dict[str, Any]:
    command = (sys.executable, "-m", "tensorboard_plugin_plumber.cli", "report", "logs", "--json")
    answer: dict[str, Any] = json.loads(run(*command, cwd=cwd))
    return answer


def line_of_map(script: Path) -> int:
    return next(n for n, text in enumerate(script.read_text().splitlines(), 1) if ".map(" in text)


def is_missing(example: str) -> bool:
    return example == "jax_loop" and importlib.util.find_spec("jax") is None


@pytest.mark.parametrize("example", PROMISES)
def test_example_is_diagnosed(example: str, tmp_path: Path) -> None:
    if is_missing(example):
        pytest.skip("JAX is not installed: pip install jax")
    # GIVEN an example, run by copying it
    script, promise = EXAMPLES / f"{example}.py", PROMISES[example]
    run(sys.executable, str(script), cwd=tmp_path)

    # WHEN its log is read
    analysis = report(tmp_path)

    # THEN it is the run that the example names, all of its steps were seen, and its map is at the example's own line
    assert analysis["run"] == promise.run
    assert analysis["steps"] == promise.steps
    rows = {row["id"]: row for row in analysis["operators"]}
    costly = max(
        (row for row in rows.values() if not row["injected"]),
        key=lambda row: ((row["cpu_s"] or 0) + (row["wait_s"] or 0)) * (row["visit_ratio"] or 0),
    )
    assert (costly["type"], costly["source"]) == ("Map", f"{example}.py:{line_of_map(script)}")
    # AND its training waits for that map
    assert analysis["verdict"]["input_bound"] is True
    assert rows[analysis["bottleneck"]["operator"]]["source"] == costly["source"]


def test_without_jax_its_example_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("raise ImportError('not here')")

    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "jax_loop.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 1
    assert "pip install jax" in done.stderr
    assert "Traceback" not in done.stderr


def test_examples_stay_short_and_are_all_known() -> None:
    assert {script.stem for script in EXAMPLES.glob("*.py")} == set(PROMISES)
    for script in EXAMPLES.glob("*.py"):
        assert len(script.read_text().splitlines()) <= 60, script.name


def test_readme_lists_every_example() -> None:
    listed = re.findall(r"^- \[examples/(\w+)\.py\]\(examples/\1\.py\): \w", README.read_text(), re.MULTILINE)
    assert set(listed) == set(PROMISES)


@pytest.mark.parametrize("example", ["fit", "custom_loop"])
def test_readme_shows_the_examples_as_they_are(example: str) -> None:
    def code(text: str) -> list[str]:
        return [line for line in text.splitlines() if line and not line.startswith("#")]

    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert code((EXAMPLES / f"{example}.py").read_text().split('"""')[2]) in [code(block) for block in blocks]
