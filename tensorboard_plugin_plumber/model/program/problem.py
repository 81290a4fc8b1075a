"""One program: decisions, the rates that they allow, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass

from tensorboard_plugin_plumber.model.decisions import Freedom
from tensorboard_plugin_plumber.model.linear import Array, LinearProgram
from tensorboard_plugin_plumber.model.network import Network, Settings
from tensorboard_plugin_plumber.model.program.columns import Columns, chosen
from tensorboard_plugin_plumber.model.program.epochs import step_time
from tensorboard_plugin_plumber.model.program.scenario import Pace, Scenario


@dataclass(frozen=True)
class Ceilings:
    """What is known of the rates before, steps/s."""

    #: Upper bounds once new caches serve, and while they fill.
    serving: float
    filling: float
    #: What is reached without any plan.
    today: float


class Problem:
    """Columns and rows for one network.

    Either the rate is to be found, or settings that reach `at_least`, for the fewest changes, threads, bytes or
    cores.
    """

    def __init__(
        self,
        network: Network,
        freedoms: list[Freedom],
        k_max: int,
        ceilings: Ceilings,
        *,
        at_least: float | None = None,
        fit_memory: bool = True,
        open_cores: float | None = None,
    ) -> None:
        """The program.

        Args:
          network: the pipeline.
          freedoms: `decisions.freedoms_of` it.
          k_max: highest parallelism and pool size.
          ceilings: rates that nothing can exceed.
          at_least: the rate to reach, steps/s; None: as much as possible.
          fit_memory: whether the memory that plans may use limits it.
          open_cores: the most cores that may be looked for; None: those there are.
        """
        self._network, self._freedoms = network, freedoms
        self._lines = LinearProgram()
        self._columns = Columns(self._lines, network, freedoms, k_max)
        if fit_memory:
            self._columns.fit_memory()
        self._cores: int | None = None
        if open_cores is not None:
            self._cores = self._lines.column(0.0, open_cores)
            self._lines.price("cores", {self._cores: 1.0})
        if network.epochs is not None and any(self._columns.caches(i) for i in range(len(freedoms))):
            self._over_epochs(network.epochs, ceilings, at_least)
        elif at_least is None:
            pace = Pace(self._lines.column(0.0, 1.0), ceilings.serving, fixed=False)
            self._lines.price("rate", {pace.x: -1.0})
            self._add(pace)
        else:
            self._add(Pace(self._lines.column(1.0, 1.0), at_least, fixed=True))

    def _add(self, pace: Pace) -> None:
        Scenario(self._lines, self._network, self._freedoms, self._columns, pace, cores=self._cores)

    def _over_epochs(self, epochs: float, ceilings: Ceilings, at_least: float | None) -> None:
        """The mean time of a step over `epochs`, in units of the least that there could be."""
        first = 1.0 / epochs
        paces = (
            (first, Pace(self._lines.column(0.0, 1.0), ceilings.filling, fixed=False, filling=True)),
            (1.0 - first, Pace(self._lines.column(0.0, 1.0), ceilings.serving, fixed=False)),
        )
        least = sum(share / pace.scale for share, pace in paces)
        total = {}
        for share, pace in paces:
            weight = share / pace.scale / least
            # Slower than this, it alone would take longer than what is of interest.
            slowest = share / pace.scale * (ceilings.today if at_least is None else at_least)
            time = step_time(self._lines, pace, slowest)
            total[time] = weight
            self._add(pace)
        self._lines.price("rate", total)
        if at_least is not None:
            self._lines.row(total, 1.0 / (at_least * least))

    def solve(self, stage: str, *, caches_of: Array | None = None) -> Array:
        """The best solution for `stage`, with the caches of another one if that is given.

        Raises:
          SolverError: there is no solution, or none was found in time.
        """
        caches = [*self._columns.cache, *self._columns.file_cache]
        kept = [y for y in caches if y is not None and caches_of is not None and chosen(caches_of, y)]
        return self._lines.solve(stage, ones=kept)

    def settle(self, stage: str, solution: Array) -> None:
        """Later solutions are as good for `stage` as this one."""
        self._lines.settle(stage, solution)

    def cores(self, solution: Array) -> float:
        """The cores that `solution` needs, where they were looked for."""
        return float(solution[self._cores]) if self._cores is not None else self._network.limits.cores

    def settings(self, solution: Array) -> Settings:
        """The decisions of `solution`, those in force kept."""
        return self._columns.settings(solution)
