"""Buffers: how long they take to fill, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.estimate import label_of
from tensorboard_plugin_plumber.model.findings.case import Case
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_SHUFFLES = frozenset({"Shuffle", "ShuffleAndRepeat"})
#: Share of the memory that the process may use, from which on a buffer is worth a word, and a warning.
_MUCH_MEMORY = 0.1
_MOST_MEMORY = 0.5
#: The first step's delay is worth a word beyond both of these.
_LONG_DELAY_S = 0.5
_STEPS_DELAYED = 10


def shuffle_fill(case: Case) -> Iterator[a.Finding]:
    """The fill of a shuffle's buffer delays the first step of each epoch."""
    last, rate = case.last, case.estimate.network.observed_rate
    if not last.epochs_started or not rate:
        return
    delay_s = last.epoch_start_delay_s / last.epochs_started
    shuffle = next((one for one in case.pipeline.operators if one.type in _SHUFFLES), None)
    if shuffle is None or delay_s < max(_LONG_DELAY_S, _STEPS_DELAYED / rate):
        return
    position = case.estimate.position.get(shuffle.id)
    if position is None:
        return
    filled = shuffle.buffer_size
    if shuffle.buffer_size < 0:
        return
    inputs = case.estimate.network.inputs[position]
    if inputs and case.estimate.written[inputs[0]].cardinality >= 0:
        filled = min(filled, case.estimate.written[inputs[0]].cardinality)
    share = last.epoch_start_delay_s / (last.epoch_start_delay_s + last.active_s)
    yield a.Finding(
        code="shuffle-fill",
        severity=a.SEVERITY_MEDIUM if share >= _MUCH_MEMORY else a.SEVERITY_LOW,
        operator=shuffle.id,
        message=(
            f"The first element of an epoch comes after {words.duration(delay_s)}, as long as "
            f"{words.digits(delay_s * rate)} steps: {label_of(shuffle)} first fills its buffer with "
            f"{filled:,} elements."
        ),
        fix="Shuffle what is cheap to make (names, records) before the costly part, or take a smaller buffer.",
    )


def large_buffers(case: Case) -> Iterator[a.Finding]:
    """A shuffle's buffer, or what is prefetched, called in parallel or kept open, holds much of the memory."""
    for operator, held, now, share in _large_buffers(case):
        if operator.type == "Cache":
            continue
        shuffles = operator.type in _SHUFFLES
        yield a.Finding(
            code="shuffle-memory" if shuffles else "buffer-memory",
            severity=a.SEVERITY_HIGH if share >= _MOST_MEMORY else a.SEVERITY_MEDIUM,
            operator=operator.id,
            message=(
                f"The buffer of {label_of(operator)} {'holds' if now >= held else 'is given room for'} "
                f"{words.size(held)}, {words.percent(share)} of the memory that this process may use"
                f"{'' if now >= held else f' ({words.size(now)} now)'}."
            ),
            fix="Shuffle records or names before they are decoded, or take a smaller buffer."
            if shuffles
            else "Prefetch one or two elements, or give AUTOTUNE less memory: options.autotune.ram_budget.",
        )


def _large_buffers(case: Case) -> Iterator[tuple[m.Operator, float, float, float]]:
    """Operators whose buffers take a large share of the memory: (operator, bytes, bytes held now, share)."""
    memory = case.estimate.network.limits.memory_bytes
    told: set[int] = set()
    for operator in case.pipeline.operators:
        if not operator.HasField("running") or operator.running in told or memory <= 0:
            continue
        told.add(operator.running)
        if operator.running < len(case.last.operators):
            counters = case.last.operators[operator.running]
            now = float(counters.buffered_bytes)
            held = max(now, _full_bytes(operator, counters))
            if held >= _MUCH_MEMORY * memory:
                yield operator, held, now, held / memory


def _full_bytes(operator: m.Operator, counters: m.OperatorCounters) -> float:
    """What a prefetch holds as soon as what takes its elements pauses; 0 for what is full anyway, or unknown."""
    if operator.type != "Prefetch" or counters.elements_seen <= 0:
        return 0.0
    size = counters.buffer_size if counters.HasField("buffer_size") else max(operator.buffer_size, 0)
    return float(size * counters.bytes_produced / counters.elements_seen)
