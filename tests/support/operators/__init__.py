"""Every source and transformation of tf.data as a table: how it is built, and what must be seen of it.

`CASES` is the table. `tests/integration/test_operators.py` holds capture to it, and `tools/coverage.py` makes
`docs/coverage.md` of it.
"""

from tests.support.operators import (
    batching,
    elements,
    legacy,
    nesting,
    placing,
    several,
    sources,
    storing,
)
from tests.support.operators.case import Case

CASES: tuple[Case, ...] = (
    *sources.CASES,
    *elements.CASES,
    *batching.CASES,
    *nesting.CASES,
    *several.CASES,
    *storing.CASES,
    *placing.CASES,
    *legacy.CASES,
)
