"""Which recordings there are, which one to show first, and which one was asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording

# A recording that was not closed in order counts as live until it has been silent for so long.
_SILENCE_S = 30.0
_SILENT_INTERVALS = 4


class NotFound(Exception):
    """There is no such run, host or pipeline; the message says which there are."""


def catalog(recordings: Iterable[Recording], *, now_s: float) -> a.RunList:
    """Lists recordings for the pickers, newest run first, and says what to preselect.

    Args:
      recordings: the newest session of each run and host.
      now_s: Unix time, to tell live recordings.
    """
    by_run: dict[str, list[Recording]] = {}
    for recording in recordings:
        by_run.setdefault(recording.run, []).append(recording)
    entries = [_run_entry(run, of_run, now_s) for run, of_run in by_run.items()]
    entries.sort(key=lambda entry: (-entry.updated_s, entry.run))
    listed = a.RunList(runs=entries)
    if entries:
        preselected = choose([recording for of_run in by_run.values() for recording in of_run])
        listed.run, listed.host = preselected.run, preselected.host
        listed.pipeline = main_pipeline(preselected).id
    return listed


def choose(recordings: Sequence[Recording], *, run: str | None = None, host: str | None = None) -> Recording:
    """The recording of a run and host; by default the newest run, and its slowest host.

    Args:
      recordings: the newest session of each run and host, at least one.
      run, host: as in `Recording`.

    Raises:
      NotFound: no recording has that run and host.
    """
    newest = max(recordings, key=updated_s)
    if run is None:
        run = newest.run if host is None else _newest_run_with(recordings, host)
    of_run = [recording for recording in recordings if recording.run == run]
    if not of_run:
        raise NotFound(
            f"There is no run '{run}': there are {_listed(recording.run for recording in recordings)}."
        )
    if host is None:
        return min(of_run, key=_rate_order)
    for recording in of_run:
        if recording.host == host:
            return recording
    raise NotFound(
        f"Run '{run}' has no host '{host}': it has {_listed(recording.host for recording in of_run)}."
    )


def choose_pipeline(recording: Recording, pipeline: str | None = None) -> m.Pipeline:
    """The pipeline with that id, else with that label; by default `main_pipeline`.

    Raises:
      NotFound: there is no such pipeline.
    """
    if pipeline is None:
        return main_pipeline(recording)
    pipelines = list(enumerate(recording.graph.pipelines))
    matching = [i for i, p in pipelines if p.id == pipeline] or [
        i for i, p in pipelines if p.label == pipeline
    ]
    if not matching:
        known = ", ".join(f"'{p.label}' (id '{p.id}')" for _, p in pipelines)
        raise NotFound(f"There is no pipeline '{pipeline}' in run '{recording.run}': there are {known}.")
    return recording.graph.pipelines[max(matching, key=recording.steps)]


def main_pipeline(recording: Recording) -> m.Pipeline:
    """The training pipeline with most steps; where nothing has trained yet, the one with most steps."""
    return recording.graph.pipelines[recording.main_pipeline()]


def rate_of(recording: Recording) -> float | None:
    """Steps/s of the main pipeline over the whole session, pauses left out; None if unknown."""
    sample = recording.last_sample(recording.main_pipeline())
    if sample is None or sample.active_s <= 0:
        return None
    return sample.steps / sample.active_s


def updated_s(recording: Recording) -> float:
    """Unix time of the newest sample."""
    return recording.samples[-1].wall_time_s


def is_live(recording: Recording, *, now_s: float) -> bool:
    """Whether more is to be expected: it was not closed in order, and has not long been silent."""
    last, before = recording.samples[-1], recording.samples[-2]
    interval_s = (last.elapsed_s - before.elapsed_s) / max(1, last.sequence - before.sequence)
    return not last.final and now_s - last.wall_time_s < max(_SILENCE_S, _SILENT_INTERVALS * interval_s)


def _run_entry(run: str, recordings: Sequence[Recording], now_s: float) -> a.RunEntry:
    hosts = [_host_entry(recording, now_s) for recording in sorted(recordings, key=lambda r: r.host)]
    return a.RunEntry(run=run, hosts=hosts, updated_s=max(host.updated_s for host in hosts))


def _host_entry(recording: Recording, now_s: float) -> a.HostEntry:
    return a.HostEntry(
        host=recording.host,
        pipelines=[
            a.PipelineEntry(id=p.id, label=p.label, role=p.role, steps=recording.steps(i))
            for i, p in enumerate(recording.graph.pipelines)
        ],
        live=is_live(recording, now_s=now_s),
        updated_s=updated_s(recording),
        rate=rate_of(recording),
    )


def _newest_run_with(recordings: Sequence[Recording], host: str) -> str:
    having = [recording for recording in recordings if recording.host == host]
    if not having:
        raise NotFound(
            f"No run has a host '{host}': there are {_listed(recording.host for recording in recordings)}."
        )
    return max(having, key=updated_s).run


def _rate_order(recording: Recording) -> tuple[float, str]:
    rate = rate_of(recording)
    return (math.inf if rate is None else rate, recording.host)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(set(names)))
