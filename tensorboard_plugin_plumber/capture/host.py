"""What this process may use of its host, and what it uses."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from tensorboard_plugin_plumber.capture import cgroups, threads
from tensorboard_plugin_plumber.events import layout
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_PRESSURE = Path("/proc/pressure/cpu")
_MICROSECONDS = 1e-6
# Files that Docker and Podman leave in a container, and what the paths of its cgroups and mounts are made of.
_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_CONTAINER_WORDS = ("docker", "containerd", "kubepods", "libpod", "crio", "lxc.payload", "machine.slice")


def describe_host() -> m.Host:
    """The limits of this process; accelerators are not in it."""
    cores, cores_from = usable_cores()
    memory, memory_from = usable_memory()
    host = m.Host(
        name=layout.host_name(),
        worker_index=layout.worker_index(),
        cores=cores,
        cores_from=cores_from,
        memory_bytes=memory,
        memory_from=memory_from,
        process_id=os.getpid(),
        machine_cores=float(os.cpu_count() or 1),
        affinity_cores=_affinity_cores(),
        cgroup_version=cgroups.version(),
        in_container=in_container(),
    )
    quota, limit = _quota_cores(), _memory_limit()
    if quota is not None:
        host.quota_cores = quota
    if limit is not None:
        host.memory_limit_bytes = limit
    return host


def usable_cores() -> tuple[float, str]:
    """Cores that this process may use, and which limit says so: "affinity" or "cgroup"."""
    affinity, quota = _affinity_cores(), _quota_cores()
    if quota is not None and quota < affinity:
        return quota, "cgroup"
    return affinity, "affinity"


def usable_memory() -> tuple[int, str]:
    """Bytes that this process may use, and which limit says so: "machine" or "cgroup"."""
    machine, limit = int(psutil.virtual_memory().total), _memory_limit()
    if limit is not None and limit < machine:
        return limit, "cgroup"
    return machine, "machine"


def in_container(root: Path = Path("/")) -> bool:
    """Whether this process runs in a container, as far as its files, environment and cgroups tell.

    Args:
      root: of the file system.
    """
    if any((root / name).exists() for name in _CONTAINER_FILES):
        return True
    if (
        "container" in os.environ or "KUBERNETES_SERVICE_HOST" in os.environ
    ):  # systemd's and Podman's own name
        return True
    for name in ("1/cgroup", "self/cgroup", "self/mountinfo"):
        try:
            lines = (root / "proc" / name).read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        if name.endswith("mountinfo"):  # of the root file system alone: a host mounts those of its containers
            lines = [line for line in lines if line.split(" ")[4:5] == ["/"]]
        if any(word in line for line in lines for word in _CONTAINER_WORDS):
            return True
    return False


def _affinity_cores() -> float:
    try:
        return float(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):
        return float(os.cpu_count() or 1)


def _quota_cores() -> float | None:
    return min((q for group in cgroups.groups() if (q := group.cores()) is not None), default=None)


def _memory_limit() -> int | None:
    return min((b for group in cgroups.groups() if (b := group.memory_limit()) is not None), default=None)


class HostSampler:
    """Takes host samples; what cannot be read stays unset."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        groups = cgroups.groups()
        self._limiting = min(
            (group for group in groups if group.memory_limit() is not None),
            key=lambda group: group.memory_limit() or 0,
            default=None,
        )
        self._quotas = [_Quota(group) for group in groups if group.throttling() is not None]
        try:
            self._affinity: list[int] | None = sorted(os.sched_getaffinity(0))
        except (AttributeError, OSError):
            self._affinity = None

    def sample(self, poller_cpu_s: float) -> m.HostSample:
        """One sample.

        Args:
          poller_cpu_s: CPU time of Plumber's own thread so far, seconds.
        """
        times = self._process.cpu_times()
        rss = int(self._process.memory_info().rss)
        used = self._limiting.memory_used() if self._limiting is not None else None
        sample = m.HostSample(
            process_cpu_s=times.user + times.system,
            rss_bytes=rss,
            memory_used_bytes=rss if used is None else used,
            poller_cpu_s=poller_cpu_s,
            threads=self._process.num_threads(),
        )
        host = self._host_cpu_s()
        if host is not None:
            sample.host_cpu_s = host
        reads = _process_io()
        if "rchar" in reads:
            sample.read_bytes = reads["rchar"]
        if "read_bytes" in reads:
            sample.storage_read_bytes = reads["read_bytes"]
        main = threads.main_thread_time()
        if main is not None:
            sample.main_run_queue_s = main.run_queue_s
        pressure = _cpu_pressure_s()
        if pressure is not None:
            sample.cpu_pressure_s = pressure
        if self._quotas:
            sample.throttled_s = sum(quota.throttled_s() for quota in self._quotas)
        return sample

    def _host_cpu_s(self) -> float | None:
        try:
            per_core = psutil.cpu_times(percpu=True)
        except (OSError, RuntimeError):
            return None
        cores = range(len(per_core)) if self._affinity is None else self._affinity
        busy = 0.0
        for core in cores:
            if core < len(per_core):
                t = per_core[core]
                busy += (
                    t.user
                    + getattr(t, "nice", 0.0)
                    + t.system
                    + getattr(t, "irq", 0.0)
                    + getattr(t, "softirq", 0.0)
                )
        return busy


class _Quota:
    """Adds up for how long one group's quota held it back, from the first sample on."""

    def __init__(self, group: cgroups.Group) -> None:
        self._group = group
        self._last = group.throttling()
        self._throttled_s = 0.0

    def throttled_s(self) -> float:
        now = self._group.throttling()
        if now is not None and self._last is not None:
            self._throttled_s += now.since(self._last)
        self._last = now
        return self._throttled_s


def _cpu_pressure_s() -> float | None:
    """Time for which some task on this host waited for a core, seconds; None where the kernel does not tell."""
    try:
        lines = _PRESSURE.read_text().splitlines()
        some = next(line for line in lines if line.startswith("some "))
        return int(some.partition("total=")[2]) * _MICROSECONDS
    except (OSError, StopIteration, ValueError):
        return None


def _process_io() -> dict[str, int]:
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
        return {key: int(value) for key, _, value in (line.partition(": ") for line in lines)}
    except (OSError, ValueError):
        return {}
