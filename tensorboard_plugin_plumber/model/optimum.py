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
                  sum of V_i sigma_i c_i A_i <= S, `bounds.stretched_capacity`, where core time is stretched
    threadpool    sum of V_i s_i A_i over pooled functions <= T
    gil           sum of V_i h_i A_i <= 1
    root          r_0 + turn X <= 1 where the root is made in the consumer's thread
    consumer      X <= 1 / g where g is known

(`bounds` evaluates exactly these). The plan is lexicographically best: the greatest rate; within 1 % of it the
fewest changes to the user's code; then the fewest threads, k and T sized for 1.15 X where cores allow; then the
least memory. Decisions already in force are never undone, at most one memory cache stands on any path, k of an
operator that AUTOTUNE rules is free without a change, up to the plan's own T where its function runs in the
iterator's pool and up to the number of cores elsewhere, and all buffers with the new caches fit into
`Limits.memory_free_bytes`, or take no more than today's buffers.

The first stage is a mixed-integer linear program in the share x = X / X_ceiling, with activities
``alpha_i >= alpha_above - y_i`` (x at the root) and reads ``rho_i >= alpha_above + y_i - 1``; products of
a binary and a load are bounded by the load's own ceiling, and eta(k) k is the least of its chords. X_ceiling is
the least bound that is left when every setting is at its highest and each resource chooses its own caches.
The later stages ask for the fixed rate 0.99 X, where every load is a constant or nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tensorboard_plugin_plumber.model import memory
from tensorboard_plugin_plumber.model.bounds import (
    Bound,
    Kind,
    bounds,
    calls_seconds,
    data_rate,
    pool_seconds,
    predicted_rate,
    stretched_capacity,
)
from tensorboard_plugin_plumber.model.decisions import (
    Freedom,
    capacity,
    count_changes,
    freedoms_of,
    least_calls,
    memory_limit,
    parallelism_changes,
    pooled_s,
    unchanged,
)
from tensorboard_plugin_plumber.model.network import CACHE_READ_S, Choice, Network, Settings
from tensorboard_plugin_plumber.model.program import Program

#: Rates within this share of the best count as the best.
RATE_TOLERANCE = 0.01
#: Parallelism and pool are sized for this much more than the plan's rate.
HEADROOM = 1.15
#: Highest parallelism and pool size that a plan proposes unless told otherwise, at least.
DEFAULT_K_MAX = 128
#: Rate beyond which no pipeline goes, steps/s: the price of one read from a cache.
FASTEST = 1.0 / CACHE_READ_S


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
    freedoms = freedoms_of(network, k_max)
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


def _default_k_max(network: Network) -> int:
    in_force = [choice.parallelism for choice in network.current.choices if choice.parallel]
    return max(DEFAULT_K_MAX, 2 * math.ceil(network.limits.cores), network.current.threadpool_size, *in_force)


def _best(network: Network, freedoms: list[Freedom], k_max: int) -> tuple[Settings, float]:
    """All stages but the sizing of k and T, and the greatest rate that there is, steps/s."""
    today = unchanged(network)
    ceiling = _ceiling(network, freedoms, k_max)
    least = predicted_rate(network, today)
    if ceiling <= 0 or least >= (1 - RATE_TOLERANCE) * ceiling:
        return today, least
    first = Program(network, freedoms, k_max, ceiling, fixed=False)
    fastest = first.solve("rate")
    rate = predicted_rate(network, first.settings(fastest))
    if rate <= 0 or least >= (1 - RATE_TOLERANCE) * rate:
        return today, least
    second = Program(network, freedoms, k_max, (1 - RATE_TOLERANCE) * rate, fixed=True)
    # The caches of the fastest settings are among the answers, and the search starts from there.
    second.solve("changes", caches_of=fastest)
    for stage in ("changes", "threads"):
        second.settle(stage, second.solve(stage))
    return second.settings(second.solve("memory")), rate


def _sized(
    network: Network, freedoms: list[Freedom], settings: Settings, rate: float, k_max: int
) -> Settings:
    """`settings` with each k and T that is free, or changed anyway, as small as carries HEADROOM times their rate.

    Their rate is what they reach with all of those at their highest, at most `rate`; no headroom is asked for
    beyond what the cores allow. Where memory is short, an operator keeps the k that it has in `settings`.
    """
    pool_changes = settings.threadpool_size != network.current.threadpool_size
    widest_pool = max(k_max, settings.threadpool_size) if pool_changes else settings.threadpool_size
    ranges = [
        _sizes(*each, widest_pool)
        for each in zip(network.current.choices, settings.choices, freedoms, strict=True)
    ]
    widest = _with_sizes(settings, [high for _, high in ranges], widest_pool)
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
        least = least_calls(operator, wanted * each / freedom.copies, high)
        sizes.append(max(low, high if least is None else least))
    limit = memory_limit(network)
    order = sorted(range(len(sizes)), key=lambda i: -network.operators[i].element_bytes)
    for i in order:
        if memory.needed_bytes(network, _with_sizes(settings, sizes, settings.threadpool_size)) <= limit:
            break
        sizes[i] = settings.choices[i].parallelism
    pool = settings.threadpool_size
    if pool_changes:
        needed = math.ceil(wanted * pool_seconds(network, widest) * (1 - 1e-9))
        follow = [
            k
            for k, choice, freedom in zip(sizes, settings.choices, freedoms, strict=True)
            if choice.autotuned and freedom.follows_pool
        ]
        pool = min(max(needed, network.current.threadpool_size + 1, *follow), widest_pool)
    return _with_sizes(settings, sizes, pool)


def _sizes(old: Choice, new: Choice, freedom: Freedom, pool: int) -> tuple[int, int]:
    """The k that `new` may have at no further change in a pool of `pool`."""
    if not new.parallel or freedom.idle or freedom.highest == freedom.lowest:
        return new.parallelism, new.parallelism
    if new.autotuned:
        return freedom.lowest, min(freedom.highest, pool) if freedom.follows_pool else freedom.free
    if parallelism_changes(old, new):
        return (freedom.free + 1 if old.parallel else 2), freedom.highest
    return new.parallelism, new.parallelism


def _with_sizes(settings: Settings, sizes: list[int], pool: int) -> Settings:
    choices = [replace(choice, parallelism=k) for choice, k in zip(settings.choices, sizes, strict=True)]
    return Settings(tuple(choices), pool)


def _ceiling(network: Network, freedoms: list[Freedom], k_max: int) -> float:
    """An upper bound of X over all settings, close enough to scale by: see the module's docstring."""
    operators, consumer = network.operators, network.consumer
    pool = max(k_max, network.current.threadpool_size)

    def alone(i: int) -> float:
        freedom, choice = freedoms[i], network.current.choices[i]
        calls = capacity(operators[i], freedom.highest) if choice.parallel or freedom.parallel else 1.0
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
        return operators[i].visits * operators[i].cache_read_s

    loads = [
        least(alone, lambda i: read(i) / freedoms[i].copies, max),
        _per(
            least(lambda i: operators[i].visits * operators[i].cpu_s, read, sum) + consumer.cpu_s,
            network.limits.cores - consumer.other_cores,
        ),
        least(lambda i: operators[i].visits * operators[i].cpu_s * operators[i].stretch, lambda _: 0.0, sum)
        / stretched_capacity(network),
        least(lambda i: pooled_s(operators[i]), lambda _: 0.0, sum) / pool,
        least(lambda i: operators[i].visits * (operators[i].gil_s or 0.0), lambda _: 0.0, sum),
        consumer.step_s or 0.0,
        1.0 / FASTEST,
    ]
    return 1.0 / max(loads)


def _per(load: float, capacity: float) -> float:
    return load / capacity if capacity > 0 else math.inf
