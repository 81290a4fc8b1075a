"""The second question: the fewest cores, or the least memory, for a wanted rate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tensorboard_plugin_plumber.model import memory, words
from tensorboard_plugin_plumber.model.decisions import freedoms_of
from tensorboard_plugin_plumber.model.linear import SolverError
from tensorboard_plugin_plumber.model.network import Network
from tensorboard_plugin_plumber.model.optimum import (
    ceilings_of,
    default_k_max,
    greatest_rate,
    highest_rate,
)
from tensorboard_plugin_plumber.model.program import Problem

#: More cores, and more bytes, than these are not looked for.
MOST_CORES = 1024
MOST_BYTES = 1e15


@dataclass(frozen=True)
class Sizing:
    """What reaches a wanted rate."""

    #: steps/s, over all epochs.
    wanted_rate: float
    #: Fewest cores, all else as it is; None: no number of cores.
    cores: int | None
    #: Bytes of buffers and new caches that must fit, all else as it is; None: no memory.
    memory_bytes: float | None

    @property
    def reachable(self) -> bool:
        """Cores or memory reach it."""
        return self.cores is not None or self.memory_bytes is not None


def size_for(network: Network, wanted_rate: float, *, k_max: int | None = None) -> Sizing:
    """The fewest cores, and the least memory, with which the best settings reach `wanted_rate` (steps/s).

    `k_max` is as in `optimum.optimise`.
    """
    if not (wanted_rate > 0 and math.isfinite(wanted_rate)):
        raise ValueError(f"a wanted rate must be a positive number of steps/s, not {wanted_rate}")
    return Sizing(
        wanted_rate, _fewest_cores(network, wanted_rate, k_max), _least_memory(network, wanted_rate, k_max)
    )


def _fewest_cores(network: Network, wanted: float, k_max: int | None) -> int | None:
    """A program finds how many cores the work takes; that they suffice is then tried, for what AUTOTUNE may choose,
    and what a crowded host leaves, depends on them in steps."""
    least = _cores_of_the_work(network, wanted, k_max)
    if least is None:
        return None
    short, step = least - 1, 1
    while not _reaches(_with_cores(network, short + step), wanted, k_max):
        short += step
        step *= 2
        if short >= MOST_CORES:
            return None
    enough = short + step
    while enough - short > 1:
        middle = (short + enough) // 2
        if _reaches(_with_cores(network, middle), wanted, k_max):
            enough = middle
        else:
            short = middle
    return enough


def _cores_of_the_work(network: Network, wanted: float, k_max: int | None) -> int | None:
    """No fewer cores than these reach `wanted`; None: no number does."""
    most = _with_cores(network, MOST_CORES)
    problem = _problem(most, wanted, k_max, open_cores=float(MOST_CORES))
    if problem is None:
        return None
    try:
        return max(math.ceil(problem.cores(problem.solve("cores")) - 1e-6), 1)
    except SolverError:
        return None


def _reaches(network: Network, wanted: float, k_max: int | None) -> bool:
    problem = _problem(network, wanted, k_max)
    if problem is None:
        return False
    try:
        problem.solve("reach")
    except SolverError:
        return False
    return True


def _least_memory(network: Network, wanted: float, k_max: int | None) -> float | None:
    roomy = replace(network, limits=replace(network.limits, memory_free_bytes=MOST_BYTES))
    problem = _problem(roomy, wanted, k_max, fit_memory=False)
    if problem is None:
        return None
    try:
        return memory.needed_bytes(network, problem.settings(problem.solve("memory")))
    except SolverError:
        return None


def _problem(
    network: Network,
    wanted: float,
    k_max: int | None,
    *,
    fit_memory: bool = True,
    open_cores: float | None = None,
) -> Problem | None:
    """The settings that reach `wanted`; None where nothing can."""
    most = k_max or default_k_max(network)
    freedoms = freedoms_of(network, most)
    ceilings = ceilings_of(network, freedoms, most)
    if highest_rate(network, ceilings) < wanted:
        return None
    return Problem(
        network, freedoms, most, ceilings, at_least=wanted, fit_memory=fit_memory, open_cores=open_cores
    )


def _with_cores(network: Network, cores: float) -> Network:
    return replace(network, limits=replace(network.limits, cores=cores))


def sentence(network: Network, sizing: Sizing) -> str:
    """What a wanted rate takes, for people."""
    wanted, now = words.rate(sizing.wanted_rate), words.cores(network.limits.cores)
    step_s = network.consumer.step_s
    if step_s and sizing.wanted_rate * step_s > 1:
        return f"Nothing reaches {wanted}: the training step itself takes {words.duration(step_s)}."
    if not sizing.reachable:
        most = replace(network, limits=replace(network.limits, memory_free_bytes=MOST_BYTES))
        highest = words.rate(greatest_rate(_with_cores(most, MOST_CORES)))
        return f"Neither more cores nor more memory reach {wanted}; the most there can be is {highest}."
    cores = None if sizing.cores is None else f"{words.cores(sizing.cores)} with today's memory"
    held = None if sizing.memory_bytes is None else words.size(sizing.memory_bytes)
    memory_said = None if held is None else f"{held} for buffers and caches on today's {now}"
    return f"{wanted} takes {', or '.join(said for said in (cores, memory_said) if said)}."
