"""Whether an operator's output may be cached, and whether its calls may run in parallel.

Both follow from the facts of the pipeline (`facts`). A cache is legal where everything below gives
the same elements each epoch. Parallel calls are legal where the order of calls cannot show in the
results.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorboard_plugin_plumber.capture import graphs
from tensorboard_plugin_plumber.capture.facts import PipelineFacts
from tensorboard_plugin_plumber.capture.reasons import describe_operator
from tensorboard_plugin_plumber.capture.written import Written
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

THREADS = "assumes your function may run in several threads"
_PARALLEL_TYPES = frozenset(
    {
        "MapDataset",
        "ParallelMapDataset",
        "InterleaveDataset",
        "ParallelInterleaveDataset",
        "BatchDataset",
        "ParallelBatchDataset",
    }
)
_SEQUENTIAL_SOURCES = ("Generator", "TFRecord", "TextLine", "FixedLengthRecord")


@dataclass(frozen=True)
class Verdict:
    """Allowed or not, why in words, and the id of the operator that is the reason."""

    allowed: bool
    reason: str = ""
    operator: str = ""


def cache(operator: Written, pipeline: PipelineFacts) -> Verdict:
    """May the operator's output be cached?"""
    facts = pipeline.edges[operator.id].facts
    for fact in facts:
        if fact.kind == m.FACT_INFINITE:
            return Verdict(False, fact.uncacheable, fact.operator.id)
    for fact in facts:
        if fact.uncacheable:
            return Verdict(False, f"{describe_operator(fact.operator)} {fact.uncacheable}", fact.operator.id)
    for fact in facts:
        if fact.reserve:
            return Verdict(True, fact.reserve, fact.operator.id)
    return Verdict(True)


def parallel(operator: Written, pipeline: PipelineFacts) -> Verdict | None:
    """May several calls of this operator run at once? None where the question makes no sense."""
    if graphs.base_op(operator.head.op) not in _PARALLEL_TYPES or (
        operator.pair.construction is not None and operator.type in _SEQUENTIAL_SOURCES
    ):
        return None
    if operator.head.attribute("force_synchronous"):
        reason = f"{describe_operator(operator)} is synchronous, as it was asked to be; num_parallel_calls is an error"
        return Verdict(False, reason, operator.id)
    inside = [operator, *(one for child in operator.children if child.in_body for one in child.walk())]
    facts = [fact for one in inside for fact in pipeline.own(one)]
    for fact in facts:
        if fact.sequential:
            return Verdict(False, f"{describe_operator(operator)} {fact.sequential}", fact.operator.id)
    if any(fact.kind == m.FACT_PYTHON for fact in facts):
        return Verdict(True, THREADS, operator.id)
    return Verdict(True)
