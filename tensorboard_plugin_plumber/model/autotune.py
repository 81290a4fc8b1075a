"""AUTOTUNE made visible: what it rules, what it has changed, and what it may not touch and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.estimate import AUTOTUNE, label_of
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import sample_of

#: Points of one parameter's history, at most: the first and the latest ones.
HISTORY_POINTS = 100
#: Samples that histories are made of, at most.
_MOST_SAMPLES = 300
#: Names in one sentence, at most.
_MOST_NAMES = 3
#: TensorFlow writes the largest integer for "no limit".
_NO_LIMIT = 2.0**62
#: These follow from the others, or are no quantities: nobody would tune them.
_NO_SETTINGS = frozenset({"deterministic", "max_buffered_elements"})
_SETTINGS = {
    "parallelism": "parallel calls of",
    "buffer_size": "the buffer of",
    "cycle_length": "the cycle of",
}
_SEQUENTIAL_MAP = "Map"

Parameters = Mapping[str, Sequence[a.TunedParameter]]


def tuned_parameters(
    pipeline: m.Pipeline, index: int, samples: Sequence[m.SampleRecord]
) -> dict[str, list[a.TunedParameter]]:
    """The parameters that AUTOTUNE knows of each operator, by Operator.id, with their histories.

    Args:
      index: of the pipeline in the graph record.
      samples: of one session, by sequence.
    """
    by_id = {operator.id: operator for operator in pipeline.operators}
    known: dict[tuple[int, str], a.TunedParameter] = {}
    for record in _thinned(samples):
        sample = sample_of(record, index)
        if sample is None:
            continue
        for r, counters in enumerate(sample.operators):
            for parameter in counters.parameters:
                key = (r, parameter.name)
                if key not in known:
                    known[key] = a.TunedParameter(name=parameter.name)
                _take(known[key], parameter, record.wall_time_s)
    found: dict[str, list[a.TunedParameter]] = {}
    for (r, name), tuned in known.items():
        operator = _holder([by_id[i] for i in pipeline.running[r].operators if i in by_id], name)
        if operator is None:
            continue
        if not tuned.tunable:
            tuned.fixed_by = _fixed_by(operator, name)
        found.setdefault(operator.id, []).append(tuned)
    return found


def _thinned(samples: Sequence[m.SampleRecord]) -> Sequence[m.SampleRecord]:
    """Evenly spaced ones, the first and the last among them, where there are many."""
    if len(samples) <= _MOST_SAMPLES:
        return samples
    step = (len(samples) - 1) / (_MOST_SAMPLES - 1)
    return [samples[round(i * step)] for i in range(_MOST_SAMPLES)]


def _take(parameter: a.TunedParameter, now: m.Parameter, time_s: float) -> None:
    """Takes a parameter's state of one sample."""
    history = parameter.history
    if not history or history[-1].value != now.value:
        if len(history) >= HISTORY_POINTS:
            del history[1]
        history.add(time_s=time_s, value=now.value)
    parameter.value = now.value
    parameter.min = now.min
    parameter.tunable = now.tunable
    if now.max < _NO_LIMIT:
        parameter.max = now.max


def _holder(members: Sequence[m.Operator], name: str) -> m.Operator | None:
    """The operator among those that run as one to which a parameter belongs."""
    if name == "buffer_size":
        chosen = [one for one in members if one.HasField("buffer_size")]
    else:
        chosen = [one for one in members if one.HasField("function")]
    return next(iter([*chosen, *members]), None)


def _fixed_by(operator: m.Operator, name: str) -> str:
    """Why AUTOTUNE may not touch a parameter."""
    given = {"parallelism": "num_parallel_calls", "buffer_size": "buffer_size"}.get(name)
    if given is None:
        return "TensorFlow sets it once"
    if operator.HasField(given) and getattr(operator, given) != AUTOTUNE:  # type: ignore[arg-type]
        return "your code sets it"
    return _why_sequential(operator.function) or "TensorFlow sets it once"


def _why_sequential(function: m.UserFunction) -> str:
    """Why TensorFlow makes no calls of a function side by side unasked; "" if it does."""
    if function.random:
        return "its function is random"
    if function.python:
        return "its function runs Python"
    if function.writes:
        return f"its function writes {function.writes[0]}"
    return "its function holds state" if function.stateful else ""


def autotune_summary(
    pipeline: m.Pipeline, last: m.PipelineSample | None, parameters: Parameters
) -> a.AutotuneSummary:
    """What AUTOTUNE may use, what it rules, and what it has done, with a sentence.

    Args:
      last: the newest sample of the pipeline; None if there is none.
      parameters: as `tuned_parameters` gives them.
    """
    settings = [one for each in parameters.values() for one in each if one.name not in _NO_SETTINGS]
    summary = a.AutotuneSummary(
        enabled=pipeline.autotune_enabled,
        tunable=sum(one.tunable for one in settings),
        fixed=sum(not one.tunable for one in settings),
    )
    if last is not None:
        summary.buffered_bytes = float(sum(counters.buffered_bytes for counters in last.operators))
        _fill_budgets(summary, last.autotune)
    if not summary.HasField("cpu_budget") and pipeline.HasField("autotune_cpu_budget"):
        summary.cpu_budget = pipeline.autotune_cpu_budget
    if not summary.HasField("ram_budget_bytes") and pipeline.HasField("autotune_ram_budget_bytes"):
        summary.ram_budget_bytes = pipeline.autotune_ram_budget_bytes
    summary.sentence = _sentence(pipeline, summary, parameters)
    return summary


def _fill_budgets(summary: a.AutotuneSummary, autotune: m.Autotune) -> None:
    summary.algorithm = autotune.algorithm
    if autotune.cpu_budget > 0:
        summary.cpu_budget = autotune.cpu_budget
    if autotune.ram_budget_bytes > 0:
        summary.ram_budget_bytes = autotune.ram_budget_bytes
    if autotune.model_input_time_ns > 0:
        summary.consumer_s = autotune.model_input_time_ns * 1e-9


def _sentence(pipeline: m.Pipeline, summary: a.AutotuneSummary, parameters: Parameters) -> str:
    if not summary.enabled:
        return "AUTOTUNE is off: options.autotune.enabled is False."
    untouched = _untouched(pipeline, parameters)
    kept = f"it may not touch {_listed(untouched, ', nor ')}" if untouched else ""
    count = summary.tunable + summary.fixed
    if not count:
        return _joined(["AUTOTUNE has nothing to rule in this pipeline", kept])
    parts = [f"AUTOTUNE rules {summary.tunable} of {count} parameters{_budget(summary)}"]
    if summary.tunable:
        moved = _moved(pipeline, parameters)
        parts.append(f"it has {_listed(moved, ' and ')}" if moved else "it has changed none of them so far")
    return _joined([*parts, kept])


def _joined(parts: Sequence[str]) -> str:
    return f"{'; '.join(part for part in parts if part)}."


def _budget(summary: a.AutotuneSummary) -> str:
    if not summary.HasField("cpu_budget"):
        return ""
    memory = f" and {words.size(summary.ram_budget_bytes)}" if summary.HasField("ram_budget_bytes") else ""
    return f" with a budget of {words.cores(summary.cpu_budget)}{memory}"


def _moved(pipeline: m.Pipeline, parameters: Parameters) -> list[str]:
    """ "raised parallel calls of Map decode (train.py:57) from 1 to 2" for each that differs from the beginning."""
    moved = []
    for operator in pipeline.operators:
        for one in parameters.get(operator.id, ()):
            first = one.history[0].value
            if one.tunable and one.name in _SETTINGS and one.value != first:
                verb = "raised" if one.value > first else "lowered"
                what = f"{_SETTINGS[one.name]} {label_of(operator)}"
                moved.append(f"{verb} {what} from {first:,.0f} to {one.value:,.0f}")
    return moved


def _untouched(pipeline: m.Pipeline, parameters: Parameters) -> list[str]:
    """The operators whose parallelism it may not touch because of their functions."""
    found = []
    for operator in pipeline.operators:
        held = [one for one in parameters.get(operator.id, ()) if one.name == "parallelism"]
        why = held[0].fixed_by if held and not held[0].tunable else ""
        if not held and _runs_as_sequential_map(pipeline, operator):
            why = _why_sequential(operator.function)
        if why.startswith("its function"):
            found.append(f"{label_of(operator)}, because {why}")
    return found


def _runs_as_sequential_map(pipeline: m.Pipeline, operator: m.Operator) -> bool:
    return (
        operator.HasField("function")
        and operator.HasField("running")
        and pipeline.running[operator.running].type == _SEQUENTIAL_MAP
    )


def _listed(names: Sequence[str], last: str) -> str:
    shown = list(names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        shown.append(f"{len(names) - _MOST_NAMES} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])}{last}{shown[-1]}"
