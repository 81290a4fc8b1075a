"""Numbers as people write them."""

from __future__ import annotations

import pytest

from tensorboard_plugin_plumber.schema.quantities import (
    parse_bytes,
    parse_bytes_per_s,
    parse_epochs,
    parse_memory_limit,
    parse_positive,
)


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2e8", 2e8),
        ("200MB/s", 2e8),
        ("200 MB / s", 2e8),
        ("1GiB/s", 2**30),
        ("200MBps", 2e8),
        ("200MB", 2e8),
    ],
)
def test_a_speed(text: str, expected: float) -> None:
    assert parse_bytes_per_s(text) == expected


@pytest.mark.parametrize("text", ["", "/s", "fast", "-1MB/s", "0", "200MB/h"])
def test_what_is_no_speed_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is not a speed: write bytes per second, or a suffix as in 200MB/s"):
        parse_bytes_per_s(text)


def test_epochs() -> None:
    assert parse_epochs("1") == 1
    assert parse_epochs("2.5") == 2.5
    with pytest.raises(ValueError, match=r"'0\.5' is less than one epoch"):
        parse_epochs("0.5")
    with pytest.raises(ValueError, match="is not a positive number"):
        parse_epochs("-3")
