"""The cgroups that hold this process, of version 1 and 2, in a container and out.

Where a hierarchy is mounted and which part of it is seen there, `/proc/self/mountinfo` says; in which group of
it the process is, `/proc/self/cgroup`. In a container the path may be the host's, of which only the lowest part
is mounted, or one that lies outside of what is mounted: then the mount's own root is all that can be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc/self")
# cgroup v1 writes a huge number where there is no limit.
_NO_LIMIT_BYTES = 1 << 60
_MICROSECONDS = 1e-6
_NANOSECONDS = 1e-9


@dataclass(frozen=True)
class Group:
    """One cgroup that holds this process, or one above it.

    Attributes:
      path: its directory.
      version: of its hierarchy, 1 or 2.
    """

    path: Path
    version: int

    def cores(self) -> float | None:
        """Its CPU quota in cores; None without one."""
        quota = self._quota()
        return None if quota is None else quota[0] / quota[1]

    def memory_limit(self) -> int | None:
        """Its memory limit in bytes; None without one."""
        text = _read(self.path / ("memory.max" if self.version == 2 else "memory.limit_in_bytes"))
        if not text.isdigit() or int(text) >= _NO_LIMIT_BYTES:
            return None
        return int(text)

    def memory_used(self) -> int | None:
        """Memory in use as its limit counts it, bytes, without file pages that the kernel would give back."""
        current = _read(self.path / ("memory.current" if self.version == 2 else "memory.usage_in_bytes"))
        if not current.isdigit():
            return None
        inactive = _statistics(self.path / "memory.stat").get(
            "inactive_file" if self.version == 2 else "total_inactive_file", 0
        )
        return max(0, int(current) - inactive)

    def throttling(self) -> Throttling | None:
        """How its CPU quota held it back so far; None without a quota."""
        quota = self._quota()
        if quota is None:
            return None
        counts = _statistics(self.path / "cpu.stat")
        if "nr_throttled" not in counts:
            return None
        held_s = (
            counts.get("throttled_usec", 0) * _MICROSECONDS
            if self.version == 2
            else counts.get("throttled_time", 0) * _NANOSECONDS
        )
        return Throttling(counts["nr_throttled"], held_s, quota[0] * _MICROSECONDS, quota[1] * _MICROSECONDS)

    def _quota(self) -> tuple[int, int] | None:
        """CPU time per period, and the period, µs."""
        if self.version == 2:
            quota, _, period = _read(self.path / "cpu.max").partition(" ")
        else:
            quota, period = _read(self.path / "cpu.cfs_quota_us"), _read(self.path / "cpu.cfs_period_us")
        if not quota.isdigit() or not period.isdigit() or int(period) == 0 or int(quota) == 0:
            return None
        return int(quota), int(period)


@dataclass(frozen=True)
class Throttling:
    """What the kernel counts of a quota.

    Attributes:
      periods: in which the quota was used up.
      cores_s: time held back, summed over the cores on which threads stood still, seconds.
      quota_s, period_s: CPU time per period, and the period, seconds.
    """

    periods: int
    cores_s: float
    quota_s: float
    period_s: float

    def since(self, before: Throttling) -> float:
        """Seconds on the clock for which the group was held back since `before`.

        The kernel adds up over cores, and does not say how many. Threads on p of them use the quota q up after
        q / p of a period P and stand still for P - q / p each: T = p P - q for the period, so that p = (T + q) / P,
        and the clock goes P T / (T + q) further.
        """
        periods, cores_s = self.periods - before.periods, self.cores_s - before.cores_s
        if periods <= 0 or cores_s <= 0:
            return 0.0
        each_s = cores_s / periods
        return periods * self.period_s * each_s / (each_s + self.quota_s)


def groups() -> list[Group]:
    """The cgroups whose limits bind this process: its own and all above it, as far as they can be seen."""
    mounts = _mounts()
    found: list[Group] = []
    for line in _read(_PROC / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for mount in mounts:
            if mount.holds(controllers):
                found += mount.groups(path)
    return list(dict.fromkeys(found))


def version() -> int:
    """Version of the hierarchy that has the CPU limits, else of any; 0 without cgroups."""
    seen = groups()
    ruling = [group.version for group in seen if (group.path / _CPU_FILES[group.version]).exists()]
    # The root of version 2 has no limits, and no such file.
    return max(ruling or [group.version for group in seen], default=0)


_CPU_FILES = {1: "cpu.cfs_quota_us", 2: "cpu.max"}


@dataclass(frozen=True)
class _Mount:
    """A hierarchy where it is mounted.

    Attributes:
      point: the directory.
      root: the group that is seen there.
      controllers: of version 1; empty for version 2.
    """

    point: Path
    root: str
    version: int
    controllers: frozenset[str]

    def holds(self, controllers: str) -> bool:
        """Whether a line of /proc/self/cgroup with these controllers speaks of this hierarchy."""
        if self.version == 2:
            return controllers == ""
        return bool(self.controllers & set(controllers.split(",")) & {"cpu", "memory"})

    def groups(self, path: str) -> list[Group]:
        """The group of that path and those above it, down from the one that is mounted."""
        below = _relative(path, self.root)
        candidates = [below, *below.parents] if below is not None else [Path()]
        return [Group(self.point / part, self.version) for part in candidates if (self.point / part).is_dir()]


def _relative(path: str, root: str) -> Path | None:
    """`path` as seen from the group `root`; None if it lies elsewhere."""
    if ".." in path.split("/"):  # outside of this cgroup namespace
        return None
    try:
        return Path(path).relative_to(root)
    except ValueError:
        return None


def _mounts() -> list[_Mount]:
    found = []
    for line in _read(_PROC / "mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(" "), right.split(" ")
        if len(fields) < 5 or len(kinds) < 3 or kinds[0] not in ("cgroup", "cgroup2"):
            continue
        # A relative root: the mount shows more than this namespace's own part.
        root = fields[3] if not fields[3].startswith("/..") else "/"
        two = kinds[0] == "cgroup2"
        controllers = frozenset() if two else frozenset(kinds[2].split(","))
        found.append(_Mount(Path(_unescaped(fields[4])), root, 2 if two else 1, controllers))
    return found


def _unescaped(path: str) -> str:
    """A path of mountinfo, which writes spaces and the like in octal."""
    for code in ("040", "011", "012", "134"):
        path = path.replace(f"\\{code}", chr(int(code, 8)))
    return path


def _statistics(path: Path) -> dict[str, int]:
    lines = (line.partition(" ") for line in _read(path).splitlines())
    return {name: int(value) for name, _, value in lines if value.isdigit()}


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
