"""The page of `plumber report --html` in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tensorboard_plugin_plumber.report import Report
from tests.unit.test_report_page import HOSTILE, analysis_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(Report(analysis_of("decode")).html(), encoding="utf-8")
    return path


def opened(
    browser: Browser, path: Path, *, width: int = 1280, color_scheme: str = "light"
) -> tuple[Page, list[str]]:
    """The page, and what it asked for or complained of besides itself."""
    said: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=color_scheme)
    page.on("request", lambda request: said.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.goto(path.as_uri())
    said.remove(path.as_uri())
    return page, said


def test_it_loads_nothing_and_has_two_themes(browser: Browser, path: Path) -> None:
    colours = []
    for scheme in ("light", "dark"):
        page, said = opened(browser, path, color_scheme=scheme)
        assert said == []
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.close()
    assert colours == ["rgb(255, 255, 255)", "rgb(32, 35, 39)"]


@pytest.mark.parametrize("width", [480, 1280])
@pytest.mark.parametrize("name", ["markup", "long"])
def test_no_name_breaks_the_page(browser: Browser, path: Path, name: str, width: int) -> None:
    path.write_text(Report(analysis_of(HOSTILE[name])).html(), encoding="utf-8")
    page, said = opened(browser, path, width=width)
    assert said == []
    # THEN nothing sticks out: only the graph, wide tables and code scroll within themselves
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_it_can_be_printed(browser: Browser, path: Path) -> None:
    page, _ = opened(browser, path, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    # THEN on white paper
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.close()
