"""What the process may use of its host, and what it used while the pipeline was measured."""

from __future__ import annotations

from collections.abc import Sequence

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import sample_of

#: Shares and cores below this are noise of the clocks, and go unsaid.
_WORTH_SAYING = 0.05


def host_use(host: m.Host, samples: Sequence[m.SampleRecord], index: int) -> a.HostSummary:
    """The host over the time in which the pipeline at `index` was consumed.

    Args:
      host: its limits.
      samples: of one session, by sequence.
      index: of a pipeline in the graph record.
    """
    summary = a.HostSummary(
        cores=host.cores,
        cores_from=host.cores_from,
        machine_cores=host.machine_cores,
        memory_bytes=float(host.memory_bytes),
        memory_from=host.memory_from,
        in_container=host.in_container,
        cgroup_version=host.cgroup_version,
        accelerators=_accelerators(host),
    )
    if host.HasField("quota_cores"):
        summary.quota_cores = host.quota_cores
    span = _span(samples, index)
    if not span:
        return summary
    first, last = span[0], span[-1]
    summary.rss_bytes = float(last.host.rss_bytes)
    summary.memory_used_bytes = float(last.host.memory_used_bytes)
    seconds = last.elapsed_s - first.elapsed_s
    if seconds > 0:
        _add_rates(summary, first.host, last.host, seconds)
    return summary


def _add_rates(summary: a.HostSummary, before: m.HostSample, after: m.HostSample, seconds: float) -> None:
    summary.process_cores = max(after.process_cpu_s - before.process_cpu_s, 0.0) / seconds
    summary.plumber_cores = max(after.poller_cpu_s - before.poller_cpu_s, 0.0) / seconds
    for name, counter in (
        ("waiting_threads", "run_queue_s"),
        ("cpu_pressure", "cpu_pressure_s"),
        ("throttled", "throttled_s"),
        ("read_bytes_per_s", "read_bytes"),
        ("storage_read_bytes_per_s", "storage_read_bytes"),
    ):
        if before.HasField(counter) and after.HasField(counter):  # type: ignore[arg-type]
            rate = max(getattr(after, counter) - getattr(before, counter), 0.0) / seconds
            setattr(summary, name, min(rate, 1.0) if name in ("cpu_pressure", "throttled") else rate)
    if before.HasField("host_cpu_s") and after.HasField("host_cpu_s"):
        everything = (after.host_cpu_s - before.host_cpu_s) / seconds
        summary.other_cores = max(everything - summary.process_cores, 0.0)


def _span(samples: Sequence[m.SampleRecord], index: int) -> list[m.SampleRecord]:
    """The samples from the first that saw the pipeline to the last in which it moved."""
    seen = [
        (record, part.steps) for record in samples if (part := sample_of(record, index)) and part.steps > 0
    ]
    if not seen:
        return []
    newest = seen[-1][1]
    end = next(i for i, (_, steps) in enumerate(seen) if steps == newest)
    return [record for record, _ in seen[: end + 1]]


def _accelerators(host: m.Host) -> list[str]:
    models = [*host.accelerator_models, *[""] * len(host.accelerators)]
    return [
        f"{name} ({model})" if model else name for name, model in zip(host.accelerators, models, strict=False)
    ]


def sentence(use: a.HostSummary) -> str:
    """All of it that is worth saying, in one sentence; empty where nothing is known."""
    if not use.HasField("process_cores"):
        return ""
    said = [f"The process used {words.digits(use.process_cores)} of {words.cores(use.cores)}{_limit(use)}"]
    if use.other_cores >= _WORTH_SAYING:
        said.append(f"other processes {words.digits(use.other_cores)}")
    if use.throttled >= _WORTH_SAYING:
        said.append(f"its CPU quota held it back for {words.percent(use.throttled)} of the time")
    if use.waiting_threads >= _WORTH_SAYING:
        said.append(f"{words.digits(use.waiting_threads)} of its threads waited for a core on average")
    if use.accelerators:
        said.append(f"accelerators: {', '.join(use.accelerators)}")
    return f"{', '.join(said)}."


def _limit(use: a.HostSummary) -> str:
    where = " in a container" if use.in_container else ""
    if use.cores_from == "cgroup":
        return f" (its CPU quota{where})"
    if use.machine_cores > use.cores:
        return f" (its affinity{where}; the machine has {words.digits(use.machine_cores)})"
    return ""
