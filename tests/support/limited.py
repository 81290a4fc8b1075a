"""Diagnoses under a CPU quota: `python -m tests.support.limited GROUPS_1 GROUPS_2`, lists of cgroup directories.

Joins the groups of the first list and says what the host looks like from there, then those of the second, runs a
pipeline that would use every core, and says what the report tells of the host.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture.host import describe_host


def join(groups: str) -> None:
    """Moves this process into the groups."""
    for group in groups.split(","):
        Path(group, "cgroup.procs").write_text(str(os.getpid()))


def burning() -> tf.data.Dataset:
    """Every element takes some milliseconds of a core."""

    def burn(_: tf.Tensor) -> tf.Tensor:
        noise = tf.random.uniform([300, 300])
        return tf.reduce_sum(noise @ noise @ noise)

    return tf.data.Dataset.range(10**9).map(burn, num_parallel_calls=4)


def main() -> None:
    """Prints two lines of JSON: the host under the first groups, the report's under the second."""
    dataset = burning()
    next(iter(dataset))
    join(sys.argv[1])
    host = describe_host()
    names = ("cores", "cores_from", "affinity_cores", "memory_bytes", "memory_from", "cgroup_version")
    print("LIMITS", json.dumps({name: getattr(host, name) for name in names}))
    join(sys.argv[2])
    report = plumber.diagnose(dataset, seconds=4)
    print("USE", json.dumps(report.to_dict()["host_use"]))
    print(report.text())
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
