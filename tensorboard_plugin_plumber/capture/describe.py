"""One dataset, described: what the user wrote, what TensorFlow runs, and how the two belong together."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tensorboard_plugin_plumber.capture import (
    digests,
    elsewhere,
    graphs,
    keras_inputs,
    legality,
    running,
    settings,
    sources,
)
from tensorboard_plugin_plumber.capture.facts import PipelineFacts, python_of
from tensorboard_plugin_plumber.capture.functions import Facts
from tensorboard_plugin_plumber.capture.operations import RANDOM_DATASETS
from tensorboard_plugin_plumber.capture.reasons import function_place, user_function
from tensorboard_plugin_plumber.capture.running import Running
from tensorboard_plugin_plumber.capture.written import Written, operators_of
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_ROLES_WITH_A_NAME = frozenset({"train", "validation", "predict"})


@dataclass(frozen=True)
class Description:
    """A pipeline and what is needed to read its counters."""

    pipeline: m.Pipeline
    # By index of pipeline.running: indices of its inputs, and of the roots of its function's bodies.
    inputs: tuple[tuple[int, ...], ...]
    bodies: tuple[tuple[int, ...], ...]
    # What reads files, by names that the graph shows.
    readings: tuple[sources.Reading, ...] = ()


def describe(dataset: Any, *, role: str) -> Description:
    """Describes a dataset without running the user's code, drawing elements or random numbers.

    Args:
      dataset: an eager `tf.data.Dataset`.
      role: "train", "validation", "predict", "trace" or "diagnose".

    Raises:
      tf.errors.OpError, ValueError: the dataset cannot be serialised; the caller does without.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("/CPU:0"):
        return _describe(dataset, role)


def _describe(dataset: Any, role: str) -> Description:
    options = settings.options_of(dataset)
    found = elsewhere.read(dataset)
    root = operators_of(found.written, dataset)
    matched = running.match(found.running, root)
    pipeline = m.Pipeline(role=role, consumer=m.CONSUMER_UNSPECIFIED)
    _fill_options(pipeline, options)
    _fill_running(
        pipeline,
        matched,
        pipeline.options_deterministic if pipeline.HasField("options_deterministic") else True,
    )
    operators = [one for one in root.walk() if not one.foreign]
    _fill_operators(pipeline, operators, matched, found.library, found.names)
    _fill_unused(pipeline, operators)
    _fill_injected(pipeline, matched, [one for one in root.walk() if one.foreign])
    _fill_flows(pipeline, matched)
    keras_inputs.say(pipeline, (one.id for one in operators if _is_keras_own(one)))
    pipeline.label = role if role in _ROLES_WITH_A_NAME else _scope_of(operators) or role
    pipeline.id = _identity(pipeline)
    pipeline.notes.extend(_notes(pipeline, operators))
    if found.left_out:
        pipeline.notes.append(
            f"The pipeline has {found.left_out + len(operators):,} operators: "
            f"the {found.left_out:,} that are farthest from its end are not shown."
        )
    pipeline.notes.extend(elsewhere.notes(root))
    return Description(
        pipeline,
        tuple(tuple(child.index for child in one.children) for one in matched),
        tuple(tuple(child.index for child in one.bodies) for one in matched),
        sources.readings_of(root),
    )


def _fill_options(pipeline: m.Pipeline, options: Any) -> None:
    optimization = options.experimental_optimization
    if options.autotune.cpu_budget is not None:
        pipeline.autotune_cpu_budget = int(options.autotune.cpu_budget)
    if options.autotune.ram_budget is not None:
        pipeline.autotune_ram_budget_bytes = int(options.autotune.ram_budget)
    pipeline.autotune_enabled = options.autotune.enabled is not False
    pipeline.has_counters = pipeline.autotune_enabled
    pipeline.default_optimizations = optimization.apply_default_optimizations is not False
    inject = optimization.inject_prefetch
    pipeline.inject_prefetch = pipeline.default_optimizations if inject is None else bool(inject)
    deterministic = options.deterministic
    if deterministic is not None:
        pipeline.options_deterministic = bool(deterministic)
    pool = options.threading.private_threadpool_size
    if pool is not None:
        pipeline.options_private_threadpool_size = int(pool)
    pipeline.threadpool_size = int(pool) if pool else settings.usable_cores()


def _fill_running(pipeline: m.Pipeline, matched: list[Running], deterministic: bool) -> None:
    for one in matched:
        out = pipeline.running.add(type=running.model_name(one.node), in_body=one.in_body)
        if one.parent is not None:
            out.parent = one.parent.index
        settings.fill_running(out, one.node, deterministic)
        names = [operator.id for operator in one.operators if not operator.foreign]
        out.operators.extend(names or [one.injected or f"injected-{one.index}"])


def _fill_operators(
    pipeline: m.Pipeline,
    operators: list[Written],
    matched: list[Running],
    library: dict[str, Any],
    names: dict[int, str],
) -> None:
    executes: dict[str, int] = {}
    for one in matched:
        for operator in one.operators:
            head = set(operator.head.tags) & set(one.node.tags) or operator.head.op == one.node.op
            if operator.id not in executes or (
                head and not _is_head(matched[executes[operator.id]], operator)
            ):
                executes[operator.id] = one.index
    lengths: dict[int, int | None] = {}
    cardinalities = {one.id: settings.cardinality_of(one, lengths) for one in operators}
    facts = PipelineFacts(operators[0], library, cardinalities) if operators else None
    first: dict[object, str] = {}
    graph_digests = digests.GraphDigests(library)
    for operator in operators:
        out = pipeline.operators.add(id=operator.id, type=operator.type, in_body=operator.in_body)
        parent = operator.parent
        while parent is not None and parent.foreign:
            parent = parent.parent
        out.parent = parent.id if parent is not None else ""
        _fill_source(out, operator)
        assert facts is not None
        found = facts.whole(operator)
        _fill_function(out, operator, found, graph_digests)
        if operator.id in executes:
            out.running = executes[operator.id]
        settings.fill_operator(out, operator)
        out.random = found.draws or _is_random_source(operator)
        out.cardinality = cardinalities[operator.id]
        edge = facts.edges[operator.id]
        out.facts.extend(fact.message(edge.repeated) for fact in edge.facts)
        _fill_verdict(out.cache, legality.cache(operator, facts))
        parallel = legality.parallel(operator, facts)
        if parallel is not None:
            _fill_verdict(out.parallel, parallel)
        earlier = first.setdefault(_object_of(operator), operator.id)
        out.same_as = earlier if earlier != operator.id else ""
        given = next((names[tag] for tag in operator.head.tags if tag in names), "")
        function = out.function.name if out.HasField("function") else ""
        out.label = given or (function if function and function != "<lambda>" else operator.type)


def _object_of(operator: Written) -> object:
    """What is equal for operators that are the same dataset object; in function bodies objects are gone, names stay."""
    dataset, head = operator.pair.dataset, operator.head
    return id(dataset) if dataset is not None else (head.function, head.name)


def _fill_unused(pipeline: m.Pipeline, operators: list[Written]) -> None:
    told: set[tuple[str, int]] = set()
    for operator in operators:
        made = operator.pair.construction
        for place, unused in made.unused.items() if made is not None else ():
            if place in told:
                continue
            told.add(place)
            out = pipeline.unused_results.add(method=unused.method, operator=operator.id)
            call = unused.call
            out.source.path, out.source.line, out.source.scope = call.path, call.line, call.scope


def _is_keras_own(operator: Written) -> bool:
    """Whether Keras built it, or the function in whose body it lives."""
    while operator.in_body and operator.parent is not None:
        operator = operator.parent
    made = operator.pair.construction
    return made is not None and keras_inputs.is_keras_site(made.site)


def _is_head(one: Running, operator: Written) -> bool:
    """Whether it is the operator's own, not a part of it, and not another's that does its work too."""
    if not one.node.tags:
        return graphs.base_op(one.node.op) == graphs.base_op(operator.head.op)
    return bool(set(operator.head.tags) & set(one.node.tags))


def _fill_source(out: m.Operator, operator: Written) -> None:
    made = operator.pair.construction
    if made is not None and made.call is not None:
        out.source.path, out.source.line, out.source.scope = made.call.path, made.call.line, made.call.scope


def _fill_function(
    out: m.Operator, operator: Written, found: Facts, graph_digests: digests.GraphDigests
) -> None:
    record = user_function(operator)
    python = python_of(operator, found)
    if record is None and not python:
        return
    function = out.function
    if record is not None:
        function.name = record.name
        place = function_place(operator)
        if place is not None:
            function.source.path, function.source.line, function.source.scope = place
        function.code_digest = digests.code_digest(record.code)
    function.graph_digest = graph_digests.of(
        name for node in operator.nodes for name in node.functions().values()
    )
    function.python = bool(python)
    function.random = found.draws or any(one.random for one in python)
    function.seeded = found.all_seeded
    function.stateful = found.stateful
    function.may_wait = found.may_wait or bool(python)
    function.operations.extend(found.telling)
    function.takes_parts = found.takes_parts
    function.writes.extend(
        dict.fromkeys((*found.graph_writes, *(what for one in python for what in one.writes)))
    )


def _is_random_source(operator: Written) -> bool:
    return any(graphs.base_op(node.op) in RANDOM_DATASETS for node in operator.nodes)


def _fill_verdict(out: m.Legality, verdict: legality.Verdict) -> None:
    out.allowed, out.reason, out.operator = verdict.allowed, verdict.reason, verdict.operator


def _fill_injected(pipeline: m.Pipeline, matched: list[Running], foreign: list[Written]) -> None:
    for one in matched:
        if any(operator in one.operators for operator in foreign) and not _own(one):
            one.injected = f"injected-{one.index}"
    number = 0
    for one in matched:
        if _own(one):
            continue
        name = f"injected{number}"
        number += 1
        one.injected = name
        out = pipeline.operators.add(id=name, injected=True, running=one.index, in_body=one.in_body)
        out.type = out.label = graphs.base_op(one.node.op).replace("Dataset", "")
        out.cardinality = settings.UNKNOWN
        buffer = pipeline.running[one.index]
        if buffer.HasField("buffer_size"):
            out.buffer_size = buffer.buffer_size
        del buffer.operators[:]
        buffer.operators.append(name)


def _own(one: Running) -> bool:
    """Whether it executes an operator of the user's."""
    return any(not operator.foreign for operator in one.operators)


def _fill_flows(pipeline: m.Pipeline, matched: list[Running]) -> None:
    """Where each operator's elements go, injected and fused operators included."""
    by_id = {one.id: one for one in pipeline.operators}
    for one in matched:
        names = list(pipeline.running[one.index].operators)
        above = one.parent
        target = pipeline.running[above.index].operators[-1] if above is not None else ""
        for position, name in enumerate(names):
            operator = by_id[name]
            if not operator.HasField("running") or operator.running != one.index:
                continue
            operator.flows_to = names[position - 1] if position else target
    for operator in pipeline.operators:
        if operator.flows_to == operator.id:
            operator.flows_to = ""
        if not operator.flows_to and operator.parent and not operator.HasField("running"):
            operator.flows_to = operator.parent


def _scope_of(operators: Iterable[Written]) -> str:
    """The function that made the last operator of the user's."""
    for operator in operators:
        made = operator.pair.construction
        if made is not None and made.call is not None:
            name = made.call.scope
            return os.path.basename(made.call.path) if name == "<module>" else name
    return ""


def _identity(pipeline: m.Pipeline) -> str:
    """A hash of structure, lines and role, the same in every session of the same program."""
    parts = [pipeline.role]
    for one in pipeline.operators:
        place = f"{os.path.basename(one.source.path)}:{one.source.line}" if one.HasField("source") else ""
        parts.append("|".join((one.id, one.type, one.parent, place, one.function.name, str(one.in_body))))
    return hashlib.sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()[:12]


def _notes(pipeline: m.Pipeline, operators: list[Written]) -> list[str]:
    notes = []
    if not pipeline.autotune_enabled:
        notes.append("autotune is off for this pipeline: TensorFlow counts nothing.")
    blind = [one.id for one in operators if one.pair.construction is None]
    if blind and len(blind) == len(operators):
        notes.append(
            "The pipeline was built before tensorboard_plugin_plumber was imported: its lines are unknown."
        )
    elif blind:
        notes.append(f"The lines of {len(blind)} of {len(operators)} operators are unknown.")
    return notes
