"""What TensorFlow rewrites, as a table; `tests/integration/test_fusion.py` holds capture to it."""

from tests.support.fusion import case, table
from tests.support.fusion.case import CASES

__all__ = ["CASES", "case", "table"]
