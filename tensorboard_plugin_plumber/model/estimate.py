"""From windows of one pipeline to its network: costs on the operators that the user wrote.

Counters belong to the operators that TensorFlow runs; decisions and words belong to those the user wrote. A
fused operator (MapAndBatch) is taken apart again: the function's operator carries the joint cost, the others
none. Prefetches become a property of the operator below them; what TensorFlow dropped costs nothing and is
left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tensorboard_plugin_plumber.model.bounds import data_rate
from tensorboard_plugin_plumber.model.consumer import WAIT_THRESHOLD, ConsumerEstimate, estimate_consumer
from tensorboard_plugin_plumber.model.network import (
    CACHE_READ_S,
    Choice,
    Consumer,
    Limits,
    Network,
    Operator,
    Settings,
    StorageCurve,
)
from tensorboard_plugin_plumber.model.service import Service, service_times, variation
from tensorboard_plugin_plumber.model.sizes import Size, sizes_of
from tensorboard_plugin_plumber.model.times import Times
from tensorboard_plugin_plumber.model.windows import Array, Totals, Windows
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: Core time to copy what a batch gathers, once it is no longer fused with a map, bytes/s.
COPY_BYTES_PER_S = 2e9
#: The host counts as crowded from this stretch of core time on.
CROWDED_STRETCH = 1.1
#: ... and no longer tells how single elements vary from this share of waiting for cores or the interpreter lock on.
CROWDED_SHARE = 0.1
#: What an idle host uses of its cores, and the clocks' granularity.
IDLE_NOISE_CORES = 0.1
#: Share of the memory left that a plan may fill.
MEMORY_SHARE = 0.5
#: Share of the disk's free bytes that a plan may fill.
DISK_SHARE = 0.5
PREFETCH_TYPES = frozenset({"Prefetch"})
INTERLEAVE_TYPES = frozenset({"Interleave", "ParallelInterleave", "LegacyParallelInterleave", "FlatMap"})
CACHE_TYPES = frozenset({"Cache"})
AUTOTUNE = -1


@dataclass(frozen=True)
class Estimate:
    """A network with the places of its operators in the recording."""

    network: Network
    #: Network position by Operator.id; absent for prefetches and for what TensorFlow dropped.
    position: Mapping[str, int]
    #: Operators of the recording, by network position.
    written: tuple[m.Operator, ...]
    #: Their times, by network position.
    times: tuple[Times, ...]
    consumer: ConsumerEstimate
    service: Service
    #: Steps in the windows that were used.
    steps: float
    #: CPU seconds per step of everything in the process.
    process_cpu_s: float
    #: Cores that other processes take on the cores that this one may use.
    foreign_cores: float
    #: The user's caches that do not serve yet, as words for people.
    filling: tuple[str, ...] = ()
    #: The consumer was not there when the pipeline was measured: a what-if, or a pipeline that ran alone.
    supposed: bool = False
    #: Of one pass, by Operator.id.
    sizes: Mapping[str, Size] = field(default_factory=dict)

    @property
    def today_rate(self) -> float | None:
        """Steps/s with today's settings: observed, or what a supposed consumer would see."""
        return (
            1.0 / self.consumer.period_s
            if self.supposed and self.consumer.period_s
            else self.network.observed_rate
        )


def limits_of(
    host: m.Host,
    used: m.HostSample | None,
    buffered: float,
    cores: float | None,
    memory_bytes: float | None,
    storage: StorageCurve | None = None,
    share: float | None = None,
) -> Limits:
    """What the process may use; `cores`, `memory_bytes` and `share` are what-ifs that replace N, M and the share.

    A plan may add share x (M - in use now + today's buffers), never less than nothing.
    """
    share = MEMORY_SHARE if share is None else share
    memory = memory_bytes if memory_bytes is not None else float(host.memory_bytes)
    in_use = float(used.memory_used_bytes) if used is not None else 0.0
    free = share * max(memory - in_use + buffered, 0.0)
    usable = cores if cores is not None else host.cores or 1.0
    return Limits(usable, memory, free, share, storage, DISK_SHARE * host.disk_free_bytes)


def estimate(
    pipeline: m.Pipeline,
    windows: Windows,
    limits: Limits,
    *,
    weights: Array | None = None,
    given_rate: float | None = None,
    spread: Array | None = None,
    sizes: Mapping[str, Size] | None = None,
    stored: Mapping[str, float] | None = None,
) -> Estimate:
    """The network of `pipeline` as the windows show it, each window counted `weights` times.

    `spread` is `variation(windows)`, `sizes` is `sizes_of(pipeline, windows)` where the caller has them already
    (they do not depend on the weights). `stored` is the share of the bytes that each source reads which comes from
    the storage of `limits`, by Operator.id.
    """
    found = measured(pipeline, windows, limits, weights=weights, spread=spread, sizes=sizes, stored=stored)
    return under(pipeline, windows, found, limits, weights=weights, given_rate=given_rate)


def measured(
    pipeline: m.Pipeline,
    windows: Windows,
    limits: Limits,
    *,
    weights: Array | None = None,
    spread: Array | None = None,
    sizes: Mapping[str, Size] | None = None,
    stored: Mapping[str, float] | None = None,
) -> Estimate:
    """`estimate` as nobody has said what the consumer could take: what any what-if starts from, by `under`."""
    totals = windows.total(weights)
    service = service_times(pipeline, totals)
    steps, active = totals["steps"], totals["active_s"]
    rate = steps / active if steps > 0 and active > 0 else None
    seen = estimate_consumer(pipeline, windows, totals, rate, None)
    varies = variation(windows) if spread is None else spread
    # The crowd's own coming and going would pass for variation.
    served = service.cpu_s + service.wait_s
    varies = np.where(service.contention_s > CROWDED_SHARE * served, np.nan, varies)
    sizes = sizes_of(pipeline, windows) if sizes is None else sizes
    builder = _Builder(pipeline, windows, totals, service, varies, sizes, stored or {})
    operators, choices = builder.build()
    if pipeline.consumer == m.CONSUMER_NONE and _is_its_own_crowd(totals):
        operators = tuple(
            replace(
                operator,
                stretch=min(operator.stretch, 1.0),
                queued_s=service.queued_s if operator.pooled and not operator.python else 0.0,
            )
            for operator in operators
        )
    elapsed = totals["elapsed_s"]
    while_active = totals["process_cpu_s"] * min(active / elapsed, 1.0) if elapsed > 0 else 0.0
    process = while_active / steps if steps > 0 else 0.0
    network = Network(
        operators=operators,
        current=Settings(choices, _pool(pipeline, limits)),
        limits=limits,
        consumer=Consumer(
            seen.step_s, seen.turn_s, _consumer_cpu_s(pipeline, totals, operators, process), 0.0
        ),
        observed_rate=rate,
    )
    position = {operator.id: i for i, operator in enumerate(operators)}
    return Estimate(
        network,
        position,
        builder.written,
        tuple(builder.times),
        seen,
        service,
        steps,
        process,
        _foreign_cores(totals),
        _filling(pipeline, windows),
        sizes=sizes,
    )


def under(
    pipeline: m.Pipeline,
    windows: Windows,
    found: Estimate,
    limits: Limits,
    *,
    weights: Array | None = None,
    given_rate: float | None = None,
) -> Estimate:
    """What `measured` found, under other limits, and with a consumer of `given_rate`."""
    current = replace(found.network.current, threadpool_size=_pool(pipeline, limits))
    network = replace(found.network, limits=limits, current=current)
    if given_rate is None:
        return replace(found, network=network)
    totals, rate = windows.total(weights), network.observed_rate
    seen = estimate_consumer(pipeline, windows, totals, rate, given_rate)
    network = replace(network, consumer=replace(network.consumer, step_s=seen.step_s, turn_s=seen.turn_s))
    supposed = not _consumed_at(pipeline, windows, totals, rate, given_rate)
    if supposed:
        network, seen = _supposed(pipeline, network, seen, given_rate)
    return replace(found, network=network, consumer=seen, supposed=supposed)


def _pool(pipeline: m.Pipeline, limits: Limits) -> int:
    return pipeline.threadpool_size or math.ceil(limits.cores)


def _filling(pipeline: m.Pipeline, windows: Windows) -> tuple[str, ...]:
    caches = [o for o in pipeline.operators if o.type in CACHE_TYPES and o.HasField("running")]
    return tuple(label_of(o) for o in caches if windows.last.cache_states.get(o.running) == "filling")


def _consumed_at(
    pipeline: m.Pipeline, windows: Windows, totals: Totals, rate: float | None, given_rate: float
) -> bool:
    """Whether the consumer that was there is the one of `given_rate`: its author said so, or it is unknown else."""
    if pipeline.consumer == m.CONSUMER_NONE:
        return False
    if pipeline.HasField("consumer_rate") and pipeline.consumer_rate == given_rate:
        return True
    return estimate_consumer(pipeline, windows, totals, rate, None).step_s is None


def _supposed(
    pipeline: m.Pipeline, network: Network, seen: ConsumerEstimate, given_rate: float
) -> tuple[Network, ConsumerEstimate]:
    """The network, and the wait, with a consumer of `given_rate` (steps/s) that was not there when it was measured.

    Where nothing asynchronous stands before the step, the two take turns. With nobody behind it the pipeline gave
    what it can, else the model says what it could.
    """
    step_s = 1.0 / given_rate
    network = replace(network, consumer=replace(network.consumer, step_s=step_s, turn_s=step_s))
    root, rate = network.current.choices[0], network.observed_rate
    if pipeline.consumer == m.CONSUMER_NONE and rate:
        made_s = max(1.0 / rate - seen.turn_s, 0.0)
        reached = rate if root.prefetch or root.parallel else 1.0 / (made_s + step_s)
    else:
        reached = data_rate(network, network.current)
    reached = min(reached, given_rate)
    wait = 1.0 - reached * step_s
    return network, replace(
        seen, wait_fraction=wait, input_bound=wait >= WAIT_THRESHOLD, period_s=1.0 / reached
    )


def _consumer_cpu_s(
    pipeline: m.Pipeline, totals: Totals, operators: tuple[Operator, ...], process_s: float
) -> float:
    """c_g: what the process computes per step, less the pipeline.

    Threads of a pool with little to do look for work before they sleep: all that they use is the pipeline's, but no
    step costs it once they are busy. With nobody behind the pipeline, only the thread that asks for elements is left.

    Args:
      pipeline, totals, operators: measured.
      process_s: CPU time of the process per step.
    """
    if totals["steps"] <= 0:
        return 0.0
    functions = sum(o.visits * o.cpu_s for o in operators if o.pooled)
    others = sum(o.visits * o.cpu_s for o in operators if not o.pooled)
    pool = totals["pool_cpu_s"] / totals["steps"]
    left = max(process_s - others - (max(functions, pool) if math.isfinite(pool) else functions), 0.0)
    asking = totals["consumer_thread_cpu_s"] / totals["steps"]
    if not math.isfinite(asking):
        return left
    if pipeline.consumer == m.CONSUMER_NONE:
        return min(left, asking)
    # The thread that asks is the consumer, but for what needs no pool: that may run in it.
    return max(left, asking - others)


def _foreign_cores(totals: Totals) -> float:
    """Cores that other processes take on the cores that this one may use."""
    others = totals["host_cpu_s"] - totals["process_cpu_s"]
    if not math.isfinite(others) or totals["elapsed_s"] <= 0:
        return 0.0
    cores = others / totals["elapsed_s"]
    return cores if cores > IDLE_NOISE_CORES else 0.0


def _is_its_own_crowd(totals: Totals) -> bool:
    """Whether nobody but this process uses the cores: what crowds its threads then is themselves.

    The bound on cores says how much they can do, whatever the settings; a stretch would say it twice, and wrongly of
    settings with fewer threads.
    """
    return math.isfinite(totals["host_cpu_s"]) and not _foreign_cores(totals)


class _Builder:
    def __init__(
        self,
        pipeline: m.Pipeline,
        windows: Windows,
        totals: Totals,
        service: Service,
        spread: Array,
        sizes: Mapping[str, Size],
        stored: Mapping[str, float],
    ) -> None:
        self.pipeline, self.windows, self.totals = pipeline, windows, totals
        self.service, self.spread, self.sizes, self.stored = service, spread, sizes, stored
        self.by_id = {operator.id: operator for operator in pipeline.operators}
        self.children: dict[str, list[m.Operator]] = {}
        for operator in pipeline.operators:
            self.children.setdefault(operator.flows_to, []).append(operator)
        self.carried: dict[str, list[int]] = {}
        for r in range(len(pipeline.running)):
            self.carried.setdefault(self._carrier(r), []).append(r)
        self.cached = self._beside_caches()
        self.times: list[Times] = []
        self.written: tuple[m.Operator, ...] = ()

    def _beside_caches(self) -> set[str]:
        """Ids of the user's caches, of what they read and of what reads them: there a further one buys little.

        One that never completes serves nothing, and stands in nobody's way.
        """
        found: set[str] = set()
        states = self.windows.last.cache_states
        caches = {
            operator.id
            for operator in self.pipeline.operators
            if operator.type in CACHE_TYPES and states.get(operator.running) != "never completes"
        }
        for operator in self.pipeline.operators:
            path, reader = [operator.id], operator
            while reader.flows_to:
                reader = self.by_id[reader.flows_to]
                path.append(reader.id)
            if operator.id in caches:
                found.update(path)
            elif not caches.isdisjoint(path):
                found.add(operator.id)
        return found

    def build(self) -> tuple[tuple[Operator, ...], tuple[Choice, ...]]:
        """Operators in pre-order from the root, with their choices today."""
        self._operators: list[Operator] = []
        self._choices: list[Choice] = []
        written: list[m.Operator] = []
        injects = (
            self.pipeline.autotune_enabled
            and self.pipeline.default_optimizations
            and self.pipeline.inject_prefetch
        )
        stack: list[tuple[m.Operator, int | None, bool, int]] = [
            (root, None, False, 0) for root in reversed(self.children.get("", []))
        ]
        while stack:
            operator, parent, in_body, prefetch = stack.pop()
            transparent = not operator.HasField("running") or operator.type in PREFETCH_TYPES
            if transparent:
                size = self._prefetch_size(operator) if operator.type in PREFETCH_TYPES else 0
                below: tuple[int | None, bool, int] = (
                    parent,
                    in_body or operator.in_body,
                    max(prefetch, size),
                )
            else:
                if parent is None and self._operators:
                    continue  # one root only: anything else is not part of what runs
                size = max(prefetch, 1) if parent is None and injects else prefetch
                self._add(operator, parent, in_body or operator.in_body, size)
                written.append(operator)
                below = (len(written) - 1, False, 0)
            stack += [(child, *below) for child in reversed(self.children.get(operator.id, []))]
        self.written = tuple(written)
        return tuple(self._operators), tuple(self._choices)

    def _prefetch_size(self, operator: m.Operator) -> int:
        counters = self._last(operator.running) if operator.HasField("running") else None
        if counters is not None and counters.HasField("buffer_size") and counters.buffer_size >= 1:
            return round(counters.buffer_size)
        return max(operator.buffer_size, 1)

    def _last(self, running: int) -> m.OperatorCounters | None:
        return self.windows.last.operators[running] if running < len(self.windows.last.operators) else None

    def _carrier(self, running: int) -> str:
        """The operator that carries the cost of a running operator: the function's, else the downstream one."""
        names = [i for i in self.pipeline.running[running].operators if i in self.by_id]
        # A filter whose predicate the map before it computes has an operator of its own.
        names = [i for i in names if self.by_id[i].running == running] or names
        with_function = [i for i in names if self.by_id[i].HasField("function")]
        chosen = with_function if self.pipeline.running[running].calls_function and with_function else names
        return chosen[0] if chosen else ""

    def _add(self, operator: m.Operator, parent: int | None, in_body: bool, prefetch: int) -> None:
        head = operator.running
        running = self.pipeline.running[head]
        first = not running.operators or running.operators[0] == operator.id
        calls = float(self.service.calls[head])
        # Elements of `operator` per element of the running operator: a map fused with its batch makes many.
        scale = 1.0 if first or calls <= 0 else calls
        produced = float(self.totals.elements[head]) * scale
        element_bytes = self.totals.bytes[head] / max(float(self.totals.seen[head]), 1e-12) / scale
        # One call of the user's may run as several operators (from_generator, TFRecordDataset).
        carried = [r for r in self.carried.get(operator.id, ()) if self.totals.elements[r] > 0]
        times = Times.of(carried, produced, self.totals, self.service, self.spread)
        primary = operator.id == self._carrier(head)
        functions = [r for r in carried if self.pipeline.running[r].calls_function]
        parallelism = self._parallelism(head) if primary else None
        cache = operator.type in CACHE_TYPES
        serving = cache and self.windows.last.cache_states.get(head) == "serving"
        cacheable = (
            operator.cache.allowed
            and not in_body
            and not self._enclosed(parent)
            and operator.id not in self.cached
        )
        body = any(child.in_body for child in self.children.get(operator.id, []))
        self._operators.append(
            Operator(
                id=operator.id,
                parent=parent,
                in_body=in_body,
                label=label_of(operator),
                visits=produced / max(self.totals["steps"], 1e-12),
                cpu_s=times.cpu_s,
                wait_s=times.wait_s,
                stretch=times.stretch,
                variation=times.variation,
                pooled=bool(functions),
                unbounded=running.use_unbounded_threadpool,
                python=operator.HasField("function") and operator.function.python,
                gil_s=times.gil_s or None,
                ordered=running.deterministic,
                batch_size=self._fused_batch(running) if primary and not first else 1,
                cycle_length=self._cycle_length(operator, running),
                block_length=max(int(running.block_length), 1),
                interleave=operator.type in INTERLEAVE_TYPES and body,
                element_bytes=float(element_bytes),
                cache_bytes=self._cache_bytes(operator) if cacheable else None,
                may_cache=cacheable,
                # What a memory cache adds for each tensor, a file cache's index takes, too, at most.
                file_cache_bytes=self._cache_bytes(operator) if cacheable else None,
                may_unbounded=bool(functions) and running.HasField("use_unbounded_threadpool"),
                may_parallel=primary and operator.HasField("parallel") and operator.parallel.allowed,
                may_prefetch=not in_body,
                cache_read_s=max(CACHE_READ_S, times.cpu_s + times.wait_s) if serving else CACHE_READ_S,
                read_bytes=self._stored_bytes(operator, head, produced),
            )
        )
        self.times.append(times)
        last = self._last(head)
        self._choices.append(
            Choice(
                parallel=parallelism is not None,
                parallelism=max(parallelism or 1, 1),
                autotuned=parallelism is not None and bool(last and last.parallelism_tunable),
                prefetch=prefetch > 0,
                prefetch_size=prefetch,
                cache=serving,
            )
        )

    def _fused_batch(self, running: m.RunningOperator) -> int:
        sizes = [self.by_id[i].batch_size for i in running.operators if i in self.by_id]
        return max(*sizes, 1)

    def _enclosed(self, parent: int | None) -> bool:
        """Whether the operator lives, at any depth, in the function body of another."""
        while parent is not None:
            if self._operators[parent].in_body:
                return True
            parent = self._operators[parent].parent
        return False

    def _parallelism(self, running: int) -> int | None:
        """k in force, or None if the running operator has no threads of its own."""
        seen = self.windows.parallelism[running]
        if math.isfinite(seen):
            return round(float(seen))
        operator = self.pipeline.running[running]
        if not operator.HasField("num_parallel_calls"):
            return None
        return 1 if operator.num_parallel_calls == AUTOTUNE else int(operator.num_parallel_calls)

    def _cycle_length(self, operator: m.Operator, running: m.RunningOperator) -> int | None:
        if operator.type not in INTERLEAVE_TYPES:
            return None
        if running.HasField("cycle_length"):
            return max(int(running.cycle_length), 1)
        return max(int(operator.cycle_length), 1) if operator.HasField("cycle_length") else 1

    def _stored_bytes(self, operator: m.Operator, head: int, produced: float) -> float:
        """b_i: what each of its elements takes from storage; 0 where nobody knows."""
        read = float(self.totals.read_bytes[head]) * self.stored.get(operator.id, 0.0)
        return read / produced if produced > 0 and math.isfinite(read) else 0.0

    def _cache_bytes(self, operator: m.Operator) -> float | None:
        """Upper end of what a memory cache of one pass takes; None where nobody can tell."""
        size = self.sizes[operator.id].materialised_bytes if operator.id in self.sizes else None
        return None if size is None or math.isinf(size.high) else size.high


def label_of(operator: m.Operator) -> str:
    """ "Map decode (train.py:57)": the user's words for an operator."""
    name = operator.type
    if operator.label and operator.label != operator.type:
        name = f"{operator.type} {operator.label}"
    if operator.HasField("source"):
        return f"{name} ({source_of(operator.source)})"
    return f"{name} (injected by TensorFlow)" if operator.injected else name


def source_of(source: m.SourceLine) -> str:
    """ "train.py:57"."""
    return f"{source.path.replace(chr(92), '/').rsplit('/', 1)[-1]}:{source.line}"


def observed_bytes(windows: Windows) -> float:
    """Bytes that the pipeline's buffers hold now."""
    return float(np.sum([counters.buffered_bytes for counters in windows.last.operators]))
