"""The examples run as they are and record what they promise."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*command: str, cwd: Path) -> str:
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("example", "run_name", "role"), [("fit", "fit", "train"), ("custom_loop", "loop", "trace")]
)
def test_example_is_diagnosed(example: str, run_name: str, role: str, tmp_path: Path) -> None:
    # GIVEN an example, run by copying it
    script = EXAMPLES / f"{example}.py"
    run(sys.executable, str(script), cwd=tmp_path)

    # WHEN its log is read
    answer = run(
        sys.executable, "-m", "tensorboard_plugin_plumber.cli", "report", "logs", "--json", cwd=tmp_path
    )
    analysis = json.loads(answer)

    # THEN it is the run that the example names, and its map is blamed at the example's own line
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if ".map(" in text)
    assert analysis["run"] == run_name
    assert analysis["verdict"]["input_bound"] is True
    blamed = {row["id"]: row for row in analysis["operators"]}[analysis["bottleneck"]["operator"]]
    assert blamed["source"] == f"{example}.py:{line}"
    assert blamed["type"] == "Map"


def test_examples_stay_short() -> None:
    for script in EXAMPLES.glob("*.py"):
        code = script.read_text().split('"""')[2]
        statements = [line for line in code.splitlines() if line and not line.startswith(("import", "from"))]
        assert len(statements) <= 10, script.name


def test_readme_shows_the_examples_as_they_are() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (EXAMPLES.parent / "README.md").read_text(), re.DOTALL)
    shown = [[line for line in block.splitlines() if line] for block in blocks]
    for script in EXAMPLES.glob("*.py"):
        code = script.read_text().split('"""')[2]
        assert [line for line in code.splitlines() if line] in shown, script.name
