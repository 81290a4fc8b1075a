"""Diagnoses a pipeline whose storage is slow: `python -m tests.support.throttled GROUP FILE…`.

Joins a control group that limits what this process may read per second, reads records that are not in memory, and
prints the analysis as JSON.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import tensorflow as tf

import tensorboard_plugin_plumber as plumber


def main() -> None:
    """Prints one line of JSON."""
    group, *files = sys.argv[1:]
    dataset = tf.data.TFRecordDataset(files).batch(8)
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    Path(group, "cgroup.procs").write_text(str(os.getpid()))
    report = plumber.diagnose(dataset, seconds=4)
    print("ANALYSIS", report.to_json().replace("\n", " "))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
