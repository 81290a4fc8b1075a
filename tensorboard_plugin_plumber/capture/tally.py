"""Elements of all nodes of one iterator by kind of operator, dropped ones too, and what they tell of each operator.

TensorFlow adds up elements by kind, over the whole process (`flushed`): those of each node when it is dropped, and of
all nodes of a model when it optimises. With F the sum for one kind, n the elements of a node that lives and r what it
has added already,

    T(t) = F(t) - F(0) + Σ_lives (n - r)

is what one iterator made, if no other did anything. The node at the model's root lives as long as the iterator, and its
kind, "Root", belongs to nothing else: a jump of that sum tells when all nodes were added, and a jump that is not its
own tells of an iterator that nobody follows. In stretches in which others were at work the estimate of `unseen` grows
the sums instead.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tensorboard_plugin_plumber.capture.align import normal
from tensorboard_plugin_plumber.capture.edges import Edge, Place
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_ROOT = "Root"
_TIED = (Edge.ONE_TO_ONE, Edge.BODY)
# A sum that is that far from the estimate holds what others did.
_FAR = 30.0
_FEW = 100.0
# Now and then a node is found while it is being put in its place.
_OFTEN = 0.3

# Looks at any iterator that found new elements, in this process.
_busy_looks = itertools.count(1)
_last_busy_look = 0


class Tally:
    """Sums of one iterator.

    Args:
      of_operators: `kinds` of its operators.
      where: of the operators.
      led_by: `leads` of the operators.
      at_start: `flushed` when the iterator was made.
    """

    def __init__(
        self,
        of_operators: Sequence[str],
        where: Sequence[Place],
        led_by: Sequence[int],
        at_start: Mapping[str, int],
    ) -> None:
        self._kinds = of_operators
        self._where = where
        self._leads = led_by
        self._base: dict[str, float] = dict(at_start)
        self._flushed = at_start
        self._counts: dict[int, int] = {}
        self._added: dict[int, float] = {}
        self._sums: dict[str, float] = dict(at_start)
        self._estimate = [0.0] * len(where)
        self._looks = 0
        # By kind: looks at which some node of it was no operator's.
        self._strange: collections.Counter[str] = collections.Counter()
        self._others = _last_busy_look
        # Of an iterator made before the session, until it shows how much of this was in the sums before: elements of
        # what lives as long as it, by kind, and of its root.
        self._older: dict[str, float] = {}
        self._older_at_root = 0.0

    @property
    def is_needed(self) -> bool:
        """Whether there are operators that only sums tell of."""
        return any(self._is_open(lead) for lead in self._leads)

    def adopt(self, model: Any, mapping: Mapping[int, int]) -> None:
        """Leaves out what the nodes of an iterator have made that is older than the session.

        Args:
          model: as in `IteratorCounters.observe`; `at_start` belongs to the same moment.
          mapping: likewise.
        """
        for id_, node in model.nodes.items():
            kind, made = normal(node.name), float(node.num_elements)
            self._counts[id_] = node.num_elements
            if id_ in mapping and self._where[mapping[id_]].life:
                # Children are young: nothing of them is in the sums.
                if kind in self._base:
                    self._base[kind] += made
                    self._sums[kind] += made
            else:
                self._added[id_] = made
                self._older[kind] = self._older.get(kind, 0.0) + made
        self._older_at_root = float(self._counts.get(model.output, 0))

    def look(
        self,
        model: Any,
        mapping: Mapping[int, int],
        flushed: Mapping[str, int],
        estimate: Callable[[], list[float]],
    ) -> None:
        """Takes one look.

        Args:
          model: as in `IteratorCounters.observe`.
          mapping: likewise.
          flushed: at the same time.
          estimate: elements of each operator as `unseen` sees them.
        """
        counts = {id_: node.num_elements for id_, node in model.nodes.items()}
        alone = self._is_alone(counts) & self._take_flush(model.output, counts, flushed)
        sums: dict[str, float] = dict(flushed)
        strange: set[str] = set()
        for id_, node in model.nodes.items():
            kind = normal(node.name)
            if kind in sums:
                sums[kind] += counts[id_] - self._added.get(id_, 0.0)
            if id_ not in mapping or self._kinds[mapping[id_]] != kind:
                strange.add(kind)
        self._looks += 1
        self._strange.update(strange)
        estimated = estimate()
        if not alone:
            grown: dict[str, float] = {}
            for kind, now, before in zip(self._kinds, estimated, self._estimate, strict=True):
                grown[kind] = grown.get(kind, 0.0) + now - before
            for kind in self._base:
                self._base[kind] += sums[kind] - self._sums[kind] - grown.get(kind, 0.0)
        self._sums, self._flushed, self._counts, self._estimate = sums, flushed, counts, estimated

    def exact(
        self, elements: Sequence[float], found: Sequence[float], known: Collection[int]
    ) -> dict[int, float]:
        """Elements of operators that the sums tell, by index.

        Args:
          elements: of all, as they are estimated.
          found: that were really seen.
          known: indices of operators whose elements are no estimate.
        """
        open_ = {lead for lead in self._leads if self._is_open(lead)}.difference(known)
        equations = self._equations(elements, found)
        solved: dict[int, float] = {}
        while len(solved) < len(open_):
            choices = []
            for unknowns, total in equations:
                left = [lead for lead in unknowns if lead in open_ and lead not in solved]
                if left:
                    rest = total - sum(
                        times * solved.get(lead, elements[lead])
                        for lead, times in unknowns.items()
                        if lead not in left
                    )
                    # First the sums of one alone, of these those of which the least is subtracted.
                    choices.append((len(left), abs(total - rest) / max(total, 1.0), left, unknowns, rest))
            if not choices:
                break
            _, _, left, unknowns, rest = min(choices, key=lambda choice: choice[:2])
            estimated = sum(unknowns[lead] * elements[lead] for lead in left)
            for lead in left:
                # What stands together in all sums keeps its shares.
                value = (
                    rest / unknowns[lead] if len(left) == 1 else rest / max(estimated, 1.0) * elements[lead]
                )
                solved[lead] = max(value, found[lead])
        return solved

    def _equations(
        self, elements: Sequence[float], found: Sequence[float]
    ) -> list[tuple[dict[int, float], float]]:
        """How often each lead's elements stand in a sum, and the sum."""
        by_kind: dict[str, dict[int, float]] = {}
        totals: dict[str, float] = {}
        seen: dict[str, float] = {}
        for i, kind in enumerate(self._kinds):
            if kind not in self._base or self._strange[kind] > _OFTEN * self._looks:
                continue
            lead = self._leads[i]
            unknowns = by_kind.setdefault(kind, {})
            unknowns[lead] = unknowns.get(lead, 0.0) + 1.0
            seen[kind] = seen.get(kind, 0.0) + found[i]
            # What is held between the two.
            totals[kind] = totals.get(kind, self._sums[kind] - self._base[kind]) - (
                elements[i] - elements[lead]
            )
        equations = []
        for kind, unknowns in by_kind.items():
            # An estimate below what was found knows nothing.
            estimated = max(sum(times * elements[lead] for lead, times in unknowns.items()), seen[kind])
            if estimated / _FAR - _FEW < totals[kind] < estimated * _FAR + _FEW:
                equations.append((unknowns, totals[kind]))
        for i, place in enumerate(self._where):
            if place.edge is Edge.CONCATENATE and not place.first_input:
                first = next(j for j, one in enumerate(self._where) if one.consumer == place.consumer)
                inputs = {self._leads[first]: 1.0, self._leads[i]: 1.0}
                inputs[self._leads[place.consumer]] = -1.0
                equations.append((inputs, elements[place.consumer] - elements[self._leads[place.consumer]]))
        return equations

    def _is_open(self, lead: int) -> bool:
        place = self._where[lead]
        return place.life != 0 and place.window_of is None and place.edge not in (Edge.ROOT, Edge.CACHE)

    def _is_alone(self, counts: Mapping[int, int]) -> bool:
        """Whether no other iterator was at work since the last look; tells the others that this one was."""
        global _last_busy_look
        alone = self._others == _last_busy_look
        if counts != self._counts:
            _last_busy_look = next(_busy_looks)
        self._others = _last_busy_look
        return alone

    def _take_flush(self, root: int, counts: Mapping[int, int], flushed: Mapping[str, int]) -> bool:
        """Notes what the nodes have added to the sums; False if another iterator's nodes have."""
        jump: float = flushed[_ROOT] - self._flushed[_ROOT]
        added, before, now = self._added.get(root, 0.0), self._counts.get(root, 0), counts.get(root, 0)
        if jump:
            # The sums are read a little later than the model.
            most = now - added + (now - before) + 1
            if not before - added <= jump <= most + self._older_at_root:
                return False
            if self._older_at_root:
                # All that is older has been added by now, and the part of it that was not yet in the sums is known.
                share = max(0.0, jump - (now - added)) / self._older_at_root
                for kind in self._base.keys() & self._older.keys():
                    self._base[kind] += share * self._older[kind]
                self._older_at_root = 0.0
                jump = min(jump, most)
            share = min(1.0, (added + jump - before) / max(1, now - before))
            self._added = {
                id_: self._counts.get(id_, 0) + share * (count - self._counts.get(id_, 0))
                for id_, count in counts.items()
            }
            self._added[root] = added + jump
        else:
            self._added = {id_: self._added[id_] for id_ in counts if id_ in self._added}
        return True


def kinds(running: Sequence[m.RunningOperator]) -> tuple[str, ...]:
    """By operator: the name under which `flushed` has its elements."""
    return tuple(normal(op.type) for op in running)


def leads(where: Sequence[Place]) -> list[int]:
    """By operator: the one above it, or itself, whose elements are as many as its own but for what is held."""
    found: list[int] = []
    for i, place in enumerate(where):
        tied = place.edge in _TIED and (place.edge is not Edge.BODY or len(where[place.consumer].bodies) == 1)
        found.append(found[place.consumer] if tied and place.consumer >= 0 else i)
    return found
