"""From a recording to an analysis: the one entry of the model."""

from __future__ import annotations

from dataclasses import replace

from tensorboard_plugin_plumber.model.autotune import autotune_summary, tuned_parameters
from tensorboard_plugin_plumber.model.bound_rows import bound_rows, label_of_bound, limits_shown
from tensorboard_plugin_plumber.model.bounds import Bound, bounds
from tensorboard_plugin_plumber.model.estimate import Estimate, limits_of
from tensorboard_plugin_plumber.model.estimates import Estimates
from tensorboard_plugin_plumber.model.extensions import installed, let_speak, limit_on
from tensorboard_plugin_plumber.model.findings import Case, autotune_off_finding, findings
from tensorboard_plugin_plumber.model.history import history_of
from tensorboard_plugin_plumber.model.host import host_use
from tensorboard_plugin_plumber.model.plan import make_plan, runner_up
from tensorboard_plugin_plumber.model.questions import AS_MEASURED, WhatIf
from tensorboard_plugin_plumber.model.rows import bare_rows, rows_of
from tensorboard_plugin_plumber.model.verdict import (
    SelfCheck,
    bottleneck_of,
    cause_of,
    say_epochs,
    self_check,
    smallest_data_bound,
    verdict_of,
)
from tensorboard_plugin_plumber.model.windows import windows_of
from tensorboard_plugin_plumber.model.worth import prices_of, sizing_of
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording

__all__ = ["AS_MEASURED", "Analyst", "NotAnswerable", "NotYet", "WhatIf", "analyse", "choose_pipeline"]

#: Version of the analysis: raised when a reader of the JSON would misread it.
SCHEMA_VERSION = 1


class NotAnswerable(Exception):
    """The recording cannot answer the question; the message says why and how to mend it."""


class NotYet(NotAnswerable):
    """The recording cannot answer the question yet: what is missing comes while it goes on."""


def analyse(
    recording: Recording, *, pipeline: str | None = None, what_if: WhatIf = AS_MEASURED
) -> a.Analysis:
    """Analyse one pipeline of a recording; `Analyst` answers several questions about it faster.

    Args:
      recording: one session of one run on one host.
      pipeline: a Pipeline.id or label; by default the training pipeline with most steps.
      what_if: limits to put in place of the measured ones.

    Raises:
      NotAnswerable: there is no such pipeline, or the question cannot be answered.
      NotYet: too little was recorded so far.
    """
    return Analyst(recording, pipeline).analyse(what_if)


class Analyst:
    """One pipeline of one recording; what depends on no question is worked out once.

    Args:
      recording, pipeline: as for `analyse`.

    Raises:
      NotAnswerable: there is no such pipeline.
    """

    def __init__(self, recording: Recording, pipeline: str | None = None) -> None:
        index = choose_pipeline(recording, pipeline)
        self._recording = recording
        self._pipeline = recording.graph.pipelines[index]
        self._last = recording.last_sample(index)
        self._parameters = tuned_parameters(self._pipeline, index, recording.samples)
        self._seen = self._what_was_seen(index)
        windows = (
            windows_of(self._pipeline, index, recording.samples) if self._pipeline.has_counters else None
        )
        self._estimates = None
        if windows is not None and windows.total()["active_s"] > 0:
            host = recording.graph.host
            self._estimates = Estimates(self._pipeline, windows, host, recording.samples[-1].host)
        self._check: SelfCheck | None = None

    def analyse(self, what_if: WhatIf = AS_MEASURED) -> a.Analysis:
        """The analysis under the limits of `what_if`.

        Raises:
          NotAnswerable: the question cannot be answered.
          NotYet: too little was recorded so far.
        """
        analysis = a.Analysis()
        analysis.CopyFrom(self._seen)
        if self._estimates is not None:
            self._add_conclusions(analysis, self._estimates, what_if)
        elif not self._pipeline.autotune_enabled or not self._pipeline.has_counters:
            self._add_what_is_known_without_counters(analysis, what_if)
        else:
            raise NotYet(
                f"the pipeline {self._pipeline.label or self._pipeline.id} has delivered no element yet: "
                "let it run for a few seconds more"
            )
        return analysis

    def _what_was_seen(self, index: int) -> a.Analysis:
        """All that no model is needed for."""
        recording, chosen, last = self._recording, self._pipeline, self._last
        seen = a.Analysis(
            schema_version=SCHEMA_VERSION,
            run=recording.run,
            host=recording.host,
            pipeline=chosen.id,
            pipeline_label=chosen.label,
            notes=[*recording.notes, *chosen.notes],
            history=history_of(recording, index),
            host_use=host_use(recording.graph.host, recording.samples, index),
        )
        if recording.samples:
            seen.updated_s = recording.samples[-1].wall_time_s
            seen.live = not recording.samples[-1].final
        if last is not None:
            seen.steps = last.steps
            seen.seconds = last.active_s
        seen.autotune.CopyFrom(autotune_summary(chosen, last, self._parameters))
        return seen

    def _add_conclusions(self, analysis: a.Analysis, estimates: Estimates, what_if: WhatIf) -> None:
        storage, windows = estimates.storage(what_if), estimates.windows
        if what_if.storage_bytes_per_s is not None and not storage.shares:
            raise NotAnswerable(
                "nobody can tell from this recording how many bytes the pipeline's sources read: "
                "ask without another speed of storage"
            )
        again = estimates.under(what_if)
        now = again(None)
        network = now.network
        found = tuple(bounds(network, network.current))
        binding = smallest_data_bound(found)
        consumer_binds = now.consumer.input_bound is False
        check = self._self_check(estimates)
        bottleneck = bottleneck_of(now, binding, consumer_binds)
        cause = cause_of(now, binding, consumer_binds, check)
        plan = make_plan(now, again, len(windows), tentative=check.tentative, self_check=check.value)
        second = runner_up(now, found, binding, lambda bound: label_of_bound(now, bound))
        if second is not None and not consumer_binds:
            bottleneck.runner_up.CopyFrom(second)
        analysis.verdict.CopyFrom(verdict_of(now, bottleneck, check, cause, windows.last))
        analysis.bottleneck.CopyFrom(bottleneck)
        # What is slower than the consumer could be is only a guess at what binds: nothing is marked.
        doubtful = check.tentative and _consumer_is_slower(now, binding)
        marked = {bottleneck.operator} if bottleneck.operator and not doubtful else set()
        analysis.operators.extend(rows_of(self._pipeline, now, windows, marked))
        for row in analysis.operators:
            row.parameters.extend(self._parameters.get(row.id, ()))
        analysis.plan.CopyFrom(plan.message)
        extensions = installed()
        limit = limit_on(extensions.constraints)
        case = Case(self._pipeline, now, found, binding, plan.settings, windows.last, limit)
        analysis.findings.extend(findings(case))
        analysis.bounds.extend(bound_rows(now, found, None if doubtful else binding, consumer_binds))
        pool = network.current.threadpool_size
        analysis.limits.CopyFrom(
            limits_shown(network.limits, pool, epochs=what_if.epochs, wanted_rate=what_if.wanted_rate)
        )
        analysis.windows = len(windows)
        analysis.notes.extend(storage.notes)
        if what_if == AS_MEASURED:
            analysis.prices.extend(prices_of(network))
        if what_if.wanted_rate is not None:
            analysis.sizing.CopyFrom(sizing_of(network, what_if.wanted_rate))
        let_speak(analysis, case, extensions)

    def _self_check(self, estimates: Estimates) -> SelfCheck:
        """The model's check on the present: no what-if has a part in it, nor a consumer that was not there."""
        if self._check is None:
            again, windows = estimates.under(AS_MEASURED), estimates.windows
            now, (fit, check_on) = again(None), windows.alternate
            fitted = again(fit).network
            fitted = replace(fitted, consumer=replace(fitted.consumer, turn_s=now.consumer.turn_s))
            halves = windows.total(check_on)
            alone = self._pipeline.consumer == m.CONSUMER_NONE
            self._check = self_check(
                smallest_data_bound(bounds(fitted, fitted.current)).rate,
                halves["steps"] / halves["active_s"] if halves["active_s"] > 0 else None,
                consumer_binds=now.consumer.input_bound is False and not alone,
                windows=len(windows),
                steps=now.steps,
            )
        return self._check

    def _add_what_is_known_without_counters(self, analysis: a.Analysis, what_if: WhatIf) -> None:
        """No model, no counters: what the graph and the step times alone can say."""
        recording, last = self._recording, self._last
        limits = limits_of(
            recording.graph.host,
            recording.samples[-1].host if recording.samples else None,
            0.0,
            what_if.cores,
            what_if.memory_bytes,
            share=what_if.memory_share,
        )
        verdict = a.Verdict(tentative=True, cause=a.CAUSE_UNKNOWN)
        reason = "TensorFlow keeps no counters for this pipeline"
        if not self._pipeline.autotune_enabled:
            reason += ", because options.autotune.enabled is False"
        verdict.sentence = f"Nothing can be said about the operators: {reason}."
        verdict.caveat = (
            "Run `plumber diagnose` on the function that makes the dataset: "
            "it turns autotune on in its own copy."
        )
        if last is not None and last.active_s > 0 and last.steps > 0:
            verdict.observed_rate = last.steps / last.active_s
        if (
            last is not None
            and last.joined_steps > 0
            and self._pipeline.consumer == m.CONSUMER_SYNCHRONOUS
            and last.step_s > 0
        ):
            verdict.wait_fraction = min(max(1 - last.gap_s / last.step_s, 0.0), 1.0)
        if last is not None:
            say_epochs(verdict, last)
        analysis.verdict.CopyFrom(verdict)
        analysis.bottleneck.CopyFrom(a.Bottleneck(sentence="Unknown without counters."))
        analysis.operators.extend(bare_rows(self._pipeline))
        analysis.plan.CopyFrom(a.Plan(sentence="No plan without counters."))
        if not self._pipeline.autotune_enabled:
            analysis.findings.append(autotune_off_finding())
        analysis.limits.CopyFrom(
            limits_shown(
                limits,
                self._pipeline.threadpool_size,
                epochs=what_if.epochs,
                wanted_rate=what_if.wanted_rate,
            )
        )


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


def _consumer_is_slower(now: Estimate, binding: Bound) -> bool:
    """Whether the consumer alone would hold the rate below what the data side could give."""
    step_s = now.consumer.step_s
    return step_s is not None and step_s * binding.rate > 1
