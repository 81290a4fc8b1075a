"""What a rule may look at, and what rules share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tensorboard_plugin_plumber.model.bounds import Bound, Kind
from tensorboard_plugin_plumber.model.estimate import Estimate
from tensorboard_plugin_plumber.model.network import Settings
from tensorboard_plugin_plumber.model.plan import reached_rate
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: A finding must promise at least this much, else it is not worth a reader's time.
LEAST_GAIN = 0.05
#: From here on it is a high one.
HIGH_GAIN = 0.25
#: Cores that must be free before they are called idle.
IDLE_CORES = 0.25
#: Two bounds this close bind together.
TIE = 0.05


@dataclass(frozen=True)
class Case:
    """What a rule may look at."""

    pipeline: m.Pipeline
    estimate: Estimate
    #: Bounds under today's settings, the smallest first; with the consumer's.
    bounds: tuple[Bound, ...]
    #: What binds today.
    binding: Bound
    #: What the plan sets: a finding's fix names the same numbers.
    planned: Settings

    def gain(self, settings: Settings) -> float:
        """new/old - 1 of the predicted rate, if today's settings became `settings`."""
        network = self.estimate.network
        before = reached_rate(network, network.current)
        after = reached_rate(network, settings)
        return after / before - 1 if math.isfinite(before) and math.isfinite(after) and before > 0 else 0.0

    def with_choice(self, position: int, **changes: object) -> Settings:
        """Today's settings with one operator's choice changed."""
        current = self.estimate.network.current
        choices = list(current.choices)
        choices[position] = replace(choices[position], **changes)  # type: ignore[arg-type]
        return replace(current, choices=tuple(choices))

    def binding_operators(self) -> tuple[int, ...]:
        """Operators of every data-side bound that binds within a tie of the smallest."""
        data = [bound for bound in self.bounds if bound.kind is not Kind.CONSUMER]
        tied = (bound for bound in data if bound.rate <= data[0].rate * (1 + TIE))
        return tuple(dict.fromkeys(i for bound in tied for i in bound.operators[:1]))

    @property
    def consumer_binds(self) -> bool:
        """Training does not wait: whatever the pipeline could do better costs nothing here."""
        return self.estimate.consumer.input_bound is False


Rule = Callable[[Case], Iterator[a.Finding]]


def severity(gain: float) -> a.Severity.ValueType:
    """How much a finding of this gain matters."""
    return a.SEVERITY_HIGH if gain >= HIGH_GAIN else a.SEVERITY_MEDIUM


def cores_used(case: Case) -> float:
    """Cores in use by this process and by others on its cores."""
    network = case.estimate.network
    return case.estimate.process_cpu_s * (network.observed_rate or 0.0) + case.estimate.foreign_cores


def map_call(written: m.Operator) -> str:
    """The beginning of the map's call as code, up to its arguments."""
    name = written.function.name
    return f".map({name if name.isidentifier() else '…'}, "


def is_below(operators: dict[str, m.Operator], operator: m.Operator, ancestor: str) -> bool:
    """Whether the operator hands its elements, at any distance, to `ancestor` (an Operator.id)."""
    while operator.parent:
        if operator.parent == ancestor:
            return True
        operator = operators[operator.parent]
    return False
