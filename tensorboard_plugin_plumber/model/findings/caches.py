"""Caches that are missing, and caches that stand at the wrong place."""

from __future__ import annotations

from collections.abc import Iterator

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.estimate import CACHE_TYPES, label_of
from tensorboard_plugin_plumber.model.findings.case import LEAST_GAIN, TIE, Case, is_below, severity
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


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
    below = network.core_s((i, *network.below(i)))
    yield a.Finding(
        code="missing-cache",
        severity=severity(gain),
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
        below = [operator for operator in case.pipeline.operators if is_below(operators, operator, cache.id)]
        drawn = [o for o in below if o.HasField("function") and o.function.random]
        # What may be cached gives the same in each epoch anyway: a shuffle that never reshuffles.
        shuffled = [o for o in below if o.random and o not in drawn and not o.cache.allowed]
        if not drawn and not shuffled:
            continue
        source = (drawn or shuffled)[0]
        again = not drawn and any(
            o.type.startswith("Shuffle") and is_below(operators, cache, o.id) for o in case.pipeline.operators
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


def cache_never_completes(case: Case) -> Iterator[a.Finding]:
    """A cache fills again and again, and never serves: it is never read to its end."""
    for cache in case.pipeline.operators:
        if cache.type not in CACHE_TYPES or not cache.HasField("running"):
            continue
        if case.last.cache_states.get(cache.running) != "never completes":
            continue
        position = case.estimate.position.get(cache.id)
        gain = 0.0 if position is None else case.gain(case.with_choice(position, cache=True))
        finding = a.Finding(
            code="cache-never-completes",
            severity=severity(gain) if gain >= LEAST_GAIN else a.SEVERITY_LOW,
            operator=cache.id,
            message=(
                f"{label_of(cache)} has begun to fill {case.last.iterators} times and was never read to its end: it "
                "pays for storing each element and never serves one."
            ),
            fix=_completing_fix(case, cache),
        )
        if gain >= LEAST_GAIN and not case.consumer_binds:
            finding.gain = gain
        yield finding


def _completing_fix(case: Case, cache: m.Operator) -> str:
    operators = {operator.id: operator for operator in case.pipeline.operators}
    for operator in case.pipeline.operators:
        if operator.type == "Take" and is_below(operators, cache, operator.id):
            return (
                f"Take first and cache then: .take({operator.count}).cache(), or read the data once to its end. "
                "Behind a shuffle that takes other elements each time, drop the cache."
            )
    return "Read it once to its end before training (or drop steps_per_epoch), or drop the cache."


def cache_too_large(case: Case) -> Iterator[a.Finding]:
    """The user's cache will not fit into memory, told before it happens."""
    limits = case.estimate.network.limits
    for cache in case.pipeline.operators:
        position = case.estimate.position.get(cache.id)
        if cache.type not in CACHE_TYPES or cache.cache_path or position is None:
            continue
        if case.last.cache_states.get(cache.running) == "serving":
            continue
        held = float(case.last.operators[cache.running].buffered_bytes)
        projected = case.cache_bytes(cache.id)
        # What the buffers hold today, this one among them, counts as free.
        room = limits.memory_free_bytes / max(limits.memory_share, 1e-12)
        if projected is None or projected <= room:
            continue
        yield a.Finding(
            code="cache-too-large",
            severity=a.SEVERITY_HIGH,
            operator=cache.id,
            message=(
                f"{label_of(cache)} will take {words.size(projected)} when it is full, and now holds "
                f"{words.size(held)}; there is room for {words.size(room)} of {words.size(limits.memory_bytes)}."
            ),
            fix="Cache earlier, where elements are smaller (before decoding or casting), or in a file.",
        )
