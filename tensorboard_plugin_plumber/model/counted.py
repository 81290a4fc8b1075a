"""What was counted of each operator, and how much it varies."""

from __future__ import annotations

import math

import numpy as np

from tensorboard_plugin_plumber.model.intervals import deviation_of_ratio
from tensorboard_plugin_plumber.model.windows import Array, Windows
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: Coefficient of variation of an element's bytes where windows cannot tell.
_BYTES_VARY = 0.5


class Counted:
    """The operators of a pipeline as the user wrote them, with their counters.

    Args:
      pipeline: as it was described.
      windows: of its samples.

    Attributes:
      last: the last sample.
      operators: by Operator.id.
      inputs: by Operator.id, operators of the same graph that it takes elements of.
      bodies: by Operator.id, roots of the datasets that its function returns.
      files: by Operator.id.
    """

    def __init__(self, pipeline: m.Pipeline, windows: Windows) -> None:
        self.pipeline, self.windows, self.last = pipeline, windows, windows.last
        self.operators = {operator.id: operator for operator in pipeline.operators}
        self.inputs: dict[str, list[m.Operator]] = {}
        self.bodies: dict[str, list[m.Operator]] = {}
        for operator in self.operators.values():
            (self.bodies if operator.in_body else self.inputs).setdefault(operator.parent, []).append(
                operator
            )
        self.files = {files.operator: files for files in pipeline.files}

    def counters(self, operator: m.Operator) -> m.OperatorCounters | None:
        """Of the last sample; None if nothing runs for it."""
        if not operator.HasField("running") or operator.running >= len(self.last.operators):
            return None
        return self.last.operators[operator.running]

    def is_fused_below(self, operator: m.Operator) -> bool:
        """Whether TensorFlow counts the batches that it is fused with, not its own elements."""
        running = self.pipeline.running[operator.running]
        return running.type == "MapAndBatch" and running.operators[:1] != [operator.id]

    def count(self, operator: m.Operator) -> float:
        """Elements so far, over all passes."""
        counters = self.counters(operator)
        if counters is None or self.is_fused_below(operator):
            inputs = self.inputs.get(operator.id, [])
            return self.count(inputs[0]) if inputs else 0.0
        return counters.elements * self.passed_over(operator)

    def seen_share(self, operator: m.Operator) -> float:
        """Part of its elements that looks found; the rest was made up."""
        counters = self.counters(operator)
        if counters is None or counters.elements <= 0:
            return 1.0
        return min(counters.elements_seen / counters.elements, 1.0)

    def passed_over(self, operator: m.Operator) -> float:
        """Elements that it went through for each that was counted.

        A shard has a flat map or a sequential interleave pass over what is not its own, which TensorFlow does not
        count.
        """
        if not operator.HasField("running") or not operator.parent:
            return 1.0
        consumer = self.operators[operator.parent]
        if consumer.type != "Shard" or operator.in_body:
            return 1.0
        uncounted = self.pipeline.running[operator.running].type in ("FlatMap", "Interleave")
        return float(max(consumer.count, 1)) if uncounted else 1.0

    def is_root(self, operator: m.Operator) -> bool:
        """Whether each of its elements is one of the last operator's."""
        while operator.parent:
            operator = self.operators[operator.parent]
            if operator.type not in ("Prefetch", "Options"):
                return False
        return True

    def column(self, operator: m.Operator) -> Array | None:
        """Elements per window."""
        if not operator.HasField("running") or self.is_fused_below(operator):
            inputs = self.inputs.get(operator.id, [])
            return self.column(inputs[0]) if inputs else None
        return self.windows.elements[:, operator.running] * self.passed_over(operator)

    def deviation(
        self, operator: m.Operator, source: m.Operator, seen: float, whole: float, usual: float
    ) -> float:
        """Standard deviation of its elements for each of the source's; see `deviation_of_ratio`."""
        above, below = self.column(operator), self.column(source)
        if above is None or below is None:
            return math.inf
        return deviation_of_ratio(above, below, seen=seen, whole=whole, usual=usual)

    def clustering(self, operator: m.Operator, source: m.Operator) -> float:
        """Squared spread of a filter's share over windows, relative to that of independent draws."""
        above, below = self.column(operator), self.column(source)
        if above is None or below is None:
            return 1.0
        used = below > 0
        hits, draws = above[used], below[used]
        p = hits.sum() / draws.sum() if draws.sum() > 0 else 0.0
        if len(draws) < 4 or not 0 < p < 1:
            return 1.0
        return float(np.mean((hits - p * draws) ** 2 / (draws * p * (1 - p))) * len(draws) / (len(draws) - 1))

    def bytes_deviation(self, running: int, seen: float, whole: float) -> float:
        """Relative standard deviation of the mean bytes of an element."""
        made, elements = self.windows.bytes[:, running], self.windows.seen[:, running]
        used = elements > 0
        mean = made[used].sum() / elements[used].sum() if used.any() else 0.0
        if mean <= 0:
            return 0.0
        found = deviation_of_ratio(made, elements, seen=seen, whole=whole, usual=_BYTES_VARY)
        return 0.0 if math.isinf(found) else found / float(mean)

    def owner(self, operator: m.Operator) -> m.Operator | None:
        """The interleave or flat map whose function's body holds the operator; None in the main graph."""
        while operator.parent:
            parent = self.operators[operator.parent]
            if operator.in_body:
                return parent
            operator = parent
        return None

    def repeated(self, operator: m.Operator) -> bool:
        """Whether a repeat stands above it."""
        while operator.parent:
            operator = self.operators[operator.parent]
            if operator.type == "Repeat":
                return True
        return False
