"""Passes over copies of two pipelines, read by turns and compared as digests."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorboard_plugin_plumber.rewrite.digests import Digest, NotTold, digest, rows

#: The end of the data, told like the error that a pipeline may raise in its place.
END = "the end"


class Reading:
    """One pass over a dataset.

    Attributes:
      elements: read so far.
      size: bytes of them.
      ended: None while it goes on; then `END`, or the class of the error that was raised. Its message is left out:
        it names nodes, which a rewrite may rename.
    """

    def __init__(self, dataset: Any) -> None:
        self._iterator = iter(dataset)
        self.elements = 0
        self.size = 0
        self.ended: str | None = None

    def next(self) -> tuple[Any, Digest] | None:
        """The next element and its digest; None at its end.

        Raises:
          NotTold: it holds what cannot be looked into.
        """
        if self.ended is not None:
            return None
        try:
            element = next(self._iterator)
            found = digest(element)
        except NotTold:
            raise
        except StopIteration:
            self.ended = END
            return None
        except Exception as error:  # whatever the user's pipeline raises
            self.ended = type(error).__name__
            return None
        self.elements += 1
        self.size += found.size
        return element, found


@dataclass(frozen=True)
class Limit:
    """How far a pass is read; one element at least.

    Attributes:
      elements, bytes: at most.
      until_s: by `time.perf_counter`.
    """

    elements: int
    until_s: float
    bytes: float = float("inf")

    def allows(self, reading: Reading) -> bool:
        """Whether it may go on."""
        below = reading.elements < self.elements and reading.size < self.bytes
        return reading.elements == 0 or (below and time.perf_counter() < self.until_s)


def read_in_turns(left: Reading, right: Reading, limit: Limit) -> str:
    """Reads both as far as they agree; returns where they part, in one sentence, empty if nowhere."""
    while limit.allows(left):
        one, other = left.next(), right.next()
        if one is None or other is None:
            return "" if left.ended == right.ended else _other_end(left, right)
        if one[1].content != other[1].content:
            return f"element {left.elements} is another one"
    return ""


def _other_end(left: Reading, right: Reading) -> str:
    return f"the original {_end_of(left)}, the rewritten one {_end_of(right)}"


def _end_of(reading: Reading) -> str:
    if reading.ended is None:
        return f"gives element {reading.elements}"
    if reading.ended == END:
        return f"ends after {reading.elements:,} elements"
    return f"raises {reading.ended} at element {reading.elements + 1:,}"


@dataclass
class Counted:
    """The elements of one pass as a multiset; if they are batches, their examples as another.

    Attributes:
      reading: the pass.
      elements, examples: how many of each digest; no examples once an element was no batch.
    """

    reading: Reading
    elements: Counter[bytes] = field(default_factory=Counter)
    examples: Counter[bytes] | None = field(default_factory=Counter)

    def next(self) -> None:
        """Counts one more, if there is one.

        Raises:
          NotTold: it holds what cannot be looked into.
        """
        found = self.reading.next()
        if found is None:
            return
        element, told = found
        self.elements[told.content] += 1
        batch = None if self.examples is None else rows(element)
        if self.examples is None or batch is None:
            self.examples = None
        else:
            self.examples.update(batch)


def count_in_turns(counted: Sequence[Counted], limit: Limit) -> bool:
    """Counts the elements of all; returns whether all ended."""
    while any(one.reading.ended is None and limit.allows(one.reading) for one in counted):
        for one in counted:
            if limit.allows(one.reading):
                one.next()
    return all(one.reading.ended is not None for one in counted)
