"""Recordings of pipelines whose costs are written down: exact counters, without running anything.

Only for tests of the model's arithmetic; tests of what is measured run real pipelines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording


@dataclass(frozen=True)
class Cost:
    """One running operator of a chain: elements per step, wall seconds per element, bytes per element."""

    type: str
    visits: float
    wall_s: float
    bytes: float = 1000.0
    parallelism: float | None = None
    tunable: bool = False
    function: m.UserFunction | None = None
    written: Sequence[m.Operator] = ()
    overhead_s: float = 0.0


@dataclass(frozen=True)
class Run:
    """How the chain ran: a sample per second."""

    rate: float
    seconds: int = 20
    gap_s: float = 0.0
    gap_low_s: float | None = None
    pool_cores: float | None = None
    pool_queue: float = 0.0
    consumer: m.Consumer.ValueType = m.CONSUMER_SYNCHRONOUS
    process_cores: float = 1.0
    synchronised_s: float | None = None
    change: Callable[[int, m.SampleRecord], None] = field(default=lambda second, record: None)


def chain(
    costs: Sequence[Cost], run: Run, *, cores: float = 2.0, memory: int = 8 << 30, **options: object
) -> Recording:
    """A recording of `costs`, the root first, run as `run` says."""
    pipeline = m.Pipeline(
        id="p",
        label="train",
        role="train",
        consumer=run.consumer,
        has_counters=True,
        threadpool_size=int(cores),
        autotune_enabled=True,
        default_optimizations=True,
        inject_prefetch=True,
    )
    for name, value in options.items():
        setattr(pipeline, name, value)
    previous = ""
    for i, cost in enumerate(costs):
        running = pipeline.running.add(type=cost.type, deterministic=True, call_overhead_s=cost.overhead_s)
        if i:
            running.parent = i - 1
        running.calls_function = cost.function is not None
        if cost.parallelism is not None:
            running.num_parallel_calls = int(cost.parallelism)
        for written in cost.written or [m.Operator(type=cost.type, cardinality=-2)]:
            operator = pipeline.operators.add()
            operator.CopyFrom(written)
            operator.id = f"op{len(pipeline.operators) - 1}"
            operator.flows_to = operator.parent = previous
            operator.running = i
            last = written is (cost.written or [written])[-1]
            if cost.function is not None and last:
                operator.function.CopyFrom(cost.function)
            running.operators.append(operator.id)
            previous = operator.id
    host = m.Host(name="host", cores=cores, memory_bytes=memory)
    graph = m.GraphRecord(
        format_version=1, session=m.Session(id="s", kind="fit"), host=host, pipelines=[pipeline]
    )
    samples = tuple(_sample(costs, run, second) for second in range(1, run.seconds + 1))
    return Recording(run=".", host="host-0", graph=graph, samples=samples)


def _sample(costs: Sequence[Cost], run: Run, second: int) -> m.SampleRecord:
    steps = run.rate * second
    part = m.PipelineSample(pipeline=0, iterators=1, steps=steps, active_s=second, live=True)
    part.joined_steps = int(steps)
    part.gap_s = run.gap_s * part.joined_steps
    part.step_s = part.joined_steps / run.rate
    if run.gap_low_s is not None:
        part.gap_low_s = run.gap_low_s
    if run.synchronised_s is not None:
        part.synchronised_steps = second
        part.synchronised_s = run.synchronised_s * second
    if run.pool_cores is not None:
        part.pool_cpu_s = run.pool_cores * second
        part.pool_run_queue_s = run.pool_queue * second
    for cost in costs:
        count = cost.visits * steps
        counters = part.operators.add(
            elements=count,
            elements_seen=count,
            processing_time_ns=round(cost.wall_s * count * 1e9),
            bytes_produced=round(cost.bytes * count),
            parallelism_tunable=cost.tunable,
        )
        if cost.parallelism is not None:
            counters.parallelism = cost.parallelism
    record = m.SampleRecord(
        format_version=1,
        session_id="s",
        sequence=second,
        wall_time_s=1000.0 + second,
        elapsed_s=second,
        host=m.HostSample(
            process_cpu_s=run.process_cores * second, rss_bytes=1 << 30, memory_used_bytes=1 << 30
        ),
        pipelines=[part],
    )
    run.change(second, record)
    return record
