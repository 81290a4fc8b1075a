"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def pytest_runtest_setup() -> None:
    """Programs that tests start see the environment of a user's shell.

    TensorFlow imports JAX where that is installed, and JAX sets this variable for all children of the process.
    """
    os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)


@pytest.fixture(autouse=True)
def _no_seed_is_left_behind() -> Iterator[None]:
    """What one test says of randomness holds for that test alone."""
    yield
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].random.set_seed(None)


@pytest.fixture(autouse=True, scope="session")
def _no_cache_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is measured of storage is kept for these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@dataclass(frozen=True)
class RecordedRun:
    """A real, short training that was recorded (tests/support/fit.py).

    Attributes:
      logdir: what to give to TensorBoard and `plumber report`.
      run: the run's name in it.
    """

    logdir: Path
    run: str


@pytest.fixture(scope="session")
def recorded_run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """A real training, run once per test session; do not write into its directory."""
    logdir = tmp_path_factory.mktemp("recorded")
    subprocess.run(
        [sys.executable, "-m", "tests.support.fit", str(logdir / "fit")], cwd=ROOT, check=True, timeout=180
    )
    return RecordedRun(logdir, "fit")
