"""Numbers as people write them."""

from __future__ import annotations

import pytest

from tensorboard_plugin_plumber.schema.quantities import parse_bytes, parse_positive


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000", 1000),
        ("8GiB", 8 * 1024**3),
        ("8 gib", 8 * 1024**3),
        ("8G", 8 * 1024**3),
        ("500MB", 500e6),
        ("1.5kB", 1500),
        ("2e9", 2e9),
        ("12B", 12),
    ],
)
def test_sizes(text: str, expected: float) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1", "0", "8GiB extra", "8iB", "nan", "inf", "1e999", "1.2.3"])
def test_what_is_no_size_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: write bytes, or a suffix as in 8GiB"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["", "x", "0", "-2", "nan", "inf"])
def test_what_is_no_positive_number_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is not a positive number"):
        parse_positive(text)
