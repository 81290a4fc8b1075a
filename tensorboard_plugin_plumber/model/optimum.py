"""The optimum: the settings that a pipeline should have (docs/model.md, "Optimum").

With the symbols of `network`, L_j the cycle length of interleave j, m_i the instances of i that live
(`loads.multiplicity`), rho_i what the cache on i takes to be read and eta of `ordered`, the rate X of given settings
is the greatest that keeps

    A_i = 0 if a cache serves on the output of i or of an operator between i and the root, else X
    thread        t_i = V_i rho_i X                                             if y_i or f_i
                  t_i = V_i s_i A_i (not a_i) + sum of r_j over plain inputs j
                        + sum of r_b over body roots b (i an interleave, not a_i)    else
                  r_i = 0 if p_i, or if a_i and neither y_i nor f_i, else t_i;    t_i <= m_i
    interleave    V_j s_j A_j + sum of r_b over body roots b <= k_j m_j,    k_j <= L_j     (a_j)
    operator      V_i s_i A_i + sum of r_j over plain inputs j <= eta(k_i) k_i m_i    (a_i, any other)
    cpu           sum of V_i c_i A_i + sum of V_i rho_i X (y_i or f_i) + c_g X + N_other <= N
                  sum of V_i sigma_i c_i A_i <= S, `bounds.stretched_capacity`, where core time is stretched
    threadpool    sum of V_i s_i A_i over pooled functions (not u_i) <= T
    gil           sum of V_i h_i A_i <= 1
    storage       sum of V_i b_i A_i <= B(k), k the calls that read (`loads.Loads.readers`)
    root          r_0 + turn X <= 1 where the root is made in the consumer's thread
    consumer      X <= 1 / g where g is known

(`bounds` evaluates exactly these). That is X_serve. While new caches fill, in the first of E epochs, everything
below them works, and each takes kappa_i to keep an element: X_fill is the same with A_i = X, and with V_i kappa_i X in
the thread that takes the elements of i, and among the core time. The rate over all epochs is
1 / ((1/E) / X_fill + (1 - 1/E) / X_serve); E unknown counts as many, which is X_serve.

The plan is lexicographically best: the greatest rate; within 1 % of it the fewest changes to the user's code (a file
cache counts as two); then the fewest threads, k and T sized for 1.15 X where cores allow; then the least memory.
Decisions already in force are never undone, at most one cache stands on any path, k of an operator that AUTOTUNE rules
is free without a change, up to the plan's own T where its function runs in the iterator's pool and up to the number of
cores elsewhere, all buffers with the new memory caches fit into `Limits.memory_free_bytes`, or take no more than
today's buffers, and file caches into `Limits.disk_free_bytes`.

The first stage is a mixed-integer linear program (`program`) in the share x = X / `ceiling`. The later stages ask for
the fixed rate 0.99 X, where every load is a constant or nothing; over E epochs for the time of that rate.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from tensorboard_plugin_plumber.model import memory
from tensorboard_plugin_plumber.model.bounds import (
    Bound,
    bounds,
    data_rate,
    epochs_rate,
    predicted_rate,
)
from tensorboard_plugin_plumber.model.ceiling import ceiling
from tensorboard_plugin_plumber.model.decisions import Freedom, count_changes, freedoms_of, unchanged
from tensorboard_plugin_plumber.model.headroom import with_headroom
from tensorboard_plugin_plumber.model.linear import SolverError
from tensorboard_plugin_plumber.model.network import Network, Settings
from tensorboard_plugin_plumber.model.program import Problem
from tensorboard_plugin_plumber.model.program.problem import Ceilings

#: Rates within this share of the best count as the best.
RATE_TOLERANCE = 0.01
#: Highest parallelism and pool size that a plan proposes unless told otherwise, at least.
DEFAULT_K_MAX = 128
#: Where nothing but this share could be gained, nothing is solved to know the greatest rate.
EXACT = 1e-6


@dataclass(frozen=True)
class Optimum:
    """The best settings of a network, with what they are predicted to do."""

    settings: Settings
    #: Predicted rate, steps/s, consumer included; in steady state, new caches serving.
    rate: float
    #: The same over all epochs, the one in which caches fill included.
    epochs_rate: float
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
    k_max = k_max or default_k_max(network)
    freedoms = freedoms_of(network, k_max)
    settings, rate = _best(network, freedoms, k_max)
    settings = with_headroom(network, freedoms, settings, rate, k_max)
    return Optimum(
        settings=settings,
        rate=predicted_rate(network, settings),
        epochs_rate=epochs_rate(network, settings),
        data_rate=data_rate(network, settings),
        changes=count_changes(network, settings),
        memory_bytes=memory.added_bytes(network, settings),
        solve_s=time.perf_counter() - started,
        bounding=bounds(network, settings)[0],
    )


def default_k_max(network: Network) -> int:
    """The highest parallelism and pool size that a plan proposes unless told otherwise."""
    in_force = [choice.parallelism for choice in network.current.choices if choice.parallel]
    return max(DEFAULT_K_MAX, 2 * math.ceil(network.limits.cores), network.current.threadpool_size, *in_force)


def greatest_rate(network: Network, *, known: float = 0.0, k_max: int | None = None) -> float:
    """The rate over all epochs of the fastest settings that there are, steps/s.

    Args:
      network: the pipeline, with the settings in force.
      known: a rate that some settings reach for certain.
      k_max: as in `optimise`.

    Raises:
      SolverError: HiGHS found no solution.
    """
    k_max = k_max or default_k_max(network)
    freedoms = freedoms_of(network, k_max)
    ceilings = ceilings_of(network, freedoms, k_max)
    reached = max(ceilings.today, known)
    if highest_rate(network, ceilings) * (1 - EXACT) <= reached:
        return reached
    problem = Problem(network, freedoms, k_max, ceilings)
    return max(epochs_rate(network, problem.settings(problem.solve("rate"))), reached)


def ceilings_of(network: Network, freedoms: list[Freedom], k_max: int) -> Ceilings:
    """What is known of the rates before anything is solved."""
    return Ceilings(
        serving=ceiling(network, freedoms, k_max),
        filling=ceiling(network, freedoms, k_max, filling=True),
        today=predicted_rate(network, unchanged(network)),
    )


def highest_rate(network: Network, ceilings: Ceilings) -> float:
    """No settings reach more than this over all epochs, steps/s."""
    if ceilings.serving <= 0 or network.epochs is None:
        return ceilings.serving
    first = min(1.0 / network.epochs, 1.0)
    return 1.0 / (first / ceilings.filling + (1.0 - first) / ceilings.serving)


def _best(network: Network, freedoms: list[Freedom], k_max: int) -> tuple[Settings, float]:
    """All stages but the sizing of k and T, and the greatest rate over all epochs that there is, steps/s."""
    today, ceilings = unchanged(network), ceilings_of(network, freedoms, k_max)
    least, highest = ceilings.today, highest_rate(network, ceilings)
    if highest <= 0 or least >= (1 - RATE_TOLERANCE) * highest:
        return today, least
    first = Problem(network, freedoms, k_max, ceilings)
    fastest = first.solve("rate")
    rate = epochs_rate(network, first.settings(fastest))
    if rate <= 0 or least >= (1 - RATE_TOLERANCE) * rate:
        return today, least
    second = Problem(network, freedoms, k_max, ceilings, at_least=(1 - RATE_TOLERANCE) * rate)
    try:
        # The caches of the fastest settings are among the answers, and the search starts from there.
        second.solve("changes", caches_of=fastest)
    except SolverError:  # out of time: the fastest settings are legal, if more than need be
        return first.settings(fastest), rate
    for stage in ("changes", "threads"):
        second.settle(stage, second.solve(stage))
    return second.settings(second.solve("memory")), rate
