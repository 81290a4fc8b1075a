"""Instances of subtrees that come and go, their nodes, and how they spend their time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# So many intervals tell how lives spend their time.
_ENOUGH = 20


@dataclass(eq=False)
class Life:
    """One instance of a subtree that comes and goes.

    Attributes:
      place: index of its root.
      root: the node it begins with.
      above: the life that it is a part of; None of what lives as long as the iterator.
      weight: φ of what the first look finds.
      fresh: it is found at this look for the first time.
      size: nodes of it at this look, unknown ones among them.
      worked_ns: since the look before.
      handed_on: elements since the look before.
    """

    place: int
    root: Node | None = None
    above: Life | None = None
    weight: float = 1.0
    fresh: bool = True
    size: int = 0
    worked_ns: float = 0.0
    handed_on: int = 0


@dataclass(eq=False)
class Node:
    """One node of the model, by its largest counts, and what of them has been added up.

    Attributes:
      index: of its operator.
      alias: it is a second node of an operator that counts its elements already: only its time adds.
      life: it belongs to.
      again: it takes the place of one that is gone, while the consumer lives on: how its elements belong to the
        consumer's shows from the next look on.
      before: elements, processing time and bytes at the last look.
      pair: its own elements that belong to those of its consumer, and these.
      paired: the same at the last look.
      looked_elements: at the last look that found it further; 0 before the first element.
      looked_ns: processing time at that look.
      children: instances of its function's body that live.
      first_made: of a concatenate: elements of its first input, which is gone when the second begins.
      first_before: the same at the last look.
      all_before: its own elements at the last look.
      older: elements, processing time and bytes from before the session.
      second_seen: of a concatenate: its second input has made elements.
    """

    index: int
    alias: bool
    life: Life
    again: bool = False
    elements: int = 0
    processing_ns: int = 0
    bytes_produced: int = 0
    before: tuple[int, int, int] = (0, 0, 0)
    pair: tuple[float, float] = (0.0, 0.0)
    paired: tuple[float, float] = (0.0, 0.0)
    looked_elements: int = 0
    looked_ns: int = 0
    children: int = 0
    first_made: int = 0
    first_before: int = 0
    all_before: int = 0
    second_seen: bool = False
    older: tuple[int, int, int] = (0, 0, 0)

    def take(self, proto: Any) -> None:
        """Its counts at this look."""
        elements, processing_ns, bytes_produced = self.older
        self.elements = max(self.elements, proto.num_elements - elements)
        self.processing_ns = max(self.processing_ns, proto.processing_time - processing_ns)
        self.bytes_produced = max(self.bytes_produced, proto.bytes_produced - bytes_produced)

    def start_here(self) -> None:
        """Leaves out what it has done so far."""
        self.older = (self.elements, self.processing_ns, self.bytes_produced)
        self.elements = self.processing_ns = self.bytes_produced = 0
        self.before, self.pair, self.paired = (0, 0, 0), (0.0, 0.0), (0.0, 0.0)
        self.looked_elements = self.looked_ns = 0
        self.first_made = self.first_before = self.all_before = 0


@dataclass
class Ages:
    """How the lives of one place spend their time: κ W + g y + b each.

    κ and g are fitted to lives that lived all through from one look to the next, by least squares without b; the time
    that these do not explain, of all lives, is b of each: a child waits for its turn, or for the next to be opened.

    Attributes:
      lived_ns: Σ τ over all lives so far.
      worked_ns: Σ W, weighted.
      handed_on: Σ y, exact.
      intervals: of lives that lived all through them.
    """

    lived_ns: float = 0.0
    worked_ns: float = 0.0
    handed_on: float = 0.0
    intervals: int = 0
    _ww: float = 0.0
    _wy: float = 0.0
    _yy: float = 0.0
    _wt: float = 0.0
    _yt: float = 0.0

    def add(self, worked_ns: float, handed_on: int, period_ns: float) -> None:
        """One more life that lived from one look to the next."""
        self.intervals += 1
        self._ww += worked_ns * worked_ns
        self._wy += worked_ns * handed_on
        self._yy += handed_on * handed_on
        self._wt += worked_ns * period_ns
        self._yt += handed_on * period_ns

    def costs(self, lives: float) -> tuple[float, float, float]:
        """κ, g and b; `lives` is how many there were, 0 if unknown."""
        stretch, wait_ns = self._fit()
        rest_ns = self.lived_ns - stretch * self.worked_ns - wait_ns * self.handed_on
        return stretch, wait_ns, max(0.0, rest_ns) / lives if lives else 0.0

    def _fit(self) -> tuple[float, float]:
        if self.intervals < _ENOUGH:
            # All lives are short. What their work does not explain they spend waiting to be asked.
            waited_ns = max(0.0, self.lived_ns - self.worked_ns)
            return 1.0, waited_ns / self.handed_on if self.handed_on > 0 else 0.0
        det = self._ww * self._yy - self._wy * self._wy
        if det > 1e-6 * self._ww * self._yy:
            stretch = (self._wt * self._yy - self._yt * self._wy) / det
            wait_ns = (self._yt * self._ww - self._wt * self._wy) / det
            if stretch >= 0 and wait_ns >= 0:
                return stretch, wait_ns
        if self._ww > 0 and (not self._yy or self._wt**2 / self._ww >= self._yt**2 / self._yy):
            return self._wt / self._ww, 0.0
        return (0.0, self._yt / self._yy) if self._yy else (1.0, 0.0)

    @property
    def work_ns(self) -> float:
        """Work for each element handed on."""
        return self.worked_ns / self.handed_on if self.handed_on > 0 else 0.0
