"""Tells whether an iterator was read to its end: the only sure way to know how long a pass is.

Nobody is told when a sequence ends. But most operators let go of their input when it is exhausted,
and the model then no longer has it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from tensorboard_plugin_plumber.capture.counts import Count
from tensorboard_plugin_plumber.capture.describe import Description

# Under an endless repeat there is no end. A cache that serves never had an input.
_NOTHING_TO_SEE = re.compile(r"ForeverRepeat|(Memory|File)Cache")


def read_to_end(description: Description, alive: Collection[int], counts: Sequence[Count]) -> bool:
    """Whether a sequence that has delivered elements has come to its end, as far as that shows.

    Args:
      description: of the pipeline.
      alive: indices of the running operators that the iterator's model has now.
      counts: by index of the running operators.
    """
    index = 0
    while not _NOTHING_TO_SEE.match(description.pipeline.running[index].type):
        inputs, bodies = description.inputs[index], description.bodies[index]
        if inputs and set(alive).isdisjoint(inputs):
            return True
        if bodies and set(alive).isdisjoint(bodies):
            # Between two datasets of the function, or after the last of them.
            return all(_is_used_up(description, below, counts) for below in inputs)
        if len(inputs) != 1:
            break
        (index,) = inputs
    return False


def _is_used_up(description: Description, index: int, counts: Sequence[Count]) -> bool:
    """Whether an operator has delivered as many elements as TensorFlow knows it to have."""
    lengths = [o.cardinality for o in description.pipeline.operators if o.running == index]
    return bool(lengths) and 0 <= lengths[0] <= counts[index].seen


class WholePasses:
    """What iterators have counted that were read to their end.

    Args:
      operators: that run.
    """

    def __init__(self, operators: int) -> None:
        self.passes = 0
        self._elements = [0.0] * operators
        # Root elements of the passes in which the operator was seen, and of all.
        self._roots = [0.0] * operators
        self._all_roots = 0.0

    def add(self, counts: Sequence[Count]) -> None:
        """One more pass."""
        self.passes += 1
        self._all_roots += counts[0].elements
        for index, count in enumerate(counts):
            if count.seen:
                self._elements[index] += count.elements
                self._roots[index] += counts[0].elements

    def elements(self) -> list[float]:
        """By index of the operators; a pass in which one was gone before it was seen counts like the others."""
        return [
            elements * self._all_roots / roots if roots else 0.0
            for elements, roots in zip(self._elements, self._roots, strict=True)
        ]

    def copy(self) -> WholePasses:
        """The same passes, to be added to."""
        other = WholePasses(len(self._elements))
        other.passes, other._all_roots = self.passes, self._all_roots
        other._elements, other._roots = list(self._elements), list(self._roots)
        return other
