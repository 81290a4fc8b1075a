"""Iterating under tf.distribute's strategies: on two logical devices, on one, and in two processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tensorboard_plugin_plumber.events import reader
from tests.support import ways
from tests.support.ways import recorded

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("strategy", "replicas"), [("mirrored", 2), ("one", 1)])
def test_every_way_under_a_strategy(strategy: str, replicas: int, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.distributed", strategy, str(tmp_path)],
        cwd=ROOT,
        timeout=180,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    made = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("[")]
    assert len(made) == 7

    for name, steps, same_elements in made:
        assert same_elements, name
        (one,) = recorded(tmp_path / name)
        # Each device takes an element in each step, and fetches ahead.
        assert one.sample.steps == pytest.approx(steps * replicas, abs=2 * replicas), name
        assert one.sample.iterators == 2, name
        assert one.pipeline.iterated_by == "strategy", name
        assert one.pipeline.role == ("train" if name == "fit" else "trace"), name
        operators = one.operators()
        assert [operator.type for operator in operators][-4:] == ways.OPERATORS, name
        for operator in operators[-4:]:
            assert Path(operator.source.path) == Path(ways.__file__), name
            assert operator.source.line == ways.LINES[operator.type], name
        if name == "fit":
            continue
        # A dataset that a function makes is not divided among the devices.
        divided = replicas if "function" not in name else 1
        assert one.elements("Shuffle") == pytest.approx(one.sample.steps / divided * ways.BATCH, rel=0.1), (
            name
        )


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.mark.parametrize("way", ["fit", "loop"])
def test_two_workers_record_one_run_of_two_hosts(way: str, tmp_path: Path) -> None:
    if way == "fit":
        pytest.importorskip("tf_keras")
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.worker", str(tmp_path), way],
            cwd=ROOT,
            env={
                **os.environ,
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}),
                "TF_USE_LEGACY_KERAS": "1" if way == "fit" else "0",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    try:
        outputs = [worker.communicate(timeout=180) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    steps = [int(out.split("steps")[1]) for out, _ in outputs if "steps" in out]
    assert len(steps) == 2, outputs

    recordings = sorted(reader.read(tmp_path), key=lambda one: one.host)
    assert [one.host.rsplit("-", 1)[1] for one in recordings] == ["0", "1"]
    assert len({one.run for one in recordings}) == 1
    for recording, made in zip(recordings, steps, strict=True):
        (pipeline,), sample = recording.graph.pipelines, recording.samples[-1].pipelines[0]
        assert made == 60
        assert sample.steps == made
        assert pipeline.iterated_by == "strategy"
        own = [operator for operator in pipeline.operators if not operator.injected]
        assert [operator.type for operator in own] == ["Batch", "Map", "Range"]
        assert {operator.source.scope for operator in own} == {"make_dataset"}

    # AND the report speaks of one of them, or of the one that is asked for
    for arguments, host in ((["--host", recordings[1].host], recordings[1].host), ([], None)):
        told = subprocess.run(
            [
                sys.executable,
                "-m",
                "tensorboard_plugin_plumber.cli",
                "report",
                str(tmp_path),
                "--json",
                *arguments,
            ],
            cwd=ROOT,
            timeout=120,
            capture_output=True,
            text=True,
        )
        assert told.returncode == 0, told.stderr
        assert json.loads(told.stdout)["host"] in ([host] if host else [one.host for one in recordings])
