"""Numbers as people write them, on the command line and in a URL."""

from __future__ import annotations

import math
import re

_PREFIXES = "kmgtp"
# A process that has loaded TensorFlow holds hundreds of them.
_LEAST_MEMORY_BYTES = 1e6
_PER_SECOND = re.compile(r"\s*(/\s*s|ps)\s*$", re.I)
_BYTES = re.compile(
    rf"\s*(?P<number>[0-9.eE+]+)\s*(?P<prefix>[{_PREFIXES}]?)(?P<binary>i?)(?P<unit>b?)\s*", re.I
)


def parse_positive(text: str) -> float:
    """Reads a positive number.

    Raises:
      ValueError: it is none; the message says so in words.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(f"'{text}' is not a positive number")
    return number


def parse_bytes(text: str) -> float:
    """Reads a size: a number of bytes, or with a suffix ("8GiB", "500 MB", "1.5g").

    Suffixes with an "i", and bare letters, are powers of 1024; "kB", "MB" … are powers of 1000.

    Raises:
      ValueError: it is no such size; the message says so in words.
    """
    match = _BYTES.fullmatch(text)
    wrong = ValueError(f"'{text}' is not a size: write bytes, or a suffix as in 8GiB")
    if match is None or (match["binary"] and not match["prefix"]):
        raise wrong
    decimal = match["unit"] and not match["binary"]
    power = _PREFIXES.index(match["prefix"].lower()) + 1 if match["prefix"] else 0
    try:
        return parse_positive(match["number"]) * float((1000 if decimal else 1024) ** power)
    except ValueError:
        raise wrong from None


def parse_bytes_per_s(text: str) -> float:
    """Reads what storage delivers: a size as `parse_bytes` reads it, with "/s" behind it or not.

    Raises:
      ValueError: it is no such speed; the message says so in words.
    """
    try:
        return parse_bytes(_PER_SECOND.sub("", text))
    except ValueError:
        raise ValueError(
            f"'{text}' is not a speed: write bytes per second, or a suffix as in 200MB/s"
        ) from None


def parse_epochs(text: str) -> float:
    """Reads how many times training passes over its data, at least once.

    Raises:
      ValueError: it is no such number; the message says so in words.
    """
    epochs = parse_positive(text)
    if epochs < 1:
        raise ValueError(f"'{text}' is less than one epoch")
    return epochs


def parse_memory_limit(text: str) -> float:
    """Reads a limit of memory: a size as `parse_bytes` reads it, of at least a megabyte.

    Raises:
      ValueError: it is no such size; the message says so in words.
    """
    limit = parse_bytes(text)
    if limit < _LEAST_MEMORY_BYTES:
        meant = f"{text.strip()}GB" if text.strip()[-1].isdigit() else "4GB"
        raise ValueError(f"'{text}' is {limit:g} bytes, less than any training takes: did you mean {meant}?")
    return limit
