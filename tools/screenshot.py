"""Takes the pictures of the README: the real tab, over a real recorded training.

    python tools/screenshot.py [LOGDIR]

Without LOGDIR it records `plumber demo --no-serve` first. Writes docs/images/tab-light.png and
docs/images/tab-dark.png. Needs the `dev` extra and a Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.e2e.tab import CHROMIUM_ARGUMENTS, open_tab  # noqa: E402
from tests.support import tensorboard  # noqa: E402

IMAGES = ROOT / "docs" / "images"
LOAD_TIMEOUT_MS = 60_000


def take(logdir: Path, log_path: Path) -> None:
    """Writes the pictures of what TensorBoard shows of `logdir`."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tensorboard.serve(logdir, log_path) as board, sync_playwright() as playwright:
        board.wait_for_runs()
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(CHROMIUM_ARGUMENTS)
        )
        for theme in ("light", "dark"):
            with open_tab(browser, board.url, color_scheme=theme) as tab:
                expect(tab.verdict).to_be_visible(timeout=LOAD_TIMEOUT_MS)
                expect(tab.frame.locator("html")).to_have_attribute("data-theme", theme)
                tab.page.screenshot(path=IMAGES / f"tab-{theme}.png")
        browser.close()


def main() -> None:
    """Records if need be, then takes the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "logdir", nargs="?", type=Path, help="what was recorded; default: record the demo now"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        logdir = options.logdir
        if logdir is None:
            logdir = Path(scratch) / "logs"
            command = [sys.executable, "-m", "tensorboard_plugin_plumber.cli", "demo", "--no-serve"]
            subprocess.run([*command, "--logdir", str(logdir)], check=True)
        take(logdir, Path(scratch) / "tensorboard.log")


if __name__ == "__main__":
    main()
