"""The optimum as a mixed-integer linear program (docs/model.md, "Optimum")."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tensorboard_plugin_plumber.model import memory
from tensorboard_plugin_plumber.model.bounds import stretched_capacity
from tensorboard_plugin_plumber.model.decisions import Freedom, capacity, least_calls, memory_limit
from tensorboard_plugin_plumber.model.linear import Array, LinearProgram
from tensorboard_plugin_plumber.model.network import Network, Operator, Settings
from tensorboard_plugin_plumber.model.ordered import cuts


class Program:
    """Columns and rows for one network.

    With `fixed` the rate is `scale`, else x = X / `scale` is the first stage's to find.
    """

    def __init__(
        self, network: Network, freedoms: list[Freedom], k_max: int, scale: float, *, fixed: bool
    ) -> None:
        self._network, self._freedoms, self._scale, self._fixed = network, freedoms, scale, fixed
        self._pool_max = max(k_max, network.current.threadpool_size)
        self._lines = LinearProgram()
        self._resources: dict[str, dict[int, float]] = {
            "cpu": {},
            "stretched": {},
            "threadpool": {},
            "gil": {},
        }
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
        self._x = self._lines.column(1.0 if fixed else 0.0, 1.0)
        self._lines.price("rate", {self._x: -1.0})
        self._pool_raised: int | None = None
        self._pool_more: int | None = None
        self._decide_pool()
        for i, freedom in enumerate(freedoms):
            if not freedom.idle:
                self._decide(i)
        self._one_cache_per_path()
        for i in reversed(range(count)):
            if not freedoms[i].idle:
                self._operator(i)
        self._root()
        self._shared()

    def _change(self) -> int:
        """A decision that costs one change."""
        column = self._lines.column(0.0, 1.0, whole=True)
        self._lines.price("changes", {column: 1.0})
        return column

    # Columns of decisions.

    def _decide_pool(self) -> None:
        """How much larger the pool becomes; functions that run there must exist."""
        more = self._pool_max - self._network.current.threadpool_size
        pooled = any(
            operator.pooled and not operator.unbounded and not freedom.idle
            for operator, freedom in zip(self._network.operators, self._freedoms, strict=True)
        )
        if more <= 0 or not pooled:
            return
        self._pool_raised = raised = self._change()
        self._pool_more = column = self._lines.column(0.0, float(more), whole=True)
        self._lines.price("threads", {column: 1.0})
        self._lines.row({column: 1.0, raised: -float(more)}, 0.0)

    def _decide(self, i: int) -> None:
        operator, freedom = self._network.operators[i], self._freedoms[i]
        above = self._x if operator.parent is None else self._activity[operator.parent]
        self._activity[i] = None if self._network.current.choices[i].cache else above
        if freedom.cache:
            self._cache[i] = y = self._change()
            self._activity[i] = alpha = self._lines.column(0.0, 1.0)
            assert above is not None
            self._lines.row({above: 1.0, y: -1.0, alpha: -1.0}, 0.0)
            self._lines.price("memory", {y: operator.cache_bytes or 0.0})
        if freedom.prefetch:
            self._prefetch[i] = p = self._change()
            self._lines.price("threads", {p: 1.0})
            buffer = freedom.copies * freedom.prefetch_size * operator.element_bytes
            self._lines.price("memory", {p: buffer})
        if freedom.highest > freedom.lowest:
            self._decide_parallelism(i)

    def _decide_parallelism(self, i: int) -> None:
        operator, freedom = self._network.operators[i], self._freedoms[i]
        self._calls[i] = k = self._lines.column(freedom.lowest, freedom.highest, whole=True)
        self._lines.price("threads", {k: 1.0})
        if freedom.parallel:
            self._parallel[i] = a = self._change()
            self._lines.price("threads", {a: 1.0})
            self._lines.row({k: 1.0, a: -float(freedom.highest - 1)}, 1.0)
            self._lines.row({a: 1.0, k: -1.0}, -1.0)  # one parallel call is a prefetch that reads oddly
        elif freedom.highest > freedom.free:
            row = {k: 1.0}
            if operator.may_parallel:
                self._raised[i] = raised = self._change()
                row[raised] = -float(freedom.highest - freedom.free)
            if freedom.follows_pool and self._pool_more is not None:
                row[self._pool_more] = -1.0
            self._lines.row(row, float(freedom.free))
        self._buffer(operator, freedom, k, self._parallel[i])

    def _buffer(self, operator: Operator, freedom: Freedom, k: int, a: int | None) -> None:
        """Memory of a parallel operator's results; `a` None: it is parallel already."""
        if operator.interleave:
            if a is not None:
                self._lines.price(
                    "memory", {a: freedom.copies * memory.parallel_bytes(operator, freedom.highest)}
                )
            return
        each = freedom.copies * operator.element_bytes
        # With a, k - 1 + a: nothing is held where the operator stays sequential.
        beyond_one = {k: 1.0} if a is None else {k: 1.0, a: 1.0}
        if operator.batch_size > 1:
            each *= operator.batch_size
            batches = self._lines.column(0.0, math.ceil(freedom.highest / operator.batch_size), whole=True)
            self._lines.row(beyond_one | {batches: -float(operator.batch_size)}, 0.0 if a is None else 1.0)
            self._lines.price("memory", {batches: each} if a is None else {batches: each, a: each})
        elif a is None:
            self._lines.price("memory", {k: each})
        else:
            held = self._lines.column(0.0, float(freedom.highest))
            self._lines.row(beyond_one | {held: -1.0}, 1.0)
            self._lines.price("memory", {held: each})

    def _one_cache_per_path(self) -> None:
        last = set()
        for i in reversed(range(len(self._cache))):
            if self._cache[i] is None or i in last:
                continue
            path = self._network.path(i)
            last.update(path)
            chosen = [y for j in path if (y := self._cache[j]) is not None]
            if len(chosen) > 1:
                self._lines.row(dict.fromkeys(chosen, 1.0), 1.0)

    # Constraints.

    def _load(self, i: int, seconds: float) -> dict[int, float]:
        """``V_i seconds A_i``, where i works at all."""
        alpha = self._activity[i]
        each = self._network.operators[i].visits * seconds * self._scale
        return {} if alpha is None or each <= 0 else {alpha: each}

    def _read(self, i: int) -> dict[int, float]:
        """``V_i rho X`` where a cache stands on i and serves."""
        operator = self._network.operators[i]
        each = operator.visits * operator.cache_read_s * self._scale
        above = self._x if operator.parent is None else self._activity[operator.parent]
        assert above is not None
        if self._network.current.choices[i].cache:
            return {above: each}
        if (y := self._cache[i]) is None:
            return {}
        served = self._lines.column(0.0, 1.0)
        self._lines.row({above: 1.0, y: 1.0, served: -1.0}, 1.0)
        return {served: each}

    def _operator(self, i: int) -> None:
        operator, choice, freedom = (
            self._network.operators[i],
            self._network.current.choices[i],
            self._freedoms[i],
        )
        network, copies = self._network, float(freedom.copies)
        load, read = self._load(i, operator.service_s), self._read(i)
        for name, seconds in (
            ("cpu", operator.cpu_s),
            ("stretched", operator.cpu_s * operator.stretch),
            ("gil", operator.gil_s or 0.0),
        ):
            self._add(name, self._load(i, seconds))
        self._add("cpu", read)
        if operator.pooled and not operator.unbounded:
            self._add("threadpool", load)
        if choice.cache:
            self._lines.row(read, copies)
            self._hand_on(i, read, read, min(copies, sum(read.values())))
            return
        inputs, inputs_max = self._received(network.inputs[i])
        body, body_max = self._received(network.bodies[i])
        own, own_max = _sum(load, body), sum(load.values()) + body_max
        if choice.parallel or freedom.parallel:
            self._carry(i, own, inputs)
        t = self._lines.column(0.0, copies)
        most = inputs_max + sum(read.values())
        self._lines.row(_sum(inputs, read, {t: -1.0}), 0.0)
        if not choice.parallel:
            most += own_max
            # Where a is 1 the work leaves this thread; the calls that take it bound it.
            calls_max = copies * freedom.highest
            away = {} if (a := self._parallel[i]) is None else {a: -min(own_max, calls_max)}
            self._lines.row(_sum(inputs, own, read, away, {t: -1.0}), 0.0)
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
        self._handed[i] = r = self._lines.column(0.0, max(most, 0.0))
        self._handed_max[i] = most
        if not asynchronous:
            away = {column: -most for column in (a, p) if column is not None}
            self._lines.row(_sum(thread, away, {r: -1.0}), 0.0)
        if read and (asynchronous or a is not None):
            away = {} if p is None else {p: -sum(read.values())}
            self._lines.row(_sum(read, away, {r: -1.0}), 0.0)

    def _carry(self, i: int, own: Mapping[int, float], pulled: Mapping[int, float]) -> None:
        """The work of i, with what its bodies or inputs hand on to its calls, fits into its k calls."""
        operator, freedom, k = self._network.operators[i], self._freedoms[i], self._calls[i]
        copies = float(freedom.copies)
        carried = own if operator.interleave else _sum(own, pulled)
        if k is None:
            self._lines.row(carried, copies * capacity(operator, freedom.free))
        elif operator.interleave:
            self._lines.row(_sum(own, {k: -copies}), 0.0)
        else:
            variation = operator.variation if operator.ordered else None
            for slope, intercept in cuts(freedom.highest, variation, operator.batch_size):
                self._lines.row(_sum(carried, {k: -copies * slope}), copies * intercept)
            if self._fixed:
                self._need_calls(i, k, own)

    def _need_calls(self, i: int, k: int, load: Mapping[int, float]) -> None:
        """At a fixed rate the operator's own work is all or nothing, and so are the calls that it alone needs.

        The chords imply as much for whole numbers; said outright, it spares the search most of its branches.
        """
        operator, freedom = self._network.operators[i], self._freedoms[i]
        for alpha, seconds in load.items():
            needed = least_calls(operator, seconds / freedom.copies, freedom.highest)
            if needed is None:
                self._lines.row({alpha: 1.0}, 0.0)
                continue
            self._lines.row({alpha: float(needed - 1), k: -1.0}, -1.0)
            enablers = [self._parallel[i], self._raised[i]]
            if freedom.follows_pool:
                enablers.append(self._pool_raised)
            if needed > freedom.free:
                away = {column: -1.0 for column in enablers if column is not None}
                self._lines.row({alpha: 1.0} | away, 0.0)

    def _root(self) -> None:
        """``r_0 + turn X <= 1`` unless something asynchronous stands between the root and its consumer."""
        choice, r = self._network.current.choices[0], self._handed[0]
        turn = self._network.consumer.turn_s * self._scale
        if choice.prefetch:
            return
        a, p, y = self._parallel[0], self._prefetch[0], self._cache[0]
        busy = _sum({} if r is None else {r: 1.0}, {self._x: turn}, {} if p is None else {p: -turn})
        if not choice.parallel or choice.cache:
            self._lines.row(busy if a is None or choice.cache else _sum(busy, {a: -turn}), 1.0)
        if y is not None and (choice.parallel or a is not None):
            self._lines.row(_sum(busy, {y: turn}), 1.0 + turn)

    def _add(self, resource: str, load: Mapping[int, float]) -> None:
        self._resources[resource] = _sum(self._resources[resource], load)

    def _shared(self) -> None:
        network, consumer = self._network, self._network.consumer
        self._add("cpu", {self._x: consumer.cpu_s * self._scale})
        self._lines.row(self._resources["cpu"], network.limits.cores - consumer.other_cores)
        if math.isfinite(stretched := stretched_capacity(network)):
            self._lines.row(self._resources["stretched"], stretched)
        self._lines.row(self._resources["gil"], 1.0)
        wider = {} if self._pool_more is None else {self._pool_more: -1.0}
        pool = _sum(self._resources["threadpool"], wider)
        self._lines.row(pool, float(network.current.threadpool_size))
        self._fit_memory()

    def _fit_memory(self) -> None:
        """In shares of the limit, for the solver's sake."""
        limit = memory_limit(self._network)
        unit = max(limit, 1.0)
        held = {column: each / unit for column, each in self._lines.priced("memory").items()}
        self._lines.row(held, max(limit - self._held(), 0.0) / unit)

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

    def solve(self, stage: str, *, caches_of: Array | None = None) -> Array:
        """The best solution for `stage`, with the caches of another one if that is given."""
        chosen = [y for y in self._cache if caches_of is not None and _chosen(caches_of, y)]
        return self._lines.solve(stage, ones=[y for y in chosen if y is not None])

    def settle(self, stage: str, solution: Array) -> None:
        """Later solutions are as good for `stage` as this one."""
        self._lines.settle(stage, solution)

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
                new = replace(
                    new, parallelism=freedom.lowest if calls is None else round(float(solution[calls]))
                )
            elif _chosen(solution, self._parallel[i]) or _chosen(solution, self._raised[i]):
                new = replace(new, parallel=True, parallelism=round(float(solution[calls])), autotuned=False)
            choices.append(new)
        size = self._network.current.threadpool_size
        if self._pool_more is not None and _chosen(solution, self._pool_raised):
            size += round(float(solution[self._pool_more]))
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
