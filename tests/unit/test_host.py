"""Limits of cgroups, read from files as the kernel writes them, and what this process uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tensorboard_plugin_plumber.capture import cgroups, host

V1_MEMORY_WITHOUT_LIMIT = "9223372036854771712\n"


class Machine:
    """A machine's files, as they look to one process.

    Args:
      root: an empty folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc" / "self"
        self.proc.mkdir(parents=True)
        self._mounts: list[str] = []

    def mount(self, point: str, kind: str, *, options: str = "", seen: str = "/") -> Path:
        """Mounts a hierarchy, of which the group `seen` and what is below it is seen."""
        folder = self.root / point
        folder.mkdir(parents=True, exist_ok=True)
        self._mounts.append(f"31 23 0:28 {seen} {folder} rw,nosuid - {kind} cgroup rw,{options}")
        (self.proc / "mountinfo").write_text("\n".join(self._mounts) + "\n")
        return folder

    def is_in(self, *lines: str) -> None:
        """The process's groups."""
        (self.proc / "cgroup").write_text("\n".join(lines) + "\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine without any cgroup, on which this process seems to be."""
    made = Machine(tmp_path)
    monkeypatch.setattr(cgroups, "_PROC", made.proc)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    return made


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)


def test_version_2_the_tightest_group_on_the_way_up_binds(machine: Machine) -> None:
    top = machine.mount("sys/fs/cgroup", "cgroup2")
    machine.is_in("0::/user/job")
    write(top / "user", cpu__max="50000 100000\n", memory__max="max\n")
    write(top / "user" / "job", cpu__max="150000 100000\n", memory__max=f"{1 << 30}\n")

    described = host.describe_host()

    assert (described.cores, described.cores_from) == (0.5, "cgroup")
    assert (described.memory_bytes, described.memory_from) == (1 << 30, "cgroup")
    assert (described.quota_cores, described.memory_limit_bytes) == (0.5, 1 << 30)
    assert (described.affinity_cores, described.cgroup_version) == (8, 2)


def test_no_limit_is_none(machine: Machine) -> None:
    top = machine.mount("sys/fs/cgroup", "cgroup2")
    machine.is_in("0::/job")
    write(top / "job", cpu__max="max 100000\n", memory__max="max\n")

    described = host.describe_host()

    assert (described.cores, described.cores_from) == (8, "affinity")
    assert described.memory_from == "machine"
    assert not described.HasField("quota_cores")
    assert not described.HasField("memory_limit_bytes")


def test_a_quota_above_the_affinity_does_not_bind(machine: Machine) -> None:
    top = machine.mount("sys/fs/cgroup", "cgroup2")
    machine.is_in("0::/job")
    write(top / "job", cpu__max="1250000 100000\n")

    described = host.describe_host()

    assert (described.cores, described.cores_from, described.quota_cores) == (8, "affinity", 12.5)


def test_version_1_has_a_hierarchy_for_each_controller(machine: Machine) -> None:
    cpu = machine.mount("sys/fs/cgroup/cpu,cpuacct", "cgroup", options="cpu,cpuacct")
    memory = machine.mount("sys/fs/cgroup/memory", "cgroup", options="memory")
    machine.mount("sys/fs/cgroup/unified", "cgroup2")
    machine.is_in("4:memory:/slice/job", "3:cpu,cpuacct:/job", "1:name=systemd:/", "0::/")
    write(cpu, cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    write(cpu / "job", cpu__cfs_quota_us="125000\n", cpu__cfs_period_us="50000\n")
    write(memory, memory__limit_in_bytes=V1_MEMORY_WITHOUT_LIMIT)
    write(memory / "slice", memory__limit_in_bytes=f"{2 << 30}\n")
    write(memory / "slice" / "job", memory__limit_in_bytes=V1_MEMORY_WITHOUT_LIMIT)

    described = host.describe_host()

    assert (described.cores, described.cores_from) == (2.5, "cgroup")
    assert (described.memory_bytes, described.memory_from) == (2 << 30, "cgroup")
    assert described.cgroup_version == 1


def test_a_container_sees_its_group_where_the_hierarchy_is_mounted(machine: Machine) -> None:
    # GIVEN a path of the host's, of which the container's own part is mounted
    cpu = machine.mount("sys/fs/cgroup/cpu", "cgroup", options="cpu", seen="/docker/0123")
    machine.is_in("3:cpu:/docker/0123/inner")
    write(cpu, cpu__cfs_quota_us="300000\n", cpu__cfs_period_us="100000\n")
    write(cpu / "inner", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")

    assert host.usable_cores() == (3.0, "cgroup")


@pytest.mark.parametrize("path", ["/kubepods/pod1/0123", "/../../pod1/0123", "/"])
def test_where_the_path_is_not_visible_the_root_of_the_mount_is_read(machine: Machine, path: str) -> None:
    top = machine.mount("sys/fs/cgroup", "cgroup2", seen="/" if path != "/" else "/../..")
    machine.is_in(f"0::{path}")
    write(top, cpu__max="700000 100000\n", memory__max=f"{3 << 30}\n")

    assert host.usable_cores() == (7.0, "cgroup")
    assert host.usable_memory() == (3 << 30, "cgroup")


def test_a_mount_point_may_have_a_space(machine: Machine) -> None:
    top = machine.root / "control groups"
    write(top / "job", cpu__max="200000 100000\n")
    machine.is_in("0::/job")
    (machine.proc / "mountinfo").write_text(
        f"31 23 0:28 / {machine.root}/control\\040groups rw - cgroup2 cgroup2 rw\n"
    )

    assert host.usable_cores() == (2.0, "cgroup")


def test_without_cgroups(machine: Machine) -> None:
    described = host.describe_host()

    assert (described.cores, described.cores_from, described.cgroup_version) == (8, "affinity", 0)
    assert host.HostSampler().sample(0.0).memory_used_bytes > 1_000_000


def test_memory_in_use_leaves_out_what_the_kernel_would_give_back(machine: Machine) -> None:
    top = machine.mount("sys/fs/cgroup", "cgroup2")
    machine.is_in("0::/job")
    write(
        top / "job",
        memory__max=f"{1 << 30}\n",
        memory__current="5000000\n",
        memory__stat="anon 1\ninactive_file 2000000\n",
    )

    assert host.HostSampler().sample(0.0).memory_used_bytes == 3_000_000


@pytest.mark.parametrize("version", [1, 2])
def test_time_held_back_is_time_on_the_clock(machine: Machine, version: int) -> None:
    # GIVEN a quota of 8 cores, of which 96 busy threads use up their share in 8.33 ms of each 100 ms: the kernel
    # adds up 96 times 91.67 ms
    if version == 2:
        group = machine.mount("sys/fs/cgroup", "cgroup2") / "job"
        write(group, cpu__max="800000 100000\n", cpu__stat="nr_throttled 0\nthrottled_usec 0\n")
        machine.is_in("0::/job")
    else:
        group = machine.mount("sys/fs/cgroup/cpu", "cgroup", options="cpu") / "job"
        write(group, cpu__cfs_quota_us="800000\n", cpu__cfs_period_us="100000\n")
        write(group, cpu__stat="nr_throttled 0\nthrottled_time 0\n")
        machine.is_in("1:cpu:/job")
    sampler = host.HostSampler()
    assert sampler.sample(0.0).throttled_s == 0.0

    # WHEN ten periods go by
    held_us = round(10 * 96 * (100_000 - 800_000 / 96))
    name, held = ("throttled_usec", held_us) if version == 2 else ("throttled_time", 1000 * held_us)
    write(group, cpu__stat=f"nr_periods 10\nnr_throttled 10\n{name} {held}\n")

    # THEN it was held back for 0.917 s
    assert sampler.sample(0.0).throttled_s == pytest.approx(0.9167, abs=1e-3)
    assert sampler.sample(0.0).throttled_s == pytest.approx(0.9167, abs=1e-3)


def test_without_a_quota_nothing_is_said_of_throttling(machine: Machine) -> None:
    write(
        machine.mount("sys/fs/cgroup", "cgroup2") / "job",
        cpu__max="max 100000\n",
        cpu__stat="nr_throttled 0\n",
    )
    machine.is_in("0::/job")

    assert not host.HostSampler().sample(0.0).HasField("throttled_s")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (".dockerenv", ""),
        ("run/.containerenv", ""),
        ("proc/1/cgroup", "0::/kubepods.slice/pod1\n"),
        ("proc/self/cgroup", "4:memory:/docker/0123\n"),
        (
            "proc/self/mountinfo",
            "1 0 0:5 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A\n",
        ),
    ],
)
def test_a_container_is_told_by_what_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, content: str
) -> None:
    monkeypatch.delenv("container", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert not host.in_container(tmp_path)
    write((tmp_path / file).parent)
    (tmp_path / file).write_text(content)

    assert host.in_container(tmp_path)


def test_a_host_that_runs_containers_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("container", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    write(tmp_path / "proc" / "1", cgroup="0::/init.scope\n")
    write(
        tmp_path / "proc" / "self",
        cgroup="0::/user.slice\n",
        mountinfo="1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "2 1 0:5 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw,lowerdir=/var/lib/docker/x\n",
    )

    assert not host.in_container(tmp_path)


def test_a_sample_of_this_process() -> None:
    sampler = host.HostSampler()
    first = sampler.sample(0.1)
    sum(i * i for i in range(300_000))
    second = sampler.sample(0.2)

    assert second.process_cpu_s > first.process_cpu_s > 0
    assert second.rss_bytes > 1_000_000
    assert second.read_bytes >= first.read_bytes
    assert second.threads >= 1
    assert second.HasField("cpu_pressure_s") == os.path.exists("/proc/pressure/cpu")
    assert second.cpu_pressure_s >= first.cpu_pressure_s


def test_reads_of_this_process_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(os.urandom(2_000_000))
    sampler = host.HostSampler()
    before = sampler.sample(0.0)
    if not before.HasField("read_bytes"):
        pytest.skip("the system does not count a process's reads")
    file.read_bytes()

    assert sampler.sample(0.0).read_bytes - before.read_bytes == pytest.approx(2_000_000, rel=0.05)
