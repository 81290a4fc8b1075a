"""What all benchmarks share: the machine they ran on, tables, and intervals."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Machine:
    """Named beside every number."""

    cpu: str
    cores: int
    python: str
    tensorflow: str
    tensorboard: str

    @staticmethod
    def here() -> Machine:
        return Machine(
            _cpu(),
            len(os.sched_getaffinity(0)),
            platform.python_version(),
            importlib.metadata.version("tensorflow"),
            importlib.metadata.version("tensorboard"),
        )

    def __str__(self) -> str:
        versions = f"Python {self.python}, TensorFlow {self.tensorflow}, TensorBoard {self.tensorboard}"
        return f"{self.cpu}, {self.cores} usable cores; {versions}"


@dataclass(frozen=True)
class Interval:
    """A median and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} ({self.low:.4f} to {self.high:.4f})"


def bootstrap(values: Sequence[float]) -> Interval:
    """The median of `values`, with the interval of 10,000 resamples (seeded: the same each time)."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(np.asarray(values), (10_000, len(values))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return Interval(float(np.median(values)), float(low), float(high))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows as a Markdown table, columns padded."""
    texts = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(head))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in texts]
    rule = " | ".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" for line in (lines[0], rule, *lines[1:]))


def tell(message: str) -> None:
    """Progress, on stderr."""
    print(message, file=sys.stderr, flush=True)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown CPU"
