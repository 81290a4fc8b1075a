"""The tab in a browser, as tests and the screenshot script see it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from playwright.sync_api import Browser, FrameLocator, Locator, Page

CHROMIUM_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


@dataclass(frozen=True)
class Tab:
    """An open Plumber tab.

    Attributes:
      page: TensorBoard's page.
      requests: addresses of everything that was asked of the plugin, in order.
      errors: what the console reported as an error, and exceptions nobody caught.
    """

    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def frame(self) -> FrameLocator:
        """The plugin's own document."""
        return self.page.frame_locator("iframe")

    @property
    def verdict(self) -> Locator:
        """The verdict's region."""
        return self.frame.get_by_role("region", name="Verdict")

    def picker(self, label: str) -> Locator:
        """The select element labelled "Run", "Host" or "Pipeline"."""
        return self.frame.locator(f"select[name={label.lower()}]")

    def card(self, operator: str) -> Locator:
        """The card of an operator, by its id."""
        return self.frame.locator(f'[data-operator="{operator}"]')

    def state(self, name: str) -> Locator:
        """What is shown in place of an analysis: "empty", "damaged", "collecting" …"""
        return self.frame.locator(f'[data-state="{name}"]')

    def background(self) -> str:
        """The colour of the tab's own background, as "rgb(…)"."""
        return str(self.frame.locator("body").evaluate("body => getComputedStyle(body).backgroundColor"))


@contextlib.contextmanager
def open_tab(browser: Browser, url: str, *, color_scheme: str = "light", height: int = 900) -> Iterator[Tab]:
    """Opens TensorBoard at `url` (with a fragment, else at the Plumber tab) for the length of a `with` block."""
    page = browser.new_page(viewport={"width": 1440, "height": height}, color_scheme=color_scheme)
    tab = Tab(page)
    page.on("request", lambda request: _note_request(tab, request.url))
    page.on("console", lambda message: tab.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: tab.errors.append(str(error)))
    try:
        page.goto(url if "#" in url else f"{url}#plumber")
        yield tab
    finally:
        page.close()


def _note_request(tab: Tab, url: str) -> None:
    if "/data/plugin/plumber/" in url:
        tab.requests.append(url.rpartition("/data/plugin/plumber/")[2])
