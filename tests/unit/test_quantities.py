"""Numbers as people write them."""

from __future__ import annotations

import pytest

from tensorboard_plugin_plumber.schema.quantities import parse_bytes, parse_memory_limit, parse_positive


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


@pytest.mark.parametrize(("text", "expected"), [("4000000000", 4e9), ("4GB", 4e9), ("1MB", 1e6)])
def test_a_limit_of_memory(text: str, expected: float) -> None:
    assert parse_memory_limit(text) == expected


@pytest.mark.parametrize(
    ("text", "meant"), [("4", "4GB"), ("16 ", "16GB"), ("64kB", "4GB"), ("999999", "999999GB")]
)
def test_a_limit_that_nobody_means_is_questioned(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"less than any training takes: did you mean {meant}\\?"):
        parse_memory_limit(text)


def test_a_limit_that_is_no_size_is_said() -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_memory_limit("much")
