"""Whether pipeline and consumer work at the same time, and which of them waits."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.bounds import Kind
from tensorboard_plugin_plumber.model.estimate import label_of
from tensorboard_plugin_plumber.model.findings.case import LEAST_GAIN, Case, severity
from tensorboard_plugin_plumber.model.service import RUNS_ELSEWHERE
from tensorboard_plugin_plumber.schema import analysis_pb2 as a


def no_prefetch(case: Case) -> Iterator[a.Finding]:
    """Nothing asynchronous stands before the step, so work and step take turns."""
    network = case.estimate.network
    if any(choice.parallel or choice.prefetch for choice in network.current.choices):
        root = network.current.choices[0]
        if root.parallel or root.prefetch or not _turns_cost(case):
            return
    elif (
        case.pipeline.inject_prefetch
        and case.pipeline.default_optimizations
        and case.pipeline.autotune_enabled
    ):
        return
    operator = network.operators[0]
    message = (
        f"Nothing is prefetched after {operator.label}: the consumer waits while each element is made, "
        "then the pipeline waits for the consumer"
    )
    fix = ".prefetch(tf.data.AUTOTUNE) as the last operator"
    known = case.estimate.consumer.step_s is not None and case.pipeline.autotune_enabled
    if not known:
        yield a.Finding(
            code="no-prefetch", severity=a.SEVERITY_LOW, operator=operator.id, message=f"{message}.", fix=fix
        )
        return
    gain = case.gain(case.with_choice(0, prefetch=True, prefetch_size=2))
    if gain >= LEAST_GAIN:
        turn, rate = network.consumer.turn_s, case.estimate.today_rate
        evidence = f" ({words.duration(turn)} of each {words.duration(1 / (rate or 1))} step)"
        yield a.Finding(
            code="no-prefetch",
            severity=severity(gain),
            operator=operator.id,
            message=f"{message}{evidence}.",
            fix=fix,
            gain=gain,
        )


def _turns_cost(case: Case) -> bool:
    """Whether the root takes turns with the consumer in what binds today, and the consumer is known."""
    return case.binding.takes_turns and case.estimate.consumer.step_s is not None


def not_input_bound(case: Case) -> Iterator[a.Finding]:
    """Training does not wait; how much headroom there is."""
    consumer = case.estimate.consumer
    if consumer.input_bound is not False:
        return
    data = next((bound for bound in case.bounds if bound.kind is not Kind.CONSUMER), None)
    headroom = ""
    today = case.estimate.today_rate
    fed = next((one for one in case.estimate.written if one.type in RUNS_ELSEWHERE), None)
    if fed is not None:
        # Its elements are there before they are asked for: that tells nothing of what makes them.
        headroom = f" What the pipeline could give is not known: what feeds {label_of(fed)} is not counted."
    elif data is not None and today and math.isfinite(data.rate) and not data.takes_turns:
        ratio = words.factor(data.rate / today)
        headroom = f" The pipeline could give {words.rate(data.rate)}, {ratio} what training takes."
    yield a.Finding(
        code="not-input-bound",
        severity=a.SEVERITY_LOW,
        message=f"Training waits {words.percent(consumer.wait_fraction or 0)} of the step for data.{headroom}",
        fix="Nothing: make the training step faster first.",
        gain=0.0,
    )
