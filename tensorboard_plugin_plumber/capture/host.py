"""What this process may use of its host, and what it uses."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from tensorboard_plugin_plumber.capture import threads
from tensorboard_plugin_plumber.events import layout
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_CGROUP_ROOT = Path("/sys/fs/cgroup")
# cgroup v1 writes a huge number where there is no limit.
_NO_LIMIT_BYTES = 1 << 60


def describe_host(accelerators: list[str]) -> m.Host:
    """The limits of this process.

    Args:
      accelerators: names of TensorFlow's devices, without the CPUs.
    """
    cores, cores_from = usable_cores()
    memory, memory_from = usable_memory()
    return m.Host(
        name=layout.host_name(),
        worker_index=layout.worker_index(),
        cores=cores,
        cores_from=cores_from,
        memory_bytes=memory,
        memory_from=memory_from,
        accelerators=accelerators,
        process_id=os.getpid(),
    )


def usable_cores() -> tuple[float, str]:
    """Cores that this process may use, and which limit says so: "affinity" or "cgroup"."""
    try:
        affinity = float(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):
        affinity = float(os.cpu_count() or 1)
    quota = min((q for group in _groups() if (q := group.cores()) is not None), default=None)
    if quota is not None and quota < affinity:
        return quota, "cgroup"
    return affinity, "affinity"


def usable_memory() -> tuple[int, str]:
    """Bytes that this process may use, and which limit says so: "machine" or "cgroup"."""
    machine = int(psutil.virtual_memory().total)
    limit = min((b for group in _groups() if (b := group.memory_limit()) is not None), default=None)
    if limit is not None and limit < machine:
        return limit, "cgroup"
    return machine, "machine"


class HostSampler:
    """Takes host samples; what cannot be read stays unset."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._limiting = min(
            (group for group in _groups() if group.memory_limit() is not None),
            key=lambda group: group.memory_limit() or 0,
            default=None,
        )
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


def _process_io() -> dict[str, int]:
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
        return {key: int(value) for key, _, value in (line.partition(": ") for line in lines)}
    except (OSError, ValueError):
        return {}


@dataclass(frozen=True)
class _Group:
    """One cgroup that holds this process, or one above it."""

    path: Path
    version: int

    def cores(self) -> float | None:
        if self.version == 2:
            quota, _, period = _read(self.path / "cpu.max").partition(" ")
        else:
            quota, period = _read(self.path / "cpu.cfs_quota_us"), _read(self.path / "cpu.cfs_period_us")
        if not quota.isdigit() or not period.isdigit() or int(period) == 0 or int(quota) == 0:
            return None
        return int(quota) / int(period)

    def memory_limit(self) -> int | None:
        text = _read(self.path / ("memory.max" if self.version == 2 else "memory.limit_in_bytes"))
        if not text.isdigit() or int(text) >= _NO_LIMIT_BYTES:
            return None
        return int(text)

    def memory_used(self) -> int | None:
        current = _read(self.path / ("memory.current" if self.version == 2 else "memory.usage_in_bytes"))
        if not current.isdigit():
            return None
        key = "inactive_file" if self.version == 2 else "total_inactive_file"
        for line in _read(self.path / "memory.stat").splitlines():
            name, _, value = line.partition(" ")
            if name == key and value.isdigit():
                return max(0, int(current) - int(value))
        return int(current)


def _groups() -> list[_Group]:
    """The cgroups whose limits bind this process: its own and all above."""
    groups: list[_Group] = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = controllers.split(",")
        if controllers == "":
            groups += _chain(_CGROUP_ROOT, path, 2)
        for controller in ("cpu", "memory"):
            if controller in names:
                for mount in (controllers, controller):
                    groups += _chain(_CGROUP_ROOT / mount, path, 1)
    return groups


def _chain(root: Path, path: str, version: int) -> list[_Group]:
    """The group and those above it. In a container the path may be the host's: then only the root is there."""
    relative = Path(path.lstrip("/"))
    candidates = [relative, *relative.parents]
    return [_Group(root / part, version) for part in candidates if (root / part).is_dir()]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
