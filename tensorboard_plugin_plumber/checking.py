"""Whether a training kept within limits: what `plumber check` asks, for continuous integration."""

from __future__ import annotations

from dataclasses import dataclass

from tensorboard_plugin_plumber.schema import analysis_pb2 as a


class Unknown(Exception):
    """The log cannot say whether a limit was kept; the message says why."""


@dataclass(frozen=True)
class Limits:
    """What is asked of a training; None asks nothing.

    Attributes:
      most_wait: share of the step that may be spent waiting for data, 0 to 1.
      least_rate: steps/s that must be reached.
    """

    most_wait: float | None = None
    least_rate: float | None = None


def broken(analysis: a.Analysis, limits: Limits) -> list[str]:
    """One sentence for each limit that the training broke.

    Raises:
      Unknown: the log cannot say.
    """
    verdict = analysis.verdict
    found = []
    if limits.most_wait is not None:
        if not verdict.HasField("wait_fraction"):
            because = f" {verdict.caveat}" if verdict.caveat else ""
            raise Unknown(f"Nobody can say from this log how long training waits.{because}")
        if verdict.wait_fraction > limits.most_wait:
            found.append(
                f"training waits {100 * verdict.wait_fraction:.1f} % of the step for data, "
                f"more than {100 * limits.most_wait:g} %"
            )
    if limits.least_rate is not None:
        if not verdict.HasField("observed_rate"):
            raise Unknown("No steps were seen in this log: it has no rate.")
        if verdict.observed_rate < limits.least_rate:
            found.append(
                f"training runs at {verdict.observed_rate:.4g} steps/s, less than {limits.least_rate:g}"
            )
    return found


def kept(analysis: a.Analysis, limits: Limits) -> str:
    """What was asked and is so, as the end of a sentence."""
    verdict, parts = analysis.verdict, []
    if limits.most_wait is not None:
        parts.append(f"training waits {100 * verdict.wait_fraction:.1f} % of the step")
    if limits.least_rate is not None:
        parts.append(f"training runs at {verdict.observed_rate:.4g} steps/s")
    return " and ".join(parts)
