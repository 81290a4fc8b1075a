"""Reads the record files that event files are, and says how far they can be trusted.

Each record is a little-endian 64-bit length, the masked CRC-32C of these eight bytes, the
data, and the masked CRC-32C of the data. TensorBoard's own reader is no use here: it imports
TensorFlow where it finds it, and it keeps silent about damage.
"""

from __future__ import annotations

import array
import functools
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
# Most records that a training writes are shorter: its process never needs the larger table. Who reads so much does.
_SHORT_BYTES = 8192


@dataclass(frozen=True)
class Records:
    """The whole records of a file from some offset on.

    Attributes:
      data: one entry per whole record, in the order of the file.
      end: offset in bytes behind the last whole record.
      damage: what is wrong at `end`, e.g. "ends in the middle of a record"; "" if the file ends there.
      cut_short: `damage` is only that the file ends too early, as one does that is being written.
    """

    data: tuple[bytes, ...]
    end: int
    damage: str = ""
    cut_short: bool = False


def read_records(path: Path, start: int = 0) -> Records:
    """Reads the records of a file up to its end or to the first damage.

    Args:
      path: the file.
      start: offset of a record, from which to read.

    Raises:
      OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        file.seek(start)
        content = file.read()
    if len(content) >= _SHORT_BYTES:
        _two_byte_table()
    data: list[bytes] = []
    position = 0

    def stop(damage: str = "", *, cut_short: bool = False) -> Records:
        return Records(tuple(data), start + position, damage, cut_short)

    while position < len(content):
        body = position + _HEADER.size
        if body > len(content):
            return stop("ends in the middle of a record", cut_short=True)
        length, length_crc = _HEADER.unpack_from(content, position)
        if masked_crc32c(content[position : position + 8]) != length_crc:
            return stop(f"is damaged at byte {start + position}")
        end = body + length
        if end + _FOOTER.size > len(content):
            return stop("ends in the middle of a record", cut_short=True)
        record = content[body:end]
        if masked_crc32c(record) != _FOOTER.unpack_from(content, end)[0]:
            return stop(f"is damaged at byte {start + position}")
        data.append(record)
        position = end + _FOOTER.size
    return stop()


def masked_crc32c(data: bytes) -> int:
    """CRC-32C (RFC 3720) of `data`, rotated and shifted as record files want it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """CRC-32C (RFC 3720) of `data`."""
    if len(data) < _SHORT_BYTES and not _two_byte_table.cache_info().currsize:
        return _crc32c_of_short(data)
    table = _two_byte_table()
    words = array.array("H", data[: len(data) & ~1])
    if sys.byteorder == "big":
        words.byteswap()
    crc = 0xFFFFFFFF
    for word in words:
        crc = table[(crc ^ word) & 0xFFFF] ^ (crc >> 16)
    if len(data) & 1:
        crc = _advance((crc ^ data[-1]) & 0xFF, bits=8) ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _crc32c_of_short(data: bytes) -> int:
    table = _one_byte_table()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@functools.cache
def _one_byte_table() -> Sequence[int]:
    return [_advance(byte, bits=8) for byte in range(256)]


@functools.cache
def _two_byte_table() -> Sequence[int]:
    """What two bytes at a time do to the register: half the steps of the usual table, which takes longer to make."""
    one_byte = np.array(_one_byte_table(), np.uint32)
    low = one_byte[one_byte & 0xFF] ^ (one_byte >> np.uint32(8))
    # CRC is linear: the two bytes of a word can be looked up apart and added.
    table: list[int] = (one_byte[:, None] ^ low).ravel().tolist()
    return table


def _advance(register: int, *, bits: int) -> int:
    for _ in range(bits):
        register = (register >> 1) ^ (_POLYNOMIAL if register & 1 else 0)
    return register
