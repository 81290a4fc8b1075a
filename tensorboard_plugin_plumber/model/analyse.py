"""From a recording to an analysis: the one entry of the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.autotune import autotune_summary, tuned_parameters
from tensorboard_plugin_plumber.model.bounds import Bound, Kind, bounds
from tensorboard_plugin_plumber.model.estimate import Estimate, estimate, limits_of, observed_bytes
from tensorboard_plugin_plumber.model.findings import Case, autotune_off_finding, findings
from tensorboard_plugin_plumber.model.host import host_use
from tensorboard_plugin_plumber.model.network import Limits
from tensorboard_plugin_plumber.model.plan import constraint_of, make_plan
from tensorboard_plugin_plumber.model.rows import bare_rows, rows_of
from tensorboard_plugin_plumber.model.service import variation
from tensorboard_plugin_plumber.model.sizes import sizes_of
from tensorboard_plugin_plumber.model.verdict import (
    SelfCheck,
    bottleneck_of,
    cause_of,
    say_epochs,
    self_check,
    smallest_data_bound,
    verdict_of,
)
from tensorboard_plugin_plumber.model.windows import Array, Windows, windows_of
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording, sample_of

#: Version of the analysis: raised when a reader of the JSON would misread it.
SCHEMA_VERSION = 1
#: Points of history that an analysis carries, at most.
HISTORY_POINTS = 300


class NotAnswerable(Exception):
    """The recording cannot answer the question; the message says why and how to mend it."""


class NotYet(NotAnswerable):
    """The recording cannot answer the question yet: what is missing comes while it goes on."""


@dataclass(frozen=True)
class WhatIf:
    """Limits to put in place of the measured ones; None keeps what was measured."""

    #: N.
    cores: float | None = None
    #: M, bytes; the share of it that a plan may use still applies.
    memory_bytes: float | None = None
    #: 1/g, steps/s.
    consumer_rate: float | None = None
    #: What storage delivers at most, bytes/s.
    storage_bytes_per_s: float | None = None
    #: E: passes that training makes over its data.
    epochs: float | None = None
    #: The rate to size cores and memory for, steps/s.
    wanted_rate: float | None = None


def analyse(recording: Recording, *, pipeline: str | None = None, what_if: WhatIf = WhatIf()) -> a.Analysis:
    """Analyse one pipeline of a recording.

    Args:
      recording: one session of one run on one host.
      pipeline: a Pipeline.id or label; by default the training pipeline with most steps.
      what_if: limits to put in place of the measured ones.

    Raises:
      NotAnswerable: there is no such pipeline.
      NotYet: too little was recorded so far.
    """
    index = choose_pipeline(recording, pipeline)
    chosen = recording.graph.pipelines[index]
    analysis = a.Analysis(
        schema_version=SCHEMA_VERSION,
        run=recording.run,
        host=recording.host,
        pipeline=chosen.id,
        pipeline_label=chosen.label,
        notes=[*recording.notes, *chosen.notes],
        history=_history(recording, index),
        host_use=host_use(recording.graph.host, recording.samples, index),
    )
    last = recording.last_sample(index)
    if recording.samples:
        analysis.updated_s = recording.samples[-1].wall_time_s
        analysis.live = not recording.samples[-1].final
    if last is not None:
        analysis.steps = last.steps
        analysis.seconds = last.active_s
    parameters = tuned_parameters(chosen, index, recording.samples)
    analysis.autotune.CopyFrom(autotune_summary(chosen, last, parameters))
    windows = windows_of(chosen, index, recording.samples) if chosen.has_counters else None
    if windows is None or windows.total()["active_s"] <= 0:
        if not chosen.autotune_enabled or not chosen.has_counters:
            return _without_counters(analysis, recording, chosen, last, what_if)
        raise NotYet(
            f"the pipeline {chosen.label or chosen.id} has delivered no element yet: "
            "let it run for a few seconds more"
        )
    _with_counters(analysis, recording, chosen, windows, what_if)
    for row in analysis.operators:
        row.parameters.extend(parameters.get(row.id, ()))
    return analysis


def choose_pipeline(recording: Recording, wanted: str | None) -> int:
    """Index of the wanted pipeline, by id or label; by default the training one with most steps.

    Raises:
      NotAnswerable: there is none, or none of that name.
    """
    pipelines = recording.graph.pipelines
    if not pipelines:
        raise NotAnswerable(
            "no tf.data pipeline was seen: the input of this run is not a tf.data.Dataset, "
            "or nothing was read from it"
        )
    if wanted is None:
        return recording.main_pipeline()
    named = [i for i, pipeline in enumerate(pipelines) if wanted in (pipeline.id, pipeline.label)]
    if not named:
        known = ", ".join(dict.fromkeys(pipeline.label or pipeline.id for pipeline in pipelines))
        raise NotAnswerable(f"there is no pipeline '{wanted}' in this recording: it has {known}")
    return max(named, key=recording.steps)


def _with_counters(
    analysis: a.Analysis, recording: Recording, pipeline: m.Pipeline, windows: Windows, what_if: WhatIf
) -> a.Analysis:
    spread, sizes = variation(windows), sizes_of(pipeline, windows)

    def estimator(supposed: WhatIf) -> Callable[[Array | None], Estimate]:
        limits = limits_of(
            recording.graph.host,
            recording.samples[-1].host,
            observed_bytes(windows),
            supposed.cores,
            supposed.memory_bytes,
        )
        given = supposed.consumer_rate
        if given is None and pipeline.HasField("consumer_rate"):
            given = pipeline.consumer_rate
        return lambda weights: estimate(
            pipeline, windows, limits, weights=weights, given_rate=given, spread=spread, sizes=sizes
        )

    again = estimator(what_if)

    now = again(None)
    found = tuple(bounds(now.network, now.network.current))
    binding = smallest_data_bound(found)
    consumer_binds = now.consumer.input_bound is False
    check = _checked(pipeline, windows, now if what_if == WhatIf() else None, estimator(WhatIf()))
    bottleneck = bottleneck_of(now, binding, consumer_binds)
    cause = cause_of(now, binding, consumer_binds, check)
    plan = make_plan(now, again, len(windows), tentative=check.tentative, self_check=check.value)
    analysis.verdict.CopyFrom(verdict_of(now, bottleneck, check, cause, windows.last))
    analysis.bottleneck.CopyFrom(bottleneck)
    # What is slower than the consumer could be is only a guess at what binds: nothing is marked.
    doubtful = check.tentative and _consumer_is_slower(now, binding)
    marked = {bottleneck.operator} if bottleneck.operator and not doubtful else set()
    analysis.operators.extend(rows_of(pipeline, now, windows, marked))
    analysis.plan.CopyFrom(plan.message)
    case = Case(pipeline, now, found, binding, plan.settings, windows.last)
    analysis.findings.extend(findings(case))
    analysis.bounds.extend(_bounds(now, found, None if doubtful else binding, consumer_binds))
    analysis.limits.CopyFrom(_limits(now.network.limits, now.network.current.threadpool_size))
    analysis.windows = len(windows)
    return analysis


def _checked(
    pipeline: m.Pipeline, windows: Windows, now: Estimate | None, again: Callable[[Array | None], Estimate]
) -> SelfCheck:
    """The model's check on the present: no what-if has a part in it, nor a consumer that was not there."""
    now = now or again(None)
    fit, check_on = windows.alternate
    fitted = again(fit).network
    fitted = replace(fitted, consumer=replace(fitted.consumer, turn_s=now.consumer.turn_s))
    halves = windows.total(check_on)
    return self_check(
        smallest_data_bound(bounds(fitted, fitted.current)).rate,
        halves["steps"] / halves["active_s"] if halves["active_s"] > 0 else None,
        consumer_binds=now.consumer.input_bound is False and pipeline.consumer != m.CONSUMER_NONE,
        windows=len(windows),
        steps=now.steps,
    )


def _without_counters(
    analysis: a.Analysis,
    recording: Recording,
    pipeline: m.Pipeline,
    last: m.PipelineSample | None,
    what_if: WhatIf,
) -> a.Analysis:
    """No model, no counters: what the graph and the step times alone can say."""
    limits = limits_of(
        recording.graph.host,
        recording.samples[-1].host if recording.samples else None,
        0.0,
        what_if.cores,
        what_if.memory_bytes,
    )
    verdict = a.Verdict(tentative=True, cause=a.CAUSE_UNKNOWN)
    reason = "TensorFlow keeps no counters for this pipeline"
    if not pipeline.autotune_enabled:
        reason += ", because options.autotune.enabled is False"
    verdict.sentence = f"Nothing can be said about the operators: {reason}."
    verdict.caveat = (
        "Run `plumber diagnose` on the function that makes the dataset: it turns autotune on in its own copy."
    )
    if last is not None and last.active_s > 0 and last.steps > 0:
        verdict.observed_rate = last.steps / last.active_s
    if (
        last is not None
        and last.joined_steps > 0
        and pipeline.consumer == m.CONSUMER_SYNCHRONOUS
        and last.step_s > 0
    ):
        verdict.wait_fraction = min(max(1 - last.gap_s / last.step_s, 0.0), 1.0)
    if last is not None:
        say_epochs(verdict, last)
    analysis.verdict.CopyFrom(verdict)
    analysis.bottleneck.CopyFrom(a.Bottleneck(sentence="Unknown without counters."))
    analysis.operators.extend(bare_rows(pipeline))
    analysis.plan.CopyFrom(a.Plan(sentence="No plan without counters."))
    if not pipeline.autotune_enabled:
        analysis.findings.append(autotune_off_finding())
    analysis.limits.CopyFrom(_limits(limits, pipeline.threadpool_size))
    return analysis


def _limits(limits: Limits, pool: int) -> a.Limits:
    return a.Limits(
        cores=limits.cores,
        memory_bytes=limits.memory_bytes,
        memory_share=limits.memory_share,
        memory_free_bytes=limits.memory_free_bytes,
        threadpool_size=pool,
    )


def _consumer_is_slower(now: Estimate, binding: Bound) -> bool:
    """Whether the consumer alone would hold the rate below what the data side could give."""
    step_s = now.consumer.step_s
    return step_s is not None and step_s * binding.rate > 1


def _bounds(
    now: Estimate, found: Sequence[Bound], binding: Bound | None, consumer_binds: bool
) -> list[a.Bound]:
    """The bounds for people: the smallest of each label, the smallest first."""
    rows: dict[str, a.Bound] = {}
    for bound in found:
        binds = bound.kind is Kind.CONSUMER if consumer_binds else bound is binding
        label = _label(now, bound)
        row = a.Bound(
            constraint=constraint_of(bound.kind),
            operators=[now.network.operators[i].id for i in bound.operators],
            label=label,
            rate=bound.rate,
            binds=binds,
        )
        rows.setdefault(label, row)
    return list(rows.values())


def _label(now: Estimate, bound: Bound) -> str:
    network = now.network
    if bound.kind is Kind.CONSUMER:
        return "the training step itself"
    if bound.kind is Kind.CPU:
        return f"all {words.cores(network.limits.cores)}"
    if bound.kind is Kind.THREADPOOL:
        return f"thread pool of {network.current.threadpool_size}"
    if bound.kind is Kind.GIL:
        return "Python's interpreter lock"
    if bound.kind is Kind.STORAGE:
        return "storage"
    first = network.operators[bound.operators[0]].label if bound.operators else "one thread"
    return first if bound.kind is Kind.OPERATOR else f"thread of {first}"


def _history(recording: Recording, index: int) -> list[a.HistoryPoint]:
    """Rate, waiting and the host over time, from differences of successive samples."""
    records = list(recording.samples)
    if len(records) > HISTORY_POINTS + 1:
        picked = np.unique(np.linspace(0, len(records) - 1, HISTORY_POINTS + 1).round().astype(int))
        records = [records[i] for i in picked]
    points = []
    for before, after in pairwise(records):
        seconds = after.elapsed_s - before.elapsed_s
        if seconds <= 0:
            continue
        point = a.HistoryPoint(
            time_s=after.wall_time_s,
            process_cores=max(after.host.process_cpu_s - before.host.process_cpu_s, 0.0) / seconds,
            rss_bytes=after.host.rss_bytes,
        )
        if after.host.HasField("read_bytes") and before.host.HasField("read_bytes"):
            point.read_bytes_per_s = max(after.host.read_bytes - before.host.read_bytes, 0) / seconds
        new, old = sample_of(after, index), sample_of(before, index)
        if new is not None:
            steps = new.steps - (old.steps if old else 0.0)
            active = new.active_s - (old.active_s if old else 0.0)
            point.rate = steps / active if active > 0 and steps >= 0 else math.nan
            joined = new.joined_steps - (old.joined_steps if old else 0)
            if joined > 0 and recording.graph.pipelines[index].consumer == m.CONSUMER_SYNCHRONOUS:
                waited = (new.step_s - new.gap_s) - ((old.step_s - old.gap_s) if old else 0.0)
                point.wait_s = max(waited, 0.0) / joined
        points.append(point)
    return points
