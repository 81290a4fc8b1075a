"""The rows that keep one rate possible: while new caches fill, or once they serve."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tensorboard_plugin_plumber.model.bounds import stretched_capacity
from tensorboard_plugin_plumber.model.decisions import Freedom, capacity, least_calls
from tensorboard_plugin_plumber.model.linear import LinearProgram
from tensorboard_plugin_plumber.model.loads import callers
from tensorboard_plugin_plumber.model.network import Choice, Network, StorageCurve
from tensorboard_plugin_plumber.model.ordered import cuts
from tensorboard_plugin_plumber.model.program.columns import Columns
from tensorboard_plugin_plumber.model.program.forms import Form, plus, times


@dataclass(frozen=True)
class Pace:
    """The rate of a scenario: X = `scale` x, with x a column from 0 to 1, or 1 where `fixed`."""

    x: int
    scale: float
    fixed: bool
    #: New caches fill: what lies below them works, and each element is kept.
    filling: bool = False


class Scenario:
    """Adds its rows to a program whose decisions are there already."""

    def __init__(
        self,
        lines: LinearProgram,
        network: Network,
        freedoms: list[Freedom],
        columns: Columns,
        pace: Pace,
        *,
        cores: int | None = None,
    ) -> None:
        """`cores` is the column of N where that is what is looked for."""
        self._lines, self._network, self._freedoms, self._columns = lines, network, freedoms, columns
        self._pace, self._cores = pace, cores
        self._resources: dict[str, Form] = {"cpu": {}, "stretched": {}, "threadpool": {}, "gil": {}}
        count = len(network.operators)
        #: Columns of alpha_i (None where idle), of r_i (None where nothing is handed on); r's ceilings.
        self._activity: list[int | None] = [None] * count
        self._handed: list[int | None] = [None] * count
        self._handed_max = [0.0] * count
        working = [i for i, freedom in enumerate(freedoms) if not freedom.idle]
        for i in working:
            self._activity[i] = self._activity_of(i)
        for i in reversed(working):
            self._operator(i)
        self._root()
        self._shared()

    def _above(self, i: int) -> int:
        """The column of the activity of what consumes i."""
        parent = self._network.operators[i].parent
        above = self._pace.x if parent is None else self._activity[parent]
        assert above is not None
        return above

    def _activity_of(self, i: int) -> int | None:
        """alpha_i >= alpha_above less the caches on its output, once they serve."""
        if self._network.current.choices[i].cache:
            return None
        above, caches = self._above(i), self._columns.caches(i)
        if not caches or self._pace.filling:
            return above
        alpha = self._lines.column(0.0, 1.0)
        self._lines.row({above: 1.0, alpha: -1.0} | dict.fromkeys(caches, -1.0), 0.0)
        return alpha

    def _load(self, i: int, seconds: float) -> dict[int, float]:
        """``V_i seconds A_i``, where i works at all."""
        alpha = self._activity[i]
        each = self._network.operators[i].visits * seconds * self._pace.scale
        return {} if alpha is None or each <= 0 else {alpha: each}

    def _cached(self, i: int) -> dict[int, float]:
        """What the cache on the output of i takes: to read where it serves, to keep where it fills."""
        operator, above = self._network.operators[i], self._above(i)
        if self._network.current.choices[i].cache:
            return {above: operator.visits * operator.cache_read_s * self._pace.scale}
        found = {}
        for column, choice in (
            (self._columns.cache[i], Choice(cache=True)),
            (self._columns.file_cache[i], Choice(file_cache=True)),
        ):
            if column is not None:
                each = operator.write_s(choice) if self._pace.filling else operator.read_s(choice)
                used = self._lines.column(0.0, 1.0)
                self._lines.row({above: 1.0, column: 1.0, used: -1.0}, 1.0)
                found[used] = operator.visits * each * self._pace.scale
        return found

    def _operator(self, i: int) -> None:
        network, freedom = self._network, self._freedoms[i]
        operator, choice, copies = network.operators[i], network.current.choices[i], float(freedom.copies)
        load, cached = self._load(i, operator.service_s), self._cached(i)
        for name, seconds in (
            ("cpu", operator.cpu_s),
            ("stretched", operator.cpu_s * operator.stretch),
            ("gil", operator.gil_s or 0.0),
        ):
            self._add(name, self._load(i, seconds))
        self._add("cpu", cached)
        if operator.pooled and not operator.unbounded:
            self._add("threadpool", self._in_pool(i, load))
        cached_max = sum(cached.values())
        if choice.cache:
            self._lines.row(cached, copies)
            self._hand_on(i, cached, cached, min(copies, cached_max))
            return
        inputs, inputs_max = self._received(network.inputs[i])
        body, body_max = self._received(network.bodies[i])
        own, own_max = plus(load, body), sum(load.values()) + body_max
        if choice.parallel or freedom.parallel:
            self._carry(i, own, inputs)
            if cached:
                self._lines.row(cached, copies)
        t = self._lines.column(0.0, copies)
        most = inputs_max + cached_max
        self._lines.row(plus(inputs, {t: -1.0}), 0.0)
        if not choice.parallel:
            most += own_max
            # Where a is 1 the work leaves this thread; the calls that take it bound it.
            calls_max = copies * freedom.highest
            away = min(own_max, calls_max) + cached_max
            left = {} if (a := self._columns.parallel[i]) is None else {a: -away}
            self._lines.row(plus(inputs, own, cached, left, {t: -1.0}), 0.0)
        self._hand_on(i, {t: 1.0}, cached, min(copies, most))

    def _in_pool(self, i: int, load: Form) -> Form:
        """l_i >= V_i s_i A_i, or 0 where the function leaves the pool."""
        u = self._columns.unbounded[i]
        if u is None or not load:
            return load
        most = sum(load.values())
        kept = self._lines.column(0.0, most)
        self._lines.row(plus(load, {u: -most, kept: -1.0}), 0.0)
        return {kept: 1.0}

    def _received(self, children: Iterable[int]) -> tuple[dict[int, float], float]:
        """What `children` hand on, and at most how much."""
        handed = [(column, self._handed_max[j]) for j in children if (column := self._handed[j]) is not None]
        return {column: 1.0 for column, _ in handed}, sum(most for _, most in handed)

    def _hand_on(self, i: int, thread: Form, cached: Form, most: float) -> None:
        """r_i, from t_i = `thread`, at most `most`, of which `cached` is the cache's."""
        choice, a, p = self._network.current.choices[i], self._columns.parallel[i], self._columns.prefetch[i]
        asynchronous = choice.parallel and not choice.cache
        if choice.prefetch or (asynchronous and not cached):
            return
        self._handed[i] = r = self._lines.column(0.0, max(most, 0.0))
        self._handed_max[i] = most
        if not asynchronous:
            away = {column: -most for column in (a, p) if column is not None}
            self._lines.row(plus(thread, away, {r: -1.0}), 0.0)
        if cached and (asynchronous or a is not None):
            away = {} if p is None else {p: -sum(cached.values())}
            self._lines.row(plus(cached, away, {r: -1.0}), 0.0)

    def _carry(self, i: int, own: Form, pulled: Form) -> None:
        """The work of i, with what its bodies or inputs hand on to its calls, fits into its k calls."""
        operator, freedom, k = self._network.operators[i], self._freedoms[i], self._columns.calls[i]
        copies = float(freedom.copies)
        carried = own if operator.interleave else plus(own, pulled)
        if k is None:
            self._lines.row(carried, copies * capacity(operator, freedom.free))
        elif operator.interleave:
            self._lines.row(plus(own, {k: -copies}), 0.0)
        else:
            variation = operator.variation if operator.ordered else None
            for slope, intercept in cuts(freedom.highest, variation, operator.batch_size):
                self._lines.row(plus(carried, {k: -copies * slope}), copies * intercept)
            if self._pace.fixed:
                self._need_calls(i, k, own)

    def _need_calls(self, i: int, k: int, load: Form) -> None:
        """At a fixed rate the operator's own work is all or nothing, and so are the calls that it alone needs.

        The chords imply as much for whole numbers; said outright, it spares the search most of its branches.
        """
        operator, freedom, columns = self._network.operators[i], self._freedoms[i], self._columns
        for alpha, seconds in load.items():
            needed = least_calls(operator, seconds / freedom.copies, freedom.highest)
            if needed is None:
                self._lines.row({alpha: 1.0}, 0.0)
                continue
            self._lines.row({alpha: float(needed - 1), k: -1.0}, -1.0)
            enablers = [columns.parallel[i], columns.raised[i]]
            if freedom.follows_pool:
                enablers.append(columns.pool_raised)
            if needed > freedom.free:
                away = {column: -1.0 for column in enablers if column is not None}
                self._lines.row({alpha: 1.0} | away, 0.0)

    def _root(self) -> None:
        """``r_0 + turn X <= 1`` unless something asynchronous stands between the root and its consumer."""
        choice, r = self._network.current.choices[0], self._handed[0]
        turn = self._network.consumer.turn_s * self._pace.scale
        if choice.prefetch:
            return
        a, p, caches = self._columns.parallel[0], self._columns.prefetch[0], self._columns.caches(0)
        busy = plus({} if r is None else {r: 1.0}, {self._pace.x: turn}, {} if p is None else {p: -turn})
        if not choice.parallel or choice.cache:
            self._lines.row(busy if a is None or choice.cache else plus(busy, {a: -turn}), 1.0)
        if caches and (choice.parallel or a is not None):
            self._lines.row(plus(busy, dict.fromkeys(caches, turn)), 1.0 + turn)

    def _add(self, resource: str, load: Form) -> None:
        self._resources[resource] = plus(self._resources[resource], load)

    def _shared(self) -> None:
        network, consumer, columns = self._network, self._network.consumer, self._columns
        cores = 0.0 if self._cores is not None else network.limits.cores
        looked_for: Mapping[int, float] = {} if self._cores is None else {self._cores: -1.0}
        self._add("cpu", {self._pace.x: consumer.cpu_s * self._pace.scale})
        self._lines.row(plus(self._resources["cpu"], looked_for), cores - consumer.other_cores)
        if math.isfinite(stretched := stretched_capacity(network)) and self._cores is None:
            self._lines.row(self._resources["stretched"], stretched)
        self._lines.row(self._resources["gil"], 1.0)
        wider = {} if columns.pool_more is None else {columns.pool_more: -1.0}
        self._lines.row(plus(self._resources["threadpool"], wider), float(network.current.threadpool_size))
        if network.limits.storage is not None:
            self._storage(network.limits.storage)

    def _storage(self, curve: StorageCurve) -> None:
        """``sum of V_i b_i A_i <= B(k)``, k the readers of all sources, in shares of what storage gives at most."""
        most = curve.cuts()[-1][1]
        read: dict[int, float] = {}
        readers: dict[int, float] = {}
        for i, operator in enumerate(self._network.operators):
            load = self._load(i, operator.read_bytes)
            if load:
                read = plus(read, times(1 / most, load))
                readers[self._readers(i)] = 1.0
        if read:
            for slope, intercept in curve.cuts():
                self._lines.row(plus(read, times(-slope / most, readers)), intercept / most)

    def _readers(self, i: int) -> int:
        """A column of at most the calls that read i: those of the nearest parallel operator that runs it."""
        around = callers(self._network, i)
        most = max([1.0, *(float(self._freedoms[n].copies * self._freedoms[n].highest) for n in around)])
        column = self._lines.column(0.0, most)
        nearer: dict[int, float] = {}
        for n in around:
            parallel, freedom = self._network.current.choices[n].parallel, self._freedoms[n]
            if not (parallel or freedom.parallel):
                continue
            a, k = self._columns.parallel[n], self._columns.calls[n]
            calls, always = ({}, freedom.free) if k is None else ({k: -float(freedom.copies)}, 0)
            # Binds where this one is parallel and none nearer is.
            unless, slack = ({}, 0.0) if a is None else ({a: most}, most)
            row = plus({column: 1.0}, calls, nearer, unless)
            self._lines.row(row, float(freedom.copies * always) + slack)
            if a is None:
                break
            nearer = plus(nearer, {a: -most})
        else:
            self._lines.row(plus({column: 1.0}, nearer), 1.0)
        caches = [] if self._pace.filling else self._columns.caches_above(i)
        if caches:
            self._lines.row({column: 1.0} | dict.fromkeys(caches, most), most)
        return column
