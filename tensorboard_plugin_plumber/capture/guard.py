"""The one guard between Plumber and the user's training: what goes wrong is a warning."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

_logger = logging.getLogger("tensorboard_plugin_plumber")
# Reentrant: a finalizer may run in the middle of any line, in the thread that holds it.
_lock = threading.RLock()
_said: set[str] = set()


@contextlib.contextmanager
def protect(what: str) -> Iterator[None]:
    """Turns any exception inside into one warning per process and `what`.

    Args:
      what: what Plumber could not do, as "follow an iterator".
    """
    try:
        yield
    except Exception as error:
        warn(what, error)


def warn(what: str, error: BaseException) -> None:
    """Says once per process that Plumber cannot do something."""
    with _lock:
        if what in _said:
            return
        _said.add(what)
    # Not `warnings`: under `-W error` that would raise into training. And the user's own logging
    # handlers and filters may raise, too.
    with contextlib.suppress(Exception):
        _logger.warning(
            "Plumber could not %s; training is not affected. %s: %s",
            what,
            type(error).__name__,
            error,
            exc_info=_logger.isEnabledFor(logging.DEBUG),
        )
