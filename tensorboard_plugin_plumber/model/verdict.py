"""The verdict and the bottleneck in words, with the model's check on itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.bounds import Bound, Kind, bounds, iterators_beside
from tensorboard_plugin_plumber.model.estimate import Estimate
from tensorboard_plugin_plumber.model.plan import constraint_of
from tensorboard_plugin_plumber.model.uncounted import uncounted_wait
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: The one range in which the model is trusted.
GOOD = (0.8, 1.25)
#: Fewer windows than this, or steps, and everything is tentative.
FEWEST_WINDOWS = 4
FEWEST_STEPS = 10
#: The hardware is what limits from this share of the cores, or of what storage delivers.
HARDWARE_SHARE = 0.9


@dataclass(frozen=True)
class SelfCheck:
    """bound / observed, on windows that fitted nothing; None where it says nothing."""

    value: float | None
    tentative: bool
    why: str = ""


def self_check(
    bound_rate: float, observed_rate: float | None, *, consumer_binds: bool, windows: int, steps: float
) -> SelfCheck:
    """Compare the data side's smallest bound from one half of the windows with the rate in the other half."""
    if windows < FEWEST_WINDOWS or steps < FEWEST_STEPS or not observed_rate:
        return SelfCheck(
            None, True, f"only {steps:.0f} steps were seen, in {windows} window{'' if windows == 1 else 's'}"
        )
    ratio = bound_rate / observed_rate
    within = GOOD[0] <= ratio <= GOOD[1]
    if consumer_binds and not within and ratio > 1:
        return SelfCheck(None, False)
    if not math.isfinite(ratio):
        return SelfCheck(None, True, "nothing that was measured explains the observed rate")
    if within:
        return SelfCheck(ratio, False)
    side = "above" if ratio > 1 else "below"
    return SelfCheck(
        ratio, True, f"the model's bound lies {side} the observed rate, at {words.digits(ratio)} times it"
    )


def cause_of(estimate: Estimate, binding: Bound, consumer_binds: bool, check: SelfCheck) -> a.Cause.ValueType:
    """The paper's main question: hardware, software, or the consumer."""
    if consumer_binds:
        return a.CAUSE_CONSUMER
    if check.tentative:
        return a.CAUSE_UNKNOWN
    network = estimate.network
    if _storage_use(estimate) >= HARDWARE_SHARE:
        return a.CAUSE_HARDWARE
    used = (estimate.process_cpu_s * (network.observed_rate or 0.0)) / network.limits.cores
    must = (
        sum(o.visits * o.cpu_s for o in network.operators)
        * (network.observed_rate or 0.0)
        / network.limits.cores
    )
    pipeline_share = must / used if used > 0 else 0.0
    if used >= HARDWARE_SHARE and (binding.kind is Kind.CPU or pipeline_share >= 0.5):
        return a.CAUSE_HARDWARE
    return a.CAUSE_SOFTWARE


def _storage_use(estimate: Estimate) -> float:
    """Share of what storage can deliver that the pipeline takes at the observed rate; 0 where it is unknown."""
    network = estimate.network
    if network.limits.storage is None or not network.observed_rate:
        return 0.0
    found = (bound for bound in bounds(network, network.current) if bound.kind is Kind.STORAGE)
    return next((network.observed_rate / bound.rate for bound in found), 0.0)


def bottleneck_of(estimate: Estimate, binding: Bound, consumer_binds: bool) -> a.Bottleneck:
    """What binds today; the consumer where training does not wait."""
    network = estimate.network
    if consumer_binds:
        return a.Bottleneck(
            constraint=a.CONSTRAINT_CONSUMER, sentence="The training step itself sets the pace."
        )
    if not math.isfinite(binding.rate):
        return a.Bottleneck(sentence="Nothing that was measured limits the rate.")
    wait = uncounted_wait(estimate, binding.rate)
    if wait is not None:
        reader = network.operators[wait.reader]
        return a.Bottleneck(
            operator=reader.id,
            operators=[reader.id],
            constraint=a.CONSTRAINT_THREAD,
            sentence=(
                f"{words.duration(wait.step_s)} of each {words.duration(wait.period_s)} per step are nobody's work and "
                f"most cores idle: the pipeline waits outside of what TensorFlow counts, most likely where "
                f"{reader.label} opens and reads one file at a time."
            ),
        )
    ids = [network.operators[i].id for i in binding.operators]
    found = a.Bottleneck(
        operators=ids,
        constraint=constraint_of(binding.kind),
        sentence=_bottleneck_sentence(estimate, binding),
    )
    if ids:
        found.operator = ids[0]
    return found


def _bottleneck_sentence(estimate: Estimate, binding: Bound) -> str:
    network = estimate.network
    if not binding.operators:
        return f"{_resource(estimate, binding)} cap the rate at {words.rate(binding.rate)}."
    first = binding.operators[0]
    operator, choice = network.operators[first], network.current.choices[first]
    iterators = iterators_beside(network, first)
    if binding.kind is Kind.OPERATOR:
        if binding.stragglers and binding.calls_of == first:
            how = f"keeps its order, so that fast calls wait for slow ones at {choice.parallelism} parallel calls,"
        elif choice.parallel and choice.parallelism > 1:
            how = f"runs {choice.parallelism} calls at a time, {words.duration(operator.service_s)} each,"
        else:
            each = "element that it lets through" if estimate.written[first].type == "Filter" else "element"
            where = f" in each of {iterators} iterators" if iterators > 1 else ""
            how = f"takes {words.duration(operator.service_s)} per {each}, one at a time{where},"
        turns = binding.takes_turns and network.consumer.turn_s and not estimate.consumer.absent
        turn = " in turn with the consumer" if turns else ""
        return f"{operator.label} {how} and caps the rate at {words.rate(binding.rate)}{turn}."
    if binding.kind is Kind.THREAD:
        others = [network.operators[i].label for i in binding.operators[1:3]]
        beside = f", with {' and '.join(others)}" if others else ""
        where = f"in each of {iterators} threads" if iterators > 1 else "on one thread"
        return f"{operator.label}{beside} {where} caps the rate at {words.rate(binding.rate)}."
    resource, rate = _resource(estimate, binding), words.rate(binding.rate)
    caps = "caps" if binding.kind is Kind.STORAGE else "cap"
    return f"{resource} {caps} the rate at {rate}; {operator.label} takes the largest share."


def _resource(estimate: Estimate, binding: Bound) -> str:
    network = estimate.network
    return {
        Kind.CPU: f"The {words.cores(network.limits.cores)} that this process may use",
        Kind.THREADPOOL: f"The {network.current.threadpool_size} slots of the iterator's thread pool",
        Kind.GIL: "Threads that wait for Python's interpreter lock",
        Kind.STORAGE: "The storage that it reads from",
    }.get(binding.kind, "Threads")


def verdict_of(
    estimate: Estimate,
    bottleneck: a.Bottleneck,
    check: SelfCheck,
    cause: a.Cause.ValueType,
    last: m.PipelineSample,
) -> a.Verdict:
    """The verdict: one sentence, and the numbers behind it. `last` is the newest sample of the pipeline."""
    seen, network = estimate.consumer, estimate.network
    present = not (seen.absent or estimate.supposed)
    verdict = a.Verdict(tentative=check.tentative, cause=cause)
    for name, value in (
        ("input_bound", seen.input_bound),
        ("wait_fraction", seen.wait_fraction),
        ("observed_rate", network.observed_rate),
        ("consumer_rate", 1 / seen.step_s if seen.step_s else None),
        ("self_check", check.value),
        ("step_s", seen.period_s if not seen.absent else None),
        ("waits_over_1ms", seen.waits_over_1ms),
        ("consumer_cpu_s", network.consumer.cpu_s if present else None),
        ("consumer_thread_cpu_s", seen.thread_cpu_s if present else None),
    ):
        if value is not None:
            setattr(verdict, name, value)
    if seen.wait_fraction is not None and seen.period_s is not None and not seen.absent:
        verdict.wait_s = seen.wait_fraction * seen.period_s
    say_epochs(verdict, last)
    verdict.sentence = _sentence(estimate, bottleneck, check)
    caveats = [seen.caveat] if seen.caveat else []
    caveats += [f"{cache} still fills; later passes read from it." for cache in estimate.filling]
    if check.tentative:
        caveats.append(f"Tentative: {check.why}.")
    verdict.caveat = " ".join(caveats)
    return verdict


def say_epochs(verdict: a.Verdict, last: m.PipelineSample) -> None:
    """Adds the wait for the first element of an epoch, the mean over all so far."""
    if last.epochs_started:
        verdict.epochs = last.epochs_started
        verdict.first_step_delay_s = last.epoch_start_delay_s / last.epochs_started


def _sentence(estimate: Estimate, bottleneck: a.Bottleneck, check: SelfCheck) -> str:
    """One sentence; what binds is its second half, unless the verdict is tentative."""
    seen, rate = estimate.consumer, words.rate(estimate.today_rate)
    waiting = f"{words.percent(seen.wait_fraction or 0)} of every step waits for data"
    binds = "" if check.tentative else _continued(bottleneck.sentence)
    if seen.input_bound is True:
        said = f"Input-bound: {waiting}, because {binds}" if binds else f"Input-bound: {waiting}."
    elif seen.input_bound is False:
        said = f"Not input-bound: {waiting}, at {rate}."
    elif seen.absent:
        said = (
            f"On its own the pipeline gives {rate}: {binds}"
            if binds
            else f"On its own the pipeline gives {rate}."
        )
    else:
        said = f"Whether training waits for data cannot be known here; the pipeline delivered {rate}"
        said = f"{said}: {binds}" if binds else f"{said}."
    if estimate.supposed and seen.step_s:
        said = said.replace("-bound:", f"-bound with a consumer of {words.rate(1 / seen.step_s)}:", 1)
    return f"Tentative: {said[0].lower()}{said[1:]}" if check.tentative else said


def _continued(sentence: str) -> str:
    """`sentence` as the rest of another; an operator's type keeps its capital."""
    return f"t{sentence[1:]}" if sentence.startswith("Th") else sentence


def smallest_data_bound(found: Sequence[Bound]) -> Bound:
    """The bottleneck of the data side: the smallest bound but the consumer's."""
    return next((bound for bound in found if bound.kind is not Kind.CONSUMER), Bound(Kind.THREAD, math.inf))
