"""AUTOTUNE, and what it leaves undone."""

from __future__ import annotations

from collections.abc import Iterator

from tensorboard_plugin_plumber.model.findings.case import Case
from tensorboard_plugin_plumber.schema import analysis_pb2 as a


def autotune_off(case: Case) -> Iterator[a.Finding]:
    """Autotune is disabled: nothing is tuned, and training shows no counters."""
    if not case.pipeline.autotune_enabled:
        yield autotune_off_finding()


def autotune_off_finding() -> a.Finding:
    """The finding, also where there are no counters to build a case from."""
    return a.Finding(
        code="autotune-off",
        severity=a.SEVERITY_MEDIUM,
        message=(
            "options.autotune.enabled is False: TensorFlow tunes nothing in this pipeline and keeps no counters, "
            "so that a running training shows none."
        ),
        fix=(
            "Leave options.autotune.enabled at its default, or run `plumber diagnose`, "
            "which turns it on in its own copy."
        ),
    )
