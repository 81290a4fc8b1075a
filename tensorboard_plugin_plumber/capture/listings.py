"""Lists of file names that are read only where they are asked for: there may be millions."""

from __future__ import annotations

import bisect
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

# Below this, a live tensor's strings are taken at once.
_FEW = 2000


class Listing(Protocol):
    """Some file names, by position."""

    def __len__(self) -> int: ...
    def pick(self, positions: Sequence[int]) -> list[str]:
        """The names at the given positions."""
        ...


class Constants:
    """The strings of a constant in a graph.

    Args:
      tensor: a `TensorProto` of strings.
    """

    def __init__(self, tensor: Any) -> None:
        self._count = 1
        for dimension in tensor.tensor_shape.dim:
            self._count *= max(int(dimension.size), 0)
        # A tensor that was written by the runtime holds its strings end to end.
        self._packed: _Packed | None = None
        self._values = tensor.string_val
        if not self._values:
            self._packed = _Packed(tensor.tensor_content, self._count)
            self._count = len(self._packed)

    def __len__(self) -> int:
        return self._count

    def pick(self, positions: Sequence[int]) -> list[str]:
        """The names at the given positions."""
        if self._packed is not None:
            return [_text(self._packed[position]) for position in positions]
        last = len(self._values) - 1  # where the rest of a tensor is alike, only its beginning is stored
        return [_text(self._values[min(position, last)]) for position in positions]


class _Packed:
    """Strings as TensorFlow packs them: the lengths of all as varints, then all characters."""

    def __init__(self, content: bytes, count: int) -> None:
        raw = np.frombuffer(content, np.uint8)
        last_bytes = np.flatnonzero(raw < 0x80)[:count]
        self._content, self._ends = content, np.zeros(1, np.int64)
        if count == 0 or len(last_bytes) < count:
            return
        head = raw[: last_bytes[-1] + 1].astype(np.int64)
        first_bytes = np.concatenate(([0], last_bytes[:-1] + 1))
        place = np.arange(len(head)) - np.repeat(first_bytes, last_bytes - first_bytes + 1)
        lengths = np.add.reduceat((head & 0x7F) << (7 * place), first_bytes)
        self._ends = np.concatenate(([0], np.cumsum(lengths))) + len(head)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, position: int) -> bytes:
        return self._content[self._ends[position] : self._ends[position + 1]]


class Live:
    """The strings of an eager tensor.

    Args:
      tensor: of strings, of any shape.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self._count = int(tensor.shape.num_elements() or 0)

    def __len__(self) -> int:
        return self._count

    def pick(self, positions: Sequence[int]) -> list[str]:
        """The names at the given positions."""
        import tensorflow as tf

        if not positions:
            return []
        with tf.init_scope(), tf.device("/CPU:0"):
            flat = tf.reshape(self._tensor, [-1])
            if self._count <= _FEW:
                everything = flat.numpy()
                return [_text(everything[position]) for position in positions]
            return [_text(one) for one in tf.gather(flat, list(positions)).numpy()]


class Fixed:
    """Names that are known already."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def pick(self, positions: Sequence[int]) -> list[str]:
        """The names at the given positions."""
        return [self._names[position] for position in positions]


class Joined:
    """Names with the same text before and behind each."""

    def __init__(self, names: Listing, before: str, behind: str) -> None:
        self._names, self._before, self._behind = names, before, behind

    def __len__(self) -> int:
        return len(self._names)

    def pick(self, positions: Sequence[int]) -> list[str]:
        """The names at the given positions."""
        return [f"{self._before}{name}{self._behind}" for name in self._names.pick(positions)]


class Sliced:
    """Some of the names, in order.

    Args:
      positions: which of them, a range within theirs.
    """

    def __init__(self, names: Listing, positions: range) -> None:
        self._names, self._positions = names, positions

    def __len__(self) -> int:
        return len(self._positions)

    def pick(self, positions: Sequence[int]) -> list[str]:
        """The names at the given positions."""
        return self._names.pick([self._positions[position] for position in positions])


class Chained:
    """Several lists, one behind the other."""

    def __init__(self, parts: Sequence[Listing]) -> None:
        self._parts = parts
        self._ends: list[int] = []
        total = 0
        for part in parts:
            total += len(part)
            self._ends.append(total)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def pick(self, positions: Sequence[int]) -> list[str]:
        """The names at the given positions."""
        wanted: list[list[int]] = [[] for _ in self._parts]
        where = []
        for position in positions:
            part = bisect.bisect_right(self._ends, position)
            where.append((part, len(wanted[part])))
            wanted[part].append(position - (self._ends[part - 1] if part else 0))
        found = [one.pick(chosen) if chosen else [] for one, chosen in zip(self._parts, wanted, strict=True)]
        return [found[part][index] for part, index in where]


def spread(count: int, most: int) -> list[int]:
    """At most `most` positions out of `count`, in an order of which every beginning is spread evenly."""
    chosen: Sequence[int] = range(count)
    if count > most:
        # Names may repeat at equal distances: one is drawn from each part.
        draw = random.Random(count)
        ends = [i * count // most for i in range(most + 1)]
        chosen = [draw.randrange(low, high) for low, high in pairwise(ends)]
    size = len(chosen)
    if size < 3:
        return list(chosen)
    step = max(round(size * 0.618), 1)
    while _common_divisor(step, size) != 1:
        step += 1
    return [chosen[i * step % size] for i in range(size)]


def _common_divisor(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
