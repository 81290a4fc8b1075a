"""Calls that could run side by side, and what keeps them from it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.bounds import Kind, iterators_beside
from tensorboard_plugin_plumber.model.findings.case import (
    IDLE_CORES,
    LEAST_GAIN,
    TIE,
    Case,
    cores_used,
    map_call,
    own_cores,
    severity,
)
from tensorboard_plugin_plumber.model.uncounted import uncounted_wait
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

#: Calls that wait side by side, where nothing better is known.
_CALLS_WAITING = 16
#: A bound that the observed rate exceeds by this factor is none.
_DISPROVED = 1.1


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
        free = network.limits.cores - cores_used(case)
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
                fix=f"{map_call(written)}num_parallel_calls={calls})",
            )
        elif gain >= LEAST_GAIN:
            yield a.Finding(
                code="sequential-map",
                severity=severity(gain),
                operator=operator.id,
                message=f"{evidence}.",
                fix=f"{map_call(written)}num_parallel_calls={calls})",
                gain=gain,
            )


def pool_limited(case: Case) -> Iterator[a.Finding]:
    """Functions that wait hold all slots of the thread pool."""
    network = case.estimate.network
    data = [bound for bound in case.bounds if bound.kind is not Kind.CONSUMER]
    pool = next((bound for bound in data if bound.kind is Kind.THREADPOOL), None)
    if pool is None or pool.rate > data[0].rate * (1 + TIE):
        return
    operator = network.operators[pool.operators[0]]
    # While this process uses all cores, what looks like waiting is work that kernels hand to TensorFlow's threads.
    if network.limits.cores - own_cores(case) < IDLE_CORES:
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
            severity=severity(gain),
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
        if (operator.gil_s or 0.0) >= 0.5 * operator.service_s:
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
            side_by_side = max(_CALLS_WAITING, 2 * network.current.choices[i].parallelism)
            settings = case.with_choice(i, parallel=True, parallelism=side_by_side)
            pool = max(side_by_side, network.current.threadpool_size)
            gain = case.gain(replace(settings, threadpool_size=pool))
            if gain < LEAST_GAIN:
                continue
            message = (
                f"{operator.label} runs Python; {split}, with the interpreter's lock released: parallel calls help, "
                "past the cores only with a larger pool."
            )
            fix = (
                f"{map_call(written)}num_parallel_calls={side_by_side}) with "
                f"options.threading.private_threadpool_size = {pool}"
            )
            yield a.Finding(
                code="python-function",
                severity=severity(gain),
                operator=operator.id,
                message=message,
                fix=fix,
                gain=gain,
            )
            continue
        else:
            message = (
                f"{operator.label} runs Python on a core for {computed} of each call; whether it "
                "holds the interpreter's lock meanwhile shows only with two calls in flight."
            )
            fix = "Write it in TensorFlow operations, or in NumPy calls that release the lock."
        yield a.Finding(
            code="python-function", severity=a.SEVERITY_MEDIUM, operator=operator.id, message=message, fix=fix
        )


def ordered_stragglers(case: Case) -> Iterator[a.Finding]:
    """Order makes fast calls wait for a slow one."""
    network = case.estimate.network
    bound = next((b for b in case.bounds if b.kind is not Kind.CONSUMER), None)
    if bound is None or not bound.stragglers or bound.calls_of is None:
        return
    if uncounted_wait(case.estimate, bound.rate) is not None:
        return  # what binds is something else
    if (network.observed_rate or 0.0) > bound.rate * _DISPROVED:
        return  # the calls overlap better than such a variation would let them: the crowd's, not their own
    i = bound.calls_of
    operator = network.operators[i]
    gain = case.gain_of(case.changed({i: lambda one: replace(one, ordered=False)}))
    if gain < LEAST_GAIN:
        return
    yield a.Finding(
        code="ordered-stragglers",
        severity=severity(gain),
        operator=operator.id,
        message=(
            f"The calls of {operator.label} vary (standard deviation "
            f"{words.digits(operator.variation or 0)} times the mean "
            f"of {words.duration(operator.service_s)}), and fast ones wait for slow ones to keep the order."
        ),
        fix="If any order will do: deterministic=False on this operator.",
        gain=gain,
    )
