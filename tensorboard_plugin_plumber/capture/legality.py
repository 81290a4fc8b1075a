"""Whether an operator's output may be cached, and whether its calls may run in parallel.

A cache is legal where everything below gives the same elements each epoch: no stateful
randomness, no Python of unknown purity, no reshuffling, no endless input, no writes that the user
relies on. Parallel calls are legal where the order of calls cannot show in the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensorboard_plugin_plumber.capture import graphs
from tensorboard_plugin_plumber.capture.functions import Facts, PythonFacts, facts_of, python_facts
from tensorboard_plugin_plumber.capture.graphs import Node
from tensorboard_plugin_plumber.capture.written import Written

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
_FROZEN = frozenset({"CacheDataset"})


@dataclass(frozen=True)
class Verdict:
    """Allowed or not, why in words, and the id of the operator that is the reason."""

    allowed: bool
    reason: str = ""
    operator: str = ""


def facts(operator: Written, library: dict[str, Any]) -> Facts:
    """What the functions of one of the user's operators do."""
    return _node_facts(operator.nodes, library)


def cache(root: Written, library: dict[str, Any]) -> dict[str, Verdict]:
    """By operator id: may its output be cached?"""
    verdicts: dict[str, Verdict] = {}
    _cache(root, library, verdicts)
    return verdicts


def _cache(operator: Written, library: dict[str, Any], verdicts: dict[str, Verdict]) -> Verdict:
    """The verdict on what the elements are; whether they end is asked at each operator anew."""
    below = [_cache(child, library, verdicts) for child in operator.children]
    verdict = _own_reason(operator, library)
    if verdict is None and not any(graphs.base_op(node.op) in _FROZEN for node in operator.nodes):
        verdict = next((one for one in below if not one.allowed), None)
    if verdict is None:
        verdict = next((one for one in below if one.reason and one.allowed), Verdict(True))
        if facts(operator, library).reads_variables:
            verdict = Verdict(
                True, "assumes that the variables its function reads do not change", operator.id
            )
    verdicts[operator.id] = _endless(operator) or verdict
    return verdict


def _endless(operator: Written) -> Verdict | None:
    culprit = endless(operator)
    if culprit is None:
        return None
    return Verdict(
        False,
        f"its input never ends ({describe_operator(culprit)}), so that a cache would never be complete",
        culprit.id,
    )


def endless(operator: Written) -> Written | None:
    """The operator that makes this one's output endless; None if it ends, as far as can be seen."""
    for node in operator.nodes:
        base = graphs.base_op(node.op)
        if base == "RepeatDataset" or base == "ShuffleAndRepeatDataset":
            count = node.constant("count")
            if isinstance(count, int) and count < 0:
                return operator
        if base == "TakeDataset":
            count = node.constant("count")
            if isinstance(count, int) and count >= 0:
                return None
    if operator.type in ("Counter", "RandomDataset", "Random"):
        return operator
    inputs = [endless(child) for child in operator.children]
    culprits = [one for one in inputs if one is not None]
    if any(graphs.base_op(node.op) == "ZipDataset" for node in operator.nodes):
        return culprits[0] if culprits and len(culprits) == len(inputs) else None
    return culprits[0] if culprits else None


def _own_reason(operator: Written, library: dict[str, Any]) -> Verdict | None:
    """Why the operator itself forbids a cache of its output; None if it does not."""
    name = describe_operator(operator)
    for node in operator.nodes:
        base = graphs.base_op(node.op)
        if base in ("ShuffleDataset", "ShuffleAndRepeatDataset") and _reshuffles(node, operator):
            return Verdict(False, f"{name} draws a new order each epoch", operator.id)
        if base in ("RandomDataset", "SamplingDataset"):
            return Verdict(False, f"{name} draws random numbers", operator.id)
        if "DataService" in base:
            return Verdict(False, f"{name} takes its elements from a tf.data service", operator.id)
        if base == "GeneratorDataset":
            return Verdict(
                False, f"{name} runs Python code whose results may differ from epoch to epoch", operator.id
            )
    found = facts(operator, library)
    if found.python:
        return Verdict(
            False, f"{name} runs Python code ({_names(found.python)}) of unknown purity", operator.id
        )
    if found.random:
        return Verdict(False, f"{name} draws random numbers ({found.random[0]})", operator.id)
    if found.writes:
        return Verdict(False, f"{name} writes {', '.join(found.writes)}", operator.id)
    if found.unknown:
        return Verdict(
            False, f"{name} holds state that is not understood ({', '.join(found.unknown)})", operator.id
        )
    if found.reads_variables and _reads_trainable(operator):
        return Verdict(False, f"{name} reads variables that training changes", operator.id)
    return None


def _reshuffles(node: Node, operator: Written) -> bool:
    if node.attribute("reshuffle_each_iteration") is not False:
        return True
    # Without reshuffling the order is drawn once for the dataset; in a body a new dataset is made each time.
    return operator.in_body and not any(node.constant(name) for name in ("seed", "seed2"))


def _reads_trainable(operator: Written) -> bool:
    """Whether a function of the operator captures a trainable variable."""
    dataset = operator.pair.dataset
    for value in list(getattr(dataset, "__dict__", {}).values()):
        graph = getattr(getattr(value, "_function", None), "graph", None)
        try:
            variables = tuple(graph.variables) if graph is not None else ()
        except ReferenceError:
            variables = ()
        if any(getattr(one, "trainable", False) for one in variables):
            return True
    return False


def parallel(operator: Written, library: dict[str, Any]) -> Verdict | None:
    """May several calls of this operator run at once? None where the question makes no sense."""
    base = graphs.base_op(operator.head.op)
    if base not in _PARALLEL_TYPES or (
        operator.pair.construction is not None
        and operator.type in ("Generator", "TFRecord", "TextLine", "FixedLengthRecord")
    ):
        return None
    name = describe_operator(operator)
    inside = [operator, *(one for one in _bodies(operator))]
    reserve = ""
    for one in inside:
        found = facts(one, library)
        python = [*found.python, *_generator_functions(one)]
        visible = [what for each in python for what in each.writes]
        if visible:
            return Verdict(False, f"{name} writes {', '.join(dict.fromkeys(visible))}", one.id)
        if found.writes:
            return Verdict(False, f"{name} writes {', '.join(found.writes)}", one.id)
        if found.seeded:
            return Verdict(
                False,
                f"{name} draws random numbers with a seed ({found.seeded[0]}): the order of the "
                "calls decides the draws",
                one.id,
            )
        if found.unknown:
            return Verdict(
                False, f"{name} holds state that is not understood ({', '.join(found.unknown)})", one.id
            )
        if python:
            reserve = THREADS
    return Verdict(True, reserve, operator.id if reserve else "")


def _bodies(operator: Written) -> list[Written]:
    return [one for child in operator.children if child.in_body for one in child.walk()]


def _generator_functions(operator: Written) -> list[PythonFacts]:
    """The user's generators among an operator's functions."""
    if operator.type != "Generator":
        return []
    return [python_facts(one.name, one.code, one.fixed) for one in operator.functions.values()]


def _node_facts(nodes: list[Node], library: dict[str, Any]) -> Facts:
    names = [name for node in nodes for name in node.functions().values()]
    return facts_of(names, library)


def _names(functions: tuple[PythonFacts, ...]) -> str:
    return ", ".join(dict.fromkeys(one.name for one in functions))


def describe_operator(operator: Written) -> str:
    """For people: "Map decode (train.py:57)"."""
    made = operator.pair.construction
    name = next((one.name for one in operator.functions.values() if one.name != "<lambda>"), "")
    words = f"{operator.type} {name}".strip()
    if made is None or made.call is None:
        return words
    return f"{words} ({made.call.path.rsplit('/', 1)[-1]}:{made.call.line})"
