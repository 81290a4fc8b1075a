"""Writes docs/coverage.md: what is seen of each operator of tf.data, and what cannot be seen.

python tools/coverage.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "coverage.md"


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from tests.support.operators.coverage import page

    PAGE.write_text(page())


if __name__ == "__main__":
    main()
