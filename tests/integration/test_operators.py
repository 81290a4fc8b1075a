"""Every source and transformation of tf.data, alone and in combination: name, parent, line, visits, elements."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorboard_plugin_plumber.capture import construction
from tests.support.operators import CASES
from tests.support.operators.case import Bench, Case, Row
from tests.support.operators.contexts import CONTEXTS, Placed
from tests.support.operators.coverage import known_names, page, public_names
from tests.support.operators.measure import Measured, measure

construction.install()
CLOSE = 0.1
PAGE = Path(__file__).parent.parent.parent / "docs" / "coverage.md"

PLACED = [
    pytest.param(case, context, id=f"{case.name}-{context}")
    for context in CONTEXTS
    for case in CASES
    if context not in case.not_in and case.available
]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize(("case", "context"), PLACED)
def test_operator(case: Case, context: str, bench: Bench) -> None:
    # GIVEN an operator of tf.data in a place where it may stand
    placed = CONTEXTS[context](case, bench)

    # WHEN it is run
    measured = measure(placed.dataset, placed.steps)

    # THEN each row has the user's name for it, its consumer, and the user's line
    operators = [one for one in measured.description.pipeline.operators if not one.injected]
    position = {one.id: index for index, one in enumerate(operators)}
    position[""] = -1
    assert [(one.type, position[one.parent], one.in_body, one.HasField("running")) for one in operators] == [
        (row.type, -1 if row.parent is None else row.parent, row.in_body, row.runs) for row in placed.rows
    ]
    assert [(one.source.path, one.source.line) for one in operators] == [
        placed.lines[row.marker] for row in placed.rows
    ]
    # AND what runs for it, how often it was visited, and how many elements it delivered
    _check_counts(placed, measured, bench)
    assert measured.unmapped <= case.unmapped


def test_every_public_name_of_tf_data_is_accounted_for() -> None:
    assert public_names() - known_names() == set()


def test_the_page_on_coverage_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python tools/coverage.py"


def _check_counts(placed: Placed, measured: Measured, bench: Bench) -> None:
    rows = [row for row in measured.rows if not row.injected]
    for row, expected in zip(rows, placed.rows, strict=True):
        if expected.runs_as is not None:
            assert row.runs_as == expected.runs_as, expected.marker
        wanted = _elements(expected, bench)
        if wanted is not None:
            assert row.elements == pytest.approx(wanted, rel=CLOSE), expected.marker
            assert row.visit_ratio == pytest.approx(wanted / measured.steps, rel=CLOSE), expected.marker


def _elements(row: Row, bench: Bench) -> float | None:
    return bench.calls[row.elements] if isinstance(row.elements, str) else row.elements
