"""What a rule may look at, and what rules share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tensorboard_plugin_plumber.model.bounds import Bound, Kind
from tensorboard_plugin_plumber.model.estimate import Estimate
from tensorboard_plugin_plumber.model.network import Network, Operator, Settings
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
#: Taken for a call's cost beside its work where the calibration sees less, seconds (docs/model.md, "Findings").
CALL_S = 10e-6


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
    #: The newest sample of the pipeline.
    last: m.PipelineSample
    #: What constraints from outside leave of a network's rate under some settings, steps/s.
    limit: Callable[[Network, Settings], float] = lambda network, settings: math.inf

    def gain(self, settings: Settings) -> float:
        """new/old - 1 of the predicted rate, if today's settings became `settings`."""
        return self._gain(self.estimate.network, settings)

    def gain_of(self, network: Network) -> float:
        """new/old - 1 of the predicted rate, if the pipeline became `network`, under the settings of that."""
        return self._gain(network, network.current)

    def _gain(self, network: Network, settings: Settings) -> float:
        today = self.estimate.network
        before = min(reached_rate(today, today.current), self.limit(today, today.current))
        after = min(reached_rate(network, settings), self.limit(network, settings))
        return after / before - 1 if math.isfinite(before) and math.isfinite(after) and before > 0 else 0.0

    def changed(self, changes: Mapping[int, Callable[[Operator], Operator]]) -> Network:
        """Today's network with some operators, by position, replaced by what a function makes of them."""
        network = self.estimate.network
        operators = tuple(
            changes[i](operator) if i in changes else operator for i, operator in enumerate(network.operators)
        )
        return replace(network, operators=operators)

    def files_of(self, operator: str) -> m.SourceFiles | None:
        """The files that a source (by id) reads; None where they are not known."""
        return next((files for files in self.pipeline.files if files.operator == operator), None)

    def cache_bytes(self, operator: str) -> float | None:
        """What a memory cache of the operator's output (by id) takes once it is full; None where nobody can tell."""
        size = self.estimate.sizes.get(operator)
        return None if size is None or size.materialised_bytes is None else size.materialised_bytes.value

    def batch_above(self, position: int) -> int:
        """Elements that the next batch towards the root gathers; 1 if there is none."""
        for i in self.estimate.network.path(position)[1:]:
            written = self.estimate.written[i]
            if written.batch_size > 1:
                return int(written.batch_size)
        return 1

    def overhead_s(self, position: int) -> float:
        """What one call of the operator's function costs beside its work, seconds.

        Calls of parallel operators hold it in their processing time, where nobody can see it: there it is the
        dearest of the others', and CALL_S where that is more.
        """
        own = self.pipeline.running[self.estimate.written[position].running].call_overhead_s
        others = (one.call_overhead_s for one in self.pipeline.running if one.calls_function)
        return own if own >= CALL_S else max(CALL_S, *others)

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


def by_severity(found: Iterable[a.Finding]) -> list[a.Finding]:
    """The most severe first, and of these the ones that gain most."""
    return sorted(
        found, key=lambda finding: (-finding.severity, -(finding.gain if finding.HasField("gain") else 0.0))
    )


def own_cores(case: Case) -> float:
    """Cores in use by this process."""
    return case.estimate.process_cpu_s * (case.estimate.network.observed_rate or 0.0)


def cores_used(case: Case) -> float:
    """Cores in use by this process and by others on its cores."""
    return own_cores(case) + case.estimate.foreign_cores


def map_call(written: m.Operator) -> str:
    """The beginning of the map's call as code, up to its arguments."""
    name = written.function.name
    return f".map({name if name.isidentifier() else '…'}, "


def is_below(operators: dict[str, m.Operator], operator: m.Operator, ancestor: str) -> bool:
    """Whether the operator hands its elements, at any distance, to `ancestor` (an Operator.id), as they were written.

    `Network.below` tells it of what runs; caches and takes that TensorFlow dropped stand in the recording alone.
    """
    while operator.parent:
        if operator.parent == ancestor:
            return True
        operator = operators[operator.parent]
    return False


def fewer(share: float) -> Callable[[Operator], Operator]:
    """Makes an operator produce `share` of its elements."""
    return lambda operator: replace(operator, visits=operator.visits * share)


def cheaper(share: float) -> Callable[[Operator], Operator]:
    """Makes an operator take `share` of its time for each element."""
    return lambda operator: replace(operator, cpu_s=operator.cpu_s * share, wait_s=operator.wait_s * share)


def waiting(seconds: float) -> Callable[[Operator], Operator]:
    """Makes an operator wait so long for each element, seconds."""
    return lambda operator: replace(operator, wait_s=seconds)


def costing(seconds: float) -> Callable[[Operator], Operator]:
    """Makes an operator use a core for so long for each element, seconds, and never wait."""
    return lambda operator: replace(operator, cpu_s=seconds, wait_s=0.0)
