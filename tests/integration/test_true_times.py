"""Core time and waiting are recovered, or marked as uncertain; the truth comes from clocks inside the functions."""

from __future__ import annotations

import pytest

from benchmarks import matrix
from benchmarks.matrix import Cell, Outcome, measure
from tests.support.answers import HostWatch

# One of each kind of function, parallel calls and pool.
REPRESENTATIVE = [
    Cell("spin", 1, 0, 0),
    Cell("sleep", 8, 0, 0),
    Cell("python_spin", 2, 0, 0),
    Cell("python_sleep", 2, 0, 0),
    Cell("numpy", 8, matrix.LARGE_POOL, 0),
    Cell("file_read", 2, matrix.LARGE_POOL, 0),
    Cell("mixed", 1, 0, 0),
    Cell("python_spin", 8, matrix.LARGE_POOL, 0),
]


def told(outcomes: list[Outcome]) -> str:
    return f"\n{matrix.describe(outcomes)}"


def test_core_time_and_waiting_are_recovered_or_marked_uncertain() -> None:
    # GIVEN functions that compute, wait, hold the interpreter lock, or all of it, in small and large pools
    with HostWatch() as host:
        outcomes = [measure(cell, 2.5) for cell in REPRESENTATIVE]

    # THEN none is silently wrong, and on a host that was left alone most are known. Cells are short here: what is
    # asked of a crowded host (25 %) is asked of any; the whole matrix asks for 15 % of a quiet one.
    wrong = [o for o in outcomes if not o.uncertain and not o.is_within(crowded=True)]
    assert not wrong, told(outcomes)
    if host.quiet:
        assert sum(not o.uncertain for o in outcomes) >= len(outcomes) / 2, told(outcomes)


@pytest.mark.slow
def test_whole_matrix() -> None:
    # GIVEN every function, number of calls, pool, and crowd
    outcomes, quiet = [], True
    for cell in matrix.cells():
        with HostWatch() as host:
            outcomes.append(measure(cell))
        quiet = quiet and (host.quiet or cell.burners > 0)

    # THEN nothing is silently wrong, and little of it uncertain
    assert len(outcomes) == 84
    assert not [o for o in outcomes if o.is_silently_wrong], told(outcomes)
    uncertain = [o.cell for o in outcomes if o.uncertain]
    assert len(uncertain) <= 0.1 * len(outcomes), told(outcomes)
    if quiet:
        assert not [cell for cell in uncertain if not cell.burners and not cell.pool], told(outcomes)
