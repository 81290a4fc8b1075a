"""What order costs a parallel operator: the efficiency of a window of outstanding results.

An ordered (deterministic) parallel operator with k calls starts call n only when result n - k has been
delivered, and delivers in the order of its input:

    start_n = D_{n-k},    D_n = max(D_{n-1}, start_n + S_n),

with D_n the time of delivery and S_n independent service times of mean 1. Its throughput is ``eta(k) k``,
which is k only if the times do not vary: a slow call holds back the k - 1 behind it. Service times are taken
as lognormal with the coefficient of variation measured; at k = 8 exponential times give 0.46 in place of the
lognormal 0.47, and 5 % stragglers of twenty times the length 0.29 in place of 0.30, so the law matters little
next to the coefficient.

A map that TensorFlow fuses with its batch keeps order between whole batches only. With b elements per batch
it holds at most B = min(ceil(k / b) + 1, 16) batches and k calls in flight: call n of batch q starts when one
of k servers is free and batch q - B is delivered.

There is no closed form, so both are simulated once per process, on a grid of k and of the coefficient of
variation, with a fixed seed; in between the throughput is interpolated linearly. It is concave in k, and made
exactly so by its concave majorant: the optimum relies on it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tensorboard_plugin_plumber.model.hull import concave_hull

Array = npt.NDArray[np.float64]

#: Batches that a map fused with its batch may hold, whatever its parallelism (TensorFlow's kMaxBatchResults).
MAX_BATCHES = 16

_SEED = 20220929
_PARALLELISM = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128])
_VARIATION = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0])
#: Larger batches count as this large: order costs next to nothing there.
_LARGEST_BATCH = 128
_REPLICAS = 16
_CALLS = 2400
_WARM_UP = 400


def eta(k: int, variation: float | None, batch_size: int = 1) -> float:
    """Efficiency of k parallel calls whose results are delivered in order, in (0, 1].

    Args:
        k: parallel calls, at least 1.
        variation: coefficient of variation of the service time; None, unknown, counts as no variation.
        batch_size: elements per batch where the operator is fused with its batch, else 1.
    """
    if k < 1:
        raise ValueError(f"parallelism must be at least 1, not {k}")
    return float(throughput(k, variation, batch_size)[-1]) / k


@lru_cache(maxsize=4096)
def throughput(k_max: int, variation: float | None, batch_size: int = 1) -> Array:
    """``eta(k) k`` for k = 1 .. `k_max`: concave, 1 at k = 1, in calls done per mean service time."""
    wanted = np.arange(1, k_max + 1, dtype=float)
    if not variation:
        wanted.flags.writeable = False
        return wanted
    table = _table(min(batch_size, _LARGEST_BATCH))
    row = _between(table, variation)
    values: Array = np.interp(wanted, _PARALLELISM, row)
    beyond = wanted > _PARALLELISM[-1]
    slope = (row[-1] - row[-2]) / (_PARALLELISM[-1] - _PARALLELISM[-2])
    values[beyond] = row[-1] + slope * (wanted[beyond] - _PARALLELISM[-1])
    values.flags.writeable = False
    return values


def cuts(k_max: int, variation: float | None, batch_size: int = 1) -> list[tuple[float, float]]:
    """Pairs (slope, intercept) with ``eta(k) k = min(slope k + intercept)`` at every integer k up to `k_max`.

    They are the chords of the interpolated throughput: ``V s A <= eta(k) k`` in linear form.
    """
    values = throughput(k_max, variation, batch_size)
    if len(values) == 1:
        return [(0.0, float(values[0]))]
    found: list[tuple[float, float]] = []
    for k, slope in enumerate(np.diff(values), start=1):
        if not found or slope < found[-1][0] - 1e-9:
            found.append((float(slope), float(values[k - 1] - slope * k)))
    return found


def _between(table: Array, variation: float) -> Array:
    """The row of `table` for this coefficient of variation, interpolated; the last row beyond it."""
    position = float(np.interp(variation, _VARIATION, np.arange(len(_VARIATION))))
    low = min(int(position), len(_VARIATION) - 2)
    row: Array = table[low] + (position - low) * (table[low + 1] - table[low])
    return row


@lru_cache(maxsize=64)
def _table(batch_size: int) -> Array:
    """Throughput by coefficient of variation (rows) and parallelism (columns)."""
    simulated = _simulate_window() if batch_size <= 1 else _simulate_batches(batch_size)
    table = np.minimum(simulated, _PARALLELISM)
    table /= table[:, :1]
    return np.array([_concave(np.maximum.accumulate(row)) for row in table])


def _service_times(count: int, replicas: int) -> Array:
    """Lognormal times of mean 1, shape (count, coefficient of variation, replica); common random numbers."""
    normal = np.random.default_rng(_SEED).standard_normal((count, 1, replicas))
    sigma = np.sqrt(np.log1p(_VARIATION**2))[None, :, None]
    return np.asarray(np.exp(sigma * normal - sigma**2 / 2))


def _simulate_window() -> Array:
    times = _service_times(_CALLS, _REPLICAS)
    shape = (len(_PARALLELISM), *times.shape[1:])
    longest = int(_PARALLELISM[-1])
    delivered = np.zeros((longest, *shape))
    last = np.zeros(shape)
    warm = last
    row = np.arange(len(_PARALLELISM))
    for n in range(_CALLS):
        last = np.maximum(last, delivered[(n - _PARALLELISM) % longest, row] + times[n])
        delivered[n % longest] = last
        if n == _WARM_UP - 1:
            warm = last
    return _calls_per_time(times[_WARM_UP:], last - warm)


def _simulate_batches(batch_size: int) -> Array:
    return np.stack([_simulate_batched(int(k), batch_size) for k in _PARALLELISM], axis=1)


def _simulate_batched(k: int, batch_size: int) -> Array:
    outstanding = min(math.ceil(k / batch_size) + 1, MAX_BATCHES)
    warm_up = outstanding
    batches = max(math.ceil(_CALLS / batch_size), 4 * outstanding)
    replicas = _REPLICAS // 2
    times = _service_times(batches * batch_size, replicas)
    lanes = times.shape[1] * replicas
    times_flat = times.reshape(len(times), lanes)
    free = np.zeros((k, lanes))
    lane = np.arange(lanes)
    delivered = np.zeros((batches, lanes))
    last = np.zeros(lanes)
    for q in range(batches):
        gate = delivered[q - outstanding] if q >= outstanding else 0.0
        for n in range(q * batch_size, (q + 1) * batch_size):
            server = free.argmin(axis=0)
            finish = np.maximum(free[server, lane], gate) + times_flat[n]
            free[server, lane] = finish
            last = np.maximum(last, finish)
        delivered[q] = last
    spent = (last - delivered[warm_up - 1]).reshape(times.shape[1:])
    return _calls_per_time(times[warm_up * batch_size :], spent[None])[:, 0]


def _calls_per_time(times: Array, spent: Array) -> Array:
    """Calls per mean service time, (coefficient of variation, parallelism), from times spent per lane."""
    work = times.sum(axis=(0, 2))[None, :]
    return np.asarray((work / spent.sum(axis=2)).T)


def _concave(values: Array) -> Array:
    """The least concave function of the grid's k that is nowhere below `values`."""
    corners = np.array(concave_hull(zip(_PARALLELISM.tolist(), values.tolist(), strict=True)))
    majorant: Array = np.interp(_PARALLELISM, corners[:, 0], corners[:, 1])
    return majorant
