"""What tests ask of an analysis, as the object of `--json`."""

from __future__ import annotations

from typing import Any


def codes(answer: dict[str, Any]) -> set[str]:
    """The codes of its findings."""
    return {finding["code"] for finding in answer["findings"]}


def row_of(answer: dict[str, Any], label: str) -> dict[str, Any]:
    """The one operator of this label."""
    (row,) = (row for row in answer["operators"] if row["label"] == label)
    return row


def cores_idle(answer: dict[str, Any]) -> bool:
    """Whether the host left half a core idle to this process.

    Other processes on the test machine may take the cores; then those bind, and rightly so.
    """
    (cpu,) = (bound for bound in answer["bounds"] if bound["constraint"] == "cpu")
    used = sum(row["cores_used"] or 0.0 for row in answer["operators"])
    return bool(used * (cpu["rate"] / answer["verdict"]["observed_rate"] - 1) > 0.5)
