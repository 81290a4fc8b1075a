"""Findings: named mistakes, each argued from the numbers of the run (docs/model.md, "Findings").

A rule is a function of a `Case` that yields findings. The gain of a finding is the difference of two
evaluations of the model: the network as it is, and with the fix applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.bounds import Bound, Kind, iterators_beside, predicted_rate
from tensorboard_plugin_plumber.model.estimate import CACHE_TYPES, Estimate, label_of
from tensorboard_plugin_plumber.model.network import Settings
from tensorboard_plugin_plumber.model.plan import reached_rate
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: A finding must promise at least this much, else it is not worth a reader's time.
LEAST_GAIN = 0.05
#: From here on it is a high one.
HIGH_GAIN = 0.25
#: Cores that must be free before they are called idle.
IDLE_CORES = 0.25
#: Two bounds this close bind together.
TIE = 0.05


@dataclass(frozen=True)
class Case:
    """What a rule may look at."""

    pipeline: m.Pipeline
    estimate: Estimate
    #: Bounds under today's settings, the smallest first; with the consumer's.
    bounds: tuple[Bound, ...]
    #: What binds today.
    binding: Bound
    #: What the plan sets: a finding's fix names the same numbers.
    planned: Settings

    def gain(self, settings: Settings) -> float:
        """new/old - 1 of the predicted rate, if today's settings became `settings`."""
        network = self.estimate.network
        before = reached_rate(network, network.current)
        after = reached_rate(network, settings)
        return after / before - 1 if math.isfinite(before) and math.isfinite(after) and before > 0 else 0.0

    def with_choice(self, position: int, **changes: object) -> Settings:
        """Today's settings with one operator's choice changed."""
        current = self.estimate.network.current
        choices = list(current.choices)
        choices[position] = replace(choices[position], **changes)  # type: ignore[arg-type]
        return replace(current, choices=tuple(choices))

    def binding_operators(self) -> tuple[int, ...]:
        """Operators of every data-side bound that binds within a tie of the smallest."""
        data = [bound for bound in self.bounds if bound.kind is not Kind.CONSUMER]
        tied = (bound for bound in data if bound.rate <= data[0].rate * (1 + TIE))
        return tuple(dict.fromkeys(i for bound in tied for i in bound.operators[:1]))

    @property
    def consumer_binds(self) -> bool:
        """Training does not wait: whatever the pipeline could do better costs nothing here."""
        return self.estimate.consumer.input_bound is False


Rule = Callable[[Case], Iterator[a.Finding]]


def findings(case: Case) -> list[a.Finding]:
    """What every rule has to say, the most severe first."""
    found = [finding for rule in RULES for finding in rule(case)]
    return sorted(
        found, key=lambda finding: (-finding.severity, -(finding.gain if finding.HasField("gain") else 0.0))
    )


def _severity(gain: float) -> a.Severity.ValueType:
    return a.SEVERITY_HIGH if gain >= HIGH_GAIN else a.SEVERITY_MEDIUM


def sequential_map(case: Case) -> Iterator[a.Finding]:
    """A costly map runs one call at a time and binds while cores (or waiting slots) idle."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    for i in case.binding_operators():
        operator, choice = network.operators[i], network.current.choices[i]
        if choice.parallel and (choice.parallelism > 1 or choice.autotuned):
            continue
        written = case.estimate.written[i]
        if not written.type.endswith("Map") or written.type == "FlatMap":
            continue
        free = network.limits.cores - _cores_used(case)
        beside = iterators_beside(network, i)
        where = f" in each of {beside} iterators" if beside > 1 else ""
        evidence = (
            f"{operator.label} runs one call at a time{where}, {words.duration(operator.service_s)} each"
        )
        if operator.wait_s <= operator.cpu_s:
            evidence += f" ({words.duration(operator.cpu_s)} on a core)"
            if free >= IDLE_CORES:
                evidence += f", while {words.cores(free)} of {network.limits.cores:g} idle"
        elif not case.estimate.service.split_unknown:
            evidence += f", of which it waits {words.duration(operator.wait_s)} off the core"
        if not operator.may_parallel and operator.wait_s < operator.cpu_s and free < IDLE_CORES:
            continue
        if not operator.may_parallel:
            yield a.Finding(
                code="sequential-map",
                severity=a.SEVERITY_MEDIUM,
                operator=operator.id,
                message=f"{evidence}. It stays so: {written.parallel.reason}.",
                fix="Take the randomness or state out of the costly part, so that the rest can run in parallel.",
            )
            continue
        calls = case.planned.choices[i].parallelism
        if calls < 2:
            calls = max(math.ceil(network.limits.cores), network.current.threadpool_size)
        gain = case.gain(case.with_choice(i, parallel=True, parallelism=calls))
        if gain >= LEAST_GAIN and operator.lock_unknown:
            yield a.Finding(
                code="sequential-map",
                severity=a.SEVERITY_MEDIUM,
                operator=operator.id,
                message=(
                    f"{evidence}. It runs Python: parallel calls gain up to {words.percent(gain)}, nothing if it "
                    "holds the interpreter's lock, which one call at a time cannot show."
                ),
                fix=f"{_map_call(written)}num_parallel_calls={calls})",
            )
        elif gain >= LEAST_GAIN:
            yield a.Finding(
                code="sequential-map",
                severity=_severity(gain),
                operator=operator.id,
                message=f"{evidence}.",
                fix=f"{_map_call(written)}num_parallel_calls={calls})",
                gain=gain,
            )


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
            severity=_severity(gain),
            operator=operator.id,
            message=f"{message}{evidence}.",
            fix=fix,
            gain=gain,
        )


def _turns_cost(case: Case) -> bool:
    """Whether the root takes turns with the consumer in what binds today, and the consumer is known."""
    return case.binding.takes_turns and case.estimate.consumer.step_s is not None


def pool_limited(case: Case) -> Iterator[a.Finding]:
    """Functions that wait hold all slots of the thread pool."""
    network = case.estimate.network
    data = [bound for bound in case.bounds if bound.kind is not Kind.CONSUMER]
    pool = next((bound for bound in data if bound.kind is Kind.THREADPOOL), None)
    if pool is None or pool.rate > data[0].rate * (1 + TIE):
        return
    operator = network.operators[pool.operators[0]]
    # While all cores are busy, what looks like waiting is work that kernels hand to TensorFlow's other threads.
    if network.limits.cores - _cores_used(case) < IDLE_CORES:
        return
    # What looks like waiting in Python that computes may be waiting for the interpreter's lock.
    if operator.wait_s < 0.2 * operator.service_s or operator.lock_unknown:
        return
    size = case.planned.threadpool_size
    if size <= network.current.threadpool_size:
        size = max(16, 4 * network.current.threadpool_size)
    # AUTOTUNE follows the pool by itself.
    calls = (
        "" if network.current.choices[pool.operators[0]].autotuned else f", with num_parallel_calls={size}"
    )
    settings = replace(
        case.with_choice(pool.operators[0], parallel=True, parallelism=size), threadpool_size=size
    )
    gain = case.gain(settings)
    if gain >= LEAST_GAIN:
        yield a.Finding(
            code="pool-limited",
            severity=_severity(gain),
            operator=operator.id,
            message=(
                f"{operator.label} waits {words.duration(operator.wait_s)} of the "
                f"{words.duration(operator.service_s)} of "
                f"each call and holds a slot of the iterator's pool meanwhile; all {network.current.threadpool_size} "
                "slots are taken, so that more parallel calls alone cannot help."
            ),
            fix=f"options.threading.private_threadpool_size = {size}{calls}",
            gain=gain,
        )


def python_function(case: Case) -> Iterator[a.Finding]:
    """Python is what binds: says whether the GIL or waiting does it."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    for i in case.binding_operators():
        operator, written = network.operators[i], case.estimate.written[i]
        if not operator.python:
            continue
        waits = operator.wait_s >= 0.5 * operator.service_s
        # A filter is called for what it throws away, too.
        calls = case.estimate.service.calls[written.running] if written.type == "Filter" else 1.0
        waited, whole, computed = (
            words.duration(seconds / max(calls, 1.0))
            for seconds in (operator.wait_s, operator.service_s, operator.cpu_s)
        )
        split = f"{waited} of each {whole} call waits off the core" if waits else "most of it on a core"
        if case.estimate.service.split_unknown:
            split = "how much of it waits cannot be told from the other functions of this pipeline"
        if operator.gil_s:
            message = (
                f"{operator.label} runs Python, and its parallel calls together use one core: they wait for the "
                "interpreter's lock, so that more threads cannot help."
            )
            fix = "Write it in TensorFlow operations, or in NumPy calls that release the lock."
        elif written.type == "Generator":
            message = (
                f"{operator.label} makes one element at a time in Python, "
                f"{words.duration(operator.service_s)} each; {split}."
            )
            fix = (
                "Read with native operators, or run one generator per group of files under a parallel interleave."
                if waits
                else "Make whole batches in the generator, or read with native operators."
            )
        elif case.estimate.service.split_unknown:
            message = f"{operator.label} runs Python, {whole} per call; {split}."
            fix = "Write it in TensorFlow operations, or in NumPy calls that release the lock."
        elif waits and not operator.may_parallel and network.current.choices[i].parallelism <= 1:
            message = (
                f"{operator.label} runs Python; {split}. It stays sequential: {written.parallel.reason}."
            )
            fix = "Take the state out of the function: then parallel calls wait side by side."
        elif waits:
            message = (
                f"{operator.label} runs Python; {split}, with the interpreter's lock released: parallel calls help, "
                "past the cores only with a larger pool."
            )
            fix = f"{_map_call(written)}num_parallel_calls=16) with options.threading.private_threadpool_size = 16"
        else:
            message = (
                f"{operator.label} runs Python on a core for {computed} of each call; whether it "
                "holds the interpreter's lock meanwhile shows only with two calls in flight."
            )
            fix = "Write it in TensorFlow operations, or in NumPy calls that release the lock."
        yield a.Finding(
            code="python-function", severity=a.SEVERITY_MEDIUM, operator=operator.id, message=message, fix=fix
        )


def missing_cache(case: Case) -> Iterator[a.Finding]:
    """A costly deterministic part is computed again in each epoch and would fit in memory."""
    network = case.estimate.network
    if any(written.type in CACHE_TYPES for written in case.estimate.written):
        return
    best: tuple[float, int] | None = None
    for i, operator in enumerate(network.operators):
        if (
            not operator.may_cache
            or operator.cache_bytes is None
            or operator.cache_bytes > network.limits.memory_free_bytes
        ):
            continue
        gain = case.gain(case.with_choice(i, cache=True))
        if best is None or gain > best[0] * (1 + TIE):
            best = (gain, i)
    if best is None or best[0] < LEAST_GAIN:
        return
    gain, i = best
    operator = network.operators[i]
    below = sum(o.visits * o.cpu_s for j, o in enumerate(network.operators) if i in network.path(j))
    yield a.Finding(
        code="missing-cache",
        severity=_severity(gain),
        operator=operator.id,
        message=(
            f"Up to {operator.label} nothing is random: {words.duration(below)} of core time per step are spent on the "
            f"same result in each epoch. Its {words.size(operator.cache_bytes or 0)} fit into the "
            f"{words.size(network.limits.memory_free_bytes)} that a plan may use."
        ),
        fix=f".cache() after {operator.label}",
        gain=gain,
    )


def cache_after_random(case: Case) -> Iterator[a.Finding]:
    """A cache stores the outcome of randomness: every epoch repeats it."""
    operators = {operator.id: operator for operator in case.pipeline.operators}
    for cache in case.pipeline.operators:
        if cache.type not in CACHE_TYPES:
            continue
        below = [operator for operator in case.pipeline.operators if _is_below(operators, operator, cache.id)]
        drawn = [o for o in below if o.HasField("function") and o.function.random]
        # What may be cached gives the same in each epoch anyway: a shuffle that never reshuffles.
        shuffled = [o for o in below if o.random and o not in drawn and not o.cache.allowed]
        if not drawn and not shuffled:
            continue
        source = (drawn or shuffled)[0]
        again = not drawn and any(
            o.type.startswith("Shuffle") and _is_below(operators, cache, o.id)
            for o in case.pipeline.operators
        )
        what = "random draws" if drawn else "order"
        yield a.Finding(
            code="cache-after-random",
            severity=a.SEVERITY_HIGH if drawn else a.SEVERITY_LOW if again else a.SEVERITY_MEDIUM,
            operator=cache.id,
            message=(
                f"{label_of(cache)} stores the outcome of {label_of(source)}: "
                f"every epoch repeats the {what} of the first."
            ),
            fix=f"Move .cache() before {label_of(source)}.",
        )


def _is_below(operators: dict[str, m.Operator], operator: m.Operator, ancestor: str) -> bool:
    while operator.parent:
        if operator.parent == ancestor:
            return True
        operator = operators[operator.parent]
    return False


def ordered_stragglers(case: Case) -> Iterator[a.Finding]:
    """Order makes fast calls wait for a slow one."""
    network = case.estimate.network
    bound = next((b for b in case.bounds if b.kind is not Kind.CONSUMER), None)
    if bound is None or not bound.stragglers or bound.calls_of is None:
        return
    i = bound.calls_of
    operator = network.operators[i]
    operators = tuple(replace(o, ordered=False) if j == i else o for j, o in enumerate(network.operators))
    free = predicted_rate(replace(network, operators=operators), network.current)
    gain = free / predicted_rate(network, network.current) - 1
    if gain < LEAST_GAIN:
        return
    yield a.Finding(
        code="ordered-stragglers",
        severity=_severity(gain),
        operator=operator.id,
        message=(
            f"The calls of {operator.label} vary (standard deviation "
            f"{words.digits(operator.variation or 0)} times the mean "
            f"of {words.duration(operator.service_s)}), and fast ones wait for slow ones to keep the order."
        ),
        fix="If any order will do: deterministic=False on this operator.",
        gain=gain,
    )


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


def not_input_bound(case: Case) -> Iterator[a.Finding]:
    """Training does not wait; how much headroom there is."""
    consumer = case.estimate.consumer
    if consumer.input_bound is not False:
        return
    data = next((bound for bound in case.bounds if bound.kind is not Kind.CONSUMER), None)
    headroom = ""
    today = case.estimate.today_rate
    if data is not None and today and math.isfinite(data.rate) and not data.takes_turns:
        ratio = words.factor(data.rate / today)
        headroom = f" The pipeline could give {words.rate(data.rate)}, {ratio} what training takes."
    yield a.Finding(
        code="not-input-bound",
        severity=a.SEVERITY_LOW,
        message=f"Training waits {words.percent(consumer.wait_fraction or 0)} of the step for data.{headroom}",
        fix="Nothing: make the training step faster first.",
        gain=0.0,
    )


def _cores_used(case: Case) -> float:
    """Cores in use by this process and by others on its cores."""
    network = case.estimate.network
    return case.estimate.process_cpu_s * (network.observed_rate or 0.0) + case.estimate.foreign_cores


def _map_call(written: m.Operator) -> str:
    name = written.function.name
    return f".map({name if name.isidentifier() else '…'}, "


RULES: tuple[Rule, ...] = (
    sequential_map,
    no_prefetch,
    pool_limited,
    python_function,
    missing_cache,
    cache_after_random,
    ordered_stragglers,
    autotune_off,
    not_input_bound,
)
