"""Limits of cgroups, read from files as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorboard_plugin_plumber.capture import host


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cgroup v2 with one group below the root, which this process seems to be in."""
    child = tmp_path / "child"
    child.mkdir()
    monkeypatch.setattr(host, "_groups", lambda: host._chain(tmp_path, "/child", 2))
    return child


def test_the_tightest_group_on_the_way_up_binds(groups: Path) -> None:
    (groups / "cpu.max").write_text("150000 100000\n")
    (groups.parent / "cpu.max").write_text("50000 100000\n")
    (groups / "memory.max").write_text(f"{1 << 30}\n")

    assert host.usable_cores() == (0.5, "cgroup")
    assert host.usable_memory() == (1 << 30, "cgroup")


def test_no_limit_is_none(groups: Path) -> None:
    (groups / "cpu.max").write_text("max 100000\n")
    (groups / "memory.max").write_text("max\n")

    assert host.usable_cores()[1] == "affinity"
    assert host.usable_memory()[1] == "machine"


def test_memory_in_use_leaves_out_what_the_kernel_would_give_back(groups: Path) -> None:
    (groups / "memory.max").write_text(f"{1 << 30}\n")
    (groups / "memory.current").write_text("5000000\n")
    (groups / "memory.stat").write_text("anon 1\ninactive_file 2000000\n")

    assert host.HostSampler().sample(0.0).memory_used_bytes == 3_000_000


def test_version_1(tmp_path: Path) -> None:
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (group,) = host._chain(tmp_path, "/", 1)

    assert group.cores() is None
    assert group.memory_limit() is None


def test_a_sample_of_this_process() -> None:
    sampler = host.HostSampler()
    first = sampler.sample(0.1)
    sum(i * i for i in range(300_000))
    second = sampler.sample(0.2)

    assert second.process_cpu_s > first.process_cpu_s > 0
    assert second.rss_bytes > 1_000_000
    assert second.read_bytes >= first.read_bytes
