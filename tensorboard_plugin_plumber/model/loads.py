"""What threads, calls and storage carry per root element under given settings (docs/model.md, "Bounds")."""

from __future__ import annotations

from tensorboard_plugin_plumber.model.network import Network, Settings


def multiplicity(network: Network) -> list[int]:
    """m_i: how many instances of i may run at a time, in live iterators of the interleaves around it.

    A sequential body shares its interleave's thread, so only what is asynchronous inside the body, or feeds
    something that is, exists once per live iterator.
    """
    found = [1] * len(network.operators)
    for i, operator in enumerate(network.operators):
        if operator.parent is None:
            continue
        live = max(network.operators[operator.parent].cycle_length or 1, 1) if operator.in_body else 1
        found[i] = found[operator.parent] * live
    return found


class Loads:
    """Seconds that threads carry per root element, with who carries how much.

    While new caches fill (`filling`) all operators below them work, and each element is kept.
    """

    def __init__(self, network: Network, settings: Settings, *, filling: bool = False) -> None:
        self.network, self.settings = network, settings
        count = len(network.operators)
        #: A cache stands on its output and serves.
        self.serves = [
            new.serves and (old.serves or not filling)
            for old, new in zip(network.current.choices, settings.choices, strict=True)
        ]
        #: A cache on its own output or nearer the root makes it idle.
        self.idle: list[bool] = []
        #: V_i s_i, or 0 where it is idle; seconds per root element.
        self.own = [0.0] * count
        #: V_i times what the cache on its output takes to read or to keep an element, where one is in use.
        self.cached = [0.0] * count
        for i, operator in enumerate(network.operators):
            above = operator.parent is not None and self.idle[operator.parent]
            self.idle.append(above or self.serves[i])
            choice = settings.choices[i]
            if not self.idle[i]:
                self.own[i] = operator.visits * operator.service_s
            if not above and choice.serves:
                each = operator.read_s(choice) if self.serves[i] else operator.write_s(choice)
                self.cached[i] = operator.visits * each
        #: What the thread that makes i's output carries (t_i), by operator.
        self.thread: list[dict[int, float]] = [{} for _ in range(count)]
        #: What the calls of a parallel operator carry: its work, and what it pulls from its inputs while a call
        #: is reserved for the result; for an interleave, its work and its bodies'.
        self.workers: list[dict[int, float]] = [{} for _ in range(count)]
        for i in reversed(range(count)):
            self._carry(i)

    def calls_work(self, i: int) -> bool:
        """Whether i makes its elements in parallel calls: no cache on its output serves them."""
        return self.settings.choices[i].parallel and not self.serves[i]

    def _carry(self, i: int) -> None:
        operator, parallel = self.network.operators[i], self.settings.choices[i].parallel
        if self.serves[i]:
            self.thread[i] = {i: self.cached[i]}
            return
        pulled = {k: t for j in self.network.inputs[i] for k, t in self.handed_on(j).items()}
        body = {k: t for b in self.network.bodies[i] for k, t in self.handed_on(b).items()}
        if not parallel:
            self.thread[i] = {i: self.own[i] + self.cached[i]} | pulled | body
            return
        self.thread[i] = pulled
        self.workers[i] = {i: self.own[i]} | (body if operator.interleave else pulled)

    def handed_on(self, i: int) -> dict[int, float]:
        """r_i: what is left for the consumer's thread of i; nothing across anything asynchronous but its cache."""
        return {} if self.settings.choices[i].prefetch else self.delivered(i)

    def delivered(self, i: int) -> dict[int, float]:
        """What the thread carries that takes i's elements from its calls, if it has any, and its cache."""
        if not self.calls_work(i):
            return self.thread[i]
        return {i: self.cached[i]} if self.cached[i] else {}

    def computed(self, i: int) -> float:
        """Core time per root element: the operator's own, and its cache's."""
        operator = self.network.operators[i]
        return self.cached[i] + (0.0 if self.idle[i] else operator.visits * operator.cpu_s)

    def readers(self) -> int:
        """How many threads read from storage at a time: the calls that make what is read, by source."""
        copies = multiplicity(self.network)
        total = 0
        for i, operator in enumerate(self.network.operators):
            if operator.read_bytes <= 0 or self.idle[i]:
                continue
            calls = [n for n in callers(self.network, i) if self.settings.choices[n].parallel]
            total += copies[calls[0]] * self._calls(calls[0]) if calls else 1
        return total

    def _calls(self, i: int) -> int:
        k, length = self.settings.choices[i].parallelism, self.network.operators[i].cycle_length
        return min(k, length) if length and self.network.operators[i].interleave else k


def callers(network: Network, i: int) -> tuple[int, ...]:
    """Operators whose calls run i if they are parallel, the nearest first: itself, and interleaves around it."""
    itself = () if network.operators[i].interleave else (i,)
    return (*itself, *network.enclosing[i])
