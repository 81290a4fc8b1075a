"""What a sample need not say because the session's last graph record says it, and the way back.

AUTOTUNE's parameters are most of what a sample would be: their names and limits never change, and most of their
values neither. So the graph record has each as it was first (`RunningOperator.parameters`), and a sample as it is
written has what differs: of one whose limits are still the same, its name and value. What follows from the
parameters, parallelism and buffer size in force, is left out as well; and `elements_seen` where all were seen. A
reader, who has the session's last graph record whatever TensorBoard dropped, makes all of it whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from tensorboard_plugin_plumber.schema import measurement_pb2 as m

# By the name of a parameter: the fields of the counters that say it, too.
_Value: TypeAlias = Literal["parallelism", "buffer_size"]
_Tunable: TypeAlias = Literal["parallelism_tunable", "buffer_size_tunable"]
_FIELDS: Mapping[str, tuple[_Value, _Tunable]] = {
    "parallelism": ("parallelism", "parallelism_tunable"),
    "buffer_size": ("buffer_size", "buffer_size_tunable"),
}


def compact(sample: m.SampleRecord, graph: m.GraphRecord | None) -> m.SampleRecord:
    """A copy of a sample without what the graph record says.

    Args:
      sample: whole.
      graph: the last one that was written; None if there was none.
    """
    made = m.SampleRecord()
    made.CopyFrom(sample)
    for part in made.pipelines:
        running = _running(graph, part)
        for index, counters in enumerate(part.operators):
            _drop_what_follows(counters)
            if index < len(running):
                _drop_what_is_the_same(counters, running[index])
    return made


class Restorer:
    """Makes the samples of one session whole again.

    Args:
      graph: the last graph record of the session.
    """

    def __init__(self, graph: m.GraphRecord) -> None:
        self._first = [[_as_counters(one) for one in pipeline.running] for pipeline in graph.pipelines]

    def restore(self, sample: m.SampleRecord) -> m.SampleRecord:
        """A sample made whole, in place; one that is whole stays as it is.

        Args:
          sample: as it was written.

        Returns:
          `sample`.
        """
        for part in sample.pipelines:
            first = self._first[part.pipeline] if part.pipeline < len(self._first) else []
            for index, counters in enumerate(part.operators):
                if index < len(first) and not counters.parameters:
                    counters.MergeFrom(
                        first[index]
                    )  # the usual case, in one call: there may be a day of samples
                else:
                    if index < len(first):
                        _fill_parameters(counters, first[index])
                    _fill_what_follows(counters)
                if counters.all_seen:
                    counters.elements_seen = counters.elements
                    counters.ClearField("all_seen")
        return sample


def _as_counters(running: m.RunningOperator) -> m.OperatorCounters:
    """What all samples say that leave out everything of an operator's parameters."""
    counters = m.OperatorCounters(parameters=running.parameters)
    _fill_what_follows(counters)
    return counters


def _running(graph: m.GraphRecord | None, part: m.PipelineSample) -> list[m.RunningOperator]:
    if graph is None or part.pipeline >= len(graph.pipelines):
        return []
    return list(graph.pipelines[part.pipeline].running)


def _by_name(parameters: Iterable[m.Parameter]) -> Mapping[str, m.Parameter]:
    return {one.name: one for one in parameters}


def _drop_what_follows(counters: m.OperatorCounters) -> None:
    parameters = _by_name(counters.parameters)
    for name, (value, tunable) in _FIELDS.items():
        said = parameters.get(name)
        if said is not None and (said.value, said.tunable) == (
            getattr(counters, value),
            getattr(counters, tunable),
        ):
            counters.ClearField(value)
            counters.ClearField(tunable)
    if counters.elements and counters.elements_seen == counters.elements:
        counters.ClearField("elements_seen")
        counters.all_seen = True


def _drop_what_is_the_same(counters: m.OperatorCounters, running: m.RunningOperator) -> None:
    first = _by_name(running.parameters)
    kept = []
    for one in counters.parameters:
        before = first.get(one.name)
        if before is None or (one.min, one.max, one.tunable) != (before.min, before.max, before.tunable):
            kept.append(one)
        elif one.value != before.value:
            kept.append(m.Parameter(name=one.name, value=one.value))
    if len(kept) < len(counters.parameters) or any(one.name in first for one in kept):
        whole = m.OperatorCounters(parameters=kept)
        counters.ClearField("parameters")
        counters.parameters.MergeFrom(whole.parameters)


def _fill_parameters(counters: m.OperatorCounters, first: m.OperatorCounters) -> None:
    said = dict(_by_name(counters.parameters))
    parameters = []
    for before in first.parameters:
        one = m.Parameter()
        one.CopyFrom(before)
        now = said.pop(before.name, None)
        if now is not None and (now.min, now.max, now.tunable) == (0.0, 0.0, False):
            one.value = now.value
        elif now is not None:
            one.CopyFrom(now)
        parameters.append(one)
    whole = m.OperatorCounters(parameters=[*parameters, *said.values()])
    counters.ClearField("parameters")
    counters.parameters.MergeFrom(whole.parameters)


def _fill_what_follows(counters: m.OperatorCounters) -> None:
    parameters = _by_name(counters.parameters)
    for name, (value, tunable) in _FIELDS.items():
        said = parameters.get(name)
        if said is not None and not counters.HasField(value):
            setattr(counters, value, said.value)
            setattr(counters, tunable, said.tunable)
