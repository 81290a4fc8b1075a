"""What this process may use of its host, and what it uses."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Collection
from pathlib import Path

import psutil

from tensorboard_plugin_plumber.capture import cgroups, procfs, threads
from tensorboard_plugin_plumber.events import layout
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_PRESSURE = "/proc/pressure/cpu"
# Of a line of /proc/stat: user, nice, system, irq and softirq time, behind the core's name.
_BUSY = (1, 2, 3, 6, 7)
# Of /proc/self/stat, behind the program's name: number of threads, resident pages.
_THREADS, _RESIDENT = 17, 21
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
    with contextlib.suppress(OSError):  # the working directory may be gone
        host.disk_free_bytes = shutil.disk_usage(os.curdir).free
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
        self._page_bytes = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
        groups = cgroups.groups()
        self._limiting = min(
            (group for group in groups if group.memory_limit() is not None),
            key=lambda group: group.memory_limit() or 0,
            default=None,
        )
        self._quotas = [_Quota(group) for group in groups if group.throttling() is not None]
        try:
            self._affinity: Collection[int] | None = os.sched_getaffinity(0)
        except (AttributeError, OSError):
            self._affinity = None

    def sample(self, poller_cpu_s: float) -> m.HostSample:
        """One sample.

        Args:
          poller_cpu_s: CPU time of Plumber's own thread so far, seconds.
        """
        rss, thread_count = self._own()
        used = self._limiting.memory_used() if self._limiting is not None else None
        sample = m.HostSample(
            process_cpu_s=time.process_time(),
            rss_bytes=rss,
            memory_used_bytes=rss if used is None else used,
            poller_cpu_s=poller_cpu_s,
            threads=thread_count,
        )
        host = self._host_cpu_s()
        if host is not None:
            sample.host_cpu_s = host
        reads = procfs.io_of()
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

    def _own(self) -> tuple[int, int]:
        """Resident bytes, and the number of threads."""
        try:
            fields = procfs.read("/proc/self/stat").rpartition(b")")[2].split()
            return int(fields[_RESIDENT]) * self._page_bytes, int(fields[_THREADS])
        except (OSError, ValueError, IndexError):
            return int(self._process.memory_info().rss), self._process.num_threads()

    def _host_cpu_s(self) -> float | None:
        cores = _busy_cores_s()
        if cores is None:
            return None
        return sum(s for core, s in cores.items() if self._affinity is None or core in self._affinity)


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


def _busy_cores_s() -> dict[int, float] | None:
    """By number of each core: seconds for which it was busy so far; None where nobody tells."""
    try:
        lines = procfs.read("/proc/stat").splitlines()
        ticks_per_s = os.sysconf("SC_CLK_TCK")
        per_core = (line.split() for line in lines if line.startswith(b"cpu") and line[3:4].isdigit())
        return {int(core[0][3:]): sum(int(core[i]) for i in _BUSY) / ticks_per_s for core in per_core}
    except (OSError, ValueError, IndexError):
        pass
    try:
        times = psutil.cpu_times(percpu=True)
    except (OSError, RuntimeError):
        return None
    kinds = ("user", "nice", "system", "irq", "softirq")
    return {core: sum(getattr(one, kind, 0.0) for kind in kinds) for core, one in enumerate(times)}


def _cpu_pressure_s() -> float | None:
    """Time for which some task on this host waited for a core, seconds; None where the kernel does not tell."""
    try:
        lines = procfs.read(_PRESSURE).splitlines()
        some = next(line for line in lines if line.startswith(b"some "))
        return int(some.partition(b"total=")[2]) * _MICROSECONDS
    except (OSError, StopIteration, ValueError):
        return None
