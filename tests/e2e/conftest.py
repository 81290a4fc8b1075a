"""A real browser on a real TensorBoard."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.conftest import RecordedRun
from tests.e2e.tab import CHROMIUM_ARGUMENTS
from tests.support import tensorboard


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, or skip where there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM_ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def board(recorded_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tensorboard.TensorBoard]:
    """TensorBoard over two recorded runs and a run of scalars; for tests that change nothing."""
    log_path = tmp_path_factory.mktemp("board") / "tensorboard.log"
    with tensorboard.serve(recorded_runs, log_path) as board:
        board.wait_for_runs(2)
        yield board


@pytest.fixture(scope="session")
def recorded_runs(recorded_run: RecordedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with the recorded run under two names, and scalars, so that other tabs are active."""
    from tensorboard.summary import Writer

    logdir = tmp_path_factory.mktemp("runs")
    for name in ("fit", "again/fit"):
        shutil.copytree(recorded_run.logdir / recorded_run.run, logdir / name)
    writer = Writer(str(logdir / "scalars"))
    for step in range(3):
        writer.add_scalar("loss", 1.0 / (step + 1), step=step)
    writer.close()
    return logdir
