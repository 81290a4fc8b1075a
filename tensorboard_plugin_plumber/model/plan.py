"""The plan: the optimum's settings as changes to the user's code, with a prediction and its interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.bounds import Bound, Kind, bounds, data_rate, predicted_rate
from tensorboard_plugin_plumber.model.decisions import parallelism_changes, unchanged
from tensorboard_plugin_plumber.model.estimate import COPY_BYTES_PER_S, CROWDED_STRETCH, Estimate
from tensorboard_plugin_plumber.model.network import Choice, Network, Settings
from tensorboard_plugin_plumber.model.optimum import optimise
from tensorboard_plugin_plumber.model.visits import visited_rate
from tensorboard_plugin_plumber.model.windows import Array
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

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
        if parent is not None and operator.batch_size > 1 and settings.choices[i].cache:
            batch = operators[parent]
            operators[parent] = replace(batch, cpu_s=batch.cpu_s + batch.element_bytes / COPY_BYTES_PER_S)
    return replace(network, operators=tuple(operators))


def reached_rate(network: Network, settings: Settings) -> float:
    """What `settings` are predicted to reach, steps/s: the smallest bound, and no more than a loop can ask for."""
    rate = min(
        predicted_rate(with_unfused_copies(network, settings), settings), visited_rate(network, settings)
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
    changes = list(_changes(now, settings))
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
        first_epoch_rate=_finite(_filling_rate(network, settings)) if caches else _finite(rate),
        assumptions=list(_assumptions(now, settings, caches)),
        solve_s=found.solve_s,
    )
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


def _filling_rate(network: Network, settings: Settings) -> float:
    """The rate of the first pass, while the new caches fill."""
    choices = tuple(
        replace(choice, cache=before.cache)
        for choice, before in zip(settings.choices, network.current.choices, strict=True)
    )
    return reached_rate(network, replace(settings, choices=choices))


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


def _changes(now: Estimate, settings: Settings) -> list[a.Change]:
    found: list[a.Change] = []
    before = now.network.current
    for i, (old, new) in enumerate(zip(before.choices, settings.choices, strict=True)):
        written = now.written[i]
        if parallelism_changes(old, new):
            found.append(_parallelism(now, i, old, new, written))
        if new.cache and not old.cache:
            found.append(_cache(now, i, written))
        if new.prefetch and not old.prefetch:
            found.append(
                _change(
                    operator=written.id,
                    kind=a.CHANGE_KIND_PREFETCH,
                    to=a.Setting(number=new.prefetch_size or 2),
                    why="lets the next element be made while the consumer works",
                    code=f".prefetch({new.prefetch_size or 2})",
                    before=a.Setting(word="none"),
                )
            )
    if settings.threadpool_size != before.threadpool_size:
        found.append(_threadpool(now, settings))
    return found


def _change(*, before: a.Setting, **fields: Any) -> a.Change:
    """A change; its field "from" is a word of Python's and cannot be named in a call."""
    change = a.Change(**fields)
    getattr(change, "from").CopyFrom(before)
    return change


def _parallelism(now: Estimate, i: int, old: Choice, new: Choice, written: m.Operator) -> a.Change:
    network = now.network
    operator = network.operators[i]
    calls = (network.observed_rate or 0.0) * operator.visits * operator.service_s
    if old.autotuned:
        most = unchanged(network).choices[i].parallelism
        running, before = f"AUTOTUNE runs at most {most}", a.Setting(word="autotune")
    elif old.parallel:
        running = "one runs" if old.parallelism == 1 else f"{old.parallelism} run"
        before = a.Setting(number=old.parallelism)
    else:
        # One parallel call is more than none: it runs beside the consumer's thread.
        running = "one runs"
        before = a.Setting(number=1) if new.parallelism > 1 else a.Setting(word="none")
    why = f"one call takes {words.duration(operator.service_s)} and {running} at a time"
    if calls:
        why += f"; {words.digits(calls)} are busy at today's rate"
    if written.parallel.reason:
        why += f". {written.parallel.reason[:1].upper()}{written.parallel.reason[1:].rstrip('.')}"
    return _change(
        operator=written.id,
        kind=a.CHANGE_KIND_PARALLELISM,
        to=a.Setting(number=new.parallelism),
        why=why,
        code=f"{_call(written)}num_parallel_calls={new.parallelism})",
        before=before,
    )


def _cache(now: Estimate, i: int, written: m.Operator) -> a.Change:
    network = now.network
    below = network.core_s((i, *network.below(i)))
    size = network.operators[i].cache_bytes or 0.0
    return _change(
        operator=written.id,
        kind=a.CHANGE_KIND_CACHE,
        to=a.Setting(word="memory"),
        why=(
            f"what lies below costs {words.duration(below)} of core time per step and is the same in each epoch; "
            f"it takes {words.size(size)} of the {words.size(network.limits.memory_free_bytes)} that a plan may use"
        ),
        code=".cache()",
        before=a.Setting(word="none"),
    )


def _threadpool(now: Estimate, settings: Settings) -> a.Change:
    before = now.network.current.threadpool_size
    choices = zip(now.network.operators, settings.choices, strict=True)
    led = any(op.pooled and choice.autotuned and choice.parallelism > before for op, choice in choices)
    further = "; AUTOTUNE goes no further either" if led else ""
    return _change(
        kind=a.CHANGE_KIND_THREADPOOL,
        to=a.Setting(number=settings.threadpool_size),
        why=(
            f"the iterator's pool runs {before} functions at a time, and functions that wait hold their slots{further}"
        ),
        code=f"options.threading.private_threadpool_size = {settings.threadpool_size}",
        before=a.Setting(number=before),
    )


def _call(written: m.Operator) -> str:
    """ ".map(decode, " as the user would write it."""
    method = {
        "ParallelMap": "map",
        "ParallelInterleave": "interleave",
        "ParallelBatch": "batch",
        "ParallelFilter": "filter",
        "PaddedBatch": "padded_batch",
    }.get(written.type, written.type.lower())
    if written.HasField("function") and written.function.name.isidentifier():
        return f".{method}({written.function.name}, "
    return f".{method}(…, "


def _assumptions(now: Estimate, settings: Settings, caches: bool) -> list[str]:
    found = [
        f"{cache} still fills: all rates here are those of the first pass; once it is complete, what lies below it "
        "no longer counts."
        for cache in now.filling
    ]
    if caches:
        found.append(
            "Caches are judged in steady state, as if training ran for many epochs; the first one fills them."
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
