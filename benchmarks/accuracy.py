"""Service times that Plumber recovers, against clocks inside the functions themselves.

python -m benchmarks.accuracy [--seconds 5]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import tensorboard_plugin_plumber as plumber
from benchmarks.report import Machine, table, tell
from benchmarks.shapes import SHAPES
from tensorboard_plugin_plumber.schema import analysis_pb2 as a


@dataclass(frozen=True)
class Recovered:
    """One map of one shape: service times in seconds per element."""

    shape: str
    operator: str
    true_s: float
    measured_s: float
    constraint: str
    findings: tuple[str, ...]
    self_check: float | None

    @property
    def error(self) -> float:
        """Relative error, signed."""
        return self.measured_s / self.true_s - 1


def measure(seconds: float) -> list[Recovered]:
    """Diagnoses each shape for `seconds`."""
    recovered = []
    for name, make in SHAPES.items():
        tell(f"accuracy: {name}")
        shape = make()
        analysis = plumber.diagnose(shape.dataset, seconds=seconds).analysis
        for row in analysis.operators:
            if row.label in shape.service_s:
                recovered.append(
                    Recovered(
                        name,
                        row.label,
                        shape.service_s[row.label](),
                        row.cpu_s + row.wait_s,
                        a.Constraint.Name(analysis.bottleneck.constraint).removeprefix("CONSTRAINT_").lower(),
                        tuple(finding.code for finding in analysis.findings),
                        analysis.verdict.self_check if analysis.verdict.HasField("self_check") else None,
                    )
                )
    return recovered


def describe(recovered: list[Recovered]) -> str:
    head = ["shape", "operator", "true ms", "measured ms", "error", "binds", "self-check", "findings"]
    rows = [
        [
            one.shape,
            one.operator,
            f"{1e3 * one.true_s:.3f}",
            f"{1e3 * one.measured_s:.3f}",
            f"{one.error:+.1%}",
            one.constraint,
            "none" if one.self_check is None else f"{one.self_check:.2f}",
            ", ".join(one.findings),
        ]
        for one in recovered
    ]
    return table(head, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5, help="of each diagnosis (default: 5)")
    options = parser.parse_args()
    print(f"{Machine.here()}\n\n{describe(measure(options.seconds))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
