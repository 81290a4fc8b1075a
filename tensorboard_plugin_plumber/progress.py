"""Tells people what is going on, where somebody can see it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Shows `what` on stderr while it lasts, where that is a terminal.

    Returns:
      A function that says what of it is going on now.
    """
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} …") as status:
        yield lambda step: status.update(f"{what}: {step} …")
