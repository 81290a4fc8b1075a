"""Limits of real cgroups, where this process may make some, and of affinity."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOP = Path("/sys/fs/cgroup")
MEMORY = 6 << 30


@dataclass(frozen=True)
class Groups:
    """The directories of one group, one for each hierarchy it needs, and the version of these."""

    directories: tuple[Path, ...]
    version: int

    def __str__(self) -> str:
        return ",".join(map(str, self.directories))

    def throttled_periods(self) -> int:
        text = (self.directories[0] / "cpu.stat").read_text()
        return int(text.split("nr_throttled ")[1].split()[0])


def make_groups(name: str, cores: float) -> Groups:
    """A group with a CPU quota and a memory limit.

    Raises:
      OSError: this process may not, or the system has no such thing.
    """
    name = f"plumber-test-{os.getpid()}-{name}"
    period_us = 100_000
    if (TOP / "cpu" / "cpu.cfs_quota_us").exists():
        groups = Groups((TOP / "cpu" / name, TOP / "memory" / name), 1)
        limits = {
            groups.directories[0] / "cpu.cfs_quota_us": int(cores * period_us),
            groups.directories[1] / "memory.limit_in_bytes": MEMORY,
        }
    else:
        groups = Groups((TOP / name,), 2)
        limits = {
            groups.directories[0] / "cpu.max": f"{int(cores * period_us)} {period_us}",
            groups.directories[0] / "memory.max": MEMORY,
        }
    try:
        for directory in groups.directories:
            directory.mkdir()
        for file, limit in limits.items():
            if not file.exists():
                raise FileNotFoundError(f"{file}: the controller is not enabled here")
            file.write_text(str(limit))
    except OSError:
        remove(groups)
        raise
    return groups


def remove(groups: Groups) -> None:
    for directory in groups.directories:
        for _ in range(50):  # a process that ended leaves its group a little later
            with contextlib.suppress(FileNotFoundError, OSError):
                directory.rmdir()
            if not directory.exists():
                break
            time.sleep(0.1)


@pytest.fixture
def quotas() -> Iterator[tuple[Groups, Groups]]:
    """Groups of 1.5 cores and of 0.4 cores."""
    made: list[Groups] = []
    try:
        for name, cores in (("wide", 1.5), ("narrow", 0.4)):
            made.append(make_groups(name, cores))
        yield made[0], made[1]
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    finally:
        for groups in made:
            remove(groups)


def test_a_quota_is_found_and_its_cost_is_measured(quotas: tuple[Groups, Groups]) -> None:
    wide, narrow = quotas

    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.limited", str(wide), str(narrow)],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert ended.returncode == 0, ended.stderr
    answers = {line.partition(" ")[0]: line.partition(" ")[2] for line in ended.stdout.splitlines()}
    host, use = json.loads(answers["LIMITS"]), json.loads(answers["USE"])
    # A machine of one core is narrower than the quota.
    wanted = (1.5, "cgroup") if host["affinity_cores"] > 1 else (1.0, "affinity")
    assert (host["cores"], host["cores_from"]) == wanted
    assert (host["memory_bytes"], host["memory_from"]) == (MEMORY, "cgroup")
    assert host["cgroup_version"] == narrow.version
    # Calls that would use every core have 0.4 of one: they stand still for most of the time.
    assert narrow.throttled_periods() > 0
    assert (use["cores"], use["cores_from"], use["quota_cores"]) == (0.4, "cgroup", 0.4)
    assert 0.2 < use["throttled"] <= 1
    assert use["process_cores"] < 0.6
    shown = " ".join(ended.stdout.split())
    assert "of 0.4 cores (its CPU quota" in shown
    assert "held it back for" in shown


@pytest.mark.skipif(
    len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="one core cannot be narrowed"
)
def test_affinity_narrows_the_cores() -> None:
    one = min(os.sched_getaffinity(0))
    program = (
        "from tensorboard_plugin_plumber.capture.host import describe_host\n"
        "host = describe_host()\n"
        "print(host.cores, host.cores_from, host.affinity_cores, host.machine_cores)"
    )

    ended = subprocess.run(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{one}}})\n{program}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    cores, cores_from, affinity, machine = ended.stdout.split()
    assert (float(affinity), float(machine)) == (1, os.cpu_count())
    # A quota may be narrower still.
    assert float(cores) == 1 or (float(cores) < 1 and cores_from == "cgroup")
