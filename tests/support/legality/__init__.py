"""Constructs of tf.data as a table: what holds of the output of each, and what may be done with it.

`CASES` is the table; `tests/integration/test_legality.py` holds capture to it.
"""

from tests.support.legality import draws, ends, harmless, python, state
from tests.support.legality.case import CASES, Case, Expected

__all__ = ["CASES", "Case", "Expected", "draws", "ends", "harmless", "python", "state"]
