"""A discrete-event simulation of a pipeline: threads, buffers, cores and the pool, element by element.

It knows nothing of bounds: every element is pulled, worked on and handed over as tf.data does it.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Generator, Sequence

from tensorboard_plugin_plumber.model.network import Network, Settings
from tests.support.reference import reading_rate


class Event:
    """Happens once; processes wait for it by yielding it."""

    def __init__(self) -> None:
        self.happened = False
        self.waiting: list[Process] = []


#: Yields seconds to sleep, or an event to wait for.
Process = Generator["float | Event", None, None]


class Clock:
    """Runs processes in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Process]] = []
        self._ticket = itertools.count()

    def start(self, process: Process, delay: float = 0.0) -> None:
        heapq.heappush(self._due, (self.now + delay, next(self._ticket), process))

    def fire(self, event: Event) -> None:
        event.happened = True
        for process in event.waiting:
            self.start(process)
        event.waiting.clear()

    def run(self, until: Event) -> None:
        while not until.happened:
            self.now, _, process = heapq.heappop(self._due)
            request = next(process, None)
            if isinstance(request, Event) and not request.happened:
                request.waiting.append(process)
            elif request is not None:
                self.start(process, 0.0 if isinstance(request, Event) else request)


class Slots:
    """So many at a time, first come first served: cores, pool, places of a buffer."""

    def __init__(self, clock: Clock, count: float) -> None:
        self._clock, self._free = clock, count
        self._queue: deque[Event] = deque()

    def take(self) -> Process:
        if self._free >= 1:
            self._free -= 1
            return
        turn = Event()
        self._queue.append(turn)
        yield turn

    def give(self) -> None:
        if self._queue:
            self._clock.fire(self._queue.popleft())
        else:
            self._free += 1


class Results:
    """What a background thread has made or begun, in order."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.more = Event()


class Simulation:
    """Sequential and parallel operators, zips, interleaves with sequential bodies, prefetches, caches that serve.

    Storage delivers what was asked for in its order, and reads ahead while the operator works.
    """

    def __init__(self, network: Network, settings: Settings, seed: int = 0) -> None:
        self._network, self._settings = network, settings
        self._clock, self._random = Clock(), random.Random(seed)
        self._cores = Slots(self._clock, network.limits.cores)
        self._pool = Slots(self._clock, settings.threadpool_size)
        #: When storage has delivered all that it was asked for, and its speed with the readers that there are.
        self._delivered_at, self._bytes_per_s = 0.0, reading_rate(network, settings)
        self._finished: dict[int, Results] = {}
        self._places: dict[tuple[int, str], Slots] = {}
        self._ready: dict[int, Results] = {}
        for i, choice in enumerate(settings.choices):
            if choice.parallel:
                self._finished[i], self._places[i, "calls"] = (
                    Results(),
                    Slots(self._clock, choice.parallelism),
                )
                self._clock.start(self._call_ahead(i))
            if choice.prefetch:
                self._ready[i], self._places[i, "buffer"] = (
                    Results(),
                    Slots(self._clock, choice.prefetch_size),
                )
                self._clock.start(self._fetch_ahead(i))

    def rate(self, steps: int, warm_up: int) -> float:
        """Root elements per second over `steps` after `warm_up` of them."""
        marks: list[float] = []
        done = Event()
        self._clock.start(self._consume(steps + warm_up, marks, done))
        self._clock.run(done)
        return steps / (marks[-1] - marks[warm_up - 1])

    def _consume(self, steps: int, marks: list[float], done: Event) -> Process:
        for _ in range(steps):
            yield from self._next(0)
            marks.append(self._clock.now)
            if self._network.consumer.step_s:
                yield self._network.consumer.step_s
        self._clock.fire(done)

    def _next(self, i: int) -> Process:
        """One element of i, for the thread that asks."""
        if i in self._ready:
            yield from self._wait_for_head(self._ready[i])
            self._places[i, "buffer"].give()
        else:
            yield from self._produce(i)

    def _produce(self, i: int) -> Process:
        choice = self._settings.choices[i]
        if choice.serves:
            yield self._network.operators[i].read_s(choice)
        elif i in self._finished:
            yield from self._wait_for_head(self._finished[i])
            self._places[i, "calls"].give()
        else:
            yield from self._pull(i, self._network.inputs[i])
            yield from self._work(i)

    def _wait_for_head(self, results: Results) -> Process:
        while not results.events:
            results.more = Event()
            yield results.more
        yield results.events.popleft()

    def _append(self, results: Results, event: Event) -> None:
        results.events.append(event)
        self._clock.fire(results.more)

    def _pull(self, i: int, children: Sequence[int]) -> Process:
        for j in children:
            for _ in range(round(self._network.operators[j].visits / self._network.operators[i].visits)):
                yield from self._next(j)

    def _work(self, i: int) -> Process:
        """The body of an interleave, then the operator's own work."""
        yield from self._pull(i, self._network.bodies[i])
        operator = self._network.operators[i]
        if operator.read_bytes and self._bytes_per_s:
            begun = max(self._clock.now, self._delivered_at)
            self._delivered_at = delivered_at = begun + operator.read_bytes / self._bytes_per_s
        else:
            delivered_at = 0.0
        factor = 1.0
        if operator.variation:
            sigma2 = math.log1p(operator.variation**2)
            factor = self._random.lognormvariate(-sigma2 / 2, math.sqrt(sigma2))
        pooled = operator.pooled and not (operator.unbounded or self._settings.choices[i].unbounded)
        if pooled:
            yield from self._pool.take()
        yield operator.wait_s * factor
        yield from self._cores.take()
        yield operator.cpu_s * factor
        self._cores.give()
        if pooled:
            self._pool.give()
        if delivered_at > self._clock.now:
            yield delivered_at - self._clock.now

    def _call_ahead(self, i: int) -> Process:
        while True:
            yield from self._places[i, "calls"].take()
            yield from self._pull(i, self._network.inputs[i])
            result = Event()
            self._append(self._finished[i], result)
            self._clock.start(self._call(i, result))

    def _call(self, i: int, result: Event) -> Process:
        yield from self._work(i)
        self._clock.fire(result)

    def _fetch_ahead(self, i: int) -> Process:
        while True:
            yield from self._places[i, "buffer"].take()
            yield from self._produce(i)
            result = Event()
            result.happened = True
            self._append(self._ready[i], result)
