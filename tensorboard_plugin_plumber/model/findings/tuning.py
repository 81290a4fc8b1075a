"""AUTOTUNE, and what it leaves undone."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.estimate import label_of
from tensorboard_plugin_plumber.model.findings.case import Case
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

#: From this stretch of core time on, threads get in each other's way.
_CROWDED = 1.25
#: The same as the share of their runnable time for which they wait for a core.
_QUEUED = 1 - 1 / _CROWDED
#: Cores that others must use before they are named.
_OTHERS_CORES = 0.3
#: Operators that one sentence names.
_MOST_NAMED = 4


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


def autotune_hidden(case: Case) -> Iterator[a.Finding]:
    """What AUTOTUNE chose for the operators that bind, and where it does nothing."""
    if not case.pipeline.autotune_enabled:
        return
    network = case.estimate.network
    chosen = [
        (operator, choice)
        for operator, choice in zip(network.operators, network.current.choices, strict=True)
        if choice.parallel and choice.autotuned
    ]
    budget = case.pipeline.autotune_cpu_budget if case.pipeline.HasField("autotune_cpu_budget") else 0
    above = [operator for operator, choice in chosen if budget and choice.parallelism > budget]
    if not chosen or (not above and all(choice.parallelism > 1 for _, choice in chosen)):
        return
    told = ", ".join(f"{operator.label}: {choice.parallelism}" for operator, choice in chosen[:_MOST_NAMED])
    message = f"AUTOTUNE rules the parallel calls of {told}."
    if above:
        message += (
            f" Its budget is {budget} {'core' if budget == 1 else 'cores'}, which caps what it thinks that it uses, "
            "not the calls in force."
        )
    else:
        message += " Where it stays at 1 it expects nothing of a second call, or is held by its budget."
    yield a.Finding(
        code="autotune-hidden",
        severity=a.SEVERITY_LOW,
        operator=(above or [operator for operator, _ in chosen])[0].id,
        message=message,
        fix="To hold calls to a number, give it: num_parallel_calls=…; options.autotune.cpu_budget does not.",
    )


def oversubscribed(case: Case) -> Iterator[a.Finding]:
    """More threads can run than there are cores, by the time they wait for one."""
    estimate = case.estimate
    network = estimate.network
    queued = estimate.service.queued_share
    if queued < _QUEUED:
        return
    foreign = estimate.foreign_cores
    threads = network.current.threadpool_size
    if foreign >= _OTHERS_CORES:
        who = f"Other processes use {words.cores(foreign)} of this one's {network.limits.cores:g}"
        fix = "Give the training cores of its own (affinity, cgroups), or run less beside it."
    elif threads > math.ceil(network.limits.cores):
        who = f"The pipeline's pool has {threads} threads for {words.cores(network.limits.cores)}"
        fix = f"A pool of {math.ceil(network.limits.cores)} computes as fast; more threads help only calls that wait."
    else:
        return
    message = f"{who}: threads that could run wait for a core {words.percent(queued)} of that time"
    if estimate.service.crowding >= _CROWDED:  # else between two calls
        message += ", so that calls last longer than their work"
    yield a.Finding(
        code="oversubscribed",
        severity=a.SEVERITY_LOW,
        message=f"{message}.",
        fix=fix,
    )


def side_effects(case: Case) -> Iterator[a.Finding]:
    """A function writes state in the pipeline: order, restarts and rewriting are not safe."""
    for operator in case.pipeline.operators:
        written = [what for what in operator.function.writes if what != "a random generator's state"]
        if not written:
            continue
        parallel = operator.HasField("num_parallel_calls") and operator.num_parallel_calls != 1
        yield a.Finding(
            code="side-effects",
            severity=a.SEVERITY_MEDIUM if parallel else a.SEVERITY_LOW,
            operator=operator.id,
            message=(
                f"{label_of(operator)} writes {', '.join(written)} for each element"
                + (", from several calls at a time" if parallel else "")
                + ": what is written depends on how far the pipeline has read ahead, and a restart writes it again."
            ),
            fix="Do it in the training step, or return what is to be written with the element.",
        )
