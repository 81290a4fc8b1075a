"""The tab inside a real TensorBoard, over a real recorded training."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.conftest import ROOT, RecordedRun
from tests.e2e.tab import Tab, open_tab
from tests.support import fit, tensorboard
from tests.support.tensorboard import TensorBoard

SLOW_MS = 30_000


def map_line() -> str:
    """Where tests/support/fit.py calls the map that is the bottleneck: "fit.py:<line>"."""
    lines = Path(str(fit.__file__)).read_text(encoding="utf-8").splitlines()
    number = next(number for number, line in enumerate(lines, 1) if ".map(augment)" in line)
    return f"fit.py:{number}"


def steps_shown(tab: Tab) -> int:
    """Steps of the selected pipeline, as its picker says."""
    picker = tab.picker("Pipeline")
    text = str(picker.evaluate("select => select.selectedOptions[0].text"))
    return int(re.sub(r"\D", "", text.rpartition("(")[2]))


def test_it_marks_the_right_operator(browser: Browser, board: TensorBoard) -> None:
    # GIVEN a training that waits for its sequential map
    with open_tab(browser, board.url) as tab:
        # WHEN the tab has loaded
        binding = tab.frame.locator('[data-binds="true"]')
        expect(binding).to_have_count(1, timeout=SLOW_MS)
        # THEN that map is marked, in words, with the user's name and line
        for part in ("Map", "binds", "augment", map_line()):
            expect(binding).to_contain_text(part)
        expect(tab.verdict).to_have_attribute("data-input-bound", "true")
        expect(tab.verdict.get_by_role("heading")).to_contain_text("input-bound", ignore_case=True)
        # AND the plan changes it
        expect(tab.frame.locator('[data-section="plan"]')).to_contain_text("num_parallel_calls")
        assert tab.errors == []


def test_details_say_what_is_known_of_an_operator(browser: Browser, board: TensorBoard) -> None:
    with open_tab(browser, board.url) as tab:
        binding = tab.frame.locator('[data-binds="true"]')
        binding.focus(timeout=SLOW_MS)
        tab.page.keyboard.press("Enter")
        details = tab.frame.locator('[data-section="details"]')
        expect(details).to_contain_text(f"{fit.__file__}:{map_line().rpartition(':')[2]}")
        expect(details).to_contain_text("cannot be cached")
        tab.page.keyboard.press("Escape")
        expect(details).to_have_count(0)
        assert tab.errors == []


def test_what_runs_is_one_click_away(browser: Browser, board: TensorBoard) -> None:
    with open_tab(browser, board.url) as tab:
        tab.frame.get_by_role("button", name="What runs").click(timeout=SLOW_MS)
        expect(tab.frame.locator('[data-binds="true"]')).to_contain_text("MapAndBatch")
        assert tab.errors == []


def test_it_picks_runs_and_pipelines_and_keeps_them_in_the_address(
    browser: Browser, board: TensorBoard
) -> None:
    with open_tab(browser, board.url) as tab:
        # GIVEN two runs, each with a training and a validation pipeline
        run = tab.picker("Run")
        expect(run).to_be_visible(timeout=SLOW_MS)
        assert sorted(run.locator("option").all_text_contents()) == ["again/fit", "fit"]
        assert "p.plumber" not in tab.page.url
        # WHEN one is chosen
        run.select_option("again/fit")
        expect(tab.verdict).to_be_visible(timeout=SLOW_MS)
        pipeline = tab.picker("Pipeline")
        validation = pipeline.locator("option", has_text="validation").get_attribute("value")
        pipeline.select_option(validation)
        expect(tab.frame.locator("[data-consumer]")).to_contain_text("validation", timeout=SLOW_MS)
        # THEN the address says so, beside what TensorBoard keeps there
        assert tab.page.url.partition("#")[2].startswith("plumber&p.plumber.run=again%2Ffit&")
        # AND leads back to it
        tab.page.reload()
        expect(tab.picker("Run")).to_have_value("again/fit", timeout=SLOW_MS)
        expect(tab.picker("Pipeline")).to_have_value(validation or "")
        assert tab.errors == []


def test_it_follows_the_theme(browser: Browser, board: TensorBoard) -> None:
    with open_tab(browser, board.url) as tab:
        expect(tab.verdict).to_be_visible(timeout=SLOW_MS)
        light = tab.background()
        tab.page.get_by_role("button", name="Menu for changing light or dark theme").click()
        tab.page.get_by_role("menuitem", name="Dark", exact=False).last.click()
        expect(tab.frame.locator("html")).to_have_attribute("data-theme", "dark")
        assert tab.background() != light
        assert tab.frame.locator("html").evaluate("root => getComputedStyle(root).colorScheme") == "dark"
        assert tab.errors == []


def test_it_opens_dark_in_a_dark_browser(browser: Browser, board: TensorBoard) -> None:
    with open_tab(browser, board.url, color_scheme="dark") as tab:
        expect(tab.frame.locator("html")).to_have_attribute("data-theme", "dark", timeout=SLOW_MS)


def test_it_asks_nothing_while_hidden_and_catches_up(browser: Browser, board: TensorBoard) -> None:
    with open_tab(browser, board.url) as tab:
        # GIVEN a tab that polls
        expect(tab.verdict).to_be_visible(timeout=SLOW_MS)
        tab.requests.clear()
        tab.page.wait_for_timeout(6000)
        assert "runs" in tab.requests
        # WHEN another tab is looked at
        tab.page.locator("[data-plugin-id=timeseries]").first.click()
        tab.page.wait_for_timeout(1000)
        tab.requests.clear()
        tab.page.wait_for_timeout(7000)
        # THEN nothing is asked, until it is back
        assert tab.requests == []
        tab.page.locator("[data-plugin-id=plumber]").first.click()
        tab.page.wait_for_timeout(2000)
        assert "runs" in tab.requests
        assert tab.errors == []


def test_tensorboards_reload_button_reloads_it(browser: Browser, board: TensorBoard) -> None:
    with open_tab(browser, board.url) as tab:
        expect(tab.verdict).to_be_visible(timeout=SLOW_MS)
        # Polls are 5 s apart: what is asked soon after one of them is the button's doing.
        with tab.page.expect_request(lambda request: request.url.endswith("/plumber/runs")):
            pass
        tab.page.wait_for_timeout(500)
        tab.requests.clear()
        tab.page.locator("app-header-reload").click()
        tab.page.wait_for_timeout(2500)
        assert "runs" in tab.requests


def test_what_if_asks_for_other_limits(browser: Browser, board: TensorBoard) -> None:
    with open_tab(browser, board.url) as tab:
        cores = tab.frame.get_by_role("spinbutton", name="Cores")
        cores.fill("64", timeout=SLOW_MS)
        cores.press("Tab")
        expect(tab.frame.get_by_text("all 64 cores")).to_be_visible(timeout=SLOW_MS)
        assert any("cores=64" in request for request in tab.requests)
        tab.frame.get_by_role("button", name="As measured").click()
        expect(tab.frame.get_by_text("all 64 cores")).to_have_count(0)
        assert tab.errors == []


def test_it_works_under_a_path_prefix(browser: Browser, recorded_runs: Path, tmp_path: Path) -> None:
    with tensorboard.serve(recorded_runs, tmp_path / "log", path_prefix="/behind/a/proxy") as board:
        board.wait_for_runs(2)
        with open_tab(browser, board.url) as tab:
            expect(tab.frame.locator('[data-binds="true"]')).to_contain_text("augment", timeout=SLOW_MS)
            # TensorBoard itself asks for its fonts outside of the prefix; everything else is ours to answer for.
            assert [error for error in tab.errors if "404" not in error] == []
            assert tab.requests
            assert tab.page.url.startswith(board.url)


def test_it_is_live_while_training_writes(browser: Browser, tmp_path: Path) -> None:
    # GIVEN a training that runs now
    logdir = tmp_path / "logs"
    training = subprocess.Popen(
        [sys.executable, "-m", "tests.support.fit", str(logdir / "fit"), "--seconds", "45"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with tensorboard.serve(logdir, tmp_path / "log") as board, open_tab(browser, board.url) as tab:
            # WHEN the tab is only looked at
            expect(tab.verdict).to_be_visible(timeout=2 * SLOW_MS)
            expect(tab.frame.get_by_text(re.compile("^live · "))).to_be_visible(timeout=SLOW_MS)
            before = steps_shown(tab)
            tab.card("op1").click()
            # THEN its numbers grow, and what was selected stays
            tab.page.wait_for_function(
                """before => {
                    const frame = document.querySelector("iframe").contentDocument;
                    const text = frame.querySelector("select[name=pipeline]").selectedOptions[0].text;
                    return Number(text.split("(")[1].replace(/\\D/g, "")) > before;
                }""",
                arg=before,
                timeout=SLOW_MS,
            )
            expect(tab.card("op1")).to_have_attribute("aria-pressed", "true")
    finally:
        training.terminate()
        training.wait(timeout=30)


def test_an_empty_log_directory_says_what_to_do_and_fills_by_itself(
    browser: Browser, recorded_run: RecordedRun, tmp_path: Path
) -> None:
    # GIVEN a log directory without anything in it
    logdir = tmp_path / "logs"
    logdir.mkdir()
    with tensorboard.serve(logdir, tmp_path / "log") as board, open_tab(browser, board.url) as tab:
        # THEN the tab says how to record
        empty = tab.state("empty")
        expect(empty).to_be_visible(timeout=SLOW_MS)
        for part in ("pip install", "PlumberCallback", "plumber demo"):
            expect(empty).to_contain_text(part)
        # WHEN something is recorded, THEN it is shown without a reload
        shutil.copytree(recorded_run.logdir / recorded_run.run, logdir / "late")
        expect(tab.verdict).to_be_visible(timeout=SLOW_MS)
        assert tab.errors == []


def test_damaged_event_files_are_named(browser: Browser, recorded_run: RecordedRun, tmp_path: Path) -> None:
    logdir = tmp_path / "logs"
    shutil.copytree(recorded_run.logdir / recorded_run.run, logdir / "fit")
    for path in (logdir / "fit" / "plumber").rglob("*tfevents*"):
        path.write_bytes(path.read_bytes()[:40] + b"\xff" * 400)
    with tensorboard.serve(logdir, tmp_path / "log") as board, open_tab(browser, board.url) as tab:
        expect(tab.state("damaged")).to_be_visible(timeout=SLOW_MS)
        assert tab.errors == []


def test_a_file_cut_short_is_used_and_noted(
    browser: Browser, recorded_run: RecordedRun, tmp_path: Path
) -> None:
    logdir = tmp_path / "logs"
    shutil.copytree(recorded_run.logdir / recorded_run.run, logdir / "fit")
    for path in (logdir / "fit" / "plumber").rglob("*tfevents*"):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) - len(content) // 5])
    with tensorboard.serve(logdir, tmp_path / "log") as board, open_tab(browser, board.url) as tab:
        expect(tab.verdict).to_be_visible(timeout=SLOW_MS)
        expect(tab.frame.locator('[data-binds="true"]')).to_contain_text("augment")
        expect(tab.frame.get_by_role("list", name="Notes")).to_be_visible()
        assert tab.errors == []
