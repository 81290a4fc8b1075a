"""The columns of a program that stand for decisions, with the changes, threads and bytes that they cost."""

from __future__ import annotations

import math
from dataclasses import replace

from tensorboard_plugin_plumber.model import memory
from tensorboard_plugin_plumber.model.decisions import FILE_CACHE_CHANGES, Freedom, memory_limit
from tensorboard_plugin_plumber.model.linear import Array, LinearProgram
from tensorboard_plugin_plumber.model.network import Choice, Network, Operator, Settings


class Columns:
    """Columns by operator, None where nothing is to be decided."""

    def __init__(self, lines: LinearProgram, network: Network, freedoms: list[Freedom], k_max: int) -> None:
        self._lines, self._network, self._freedoms = lines, network, freedoms
        count = len(network.operators)
        #: a_i, k_i, and whether k_i is raised beyond what is free.
        self.parallel: list[int | None] = [None] * count
        self.calls: list[int | None] = [None] * count
        self.raised: list[int | None] = [None] * count
        #: p_i, y_i, f_i, u_i.
        self.prefetch: list[int | None] = [None] * count
        self.cache: list[int | None] = [None] * count
        self.file_cache: list[int | None] = [None] * count
        self.unbounded: list[int | None] = [None] * count
        #: Whether the pool is made larger, and by how much.
        self.pool_raised: int | None = None
        self.pool_more: int | None = None
        self._decide_pool(max(k_max, network.current.threadpool_size))
        for i, freedom in enumerate(freedoms):
            if not freedom.idle:
                self._decide(i)
        self._one_cache_per_path()
        self._fit_disk()

    def caches(self, i: int) -> list[int]:
        """Columns of the caches that may be put on the output of i."""
        return [column for column in (self.cache[i], self.file_cache[i]) if column is not None]

    def caches_above(self, i: int) -> list[int]:
        """Columns of the caches that may be put on the output of i or nearer the root."""
        return [column for j in self._network.path(i) for column in self.caches(j)]

    def _change(self, count: int = 1) -> int:
        """A decision that costs `count` changes."""
        column = self._lines.column(0.0, 1.0, whole=True)
        self._lines.price("changes", {column: float(count)})
        return column

    def _decide_pool(self, highest: int) -> None:
        """How much larger the pool becomes; functions that run there must exist."""
        more = highest - self._network.current.threadpool_size
        pooled = any(
            operator.pooled and not operator.unbounded and not freedom.idle
            for operator, freedom in zip(self._network.operators, self._freedoms, strict=True)
        )
        if more <= 0 or not pooled or self._network.pool_fixed:
            return
        self.pool_raised = raised = self._change()
        self.pool_more = column = self._lines.column(0.0, float(more), whole=True)
        self._lines.price("threads", {column: 1.0})
        self._lines.row({column: 1.0, raised: -float(more)}, 0.0)

    def _decide(self, i: int) -> None:
        operator, freedom = self._network.operators[i], self._freedoms[i]
        if freedom.cache:
            self.cache[i] = y = self._change()
            self._lines.price("memory", {y: operator.cache_bytes or 0.0})
        if freedom.file_cache:
            self.file_cache[i] = self._change(FILE_CACHE_CHANGES)
        if freedom.prefetch:
            self.prefetch[i] = p = self._change()
            self._lines.price("threads", {p: 1.0})
            buffer = freedom.copies * freedom.prefetch_size * operator.element_bytes
            self._lines.price("memory", {p: buffer})
        if freedom.highest > freedom.lowest:
            self._decide_parallelism(i)
        if freedom.unbounded:
            self._decide_unbounded(i)

    def _decide_parallelism(self, i: int) -> None:
        operator, freedom = self._network.operators[i], self._freedoms[i]
        self.calls[i] = k = self._lines.column(freedom.lowest, freedom.highest, whole=True)
        self._lines.price("threads", {k: 1.0})
        if freedom.parallel:
            self.parallel[i] = a = self._change()
            self._lines.price("threads", {a: 1.0})
            self._lines.row({k: 1.0, a: -float(freedom.highest - 1)}, 1.0)
            self._lines.row({a: 1.0, k: -1.0}, -1.0)  # one parallel call is a prefetch that reads oddly
        elif freedom.highest > freedom.free:
            row = {k: 1.0}
            if operator.may_parallel:
                self.raised[i] = raised = self._change()
                row[raised] = -float(freedom.highest - freedom.free)
            if freedom.follows_pool and self.pool_more is not None:
                row[self.pool_more] = -1.0
            self._lines.row(row, float(freedom.free))
        self._buffer(operator, freedom, k, self.parallel[i])

    def _decide_unbounded(self, i: int) -> None:
        """u_i: its calls have threads of their own, beside those of the pool."""
        freedom, k, a = self._freedoms[i], self.calls[i], self.parallel[i]
        self.unbounded[i] = u = self._change()
        if k is None:
            self._lines.price("threads", {u: 1.0 + freedom.free})
        else:
            calls = self._lines.column(0.0, float(freedom.highest))
            self._lines.row({k: 1.0, u: float(freedom.highest), calls: -1.0}, float(freedom.highest))
            self._lines.price("threads", {u: 1.0, calls: 1.0})
        if a is not None:
            self._lines.row({u: 1.0, a: -1.0}, 0.0)
        if k is not None and freedom.follows_pool:
            beyond = float(max(freedom.highest - freedom.free_unbounded, 0))
            raised = {} if (column := self.raised[i]) is None else {column: -beyond}
            self._lines.row({k: 1.0, u: beyond} | raised, float(freedom.free_unbounded) + beyond)

    def _buffer(self, operator: Operator, freedom: Freedom, k: int, a: int | None) -> None:
        """Memory of a parallel operator's results; `a` None: it is parallel already."""
        if operator.interleave:
            if a is not None:
                held = freedom.copies * memory.parallel_bytes(operator, freedom.highest)
                self._lines.price("memory", {a: held})
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
            results = self._lines.column(0.0, float(freedom.highest))
            self._lines.row(beyond_one | {results: -1.0}, 1.0)
            self._lines.price("memory", {results: each})

    def _one_cache_per_path(self) -> None:
        covered: set[int] = set()
        for i in reversed(range(len(self.cache))):
            if not self.caches(i) or i in covered:
                continue
            covered.update(self._network.path(i))
            chosen = self.caches_above(i)
            if len(chosen) > 1:
                self._lines.row(dict.fromkeys(chosen, 1.0), 1.0)

    def _fit_disk(self) -> None:
        """In shares of what is free, for the solver's sake."""
        free = max(self._network.limits.disk_free_bytes, 1.0)
        sizes = {
            f: (operator.file_cache_bytes or 0.0) / free
            for f, operator in zip(self.file_cache, self._network.operators, strict=True)
            if f is not None
        }
        if sizes:
            self._lines.row(sizes, 1.0)

    def fit_memory(self) -> None:
        """All buffers and new caches fit; in shares of the limit, for the solver's sake."""
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
            if choice.parallel and (self.calls[i] is None or operator.interleave):
                k = freedom.lowest if choice.autotuned else choice.parallelism
                held += memory.parallel_bytes(operator, k)
            elif choice.parallel and operator.batch_size > 1:
                held += operator.batch_size * operator.element_bytes
            total += freedom.copies * held
        return total

    def settings(self, solution: Array) -> Settings:
        """The decisions of `solution`, those in force kept."""
        choices = [
            self._choice(solution, i, choice) for i, choice in enumerate(self._network.current.choices)
        ]
        size = self._network.current.threadpool_size
        if self.pool_more is not None and chosen(solution, self.pool_raised):
            size += round(float(solution[self.pool_more]))
        return Settings(tuple(choices), size)

    def _choice(self, solution: Array, i: int, new: Choice) -> Choice:
        freedom, calls = self._freedoms[i], self.calls[i]
        if chosen(solution, self.cache[i]):
            new = replace(new, cache=True)
        if chosen(solution, self.file_cache[i]):
            new = replace(new, file_cache=True)
        if chosen(solution, self.unbounded[i]):
            new = replace(new, unbounded=True)
        if chosen(solution, self.prefetch[i]):
            new = replace(new, prefetch=True, prefetch_size=freedom.prefetch_size)
        if new.autotuned and new.parallel and not chosen(solution, self.raised[i]):
            k = freedom.lowest if calls is None else round(float(solution[calls]))
            return replace(new, parallelism=k)
        if chosen(solution, self.parallel[i]) or chosen(solution, self.raised[i]):
            return replace(new, parallel=True, parallelism=round(float(solution[calls])), autotuned=False)
        return new


def chosen(solution: Array, column: int | None) -> bool:
    """Whether `solution` decides for this column."""
    return column is not None and bool(solution[column] > 0.5)
