"""How the workers of a parallel interleave visit its iterators, where something asynchronous runs inside them.

A parallel interleave of L iterators and k < L workers keeps up to 2 B results of each iterator, B the block length, and
hands on B at a time in turn. So a worker that comes to an iterator takes n = 2 B + 1 elements before it leaves: one
block is handed on at once. What a map of r calls inside made while no worker was there is ready, r results at most;
for the others the worker waits, (ceil(n / r) - 1) times the time of a call, and holds no other iterator meanwhile.
With r >= n all L iterators work all the time; with less, little more than those k that are visited. Out of order a
worker stays longer: whatever is ready is handed on, and the buffer is not full for long. That is put at N_UNORDERED.

Measured with a sleeping map (docs/model.md, "Bodies"). A sequential interleave takes one block from each iterator in
turn and does not wait for what is ready.

A call of a parallel operator that is due may have to wait for a core; nothing counts that, for it has not begun, but
its slot is taken. It matters where calls take no longer than that, some 20 to 50 microseconds.

A new prefetch is free only where its elements cost something: two threads that are both fast wake each other for every
element.
"""

from __future__ import annotations

import math

from tensorboard_plugin_plumber.model.loads import Loads, multiplicity
from tensorboard_plugin_plumber.model.network import Network, Settings
from tensorboard_plugin_plumber.model.ordered import eta

#: What an element costs the thread that takes it from a prefetch whose other side is as fast: both wake each other.
HANDED_S = 12e-6
#: Elements that a worker takes in one visit where results need not keep their order: fitted to two measurements.
N_UNORDERED = 12


def visited_rate(network: Network, settings: Settings) -> float:
    """The rate that visits and handovers allow under `settings`, steps/s; infinite where there are none."""
    loads = Loads(network, settings)
    return min(_workers_rate(loads), _handed_rate(loads), _queued_rate(loads))


def _workers_rate(loads: Loads) -> float:
    """The rate that the workers of parallel interleaves allow, steps/s."""
    network, settings = loads.network, loads.settings
    copies = multiplicity(network)
    rate = math.inf
    for j, (operator, choice) in enumerate(zip(network.operators, settings.choices, strict=True)):
        if not (operator.interleave and loads.calls_work(j)) or loads.idle[j]:
            continue
        workers = min(choice.parallelism, operator.cycle_length or choice.parallelism)
        if workers >= (operator.cycle_length or 1):
            continue
        taken = 2 * operator.block_length + 1 if operator.ordered else N_UNORDERED
        held = sum(loads.workers[j].values())
        waited = sum(_waited_s(loads, b, taken) for b in network.bodies[j])
        if waited > held:  # the map works on while the worker does
            rate = min(rate, workers * copies[j] / waited)
    return rate


def _handed_rate(loads: Loads) -> float:
    """The rate that new prefetches allow, steps/s; what those in force cost was measured."""
    network, settings = loads.network, loads.settings
    each = [
        operator.visits * HANDED_S
        for i, operator in enumerate(network.operators)
        if settings.choices[i].prefetch
        and not network.current.choices[i].prefetch
        and (operator.parent is None or not loads.idle[operator.parent])
    ]
    return min((1.0 / seconds for seconds in each if seconds > 0), default=math.inf)


def _queued_rate(loads: Loads) -> float:
    """The rate that calls allow which wait for a core before they begin, steps/s; fewer of them allow no more."""
    rate = math.inf
    for i, operator in enumerate(loads.network.operators):
        now, then = loads.network.current.choices[i], loads.settings.choices[i]
        crowded = operator.queued_s and now.parallel and loads.calls_work(i)
        if not crowded or loads.idle[i] or operator.interleave:
            continue
        k = max(then.parallelism, now.parallelism)
        efficiency = eta(k, operator.variation, operator.batch_size) if operator.ordered else 1.0
        held = sum(loads.workers[i].values()) + operator.visits * operator.queued_s
        if held > 0:
            rate = min(rate, efficiency * k * multiplicity(loads.network)[i] / held)
    return rate


def _waited_s(loads: Loads, body: int, taken: int) -> float:
    """Seconds per root element that workers wait in visits to iterators whose root is `body`."""
    network = loads.network
    visits = network.operators[body].visits
    if visits <= 0:
        return 0.0
    found, stack = 0.0, [body]
    while stack:
        i = stack.pop()
        choice, operator = loads.settings.choices[i], network.operators[i]
        if loads.serves[i] or operator.interleave:
            continue
        if not loads.calls_work(i):
            stack += [] if choice.prefetch else network.inputs[i]
            continue
        ready = choice.parallelism + (choice.prefetch_size if choice.prefetch else 0)
        wanted = taken * operator.visits / visits
        rounds = max(math.ceil(wanted / ready - 1e-9) - 1, 0)
        call_s = sum(loads.workers[i].values()) / operator.visits if operator.visits else 0.0
        found += visits / taken * rounds * call_s
    return found
