"""The bounds and the limits as an analysis shows them."""

from __future__ import annotations

from collections.abc import Sequence

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.bounds import Bound, Kind
from tensorboard_plugin_plumber.model.estimate import Estimate
from tensorboard_plugin_plumber.model.network import Limits
from tensorboard_plugin_plumber.model.plan import constraint_of
from tensorboard_plugin_plumber.schema import analysis_pb2 as a


def bound_rows(
    now: Estimate, found: Sequence[Bound], binding: Bound | None, consumer_binds: bool
) -> list[a.Bound]:
    """The bounds for people: the smallest of each label, the smallest first."""
    rows: dict[str, a.Bound] = {}
    for bound in found:
        binds = bound.kind is Kind.CONSUMER if consumer_binds else bound is binding
        label = label_of_bound(now, bound)
        row = a.Bound(
            constraint=constraint_of(bound.kind),
            operators=[now.network.operators[i].id for i in bound.operators],
            label=label,
            rate=bound.rate,
            binds=binds,
        )
        rows.setdefault(label, row)
    return list(rows.values())


def label_of_bound(now: Estimate, bound: Bound) -> str:
    network = now.network
    if bound.kind is Kind.CONSUMER:
        return "the training step itself"
    if bound.kind is Kind.CPU:
        return f"all {words.cores(network.limits.cores)}"
    if bound.kind is Kind.THREADPOOL:
        return f"thread pool of {network.current.threadpool_size}"
    if bound.kind is Kind.GIL:
        return "Python's interpreter lock"
    if bound.kind is Kind.STORAGE:
        return "storage"
    first = network.operators[bound.operators[0]].label if bound.operators else "one thread"
    return first if bound.kind is Kind.OPERATOR else f"thread of {first}"


def limits_shown(
    limits: Limits, pool: int, *, epochs: float | None = None, wanted_rate: float | None = None
) -> a.Limits:
    """What the analysis was made under."""
    shown = a.Limits(
        cores=limits.cores,
        memory_bytes=limits.memory_bytes,
        memory_share=limits.memory_share,
        memory_free_bytes=limits.memory_free_bytes,
        threadpool_size=pool,
        disk_free_bytes=limits.disk_free_bytes,
    )
    if epochs is not None:
        shown.epochs = epochs
    if wanted_rate is not None:
        shown.wanted_rate = wanted_rate
    for readers, bytes_per_s in limits.storage.points if limits.storage is not None else ():
        shown.storage.add(readers=readers, bytes_per_s=bytes_per_s)
    return shown
