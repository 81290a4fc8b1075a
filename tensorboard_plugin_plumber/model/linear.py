"""Mixed-integer linear programs with several objectives, by CVXPY and HiGHS.

    minimise w_s v    subject to    rows v <= limits,    some of v whole

for one stage s after another, where each stage keeps what the stages before it have settled. The rows are one
sparse matrix, compiled once; objectives and settled values are its parameters.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

#: How close each stage must come, and how many seconds it may take: then the best that it found counts, which
#: hundreds of operators may need. A whole objective is settled once the gap is below one; "reach" takes any solution.
STAGES: Mapping[str, Mapping[str, float]] = {
    "rate": {"mip_rel_gap": 1e-6, "time_limit": 10.0},
    "changes": {"mip_rel_gap": 1e-6, "mip_abs_gap": 0.99, "time_limit": 1.0},
    "threads": {"mip_rel_gap": 1e-2, "mip_abs_gap": 0.99, "time_limit": 0.5},
    "memory": {"mip_rel_gap": 1e-2, "time_limit": 0.5},
    "cores": {"mip_rel_gap": 1e-6, "time_limit": 3.0},
    "reach": {"mip_rel_gap": 1.0, "time_limit": 3.0},
}
#: Stages with whole outcomes, which may be settled for the later ones.
WHOLE = ("changes", "threads")
#: Rows may be broken by this much, in their own units.
TOLERANCE = 1e-6


class SolverError(Exception):
    """HiGHS gave no solution to a program that has one; the message says which stage, and its status."""


class LinearProgram:
    """Columns, rows and objectives; then solutions, each an array over the columns."""

    def __init__(self) -> None:
        self._whole: list[bool] = []
        self._rows: list[Mapping[int, float]] = []
        self._limits: list[float] = []
        self._objectives: dict[str, dict[int, float]] = {stage: {} for stage in STAGES}
        self._compiled: _Compiled | None = None
        self._settled: dict[str, float] = {}
        self._last: Array | None = None

    def column(self, low: float, high: float, *, whole: bool = False) -> int:
        """A variable from `low` to `high`."""
        column = len(self._whole)
        self._whole.append(whole)
        self.row({column: -1.0}, -low)
        self.row({column: 1.0}, high)
        return column

    def row(self, entries: Mapping[int, float], limit: float) -> None:
        """``sum of entries[c] v_c <= limit``."""
        self._rows.append(entries)
        self._limits.append(limit)

    def price(self, stage: str, entries: Mapping[int, float]) -> None:
        """What `stage` minimises, by column."""
        self._objectives[stage].update(entries)

    def priced(self, stage: str) -> Mapping[int, float]:
        """What `stage` minimises, so far."""
        return self._objectives[stage]

    def settle(self, stage: str, solution: Array) -> None:
        """From now on what `stage` minimises, a whole number, is no more than in `solution`."""
        value = sum(price * float(solution[column]) for column, price in self._objectives[stage].items())
        self._settled[stage] = round(value) + 0.5

    def solve(self, stage: str, *, ones: Iterable[int] = ()) -> Array:
        """The v that is best for `stage`; the columns `ones` are held at 1.

        Raises:
          SolverError: there is no solution, or none was found in time.
        """
        import cvxpy as cp

        self._compiled = compiled = self._compiled or self._compile()
        objective = self._objectives[stage]
        compiled.prepare(self._vector(objective), self._settled, ones)
        with warnings.catch_warnings():
            # Out of time is no surprise here, and what came of it is checked below.
            warnings.filterwarnings("ignore", "Solution may be inaccurate")
            status = compiled.run(STAGES[stage])
        found = compiled.found()
        if found is not None and status != cp.OPTIMAL and not self._improves(objective, found):
            found = None
        if found is None and (found := self._last) is None:
            raise SolverError(f"the optimum's stage '{stage}' ended without a solution: {status}")
        self._last = found
        return found

    def _improves(self, objective: Mapping[int, float], found: Array) -> bool:
        """It keeps all rows, and is better than what the stage before left."""
        for entries, limit in zip(self._rows, self._limits, strict=True):
            if sum(each * found[column] for column, each in entries.items()) > limit + TOLERANCE:
                return False
        if self._last is None:
            return True
        weights = self._vector(objective)
        return bool(weights @ found < weights @ self._last)

    def _vector(self, entries: Mapping[int, float]) -> Array:
        vector = np.zeros(len(self._whole))
        vector[list(entries)] = list(entries.values())
        return vector

    def _compile(self) -> _Compiled:
        from scipy import sparse

        columns = [column for row in self._rows for column in row]
        values = [value for row in self._rows for value in row.values()]
        starts = np.cumsum([0] + [len(row) for row in self._rows])
        shape = (len(self._rows), len(self._whole))
        matrix = sparse.csr_matrix((values, columns, starts), shape=shape).tocsc()
        settled = np.array([self._vector(self._objectives[stage]) for stage in WHOLE])
        return _Compiled(matrix, np.array(self._limits), settled, np.array(self._whole, dtype=bool))


class _Compiled:
    """The program in CVXPY's form: reals and whole numbers apart."""

    def __init__(self, matrix: Any, limits: Array, settled: Array, whole: npt.NDArray[np.bool_]) -> None:
        import cvxpy as cp

        self._columns = np.flatnonzero(~whole), np.flatnonzero(whole)
        self._v = cp.Variable(len(self._columns[0])), cp.Variable(len(self._columns[1]), integer=True)
        self._weights = tuple(cp.Parameter(len(columns)) for columns in self._columns)
        self._settled = cp.Parameter(len(settled))
        self._ones = cp.Parameter(len(self._columns[1]))
        #: Settled by nothing: more than any solution has.
        self._unsettled = np.abs(settled).sum() * 1e3 + 1.0

        def times(rows: Any) -> Any:
            return sum(rows[:, columns] @ v for columns, v in zip(self._columns, self._v, strict=True))

        self._problem = cp.Problem(
            cp.Minimize(sum(w @ v for w, v in zip(self._weights, self._v, strict=True))),
            [times(matrix) <= limits, times(settled) <= self._settled, self._v[1] >= self._ones],
        )

    def prepare(self, weights: Array, settled: Mapping[str, float], ones: Iterable[int]) -> None:
        for parameter, columns in zip(self._weights, self._columns, strict=True):
            parameter.value = weights[columns]
        self._settled.value = np.array([settled.get(stage, self._unsettled) for stage in WHOLE])
        # Whole columns start at 0 or above; rows hold those that start higher.
        self._ones.value = np.isin(self._columns[1], list(ones)).astype(float)

    def run(self, options: Mapping[str, float]) -> str:
        import cvxpy as cp

        solve: Any = self._problem.solve
        solve(solver=cp.HIGHS, warm_start=True, mip_feasibility_tolerance=1e-9, **options)
        return str(self._problem.status)

    def found(self) -> Array | None:
        reals, wholes = (v.value for v in self._v)
        if reals is None or wholes is None:
            return None
        found = np.empty(len(reals) + len(wholes))
        found[self._columns[0]], found[self._columns[1]] = reals, np.round(wholes)
        return found
