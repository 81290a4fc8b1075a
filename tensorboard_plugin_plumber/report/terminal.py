"""Pieces of which reports for a terminal are made (rich)."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from tensorboard_plugin_plumber.report.words import clean, percent

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

DEFAULT_WIDTH = 100
#: Below this many columns tables leave out what they can.
WIDE = 100
#: Columns of which numbers are the content.
_NUMERIC = {"max steps/s", "steps/s", "calls", "now", "suggested", "wait", "over 1 ms", "time/step", "gain"}
#: Columns that may break over lines.
_BROKEN = {"operator", "what", "setting", "run", "cause", "with", "what binds"}


def render(show: Callable[[Console], None], width: int, color: bool) -> str:
    """What `show` prints, as text of `width` columns, without blanks at the ends of lines."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as capture:
        show(console)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def text(content: str, style: str = "") -> Text:
    """Content that is never markup, and cannot steer the terminal."""
    from rich.text import Text

    return Text(clean(content), style=style, overflow="fold")


def section(console: Console, title: str, content: RenderableType | None = None) -> None:
    """A title, and below it what it speaks of."""
    console.print()
    console.print(text(title, "bold underline"))
    if content is not None:
        console.print(indented(content))


def paragraph(console: Console, content: str, style: str = "", *, indent: int = 0) -> None:
    """A sentence or more, wrapped."""
    console.print(indented(text(content, style), indent))


def item(console: Console, content: str, style: str = "dim") -> None:
    """One point of a list."""
    points = table("", "", header=False)
    points.add_row(text("·", "dim"), text(content, style))
    console.print(indented(points))


def indented(content: RenderableType, indent: int = 2) -> RenderableType:
    """The content, so many columns to the right."""
    from rich.padding import Padding

    return Padding(content, (0, 0, 0, indent))


def table(*columns: str, header: bool = True) -> Table:
    """A table without lines; a column's name says how it is set."""
    from rich.table import Table

    made = Table(box=None, show_header=header, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for index, column in enumerate(columns):
        made.add_column(
            column,
            justify="right" if column in _NUMERIC else "left",
            overflow="fold",
            no_wrap=column not in _BROKEN and not (index == 1 and not header),
        )
    return made


def bar(share: float, style: str = "", *, width: int = 10) -> Text:
    """ "██████░░░░  64 %"."""
    filled = min(width, max(0, round(share * width)))
    return text(f"{'█' * filled}{'░' * (width - filled)} {percent(share):>5}", style)
