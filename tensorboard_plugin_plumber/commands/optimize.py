"""`plumber optimize`: what a dataset would give if it were written better, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tensorboard_plugin_plumber.commands.parts import (
    BYTES,
    EPOCHS,
    NUMBER,
    InputError,
    parse_target,
    print_report,
    take_over_answer,
    with_pipeline,
)
from tensorboard_plugin_plumber.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable

    import tensorflow as tf

    from tensorboard_plugin_plumber.report import Report
    from tensorboard_plugin_plumber.rewrite.optimizer import Optimized, Wishes

#: Seconds for all of it, at least; and how many times the trace all of it takes.
_BUDGET_S = 20.0
_WHOLE_PER_TRACE = 4.0


@click.command()
@click.argument("target", metavar="TARGET")
@click.option(
    "--seconds",
    metavar="S",
    type=NUMBER,
    default=5.0,
    show_default=True,
    help="How long to trace it at most; all of it takes some four times as long.",
)
@click.option(
    "--memory", metavar="BYTES", type=BYTES, help="What caches and buffers may add. Suffixes as in 8GiB work."
)
@click.option(
    "--epochs", metavar="E", type=EPOCHS, help="How often training passes over its data, if you know it."
)
@click.option(
    "--consumer-rate",
    metavar="R",
    type=NUMBER,
    help="Steps per second that training could take, if you know it.",
)
@click.option(
    "--allow-reorder", is_flag=True, help="Elements may come in another order. No plan makes use of it yet."
)
@click.option("--service", metavar="ADDR", help="A tf.data service to hand work to. Not supported yet.")
@click.option("--plan-out", metavar="F", help="Save the plan in this file, for plumber.optimize(plan=F).")
@click.option("--json", "as_json", is_flag=True, help="Print the analysis as one JSON object.")
def optimize(
    target: str,
    seconds: float,
    memory: float | None,
    epochs: float | None,
    consumer_rate: float | None,
    allow_reorder: bool,
    service: str | None,
    plan_out: str | None,
    as_json: bool,
) -> int:
    """Trace a dataset, plan, rewrite it and measure what that gains; prints the plan as a patch."""
    if service is not None:
        raise InputError("No plan hands work to a tf.data service yet: leave out --service.")
    answer = take_over_answer()
    parsed = parse_target(target)

    def run(dataset: tf.data.Dataset) -> tuple[Report, str]:
        from tensorboard_plugin_plumber.rewrite.optimizer import Wishes

        wishes = Wishes(
            budget_s=max(_BUDGET_S, _WHOLE_PER_TRACE * seconds),
            trace_s=seconds,
            memory_bytes=memory,
            epochs=epochs,
            consumer_rate=consumer_rate,
            allow_reorder=allow_reorder,
        )
        return _optimized(dataset, wishes, say, plan_out)

    with progress(f"Optimizing {parsed}") as say:
        report, failure = with_pipeline(parsed, run)
    if failure:
        click.echo(f"plumber: the dataset stays as it is: {failure}", err=True)
    print_report(report, as_json, answer)
    return 0


def _optimized(
    dataset: tf.data.Dataset, wishes: Wishes, say: Callable[[str], None], plan_out: str | None
) -> tuple[Report, str]:
    """The report, and why nothing could be rewritten, or "" where it could."""
    from tensorboard_plugin_plumber.rewrite.optimizer import optimized
    from tensorboard_plugin_plumber.rewrite.rebuild import Refused

    try:
        found = optimized(dataset, wishes, say)
    except Refused as error:
        if plan_out is not None:
            raise InputError(f"There is no plan to save: {error}.") from error
        return _as_it_is(dataset, wishes), str(error)
    if plan_out is not None:
        _save(found, plan_out)
    return found.report, found.failure


def _as_it_is(dataset: tf.data.Dataset, wishes: Wishes) -> Report:
    """The report of a dataset that cannot be made again."""
    from tensorboard_plugin_plumber.diagnosis import diagnose

    report = diagnose(dataset, seconds=wishes.trace_s or 5.0, consumer_rate=wishes.consumer_rate)
    measured, rate = report.analysis.measured, report.analysis.verdict.observed_rate
    measured.before = measured.after = rate
    measured.same_elements = True
    return report


def _save(found: Optimized, path: str) -> None:
    from tensorboard_plugin_plumber.rewrite.saved_plan import NotSavable, save, saved

    try:
        save(saved(found.report.analysis, found.pipeline, changes=found.changes), path)
    except NotSavable as error:
        raise InputError(f"The plan is not saved: {error}.") from error
    except OSError as error:
        raise InputError(
            f"Cannot write '{path}' ({error.strerror}): give another file with --plan-out."
        ) from error
