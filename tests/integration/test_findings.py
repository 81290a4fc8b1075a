"""Each finding on real pipelines: plain, inside of an interleave, behind a zip, and on a near miss.

The pipelines are those of tests/support/findings/rows.py.
"""

from __future__ import annotations

import os
import re

import pytest

from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tests.support.answers import HostWatch
from tests.support.findings import rows
from tests.support.findings.table import SPELLINGS, Make, Row, Run, Why, recorded

pytestmark = pytest.mark.slow  # some minutes

HERE = os.path.dirname(rows.__file__)


def spellings() -> list[object]:
    """Every row in each of its spellings."""
    return [
        pytest.param(
            row, spelling, id=f"{row.id}-{spelling}", marks=() if spelling == "plain" else pytest.mark.slow
        )
        for row in rows.ROWS
        for spelling in SPELLINGS
        if not isinstance(getattr(row, spelling), Why)
    ]


def analysed(make: Make, run: Run, *, needs_quiet: bool) -> a.Analysis:
    """Records and analyses; skips what would need cores that other processes have taken meanwhile."""
    with HostWatch() as host:
        analysis = recorded(make, run)
    if needs_quiet and not host.quiet:
        pytest.skip("other processes kept the cores busy")
    return analysis


@pytest.mark.parametrize(("row", "spelling"), spellings())
def test_a_mistake_is_found(row: Row, spelling: str) -> None:
    make = getattr(row, spelling)
    analysis = analysed(make, row.run, needs_quiet=spelling in row.quiet)
    found = [finding for finding in analysis.findings if finding.code == row.code]
    assert found, [finding.code for finding in analysis.findings]

    # THEN it says where, in numbers, and what to do
    finding = found[0]
    assert finding.fix
    operators = {operator.id: operator for operator in analysis.operators}
    if not row.whole:
        assert any(character.isdigit() for character in finding.message)
        operator = operators[finding.operator]
        assert os.path.dirname(operator.source_path) == HERE
        assert re.search(r"\b\w+\.py:\d+\b", finding.message)
    # THEN a gain is promised where one can be had
    if spelling in row.gain:
        assert max(one.gain for one in found if one.HasField("gain")) >= 0.05


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in rows.ROWS])
def test_a_near_miss_is_left_alone(row: Row) -> None:
    run = row.run if row.run_near_miss is None else row.run_near_miss
    analysis = analysed(row.near_miss, run, needs_quiet="near_miss" in row.quiet)
    found = [finding.message for finding in analysis.findings if finding.code == row.code]
    assert not found


def test_every_code_has_a_row() -> None:
    assert {row.code for row in rows.ROWS} == CODES


#: The stable names.
CODES = {
    "sequential-map", "no-prefetch", "per-element-overhead", "python-function", "pool-limited", "sequential-read",
    "small-files", "compressed-input", "missing-cache", "cache-after-random", "cache-never-completes",
    "cache-too-large", "shuffle-memory", "shuffle-fill", "buffer-memory", "ordered-stragglers", "oversubscribed",
    "wasted-work", "repeated-work", "decode-whole-image", "shard-late", "large-constant", "large-element-copies",
    "unbatch-rebatch", "nested-datasets", "late-cast", "side-effects", "randomness-repeats", "autotune-hidden",
    "not-input-bound", "result-unused", "autotune-off",
}  # fmt: skip
