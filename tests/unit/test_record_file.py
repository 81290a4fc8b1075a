"""The record files that event files are: checksums, and how far a damaged file is used."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorboard_plugin_plumber.events.record_file import crc32c, masked_crc32c, read_records


def record(data: bytes) -> bytes:
    """One record, as TensorFlow writes it."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


def crc32c_bit_by_bit(data: bytes) -> int:
    """The definition in RFC 3720, without any table."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # the next three are RFC 3720's own
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_checksum_of_published_examples(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@given(st.binary(max_size=100))
def test_checksum_is_the_definition(data: bytes) -> None:
    assert crc32c(data) == crc32c_bit_by_bit(data)


def test_whole_file(tmp_path: Path) -> None:
    # GIVEN a file of three records
    path = tmp_path / "file"
    path.write_bytes(record(b"one") + record(b"") + record(b"three"))
    # WHEN it is read
    records = read_records(path)
    # THEN all are there
    assert records.data == (b"one", b"", b"three")
    assert records.end == path.stat().st_size
    assert records.damage == ""


@given(st.integers(min_value=0, max_value=60))
def test_a_cut_file_gives_the_records_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    parts = [record(b"one"), record(b"two two"), record(b"3")]
    whole = b"".join(parts)
    cut = min(cut, len(whole))
    path = tmp_path_factory.mktemp("cut") / "file"
    path.write_bytes(whole[:cut])
    ends = [sum(map(len, parts[:count])) for count in range(len(parts) + 1)]

    records = read_records(path)

    assert len(records.data) == max(count for count, end in enumerate(ends) if end <= cut)
    assert records.cut_short == (cut not in ends)
    assert records.end == max(end for end in ends if end <= cut)


@given(st.integers(min_value=0))
def test_a_flipped_bit_is_seen(tmp_path_factory: pytest.TempPathFactory, position: int) -> None:
    first, second = record(b"one"), record(b"two two")
    damaged = bytearray(second)
    damaged[position % len(second)] ^= 1 << (position % 8)
    path = tmp_path_factory.mktemp("flipped") / "file"
    path.write_bytes(first + damaged + record(b"behind"))

    records = read_records(path)

    assert records.data == (b"one",)
    assert records.end == len(first)
    assert records.damage == f"is damaged at byte {len(first)}"
    assert not records.cut_short


def test_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    # GIVEN a file whose last record is still being written
    path = tmp_path / "file"
    path.write_bytes(record(b"one") + record(b"two")[:9])
    before = read_records(path)
    assert before.cut_short
    # WHEN the record is whole and another follows
    path.write_bytes(record(b"one") + record(b"two") + record(b"three"))
    # THEN only what is new is read
    assert read_records(path, before.end).data == (b"two", b"three")
