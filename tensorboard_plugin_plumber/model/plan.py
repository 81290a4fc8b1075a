"""The plan: the optimum's settings as changes to the user's code, with a prediction and its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.bounds import Bound, Kind, bounds, data_rate, predicted_rate
from tensorboard_plugin_plumber.model.changes import changes_of
from tensorboard_plugin_plumber.model.decisions import parallelism_changes, unchanged
from tensorboard_plugin_plumber.model.estimate import COPY_BYTES_PER_S, CROWDED_STRETCH, Estimate
from tensorboard_plugin_plumber.model.network import Network, Settings
from tensorboard_plugin_plumber.model.optimum import optimise
from tensorboard_plugin_plumber.model.visits import visited_rate
from tensorboard_plugin_plumber.model.windows import Array
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

#: Bootstrap samples of the windows behind one interval.
BOOTSTRAPS = 100
#: What the model itself is good for, on top of the windows' spread (docs/model.md, "Doubt").
MODEL_ERROR = 0.10
#: ... and where the split between core time and waiting could not be measured, or the host was crowded.
SPLIT_ERROR = 0.25
#: No loop in Python asks for more elements per second than this: measured 41,000 of an integer each from a cache.
FASTEST_LOOP = 5e4
#: A plan that promises less than this over the predicted rate of today is no plan.
LEAST_GAIN = 0.02
#: A constraint that is less than this behind the bottleneck binds with it.
CLOSE = 0.005


@dataclass(frozen=True)
class PlanResult:
    """A plan, and the settings behind it."""

    message: a.Plan
    settings: Settings


def with_unfused_copies(network: Network, settings: Settings) -> Network:
    """The network that TensorFlow makes of `settings`: a cache between a map and its batch ends their fusion.

    The batch then copies on a thread of its own; its cost, hidden in the map's until now, is put at
    COPY_BYTES_PER_S.
    """
    operators = list(network.operators)
    for i, operator in enumerate(operators):
        parent = operator.parent
        if parent is not None and operator.batch_size > 1 and settings.choices[i].serves:
            batch = operators[parent]
            operators[parent] = replace(batch, cpu_s=batch.cpu_s + batch.element_bytes / COPY_BYTES_PER_S)
    return replace(network, operators=tuple(operators))


def reached_rate(network: Network, settings: Settings, *, filling: bool = False) -> float:
    """What `settings` are predicted to reach, steps/s: the smallest bound, and no more than a loop can ask for.

    `filling`: in the epoch in which their new caches fill.
    """
    rate = min(
        predicted_rate(with_unfused_copies(network, settings), settings, filling=filling),
        visited_rate(network, settings),
    )
    return min(rate, fastest_loop(network)) if math.isfinite(rate) else rate


def fastest_loop(network: Network) -> float:
    return max(FASTEST_LOOP, network.observed_rate or 0.0)


def make_plan(
    now: Estimate,
    again: Callable[[Array], Estimate],
    windows: int,
    *,
    tentative: bool = False,
    self_check: float | None = None,
) -> PlanResult:
    """Solve for the best settings and predict them.

    Args:
      now: the estimate from all windows.
      again: the estimate from one bootstrap sample: weights, shape (windows,).
      windows: how many windows there are.
      tentative: the model failed its own check, or there was too little data for one.
      self_check: bound / observed, where it is known.
    """
    network = now.network
    found = optimise(network)
    rate_now = reached_rate(network, network.current)
    settings = found.settings
    rate = reached_rate(network, settings)
    changes = changes_of(now, settings)
    if not changes or rate < rate_now * (1 + LEAST_GAIN):
        changes, settings = [], _left_to_autotune(network, settings)
        rate = max(reached_rate(network, settings), rate_now)
    low, high = _interval(now, again, windows, settings, rate)
    if changes:
        low = min(low, _locked_rate(now, settings))
    if tentative and self_check:  # what the model misses today it may miss tomorrow
        low, high = low / max(self_check, 1.0), high / min(self_check, 1.0)
    binding = bounds(with_unfused_copies(network, settings), settings)[0]
    caches = any(change.kind == a.CHANGE_KIND_CACHE for change in changes)
    data = data_rate(with_unfused_copies(network, settings), settings)
    message = a.Plan(
        predicted_rate=_finite(rate),
        low=_finite(low),
        high=_finite(high),
        changes=changes,
        memory_bytes=found.memory_bytes if changes else 0.0,
        then_constraint=a.CONSTRAINT_CONSUMER
        if binding.rate > fastest_loop(network)
        else constraint_of(binding.kind),
        data_rate=_finite(data),
        first_epoch_rate=_finite(reached_rate(network, settings, filling=True)) if caches else _finite(rate),
        assumptions=list(_assumptions(now, settings, caches)),
        solve_s=found.solve_s,
    )
    if network.epochs is not None:
        message.epochs_rate = _mean_rate(network.epochs, message.first_epoch_rate, message.predicted_rate)
    message.then_bottleneck.CopyFrom(_bottleneck_then(now, settings, binding))
    message.then_cause = a.CAUSE_UNKNOWN if tentative else _cause_then(network, binding)
    said = _sentence(now, message, binding, rate_now, rate)
    message.sentence = f"Tentative: {said[0].lower()}{said[1:]}" if tentative else said
    return PlanResult(message, settings)


def constraint_of(kind: Kind) -> a.Constraint.ValueType:
    """The schema's name for a kind of bound."""
    return a.Constraint.Value(f"CONSTRAINT_{kind.name}")


def _finite(value: float) -> float:
    return value if math.isfinite(value) else float("nan")


def _left_to_autotune(network: Network, settings: Settings) -> Settings:
    """Today's settings, with what AUTOTUNE rules as the optimum has it, as far as it may go in today's pool."""
    choices = tuple(
        replace(choice, parallelism=min(better.parallelism, most.parallelism)) if choice.autotuned else choice
        for choice, better, most in zip(
            network.current.choices, settings.choices, unchanged(network).choices, strict=True
        )
    )
    return replace(network.current, choices=choices)


def _interval(
    now: Estimate, again: Callable[[Array], Estimate], windows: int, settings: Settings, rate: float
) -> tuple[float, float]:
    """90 % interval of the fixed plan over bootstrap samples of windows, widened by the model's own error."""
    draw = np.random.default_rng(0)
    rates = []
    for _ in range(BOOTSTRAPS if windows > 1 else 0):
        weights = np.bincount(draw.integers(0, windows, windows), minlength=windows).astype(float)
        network = again(weights).network
        if len(network.operators) == len(settings.choices):
            rates.append(reached_rate(network, settings))
    low, high = np.percentile(rates, [5, 95]) if rates else (rate, rate)
    doubtful = now.service.split_unknown or now.service.crowding > CROWDED_STRETCH
    error = SPLIT_ERROR if doubtful else MODEL_ERROR
    return min(float(low), rate) * (1 - error), max(float(high), rate) * (1 + error)


def _locked_rate(now: Estimate, settings: Settings) -> float:
    """The rate if Python functions hold the interpreter's lock wherever that is unknown; today's is there anyway."""
    network = now.network
    operators = tuple(
        replace(operator, gil_s=operator.cpu_s) if operator.lock_unknown else operator
        for operator in network.operators
    )
    locked = reached_rate(replace(network, operators=operators), settings)
    today = min(reached_rate(network, network.current), network.observed_rate or math.inf)
    return max(locked, today) * (1 - MODEL_ERROR)


def _assumptions(now: Estimate, settings: Settings, caches: bool) -> list[str]:
    found = [
        f"{cache} still fills: all rates here are those of the first pass; once it is complete, what lies below it "
        "no longer counts."
        for cache in now.filling
    ]
    if caches and now.network.epochs is None:
        found.append(
            "Caches are judged in steady state, as if training ran for many epochs; the first one fills them."
        )
    if any(choice.file_cache for choice in settings.choices):
        found.append(
            "A file cache stays on disk and serves later runs as it stands: delete it when the data or the code "
            "before it change."
        )
    for i, (old, new) in enumerate(zip(now.network.current.choices, settings.choices, strict=True)):
        written = now.written[i]
        raised = parallelism_changes(old, new) and new.parallelism > (old.parallelism if old.parallel else 1)
        if raised and written.function.python:
            found.append(
                f"{now.network.operators[i].label} assumes your function may run in several threads."
            )
            if now.network.operators[i].lock_unknown:
                found.append(
                    "It also assumes that the function lets go of the interpreter's lock while it computes; "
                    "if not, parallel calls gain nothing."
                )
    if now.consumer.step_s is None:
        found.append("The consumer's own speed is unknown: the rate is what the pipeline alone could give.")
    return found


def _sentence(now: Estimate, plan: a.Plan, binding: Bound, rate_now: float, rate: float) -> str:
    limit = _limit_in_words(now, binding)
    observed = now.today_rate or rate_now
    if not plan.changes:
        return f"No change that Plumber knows makes it faster; the limit is {limit}.{_refusal(now, binding)}"
    count = len(plan.changes)
    return (
        f"{'One change is' if count == 1 else f'{count} changes are'} predicted to reach {words.rate(rate)} "
        f"({words.factor(rate / observed)} today's; 90 % interval {words.digits(plan.low)}–{words.digits(plan.high)}); "
        f"then the limit is {limit}."
    )


def _mean_rate(epochs: float, first: float, later: float) -> float:
    """Over all epochs, the first of which fills the caches, steps/s."""
    share = min(1.0 / epochs, 1.0)
    return 1.0 / (share / first + (1.0 - share) / later) if first > 0 and later > 0 else math.nan


def _bottleneck_then(now: Estimate, settings: Settings, binding: Bound) -> a.Bottleneck:
    """What limits the rate once `settings` are in force, and what comes next."""
    network = now.network
    ids = [network.operators[i].id for i in binding.operators]
    limit = _limit_in_words(now, binding)
    found = a.Bottleneck(
        operators=ids,
        constraint=constraint_of(binding.kind),
        sentence=f"With the plan the limit is {limit}, at {words.rate(binding.rate)}.",
    )
    if ids:
        found.operator = ids[0]
    ranked = bounds(with_unfused_copies(network, settings), settings)
    second = runner_up(now, ranked, binding, lambda bound: _limit_in_words(now, bound))
    if second is not None:
        found.runner_up.CopyFrom(second)
    return found


def runner_up(
    now: Estimate, ranked: Sequence[Bound], binding: Bound, label: Callable[[Bound], str]
) -> a.RunnerUp | None:
    """The next bound behind `binding` that speaks of something else; None if there is none."""
    others = [bound for bound in ranked if bound.rate >= binding.rate and label(bound) != label(binding)]
    if not others or not math.isfinite(others[0].rate) or binding.rate <= 0:
        return None
    second = others[0]
    behind, name = second.rate / binding.rate - 1, label(second)
    far = "as close" if behind < CLOSE else f"{words.percent(behind)} behind"
    return a.RunnerUp(
        constraint=constraint_of(second.kind),
        operators=[now.network.operators[i].id for i in second.operators],
        label=name,
        rate=second.rate,
        behind=behind,
        sentence=f"Next comes {name}, {far}, at {words.rate(second.rate)}.",
    )


def _cause_then(network: Network, binding: Bound) -> a.Cause.ValueType:
    """The consumer, hardware that is used up, or software."""
    if binding.kind is Kind.CONSUMER or binding.rate > fastest_loop(network):
        return a.CAUSE_CONSUMER
    return a.CAUSE_HARDWARE if binding.kind in (Kind.CPU, Kind.STORAGE) else a.CAUSE_SOFTWARE


def _refusal(now: Estimate, binding: Bound) -> str:
    """Why what binds may not become parallel, as a sentence; empty if that is not the question."""
    if binding.kind not in (Kind.OPERATOR, Kind.THREAD) or not binding.operators:
        return ""
    first = binding.operators[0]
    choice, written = now.network.current.choices[first], now.written[first]
    refused = written.HasField("parallel") and not written.parallel.allowed and written.parallel.reason
    if not refused or (choice.parallel and choice.parallelism > 1):
        return ""
    return f" It stays sequential: {written.parallel.reason.rstrip('.')}."


def _limit_in_words(now: Estimate, binding: Bound) -> str:
    network = now.network
    if binding.rate > fastest_loop(network):
        return "the loop that asks for elements"
    first = network.operators[binding.operators[0]].label if binding.operators else "the pipeline"
    return {
        Kind.CONSUMER: "the training step itself",
        Kind.CPU: f"the {words.cores(network.limits.cores)} that this process may use",
        Kind.THREADPOOL: "the iterator's thread pool",
        Kind.GIL: f"Python's interpreter lock, held by {first}",
        Kind.STORAGE: "what storage delivers",
        Kind.OPERATOR: first,
        Kind.THREAD: f"the thread of {first}",
    }[binding.kind]
