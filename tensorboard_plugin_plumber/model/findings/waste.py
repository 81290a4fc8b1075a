"""Work whose result nobody uses, and work that is done more often than it has to be."""

from __future__ import annotations

from collections.abc import Iterator

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.estimate import CACHE_TYPES, COPY_BYTES_PER_S
from tensorboard_plugin_plumber.model.findings.case import (
    LEAST_GAIN,
    Case,
    cheaper,
    costing,
    fewer,
    severity,
)
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

#: What throws elements away, as the user would name it.
_THROWS = frozenset({"Filter", "ParallelFilter", "Skip", "Take", "TakeWhile", "Shard", "Window"})
#: They look at positions only, so that they may stand anywhere before what keeps positions.
_BY_POSITION = frozenset({"Skip", "Shard"})
#: A filter that keeps more than this wastes little.
_MOST_KEPT = 0.9
#: A filter that keeps less than this reads many records for each that it keeps.
_FEW_KEPT = 0.5
#: One call per element is dear only where there is little to do in it: bytes in and out, and seconds.
_TINY_BYTES = 16e3
_SHORT_CALL_S = 150e-6
#: Fewer elements to a batch leave little to gain from batching first.
_FEWEST_BATCHED = 8
#: Share of a call that is the calling itself, from which on the call costs about as much as the work.
_CALL_SHARE = 0.1


def wasted_work(case: Case) -> Iterator[a.Finding]:
    """Elements are made at some cost, and then thrown away."""
    if case.consumer_binds:
        return
    for i, written in enumerate(case.estimate.written):
        kept = _kept(case, i)
        if written.type not in _THROWS or kept is None or kept > _MOST_KEPT:
            continue
        finding = _thrown_away(case, i, kept)
        if finding is not None:
            yield finding


def _kept(case: Case, position: int) -> float | None:
    """Share of its input that an operator hands on, 0 to 1; None if it has not one input, or none was counted."""
    network = case.estimate.network
    inputs = network.inputs[position]
    if len(inputs) != 1 or network.operators[inputs[0]].visits <= 0:
        return None
    written = case.estimate.written[position]
    each = max(written.count, 1) if written.type == "Window" else 1
    return each * network.operators[position].visits / network.operators[inputs[0]].visits


def _thrown_away(case: Case, position: int, kept: float) -> a.Finding | None:
    network, written = case.estimate.network, case.estimate.written[position]
    operator = network.operators[position]
    makers = [i for i in network.below(position) if network.operators[i].pooled]
    if not makers:
        return _reads_for_little(case, position, kept) if written.type == "Filter" else None
    dearest = max(makers, key=lambda i: network.operators[i].visits * network.operators[i].service_s)
    gain = case.gain_of(case.changed(dict.fromkeys(makers, fewer(kept))))
    if gain < LEAST_GAIN:
        return None
    wasted_s = (1 - kept) * network.core_s(makers)
    maker = network.operators[dearest].label
    message = (
        f"{operator.label} keeps {words.percent(kept)} of what {maker} made for it: "
        f"{words.duration(wasted_s)} of core time per step go into elements that are thrown away."
    )
    if written.type in _BY_POSITION:
        fix = f"Move .{written.type.lower()}(…) before {maker}: the same elements stay."
    else:
        fix = f"Decide before {maker} which elements stay, where what it decides by is known already."
    code = "shard-late" if written.type == "Shard" else "wasted-work"
    if code == "shard-late":
        message += " Each worker does the work of all."
    return a.Finding(
        code=code, severity=severity(gain), operator=operator.id, message=message, fix=fix, gain=gain
    )


def shard_behind_cache(case: Case) -> Iterator[a.Finding]:
    """Each worker caches what all of them need, and then takes its share: the cache holds the others' elements, too."""
    network = case.estimate.network
    for i, written in enumerate(case.estimate.written):
        kept = _kept(case, i)
        caches = [j for j in network.below(i) if case.estimate.written[j].type in CACHE_TYPES]
        if written.type != "Shard" or not caches or kept is None or kept > _MOST_KEPT:
            continue
        cache = caches[0]
        held = case.last.operators[case.estimate.written[cache].running].buffered_bytes
        memory = f", {words.size(held * (1 - kept))} of {words.size(held)} for nothing" if held else ""
        yield a.Finding(
            code="shard-late",
            severity=a.SEVERITY_MEDIUM,
            operator=network.operators[i].id,
            message=(
                f"{network.operators[i].label} keeps {words.percent(kept)} of what {network.operators[cache].label} "
                f"holds: each worker makes and stores the elements of all in its first pass{memory}."
            ),
            fix=f"Move .shard(…) to the front, before {network.operators[network.below(i)[-1]].label} is worked on.",
        )


def _reads_for_little(case: Case, position: int, kept: float) -> a.Finding | None:
    """A filter right behind its source: what it costs is the reading and testing of what it refuses."""
    network = case.estimate.network
    operator, batch = network.operators[position], case.batch_above(position)
    below = network.below(position)
    if kept > _FEW_KEPT or batch < _FEWEST_BATCHED or position not in case.binding_operators():
        return None
    source = network.operators[below[-1]].label if below else "its source"
    gain = case.gain_of(case.changed({position: cheaper(1 / batch)}))
    if gain < LEAST_GAIN:
        return None
    return a.Finding(
        code="wasted-work",
        severity=severity(gain),
        operator=operator.id,
        message=(
            f"{operator.label} keeps {words.percent(kept)}: {words.digits(1 / kept)} elements are read from {source} "
            f"and tested one by one for each that stays, {words.duration(operator.service_s)} of its own work each."
        ),
        fix=(
            "Take fewer at the source (fewer files, .shard or indices), or batch first and draw one mask for a "
            "whole batch."
        ),
        gain=gain,
    )


def per_element_overhead(case: Case) -> Iterator[a.Finding]:
    """A function is called once for each tiny element, and the calling costs more than the work."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    for i in case.binding_operators():
        operator, written = network.operators[i], case.estimate.written[i]
        batch = case.batch_above(i)
        if not operator.pooled or operator.python or not written.type.endswith(("Map", "Filter")):
            continue
        if written.type == "FlatMap" or batch < _FEWEST_BATCHED:
            continue
        inputs = [network.operators[j] for j in network.inputs[i]]
        calls = sum(one.visits for one in inputs) if written.type.endswith("Filter") else operator.visits
        if calls <= 0:
            continue
        call_s = operator.visits * (operator.cpu_s + operator.wait_s) / calls
        bytes_touched = operator.element_bytes + sum(one.element_bytes for one in inputs)
        overhead_s = case.overhead_s(i)
        if call_s > _SHORT_CALL_S or bytes_touched > _TINY_BYTES or overhead_s < _CALL_SHARE * call_s:
            continue
        share = min(overhead_s / call_s, 1.0)
        left = 1 - share * (1 - 1 / batch)
        gain = case.gain_of(case.changed({i: cheaper(left)}))
        if gain < LEAST_GAIN:
            continue
        yield a.Finding(
            code="per-element-overhead",
            severity=severity(gain),
            operator=operator.id,
            message=(
                f"{operator.label} is called {words.digits(calls)} times per step, for elements of "
                f"{words.size(bytes_touched)} in and out: {words.duration(call_s)} per call, of which about "
                f"{words.duration(min(overhead_s, call_s))} are the calling itself. More parallel calls add calls, "
                "not work."
            ),
            fix=(
                f"Batch first: .batch({batch}) before {operator.label}, and a function that works on whole batches "
                "(tf.io.parse_example for tf.io.parse_single_example). The gain counts the calls that are saved alone."
            ),
            gain=gain,
        )


def unbatch_rebatch(case: Case) -> Iterator[a.Finding]:
    """Batches are taken apart and put together again, with nothing between that needs single elements."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    for i, written in enumerate(case.estimate.written):
        if written.type != "Unbatch" or network.operators[i].parent is None:
            continue
        above = network.operators[i].parent
        if above is None or not case.estimate.written[above].type.endswith("Batch"):
            continue
        # .rebatch(n) copies each batch once.
        copied_s = min(
            network.operators[above].element_bytes / COPY_BYTES_PER_S, network.operators[above].cpu_s
        )
        gain = case.gain_of(case.changed({i: cheaper(0.0), above: costing(copied_s)}))
        if gain < LEAST_GAIN:
            continue
        yield a.Finding(
            code="unbatch-rebatch",
            severity=severity(gain),
            operator=network.operators[i].id,
            message=(
                f"{network.operators[i].label} takes batches apart and {network.operators[above].label} puts them "
                f"together again: {words.duration(network.core_s((i, above)))} of core time per step for copies."
            ),
            fix="Keep the batches, or say the size wanted once: .rebatch(n) in place of both.",
            gain=gain,
        )


def nested_datasets(case: Case) -> Iterator[a.Finding]:
    """Each element builds a small dataset of its own: making and dropping iterators is most of the work."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    binding = case.binding_operators()
    for i, written in enumerate(case.estimate.written):
        if written.type != "Window":
            continue
        # What iterates the windows: a map, flat map or interleave right behind.
        users = [
            j
            for j in network.path(i)[1:3]
            if j in binding and (network.operators[j].pooled or network.operators[j].interleave)
        ]
        if i not in binding and not users:
            continue
        dear = users[0] if users else i
        operator = network.operators[i]
        per_window_s = sum(
            network.operators[j].visits * network.operators[j].service_s for j in {i, dear}
        ) / max(operator.visits, 1e-12)
        # Cut from tensors, a window is copied out of the rows and into its batch.
        copied_s = 2 * network.operators[dear].element_bytes / COPY_BYTES_PER_S
        inside = [j for j in network.below(dear) if dear in network.enclosing[j]]
        free = dict.fromkeys((i, *inside), cheaper(0.0))
        gain = case.gain_of(case.changed({**free, dear: costing(copied_s)}))
        if gain < LEAST_GAIN:
            continue
        yield a.Finding(
            code="nested-datasets",
            severity=severity(gain),
            operator=operator.id,
            message=(
                f"{operator.label} makes a dataset for each window and component, and "
                f"{network.operators[dear].label} iterates it: {words.duration(per_window_s)} per window, which is the "
                "making of iterators more than the copying of data."
            ),
            fix=(
                "Cut the windows from tensors: one batch of rows, then tf.signal.frame or tf.gather with the indices "
                "of all its windows; length, shift and the dropped tail stay the same."
            ),
            gain=gain,
        )
