"""Storage of a known speed: a control group holds real reads back."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorboard_plugin_plumber.capture import storage
from tests.support.record_bytes import write_records

ROOT = Path(__file__).parents[2]
TOP = Path("/sys/fs/cgroup")
BYTES_PER_S = 16e6
RECORD_BYTES = 100_000


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Path]:
    """A control group whose processes read at most BYTES_PER_S from the device of `tmp_path`."""
    number = storage.device_of([str(tmp_path)]).split(" ")[0]
    if not number:
        pytest.skip("the temporary directory lies on no device")
    version_1 = (TOP / "blkio" / "blkio.throttle.read_bps_device").exists() or (TOP / "blkio").is_dir()
    directory = (TOP / "blkio" if version_1 else TOP) / f"plumber-test-{os.getpid()}-storage"
    limit = (
        ("blkio.throttle.read_bps_device", f"{number} {BYTES_PER_S:.0f}")
        if version_1
        else ("io.max", f"{number} rbps={BYTES_PER_S:.0f}")
    )
    try:
        directory.mkdir()
        if not (directory / limit[0]).exists():
            raise FileNotFoundError(limit[0])
        (directory / limit[0]).write_text(limit[1])
    except OSError as error:
        with contextlib.suppress(OSError):
            directory.rmdir()
        pytest.skip(f"no control group can hold reads back here: {error}")
    yield directory
    for _ in range(50):  # a process that ended leaves its group a little later
        with contextlib.suppress(OSError):
            directory.rmdir()
        if not directory.exists():
            break
        time.sleep(0.1)


@pytest.mark.slow
def test_slow_storage_is_measured_and_bounds_the_rate(group: Path, tmp_path: Path) -> None:
    # GIVEN more records than slow storage delivers in the time, none of them in memory
    files = [str(tmp_path / f"shard-{number}") for number in range(4)]
    for file in files:
        write_records(file, count=300, size=RECORD_BYTES)
    # WHEN they are read through a control group
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.throttled", str(group), *files],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
    )
    line = next(line for line in run.stdout.splitlines() if line.startswith("ANALYSIS"))
    found: dict[str, Any] = json.loads(line.removeprefix("ANALYSIS"))
    # THEN the curve is what the group allows, and storage bounds what was seen
    assert found["limits"]["storage"][-1]["bytes_per_s"] == pytest.approx(BYTES_PER_S, rel=0.25)
    (bound,) = (bound for bound in found["bounds"] if bound["constraint"] == "storage")
    assert bound["rate"] == pytest.approx(BYTES_PER_S / (8 * RECORD_BYTES), rel=0.3)
    assert found["verdict"]["observed_rate"] < 1.25 * bound["rate"]
