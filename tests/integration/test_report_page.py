"""`plumber report --html`: the page of a recorded run says what `--json` says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.test_cli import assert_refused, plumber
from tests.support.page import Page
from tests.support.records import START_S, Training


def test_the_page_says_what_the_json_says(tmp_path: Path) -> None:
    logs, path = tmp_path / "logs", tmp_path / "report.html"
    Training(start_s=START_S).write(logs / "fit", samples=10, final=True)
    result = plumber("report", logs, "--html", path, "--json")
    assert result.code == 0
    page = Page(path.read_text(encoding="utf-8"))
    told: Any = result.json
    assert len(page.numbers) > 20
    for number in page.numbers:
        value = told
        for part in number.key.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
        if number.key != "plan.solve_s":
            assert float(number.value) == value, number
    assert told["verdict"]["sentence"] in page.text
    assert all(change["code"] in page.text for change in told["plan"]["changes"])


def test_without_json_it_says_where_the_page_is(tmp_path: Path) -> None:
    logs, path = tmp_path / "logs", tmp_path / "report.html"
    Training(start_s=START_S).write(logs / "fit", samples=10, final=True)
    result = plumber("report", logs, "--html", path)
    assert result.code == 0
    assert result.out == f"Wrote {path}: open it in a browser.\n"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    # THEN a page that cannot be written is said, and so is a question for which there is none
    assert_refused(plumber("report", logs, "--html", tmp_path / "missing" / "report.html"), "Cannot write")
    assert_refused(plumber("report", logs, "--all", "--html", path), "--html")
