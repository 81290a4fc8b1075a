"""Memory that settings hold in buffers and caches (docs/model.md, "Memory").

Every buffer exists once per live iterator of the interleaves around it (m_i, `loads.multiplicity`):

=====================  ==================================================
prefetch               ``q e`` for its size q
parallel operator      ``k e``
map fused with batch   ``min(ceil(k / b) + 1, 16) b e`` (whole batches of b)
parallel interleave    ``L e``, one buffer per live iterator
memory cache           ``cache_bytes``, the upper end of its interval
=====================  ==================================================
"""

from __future__ import annotations

import math

from tensorboard_plugin_plumber.model.loads import multiplicity
from tensorboard_plugin_plumber.model.network import Network, Operator, Settings
from tensorboard_plugin_plumber.model.ordered import MAX_BATCHES

#: Sizes of a prefetch that a plan may ask for, elements.
SMALLEST_PREFETCH, LARGEST_PREFETCH = 2, 64
#: Share of the rate that a prefetch's buffer may cost at most, by the approximation in `prefetch_size`.
PREFETCH_LOSS = 0.05
#: An unknown coefficient of variation counts as an exponential time's.
UNKNOWN_VARIATION = 1.0


def parallel_bytes(operator: Operator, k: int) -> float:
    """Bytes that one instance of `operator` buffers when it makes k calls at a time."""
    if operator.interleave:
        return max(operator.cycle_length or 1, 1) * operator.element_bytes
    if operator.batch_size > 1:
        batches = min(math.ceil(k / operator.batch_size) + 1, MAX_BATCHES)
        return batches * operator.batch_size * operator.element_bytes
    return k * operator.element_bytes


def buffer_bytes(network: Network, settings: Settings) -> float:
    """Bytes of all buffers under `settings`, full; shuffles and caches, which no plan changes, left out."""
    copies = multiplicity(network)
    total = 0.0
    for operator, choice, instances in zip(network.operators, settings.choices, copies, strict=True):
        if choice.parallel:
            total += instances * parallel_bytes(operator, choice.parallelism)
        if choice.prefetch:
            total += instances * choice.prefetch_size * operator.element_bytes
    return total


def new_cache_bytes(network: Network, settings: Settings) -> float:
    """Bytes of the memory caches of `settings` that are not in force today, upper end."""
    return sum(
        operator.cache_bytes or 0.0
        for operator, choice, today in zip(
            network.operators, settings.choices, network.current.choices, strict=True
        )
        if choice.cache and not today.cache
    )


def new_file_bytes(network: Network, settings: Settings) -> float:
    """Bytes on disk of the file caches of `settings`, upper end."""
    return sum(
        operator.file_cache_bytes or 0.0
        for operator, choice in zip(network.operators, settings.choices, strict=True)
        if choice.file_cache
    )


def needed_bytes(network: Network, settings: Settings) -> float:
    """What `Limits.memory_free_bytes` must pay for: all buffers, and the caches that are new."""
    return buffer_bytes(network, settings) + new_cache_bytes(network, settings)


def added_bytes(network: Network, settings: Settings) -> float:
    """Bytes that `settings` hold beyond the settings in force."""
    return needed_bytes(network, settings) - buffer_bytes(network, network.current)


def prefetch_size(network: Network, position: int) -> int:
    """Elements that a prefetch on the output of `position` should hold, 2 to 64.

    Two exponential machines of equal rate with b places between them lose ``1 / (b + 3)`` of their rate; with
    squared coefficients of variation c_p and c_c, of which S is the mean, about ``S / (b + 2 + S)``
    (Buzacott and Shanthikumar, Stochastic Models of Manufacturing Systems, 1993, two-stage flow lines).
    The size is the least b that loses at most `PREFETCH_LOSS`, for each element that the consumer takes at a
    time (a batch takes many).
    """
    operator = network.operators[position]
    spread = (
        _squared(_segment_variation(network, position)) + _squared(_consumer_variation(network, position))
    ) / 2
    places = spread / PREFETCH_LOSS - 2.0 - spread
    taken = 1.0
    if operator.parent is not None and (above := network.operators[operator.parent].visits) > 0:
        taken = max(operator.visits / above, 1.0)
    return int(min(max(math.ceil(places * taken), SMALLEST_PREFETCH), LARGEST_PREFETCH))


def _squared(variation: float | None) -> float:
    return (UNKNOWN_VARIATION if variation is None else variation) ** 2


def _consumer_variation(network: Network, position: int) -> float | None:
    parent = network.operators[position].parent
    return None if parent is None else network.operators[parent].variation


def _segment_variation(network: Network, position: int) -> float | None:
    """Variation of the time that an output of `position` takes, over all that its thread does for it today."""
    mean = variance = 0.0
    visits = network.operators[position].visits
    if visits <= 0:
        return None
    waiting = [position]
    while waiting:
        i = waiting.pop()
        operator, choice = network.operators[i], network.current.choices[i]
        mean += operator.visits / visits * operator.service_s
        variance += operator.visits / visits * _squared(operator.variation) * operator.service_s**2
        if not choice.parallel:
            waiting += [
                j
                for j in (*network.inputs[i], *network.bodies[i])
                if not (network.current.choices[j].prefetch or network.current.choices[j].parallel)
            ]
    return math.sqrt(variance) / mean if mean > 0 else None
