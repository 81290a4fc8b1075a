"""The optimum: the settings that a pipeline should have (docs/model.md, "Optimum").

With the symbols of `network`, L_j the cycle length of interleave j, m_i the instances of i that live
(`bounds.multiplicity`), rho = CACHE_READ_S and eta of `ordered`, the rate X of given settings is the greatest
that keeps

    A_i = 0 if a cache stands on the output of i or of an operator between i and the root, else X
    thread        t_i = V_i rho X                                               if y_i
                  t_i = V_i s_i A_i (not a_i) + sum of r_j over plain inputs j
                        + sum of r_b over body roots b (i an interleave, not a_i)    else
                  r_i = 0 if p_i, or if a_i and not y_i, else t_i;    t_i <= m_i
    interleave    V_j s_j A_j + sum of r_b over body roots b <= k_j m_j,    k_j <= L_j     (a_j)
    operator      V_i s_i A_i + sum of r_j over plain inputs j <= eta(k_i) k_i m_i    (a_i, any other)
    cpu           sum of V_i c_i A_i + sum of V_i rho X (y_i) + c_g X + N_other <= N
    threadpool    sum of V_i s_i A_i over pooled functions <= T
    gil           sum of V_i h_i A_i <= 1
    root          r_0 + turn X <= 1 where the root is made in the consumer's thread
    consumer      X <= 1 / g where g is known

(`bounds` evaluates exactly these). The plan is lexicographically best: the greatest rate; within 1 % of it the
fewest changes to the user's code; then the fewest threads, k and T sized for 1.15 X where cores allow; then the
least memory. Decisions already in force are never undone, at most one memory cache stands on any path, k of an
operator that AUTOTUNE rules is free up to the number of cores without a change, and all buffers with the new
caches fit into `Limits.memory_free_bytes`, or take no more than today's buffers.

The first stage is a mixed-integer linear program in the share x = X / X_ceiling, with activities
``alpha_i >= alpha_above - y_i`` (x at the root) and reads ``rho_i >= alpha_above + y_i - 1``; products of
a binary and a load are bounded by the load's own ceiling, and eta(k) k is the least of its chords. X_ceiling is
the least bound that is left when every setting is at its highest and each resource chooses its own caches.
The later stages ask for the fixed rate 0.99 X, where every load is a constant or nothing.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tensorboard_plugin_plumber.model import memory
from tensorboard_plugin_plumber.model.bounds import (
    Bound,
    Kind,
    bounds,
    calls_seconds,
    data_rate,
    multiplicity,
    pool_seconds,
    predicted_rate,
)
from tensorboard_plugin_plumber.model.network import CACHE_READ_S, Choice, Network, Operator, Settings
from tensorboard_plugin_plumber.model.ordered import MAX_BATCHES, cuts, throughput

Array = npt.NDArray[np.float64]

#: Rates within this share of the best count as the best.
RATE_TOLERANCE = 0.01
#: Parallelism and pool are sized for this much more than the plan's rate.
HEADROOM = 1.15
#: Highest parallelism and pool size that a plan proposes unless told otherwise, at least.
DEFAULT_K_MAX = 128
#: Rate beyond which no pipeline goes, steps/s: the price of one read from a cache.
FASTEST = 1.0 / CACHE_READ_S

_OPTIONS = {"mip_feasibility_tolerance": 1e-9}
#: How close each stage must come, and how many seconds it may take: then the best that it found counts, which
#: hundreds of operators may need. A whole objective is settled once the gap is below one.
_GAPS = {
    "rate": {"mip_rel_gap": 1e-6, "time_limit": 20.0},
    "changes": {"mip_rel_gap": 1e-6, "mip_abs_gap": 0.99, "time_limit": 3.0},
    "threads": {"mip_rel_gap": 1e-2, "mip_abs_gap": 0.99, "time_limit": 0.5},
    "memory": {"mip_rel_gap": 1e-2, "time_limit": 0.5},
}
#: Stages whose outcome binds the later ones.
_CAPPED = ("changes", "threads")


class SolverError(Exception):
    """HiGHS gave no solution to a program that has one; the message says which stage, and its status."""


@dataclass(frozen=True)
class Optimum:
    """The best settings of a network, with what they are predicted to do."""

    settings: Settings
    #: Predicted rate, steps/s, consumer included.
    rate: float
    #: The same, the consumer left out.
    data_rate: float
    #: Changes to the user's code.
    changes: int
    #: Bytes held beyond today's buffers.
    memory_bytes: float
    #: Seconds that the solve took.
    solve_s: float
    #: The least bound under `settings`: what limits the rate once they are in force.
    bounding: Bound


@dataclass(frozen=True)
class _Freedom:
    """What may be decided at one operator."""

    #: A cache of the user's nearer the root makes it idle: nothing is to be decided.
    idle: bool
    parallel: bool
    prefetch: bool
    cache: bool
    #: k may be anything from `lowest` to `free` without a change, and up to `highest` with one.
    lowest: int
    free: int
    highest: int
    prefetch_size: int
    copies: int


def optimise(network: Network, *, k_max: int | None = None) -> Optimum:
    """The lexicographic optimum of the module's docstring.

    Args:
      network: the pipeline, with the settings in force.
      k_max: highest parallelism and pool size to propose; by default the greatest of 128, twice the cores and
        what is in force.

    Raises:
      SolverError: HiGHS found no solution.
    """
    started = time.perf_counter()
    k_max = k_max or _default_k_max(network)
    freedoms = _freedoms(network, k_max)
    settings, rate = _best(network, freedoms, k_max)
    settings = _sized(network, freedoms, settings, rate, k_max)
    return Optimum(
        settings=settings,
        rate=predicted_rate(network, settings),
        data_rate=data_rate(network, settings),
        changes=count_changes(network, settings),
        memory_bytes=memory.added_bytes(network, settings),
        solve_s=time.perf_counter() - started,
        bounding=bounds(network, settings)[0],
    )


def count_changes(network: Network, settings: Settings) -> int:
    """Changes to the user's code that turn the settings in force into `settings`."""
    count = int(settings.threadpool_size != network.current.threadpool_size)
    for old, new in zip(network.current.choices, settings.choices, strict=True):
        count += int(_parallelism_changes(old, new))
        count += int(new.prefetch != old.prefetch) + int(new.cache != old.cache)
    return count


def _parallelism_changes(old: Choice, new: Choice) -> bool:
    if new.parallel != old.parallel or new.autotuned != old.autotuned:
        return True
    return new.parallel and not new.autotuned and new.parallelism != old.parallelism


def _default_k_max(network: Network) -> int:
    in_force = [choice.parallelism for choice in network.current.choices if choice.parallel]
    return max(DEFAULT_K_MAX, 2 * math.ceil(network.limits.cores), network.current.threadpool_size, *in_force)


def _memory_limit(network: Network) -> float:
    """Bytes that buffers and new caches may take: those that no plan is needed for are there anyway."""
    return max(network.limits.memory_free_bytes, memory.buffer_bytes(network, _unchanged(network)))


def _freedoms(network: Network, k_max: int) -> list[_Freedom]:
    limit = _memory_limit(network)
    copies = multiplicity(network, network.current)
    above_cache = [False] * len(network.operators)
    for i in reversed(range(len(network.operators))):
        parent = network.operators[i].parent
        if parent is not None and (above_cache[i] or network.current.choices[i].cache):
            above_cache[parent] = True
    found: list[_Freedom] = []
    served: list[bool] = []
    for i, (operator, choice) in enumerate(zip(network.operators, network.current.choices, strict=True)):
        idle = operator.parent is not None and served[operator.parent]
        served.append(idle or choice.cache)
        lowest, free, highest = _parallelism_range(operator, choice, network.limits.cores, k_max)
        affordable = operator.cache_bytes is not None and operator.cache_bytes <= limit
        works = not served[i]
        found.append(
            _Freedom(
                idle=idle,
                parallel=works and operator.may_parallel and not choice.parallel and highest > 1,
                prefetch=not idle and operator.may_prefetch and not choice.prefetch,
                cache=works and operator.may_cache and affordable and not above_cache[i],
                lowest=lowest,
                free=free,
                highest=highest if works else free,
                prefetch_size=memory.prefetch_size(network, i),
                copies=copies[i],
            )
        )
    return found


def _parallelism_range(operator: Operator, choice: Choice, cores: float, k_max: int) -> tuple[int, int, int]:
    """(lowest, free, highest) k of `_Freedom`; an interleave's calls beyond its cycle length do nothing."""
    cap = k_max
    if operator.interleave:
        cap = max(operator.cycle_length or 1, 1)
    elif operator.batch_size > 1:
        cap = min(k_max, (MAX_BATCHES - 1) * operator.batch_size)
    if not choice.parallel:
        return 1, 1, cap if operator.may_parallel else 1
    if choice.autotuned:
        lowest, free = 1, _autotuned_highest(operator, cores)
    else:
        lowest = free = choice.parallelism
    if operator.interleave:
        lowest, free = min(lowest, cap), min(free, cap)
    return lowest, free, max(free, cap) if operator.may_parallel else free


def _best(network: Network, freedoms: list[_Freedom], k_max: int) -> tuple[Settings, float]:
    """All stages but the sizing of k and T, and the greatest rate that there is, steps/s."""
    unchanged = _unchanged(network)
    ceiling = _ceiling(network, freedoms, k_max)
    least = predicted_rate(network, unchanged)
    if ceiling <= 0 or least >= (1 - RATE_TOLERANCE) * ceiling:
        return unchanged, least
    first = _Program(network, freedoms, k_max, ceiling, fixed=False)
    fastest = first.solve("rate")
    rate = predicted_rate(network, first.settings(fastest))
    if rate <= 0 or least >= (1 - RATE_TOLERANCE) * rate:
        return unchanged, least
    second = _Program(network, freedoms, k_max, (1 - RATE_TOLERANCE) * rate, fixed=True)
    # The caches of the fastest settings are among the answers, and the search starts from there.
    second.solve("changes", caches_of=fastest)
    for stage in ("changes", "threads"):
        second.cap(stage, second.solve(stage))
    return second.settings(second.solve("memory")), rate


def _sized(
    network: Network, freedoms: list[_Freedom], settings: Settings, rate: float, k_max: int
) -> Settings:
    """`settings` with each k and T that is free, or changed anyway, as small as carries HEADROOM times their rate.

    Their rate is what they reach with all of those at their highest, at most `rate`; no headroom is asked for
    beyond what the cores allow. Where memory is short, an operator keeps the k that it has in `settings`.
    """
    ranges = [_sizes(*each) for each in zip(network.current.choices, settings.choices, freedoms, strict=True)]
    pool_changes = settings.threadpool_size != network.current.threadpool_size
    highest = [high for _, high in ranges]
    widest = _with_sizes(settings, highest, max(k_max, settings.threadpool_size) if pool_changes else None)
    reached = min(predicted_rate(network, widest), rate)
    if not math.isfinite(reached):
        return settings
    cores = min((bound.rate for bound in bounds(network, widest) if bound.kind is Kind.CPU), default=math.inf)
    wanted = min(HEADROOM * reached, max(cores, reached))
    seconds = calls_seconds(network, widest)
    sizes = []
    for operator, freedom, (low, high), each in zip(
        network.operators, freedoms, ranges, seconds, strict=True
    ):
        least = _least_calls(operator, wanted * each / freedom.copies, high)
        sizes.append(max(low, high if least is None else least))
    pool = None
    if pool_changes:
        needed = math.ceil(wanted * pool_seconds(network, widest) * (1 - 1e-9))
        pool = min(max(needed, network.current.threadpool_size + 1), max(k_max, settings.threadpool_size))
    limit = _memory_limit(network)
    order = sorted(range(len(sizes)), key=lambda i: -network.operators[i].element_bytes)
    for i in order:
        if memory.needed_bytes(network, _with_sizes(settings, sizes, pool)) <= limit:
            break
        sizes[i] = settings.choices[i].parallelism
    return _with_sizes(settings, sizes, pool)


def _sizes(old: Choice, new: Choice, freedom: _Freedom) -> tuple[int, int]:
    """The k that `new` may have at no further change."""
    if not new.parallel or freedom.idle or freedom.highest == freedom.lowest:
        return new.parallelism, new.parallelism
    if new.autotuned:
        return freedom.lowest, freedom.free
    if _parallelism_changes(old, new):
        return (freedom.free + 1 if old.parallel else 1), freedom.highest
    return new.parallelism, new.parallelism


def _with_sizes(settings: Settings, sizes: list[int], pool: int | None) -> Settings:
    choices = [replace(choice, parallelism=k) for choice, k in zip(settings.choices, sizes, strict=True)]
    return Settings(tuple(choices), settings.threadpool_size if pool is None else pool)


def _unchanged(network: Network) -> Settings:
    """The settings in force, with AUTOTUNE at the highest it may choose."""
    choices = [
        replace(choice, parallelism=_autotuned_highest(operator, network.limits.cores))
        if choice.parallel and choice.autotuned
        else choice
        for operator, choice in zip(network.operators, network.current.choices, strict=True)
    ]
    return replace(network.current, choices=tuple(choices))


def _autotuned_highest(operator: Operator, cores: float) -> int:
    highest = max(1, math.ceil(cores))
    return min(highest, max(operator.cycle_length or 1, 1)) if operator.interleave else highest


def _capacity(operator: Operator, k: int) -> float:
    """eta(k) k; k itself for an interleave, whose workers each have an iterator of their own."""
    if operator.interleave or not operator.ordered:
        return float(k)
    return float(throughput(k, operator.variation, operator.batch_size)[-1])


def _ceiling(network: Network, freedoms: list[_Freedom], k_max: int) -> float:
    """An upper bound of X over all settings, close enough to scale by: see the module's docstring."""
    operators, consumer = network.operators, network.consumer
    pool = max(k_max, network.current.threadpool_size)

    def alone(i: int) -> float:
        freedom, choice = freedoms[i], network.current.choices[i]
        calls = _capacity(operators[i], freedom.highest) if choice.parallel or freedom.parallel else 1.0
        return operators[i].visits * operators[i].service_s / (freedom.copies * calls)

    def least(
        own: Callable[[int], float], read: Callable[[int], float], join: Callable[[Iterable[float]], float]
    ) -> float:
        loads = [0.0] * len(operators)
        below: list[list[float]] = [[] for _ in operators]
        for i in reversed(range(len(operators))):
            loads[i] = join([own(i), *below[i]])
            if network.current.choices[i].cache:
                loads[i] = read(i)
            elif freedoms[i].cache:
                loads[i] = min(loads[i], read(i))
            if (parent := operators[i].parent) is not None:
                below[parent].append(loads[i])
        return loads[0]

    def read(i: int) -> float:
        return operators[i].visits * CACHE_READ_S

    loads = [
        least(alone, lambda i: read(i) / freedoms[i].copies, max),
        _per(
            least(lambda i: operators[i].visits * operators[i].cpu_s, read, sum) + consumer.cpu_s,
            network.limits.cores - consumer.other_cores,
        ),
        least(lambda i: _pooled_s(operators[i]), lambda _: 0.0, sum) / pool,
        least(lambda i: operators[i].visits * (operators[i].gil_s or 0.0), lambda _: 0.0, sum),
        consumer.step_s or 0.0,
        1.0 / FASTEST,
    ]
    return 1.0 / max(loads)


def _per(load: float, capacity: float) -> float:
    return load / capacity if capacity > 0 else math.inf


def _pooled_s(operator: Operator) -> float:
    """Time in the iterator's thread pool per root element."""
    return operator.visits * operator.service_s if operator.pooled and not operator.unbounded else 0.0


class _Program:
    """The linear program ``minimise w v, rows v <= limits``, some of v whole; `scale` is the rate of x = 1."""

    def __init__(
        self, network: Network, freedoms: list[_Freedom], k_max: int, scale: float, *, fixed: bool
    ) -> None:
        self._network, self._freedoms, self._scale, self._fixed = network, freedoms, scale, fixed
        self._pool_max = max(k_max, network.current.threadpool_size)
        self._whole: list[bool] = []
        self._rows: list[Mapping[int, float]] = []
        self._limits: list[float] = []
        #: What each stage minimises.
        self._terms: dict[str, dict[int, float]] = {stage: {} for stage in _GAPS}
        self._resources: dict[str, dict[int, float]] = {"cpu": {}, "threadpool": {}, "gil": {}}
        count = len(network.operators)
        self._parallel: list[int | None] = [None] * count
        self._calls: list[int | None] = [None] * count
        self._raised: list[int | None] = [None] * count
        self._prefetch: list[int | None] = [None] * count
        self._cache: list[int | None] = [None] * count
        #: Columns of alpha_i (None where idle), of r_i (None where nothing is handed on); r's ceilings.
        self._activity: list[int | None] = [None] * count
        self._handed: list[int | None] = [None] * count
        self._handed_max = [0.0] * count
        self._x = self._column(1.0 if fixed else 0.0, 1.0)
        self._terms["rate"][self._x] = -1.0
        for i, freedom in enumerate(freedoms):
            if not freedom.idle:
                self._decide(i)
        self._one_cache_per_path()
        for i in reversed(range(count)):
            if not freedoms[i].idle:
                self._operator(i)
        self._root()
        self._shared()
        self._build()

    # Building blocks.

    def _column(self, low: float, high: float, *, whole: bool = False) -> int:
        column = len(self._whole)
        self._whole.append(whole)
        self._row({column: -1.0}, -low)
        self._row({column: 1.0}, high)
        return column

    def _change(self) -> int:
        """A decision that costs one change."""
        column = self._column(0.0, 1.0, whole=True)
        self._terms["changes"][column] = 1.0
        return column

    def _row(self, entries: Mapping[int, float], limit: float) -> None:
        self._rows.append(entries)
        self._limits.append(limit)

    # Columns of decisions.

    def _decide(self, i: int) -> None:
        operator, freedom = self._network.operators[i], self._freedoms[i]
        above = self._x if operator.parent is None else self._activity[operator.parent]
        self._activity[i] = None if self._network.current.choices[i].cache else above
        if freedom.cache:
            self._cache[i] = y = self._change()
            self._activity[i] = alpha = self._column(0.0, 1.0)
            assert above is not None
            self._row({above: 1.0, y: -1.0, alpha: -1.0}, 0.0)
            self._buy({y: operator.cache_bytes or 0.0})
        if freedom.prefetch:
            self._prefetch[i] = p = self._change()
            self._terms["threads"][p] = 1.0
            buffer = freedom.copies * freedom.prefetch_size * operator.element_bytes
            self._buy({p: buffer})
        if freedom.highest > freedom.lowest:
            self._decide_parallelism(i)

    def _decide_parallelism(self, i: int) -> None:
        operator, freedom = self._network.operators[i], self._freedoms[i]
        self._calls[i] = k = self._column(freedom.lowest, freedom.highest, whole=True)
        self._terms["threads"][k] = 1.0
        if freedom.parallel:
            self._parallel[i] = a = self._change()
            self._terms["threads"][a] = 1.0
            self._row({k: 1.0, a: -float(freedom.highest - 1)}, 1.0)
        elif freedom.highest > freedom.free:
            self._raised[i] = raised = self._change()
            self._row({k: 1.0, raised: -float(freedom.highest - freedom.free)}, float(freedom.free))
        self._buffer(operator, freedom, k, self._parallel[i])

    def _buffer(self, operator: Operator, freedom: _Freedom, k: int, a: int | None) -> None:
        """Memory of a parallel operator's results; `a` None: it is parallel already."""
        if operator.interleave:
            if a is not None:
                self._buy({a: freedom.copies * memory.parallel_bytes(operator, freedom.highest)})
            return
        each = freedom.copies * operator.element_bytes
        if a is None:
            beyond_one = {k: 1.0}
        else:
            # k - 1 + a: nothing is held where the operator stays sequential.
            beyond_one = {k: 1.0, a: 1.0}
        if operator.batch_size > 1:
            each *= operator.batch_size
            batches = self._column(0.0, math.ceil(freedom.highest / operator.batch_size), whole=True)
            self._row(beyond_one | {batches: -float(operator.batch_size)}, 0.0 if a is None else 1.0)
            self._buy({batches: each} if a is None else {batches: each, a: each})
        elif a is None:
            self._buy({k: each})
        else:
            held = self._column(0.0, float(freedom.highest))
            self._row(beyond_one | {held: -1.0}, 1.0)
            self._buy({held: each})

    def _buy(self, bytes_per_unit: Mapping[int, float]) -> None:
        self._terms["memory"].update(bytes_per_unit)

    def _one_cache_per_path(self) -> None:
        last = set()
        for i in reversed(range(len(self._cache))):
            if self._cache[i] is None or i in last:
                continue
            path = self._network.path(i)
            last.update(path)
            chosen = [y for j in path if (y := self._cache[j]) is not None]
            if len(chosen) > 1:
                self._row(dict.fromkeys(chosen, 1.0), 1.0)

    # Constraints.

    def _load(self, i: int, seconds: float) -> dict[int, float]:
        """``V_i seconds A_i``, where i works at all."""
        alpha = self._activity[i]
        each = self._network.operators[i].visits * seconds * self._scale
        return {} if alpha is None or each <= 0 else {alpha: each}

    def _read(self, i: int) -> dict[int, float]:
        """``V_i rho X`` where a cache stands on i and serves."""
        operator = self._network.operators[i]
        each = operator.visits * CACHE_READ_S * self._scale
        above = self._x if operator.parent is None else self._activity[operator.parent]
        assert above is not None
        if self._network.current.choices[i].cache:
            return {above: each}
        if (y := self._cache[i]) is None:
            return {}
        served = self._column(0.0, 1.0)
        self._row({above: 1.0, y: 1.0, served: -1.0}, 1.0)
        return {served: each}

    def _operator(self, i: int) -> None:
        operator, choice, freedom = (
            self._network.operators[i],
            self._network.current.choices[i],
            self._freedoms[i],
        )
        network, copies = self._network, float(freedom.copies)
        load, read = self._load(i, operator.service_s), self._read(i)
        for name, seconds in (("cpu", operator.cpu_s), ("gil", operator.gil_s or 0.0)):
            self._add(name, self._load(i, seconds))
        self._add("cpu", read)
        if operator.pooled and not operator.unbounded:
            self._add("threadpool", load)
        if choice.cache:
            self._row(read, copies)
            self._hand_on(i, read, read, min(copies, sum(read.values())))
            return
        inputs, inputs_max = self._received(network.inputs[i])
        body, body_max = self._received(network.bodies[i])
        own, own_max = _sum(load, body), sum(load.values()) + body_max
        if choice.parallel or freedom.parallel:
            self._carry(i, own, inputs)
        t = self._column(0.0, copies)
        most = inputs_max + sum(read.values())
        self._row(_sum(inputs, read, {t: -1.0}), 0.0)
        if not choice.parallel:
            most += own_max
            # Where a is 1 the work leaves this thread; the calls that take it bound it.
            calls_max = copies * freedom.highest
            away = {} if (a := self._parallel[i]) is None else {a: -min(own_max, calls_max)}
            self._row(_sum(inputs, own, read, away, {t: -1.0}), 0.0)
        self._hand_on(i, {t: 1.0}, read, min(copies, most))

    def _received(self, children: Iterable[int]) -> tuple[dict[int, float], float]:
        """What `children` hand on, and at most how much."""
        handed = [(column, self._handed_max[j]) for j in children if (column := self._handed[j]) is not None]
        return {column: 1.0 for column, _ in handed}, sum(most for _, most in handed)

    def _hand_on(self, i: int, thread: Mapping[int, float], read: Mapping[int, float], most: float) -> None:
        """r_i, from t_i = `thread`, at most `most`, of which `read` is the cache's."""
        choice, a, p = self._network.current.choices[i], self._parallel[i], self._prefetch[i]
        asynchronous = choice.parallel and not choice.cache
        if choice.prefetch or (asynchronous and not read):
            return
        self._handed[i] = r = self._column(0.0, max(most, 0.0))
        self._handed_max[i] = most
        if not asynchronous:
            away = {column: -most for column in (a, p) if column is not None}
            self._row(_sum(thread, away, {r: -1.0}), 0.0)
        if read and (asynchronous or a is not None):
            away = {} if p is None else {p: -sum(read.values())}
            self._row(_sum(read, away, {r: -1.0}), 0.0)

    def _carry(self, i: int, own: Mapping[int, float], pulled: Mapping[int, float]) -> None:
        """The work of i, with what its bodies or inputs hand on to its calls, fits into its k calls."""
        operator, freedom, k = self._network.operators[i], self._freedoms[i], self._calls[i]
        copies = float(freedom.copies)
        carried = own if operator.interleave else _sum(own, pulled)
        if k is None:
            self._row(carried, copies * _capacity(operator, freedom.free))
        elif operator.interleave:
            self._row(_sum(own, {k: -copies}), 0.0)
        else:
            variation = operator.variation if operator.ordered else None
            for slope, intercept in cuts(freedom.highest, variation, operator.batch_size):
                self._row(_sum(carried, {k: -copies * slope}), copies * intercept)
            if self._fixed:
                self._need_calls(i, k, own)

    def _need_calls(self, i: int, k: int, load: Mapping[int, float]) -> None:
        """At a fixed rate the operator's own work is all or nothing, and so are the calls that it alone needs.

        The chords imply as much for whole numbers; said outright, it spares the search most of its branches.
        """
        operator, freedom = self._network.operators[i], self._freedoms[i]
        for alpha, seconds in load.items():
            needed = _least_calls(operator, seconds / freedom.copies, freedom.highest)
            if needed is None:
                self._row({alpha: 1.0}, 0.0)
                continue
            self._row({alpha: float(needed - 1), k: -1.0}, -1.0)
            enabler = self._parallel[i] if freedom.parallel else self._raised[i]
            if enabler is not None and needed > freedom.free:
                self._row({alpha: 1.0, enabler: -1.0}, 0.0)

    def _root(self) -> None:
        """``r_0 + turn X <= 1`` unless something asynchronous stands between the root and its consumer."""
        choice, r = self._network.current.choices[0], self._handed[0]
        turn = self._network.consumer.turn_s * self._scale
        if choice.prefetch:
            return
        a, p, y = self._parallel[0], self._prefetch[0], self._cache[0]
        busy = _sum({} if r is None else {r: 1.0}, {self._x: turn}, {} if p is None else {p: -turn})
        if not choice.parallel or choice.cache:
            self._row(busy if a is None or choice.cache else _sum(busy, {a: -turn}), 1.0)
        if y is not None and (choice.parallel or a is not None):
            self._row(_sum(busy, {y: turn}), 1.0 + turn)

    def _add(self, resource: str, load: Mapping[int, float]) -> None:
        self._resources[resource] = _sum(self._resources[resource], load)

    def _shared(self) -> None:
        network, consumer = self._network, self._network.consumer
        self._add("cpu", {self._x: consumer.cpu_s * self._scale})
        self._row(self._resources["cpu"], network.limits.cores - consumer.other_cores)
        self._row(self._resources["gil"], 1.0)
        self._pool(network.current.threadpool_size)
        self._fit_memory()

    def _fit_memory(self) -> None:
        """In shares of the limit, for the solver's sake."""
        limit = _memory_limit(self._network)
        unit = max(limit, 1.0)
        held = {column: each / unit for column, each in self._terms["memory"].items()}
        self._row(held, max(limit - self._held(), 0.0) / unit)

    def _held(self) -> float:
        """Bytes of today's buffers that no column stands for."""
        total = 0.0
        for i, (operator, choice, freedom) in enumerate(
            zip(self._network.operators, self._network.current.choices, self._freedoms, strict=True)
        ):
            held = choice.prefetch_size * operator.element_bytes if choice.prefetch else 0.0
            if choice.parallel and (self._calls[i] is None or operator.interleave):
                k = freedom.lowest if choice.autotuned else choice.parallelism
                held += memory.parallel_bytes(operator, k)
            elif choice.parallel and operator.batch_size > 1:
                held += operator.batch_size * operator.element_bytes
            total += freedom.copies * held
        return total

    def _pool(self, size: int) -> None:
        load = self._resources["threadpool"]
        if not load or self._pool_max == size:
            self._pool_raised = None
            self._row(load, float(size))
            return
        self._pool_raised = raised = self._change()
        self._threads_more = more = self._column(0.0, float(self._pool_max - size), whole=True)
        self._terms["threads"][more] = 1.0
        self._row({more: 1.0, raised: -float(self._pool_max - size)}, 0.0)
        self._row(_sum(load, {more: -1.0}), float(size))

    # Solutions.

    def _build(self) -> None:
        """One matrix inequality; what a stage minimises and what earlier ones settled are its parameters."""
        import cvxpy as cp
        from scipy import sparse

        columns = [column for row in self._rows for column in row]
        values = [value for row in self._rows for value in row.values()]
        starts = np.cumsum([0] + [len(row) for row in self._rows])
        width = len(self._whole)
        matrix = sparse.csr_matrix((values, columns, starts), shape=(len(self._rows), width)).tocsc()
        whole = np.array(self._whole)
        weights = np.zeros((len(_GAPS), width))
        for n, stage in enumerate(_GAPS):
            weights[n, list(self._terms[stage])] = list(self._terms[stage].values())
        self._weights = dict(zip(_GAPS, weights, strict=True))
        capped = weights[[list(_GAPS).index(stage) for stage in _CAPPED]]
        self._caps = {stage: self._weights[stage].sum() * 1e3 + 1.0 for stage in _CAPPED}
        self._minimised, self._settled = cp.Parameter(width), cp.Parameter(len(_CAPPED))
        self._caches = [y for y in self._cache if y is not None]
        self._pinned = cp.Parameter(max(len(self._caches), 1))
        self._real, self._integer = (
            cp.Variable(int((~whole).sum())),
            cp.Variable(int(whole.sum()), integer=True),
        )
        real, integer = np.flatnonzero(~whole), np.flatnonzero(whole)
        rows = [
            matrix[:, real] @ self._real + matrix[:, integer] @ self._integer <= np.array(self._limits),
            capped[:, real] @ self._real + capped[:, integer] @ self._integer <= self._settled,
        ]
        if self._caches:
            rows.append(self._integer[np.searchsorted(integer, self._caches)] >= self._pinned)
        minimised = self._minimised[real] @ self._real + self._minimised[integer] @ self._integer
        self._problem = cp.Problem(cp.Minimize(minimised), rows)
        self._split = real, integer
        self._last: Array | None = None

    def cap(self, stage: str, solution: Array) -> None:
        """From now on what `stage` minimised, a whole number, is no more than in `solution`."""
        self._caps[stage] = round(float(self._weights[stage] @ solution)) + 0.5

    def solve(self, stage: str, *, caches_of: Array | None = None) -> Array:
        """v that minimises what `stage` asks for, among those with the caches of another solution if given."""
        import cvxpy as cp

        self._minimised.value = self._weights[stage]
        self._settled.value = np.array([self._caps[each] for each in _CAPPED])
        if self._caches:
            nothing = np.zeros(len(self._caches))
            self._pinned.value = nothing if caches_of is None else np.round(caches_of[self._caches])
        with warnings.catch_warnings():
            # Out of time is no surprise here, and what came of it is checked below.
            warnings.filterwarnings("ignore", "Solution may be inaccurate")
            self._problem.solve(solver=cp.HIGHS, warm_start=True, **_OPTIONS, **_GAPS[stage])
        found = self._found()
        if found is not None and self._problem.status != cp.OPTIMAL and not self._improves(stage, found):
            found = None
        if found is None and (found := self._last) is None:
            raise SolverError(
                f"the optimum's stage '{stage}' ended without a solution: {self._problem.status}"
            )
        self._last = found
        return found

    def _found(self) -> Array | None:
        if self._real.value is None or self._integer.value is None:
            return None
        found = np.empty(len(self._whole))
        real, integer = self._split
        found[real], found[integer] = self._real.value, np.round(self._integer.value)
        return found

    def _improves(self, stage: str, found: Array) -> bool:
        """It keeps all rows and is better than what the stage before left."""
        weights, excess = (
            self._weights[stage],
            max(float(c.violation().max()) for c in self._problem.constraints),
        )
        return excess < 1e-6 and (self._last is None or bool(weights @ found < weights @ self._last))

    def settings(self, solution: Array) -> Settings:
        """The decisions of `solution`, those in force kept."""
        choices = []
        for i, (choice, freedom) in enumerate(
            zip(self._network.current.choices, self._freedoms, strict=True)
        ):
            new = choice
            if _chosen(solution, self._cache[i]):
                new = replace(new, cache=True)
            if _chosen(solution, self._prefetch[i]):
                new = replace(new, prefetch=True, prefetch_size=freedom.prefetch_size)
            calls = self._calls[i]
            if choice.autotuned and choice.parallel and not _chosen(solution, self._raised[i]):
                new = replace(new, parallelism=freedom.lowest if calls is None else round(solution[calls]))
            elif _chosen(solution, self._parallel[i]) or _chosen(solution, self._raised[i]):
                new = replace(new, parallel=True, parallelism=round(solution[calls]), autotuned=False)
            choices.append(new)
        size = self._network.current.threadpool_size
        if _chosen(solution, self._pool_raised):
            size += round(solution[self._threads_more])
        return Settings(tuple(choices), size)


def _chosen(solution: Array, column: int | None) -> bool:
    return column is not None and solution[column] > 0.5


def _sum(*terms: Mapping[int, float]) -> dict[int, float]:
    """The sum of linear forms, each {column: coefficient}."""
    total: dict[int, float] = {}
    for term in terms:
        for column, value in term.items():
            total[column] = total.get(column, 0.0) + value
    return total


def _least_calls(operator: Operator, load: float, highest: int) -> int | None:
    """The least k up to `highest` that carries `load` (calls' worth of time per instance); None if none does."""
    variation = operator.variation if operator.ordered and not operator.interleave else None
    carried = throughput(highest, variation, operator.batch_size)
    k = int(np.searchsorted(carried, load * (1 - 1e-9))) + 1
    return k if k <= highest else None
