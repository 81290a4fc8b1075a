"""A report's page as a program reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "br", "hr", "img", "link", "input"}


@dataclass(frozen=True)
class Number:
    """One number of the page: the key of `--json` it names, its exact value, and what is shown."""

    key: str
    value: str
    shown: str


@dataclass
class Page(HTMLParser):
    """What a page holds.

    Attributes:
      elements: the names of its elements with those of their attributes, in order.
      attributes: (name, value) of all attributes.
      numbers: its `data` elements.
      text: all that is shown, without what stands in the style sheet.
    """

    source: str
    elements: list[tuple[str, ...]] = field(default_factory=list)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    numbers: list[Number] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._data: dict[str, str | None] | None = None
        self.feed(self.source)
        self.close()
        assert self._open == [], "elements that nobody closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attrs)))
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "data":
            self._data = dict(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attrs)))
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "data":
            self._data = None

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.text += data
        if self._data is not None:
            self.numbers.append(Number(str(self._data["data-key"]), str(self._data["value"]), data))
