"""What tests ask of an analysis, as the object of `--json`."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Any

import psutil


def codes(answer: dict[str, Any]) -> set[str]:
    """The codes of its findings."""
    return {finding["code"] for finding in answer["findings"]}


def row_of(answer: dict[str, Any], label: str) -> dict[str, Any]:
    """The one operator of this label."""
    (row,) = (row for row in answer["operators"] if row["label"] == label)
    return row


class HostWatch:
    """Tells whether other processes of the test machine took cores meanwhile.

    Where they do, those cores bind, and what a diagnosis says of idle ones is rightly another thing.
    """

    def __enter__(self) -> HostWatch:
        self._begin = self._times()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        elapsed_s, host_s, own_s = (now - then for now, then in zip(self._times(), self._begin, strict=True))
        self.others_cores = (host_s - own_s) / elapsed_s

    @property
    def quiet(self) -> bool:
        """Whether the others left these tests as good as alone."""
        return self.others_cores < 0.25

    @staticmethod
    def _times() -> tuple[float, float, float]:
        """Now, CPU time of the whole host, and that of this process and its children that ended, seconds."""
        host, own = psutil.cpu_times(), os.times()
        busy = host.user + host.nice + host.system
        return time.monotonic(), busy, own.user + own.system + own.children_user + own.children_system
