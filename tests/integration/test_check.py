"""`plumber check` passes and fails as continuous integration needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_cli import assert_refused, plumber
from tests.support.records import START_S, Training


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An old run that was slow, and a new one of 10 steps/s."""
    root = tmp_path_factory.mktemp("logs")
    Training(start_s=START_S, rate=2).write(root / "old", samples=10, final=True)
    Training(start_s=START_S + 100, rate=10).write(root / "new", samples=10, final=True)
    return root


def test_a_training_within_its_limits_passes(logdir: Path) -> None:
    wait = plumber("report", logdir, "--json").json["verdict"]["wait_fraction"]
    result = plumber("check", logdir, "--min-rate", 9, "--max-wait", 100 * wait + 1)
    assert result.code == 0
    assert result.err == ""
    (line,) = result.out.splitlines()
    assert line.startswith("passed (new, ")
    assert "10 steps/s" in line


def test_a_training_beyond_its_limits_fails_and_says_by_how_much(logdir: Path) -> None:
    wait = plumber("report", logdir, "--json").json["verdict"]["wait_fraction"]
    result = plumber("check", logdir, "--min-rate", 11, "--max-wait", 100 * wait - 1)
    assert result.code == 1
    first, *rest = result.out.splitlines()
    assert first.startswith("failed (new, ")
    assert "10 steps/s, less than 11" in first
    assert "of the step for data, more than" in first
    # THEN what binds is told, too
    assert "Map decode (train.py:57)" in rest[0]


def test_another_run_can_be_checked(logdir: Path) -> None:
    assert plumber("check", logdir, "--run", "old", "--min-rate", 9).code == 1
    assert plumber("check", logdir, "--run", "new", "--min-rate", 9).code == 0


def test_a_wait_that_nobody_could_see_is_no_pass(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import tensorflow as tf\n"
        "def make_dataset():\n"
        "    return tf.data.Dataset.range(100_000).map(lambda x: tf.random.normal([100])).batch(8)\n"
    )
    logs = tmp_path / "logs"
    assert plumber("trace", f"{script}:make_dataset", "--logdir", logs, "--seconds", 2).code == 0
    assert_refused(plumber("check", logs, "--max-wait", 20), "how long training waits")
