"""Rows of the operator table: one per operator as the user wrote it."""

from __future__ import annotations

import math

import numpy as np

from tensorboard_plugin_plumber.model.estimate import AUTOTUNE, Estimate, source_of
from tensorboard_plugin_plumber.model.ordered import eta
from tensorboard_plugin_plumber.model.service import RUNS_ELSEWHERE
from tensorboard_plugin_plumber.model.size_rows import show_files, show_reads, show_size
from tensorboard_plugin_plumber.model.times import show_times
from tensorboard_plugin_plumber.model.windows import Windows
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

NAN = float("nan")
_FACT_KINDS = {
    m.FACT_RANDOM: "random",
    m.FACT_SIDE_EFFECT: "side-effect",
    m.FACT_PYTHON: "python",
    m.FACT_STATE: "state",
    m.FACT_INFINITE: "infinite",
}


def rows_of(
    pipeline: m.Pipeline, estimate: Estimate, windows: Windows, binding: set[str]
) -> list[a.OperatorRow]:
    """Rows in the order of the recording; `binding` holds the ids of the operators that bind."""
    spread = _relative_spread(windows)
    return [
        _measured(pipeline, operator, estimate, windows, spread, operator.id in binding)
        for operator in pipeline.operators
    ]


def bare_rows(pipeline: m.Pipeline) -> list[a.OperatorRow]:
    """Rows of a pipeline without counters: names, lines and settings only."""
    return [_row(pipeline, operator) for operator in pipeline.operators]


def _row(pipeline: m.Pipeline, operator: m.Operator) -> a.OperatorRow:
    row = a.OperatorRow(
        id=operator.id,
        type=operator.type,
        label=operator.label or operator.type,
        injected=operator.injected,
        in_body=operator.in_body,
        settings=settings_of(operator),
    )
    if operator.parent:
        row.parent = operator.parent
    if operator.flows_to:
        row.flows_to = operator.flows_to
    if operator.HasField("source"):
        row.source = source_of(operator.source)
        row.source_path = operator.source.path
        row.source_line = operator.source.line
    if operator.HasField("function"):
        row.function = operator.function.name
        row.python = operator.function.python
        row.random = operator.function.random
        if operator.function.HasField("source"):
            row.function_source = source_of(operator.function.source)
    if operator.HasField("cache") and not operator.cache.allowed and operator.cache.reason:
        row.cache_refused = operator.cache.reason
    if operator.HasField("running"):
        row.runs_as = pipeline.running[operator.running].type
        together = pipeline.running[_joint(pipeline, operator)].operators
        row.runs_with.extend(together if len(together) > 1 else ())
    show_files(row, pipeline, operator)
    row.dropped = (
        not operator.HasField("running") and not operator.injected and not _elsewhere(pipeline, operator)
    )
    row.facts.extend(_edge_fact(fact) for fact in operator.facts)
    return row


def _joint(pipeline: m.Pipeline, operator: m.Operator) -> int:
    """Index of the running operator that does its work, together with other operators' where it is fused.

    It is the operator's own, but for a filter whose predicate the map before it computes.
    """
    own = operator.running
    if operator.type != "Filter":
        return own
    those = [r for r, one in enumerate(pipeline.running) if operator.id in one.operators]
    return max(those, key=lambda r: len(pipeline.running[r].operators), default=own)


def _elsewhere(pipeline: m.Pipeline, operator: m.Operator) -> bool:
    """Whether it runs where nothing can be seen: behind a device's iterator, or on workers of a service."""
    by_id = {one.id: one for one in pipeline.operators}
    above = by_id.get(operator.parent)
    while above is not None:
        if above.type in RUNS_ELSEWHERE:
            return True
        above = by_id.get(above.parent)
    return False


def _edge_fact(fact: m.Fact) -> a.EdgeFact:
    edge = a.EdgeFact(
        kind=_FACT_KINDS.get(fact.kind, ""),
        reason=fact.reason,
        seeded=fact.seeded,
        changes_each_epoch=fact.changes_each_epoch,
    )
    if fact.operator:
        edge.operator = fact.operator
    if fact.HasField("source"):
        edge.source = source_of(fact.source)
    return edge


def _measured(
    pipeline: m.Pipeline,
    operator: m.Operator,
    estimate: Estimate,
    windows: Windows,
    spread: list[float],
    binds: bool,
) -> a.OperatorRow:
    row = _row(pipeline, operator)
    row.binds = binds
    show_size(row, estimate.sizes.get(operator.id))
    if not operator.HasField("running"):
        return row
    r = operator.running
    network, rate = estimate.network, estimate.network.observed_rate
    last = windows.last.operators[r] if r < len(windows.last.operators) else None
    position = estimate.position.get(operator.id)
    if position is None:  # a prefetch: a choice of the operator below
        totals = windows.total()
        row.visit_ratio = float(totals.elements[r]) / max(totals["steps"], 1e-12)
        seen = float(totals.seen[r])
        row.cpu_s = float(estimate.service.cpu_s[r])
        row.wait_s = 0.0
        row.bytes_per_element = float(totals.bytes[r]) / seen if seen > 0 else NAN
    else:
        found, choice = network.operators[position], network.current.choices[position]
        row.visit_ratio = found.visits
        show_times(row, estimate.times[position], spread[r])
        row.bytes_per_element = found.element_bytes
        row.max_rate = _max_rate(estimate, position)
        row.autotuned = choice.autotuned
        if choice.parallel:
            row.parallelism = choice.parallelism
        elif found.pooled or found.interleave:
            row.parallelism = 1
        primary = _carrier(pipeline, operator, estimate)
        if primary is not None:
            row.fused_with = primary
        if rate:
            row.utilisation = min(rate / row.max_rate, 1.0) if math.isfinite(row.max_rate) else 0.0
        if math.isfinite(spread[r]):
            row.uncertainty = spread[r]
    if rate:
        row.cores_used = row.visit_ratio * row.cpu_s * rate
        row.bytes_per_s = row.visit_ratio * row.bytes_per_element * rate
    if last is not None:
        # Of what is fused, only the last operator's elements are counted.
        downstream = pipeline.running[r].operators[:1] in ([operator.id], [])
        row.elements = last.elements if downstream else row.visit_ratio * windows.last.steps
        row.buffered_bytes = last.buffered_bytes
        show_reads(row, operator, last, windows, rate)
        fill = _buffer_fill(pipeline.running[r], last)
        if fill is not None:
            row.buffer_fill = fill
    if _is_between_filters(pipeline, operator):
        for name in ("visit_ratio", "elements", "bytes_per_s"):
            row.ClearField(name)
    return row


def _buffer_fill(running: m.RunningOperator, counters: m.OperatorCounters) -> float | None:
    """Share of its buffer that holds elements; None if it has none."""
    sizes = [one.value for one in counters.parameters if one.name == "max_buffered_elements"]
    if counters.HasField("buffer_size"):
        sizes.append(counters.buffer_size)
    sizes.append(float(running.buffer_size))  # of a shuffle, which is no parameter
    size = next((one for one in sizes if one > 0), None)
    return None if size is None else min(counters.buffered_elements / size, 1.0)


def _max_rate(estimate: Estimate, position: int) -> float:
    """The root's rate if this operator alone bound at today's setting; infinite if it does no work."""
    network = estimate.network
    operator, choice = network.operators[position], network.current.choices[position]
    load = operator.visits * operator.service_s
    if load <= 0:
        return math.inf
    calls: float = 1.0
    if choice.parallel:
        calls = choice.parallelism * (
            eta(choice.parallelism, operator.variation, operator.batch_size) if operator.ordered else 1.0
        )
    if operator.pooled and not operator.unbounded:
        calls = min(calls, network.current.threadpool_size)
    if operator.interleave and operator.cycle_length:
        calls = min(calls, operator.cycle_length)
    for j in network.enclosing[position]:
        if network.current.choices[j].parallel:
            calls *= min(network.current.choices[j].parallelism, network.operators[j].cycle_length or 1)
    return calls / load


def _carrier(pipeline: m.Pipeline, operator: m.Operator, estimate: Estimate) -> str | None:
    """The operator that carries the joint cost of the fused operator that `operator` is part of."""
    joint = _joint(pipeline, operator)
    members = [i for i in pipeline.running[joint].operators if i in estimate.position]
    if len(members) < 2:
        return None
    by_id = {o.id: o for o in pipeline.operators}
    members = [i for i in members if by_id[i].running == joint] or members
    carriers = [i for i in members if by_id[i].HasField("function")] or members
    return carriers[0] if carriers[0] != operator.id else None


def _is_between_filters(pipeline: m.Pipeline, operator: m.Operator) -> bool:
    """Whether it is a filter of several in one, and not the last: how much it lets through is not counted."""
    together = pipeline.running[operator.running].operators
    return operator.type == "Filter" and operator.id in together[1:]


def _relative_spread(windows: Windows) -> list[float]:
    """Half-width of a 90 % interval of the mean time per element, relative to it, from the windows' spread."""
    count = len(windows)
    if count < 3:
        return [NAN] * windows.seen.shape[1]
    found = []
    for n, p in zip(windows.seen.T, windows.time_s.T, strict=True):
        used = n > 0
        if used.sum() < 3 or p.sum() <= 0:
            found.append(NAN)
            continue
        values = p[used] / n[used]
        found.append(float(1.64 * np.std(values, ddof=1) / np.sqrt(used.sum()) / (p.sum() / n.sum())))
    return found


def settings_of(operator: m.Operator) -> str:
    """ "parallel calls: 4 · batch 32"."""
    parts = []
    if operator.HasField("num_parallel_calls"):
        calls = operator.num_parallel_calls
        parts.append(f"parallel calls: {'AUTOTUNE' if calls == AUTOTUNE else calls}")
    if operator.HasField("batch_size"):
        parts.append(f"batch {operator.batch_size}")
    if operator.HasField("buffer_size"):
        parts.append(
            f"buffer {'AUTOTUNE' if operator.buffer_size == AUTOTUNE else f'{operator.buffer_size:,}'}"
        )
    if operator.HasField("cycle_length"):
        parts.append(f"cycle {operator.cycle_length}")
    if operator.HasField("cache_path"):
        parts.append(f"in {operator.cache_path}" if operator.cache_path else "in memory")
    if operator.HasField("count"):
        parts.append("for ever" if operator.count == AUTOTUNE else f"{operator.count:,}")
    return " · ".join(parts)
