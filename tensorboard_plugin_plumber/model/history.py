"""What a recording shows over time."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording, sample_of

#: Points that an analysis carries, at most.
HISTORY_POINTS = 300


def history_of(recording: Recording, index: int) -> list[a.HistoryPoint]:
    """Rate, waiting and the host over time, from differences of successive samples."""
    records = list(recording.samples)
    if len(records) > HISTORY_POINTS + 1:
        picked = np.unique(np.linspace(0, len(records) - 1, HISTORY_POINTS + 1).round().astype(int))
        records = [records[i] for i in picked]
    points = []
    for before, after in pairwise(records):
        seconds = after.elapsed_s - before.elapsed_s
        if seconds <= 0:
            continue
        point = a.HistoryPoint(
            time_s=after.wall_time_s,
            process_cores=max(after.host.process_cpu_s - before.host.process_cpu_s, 0.0) / seconds,
            rss_bytes=after.host.rss_bytes,
        )
        if after.host.HasField("read_bytes") and before.host.HasField("read_bytes"):
            point.read_bytes_per_s = max(after.host.read_bytes - before.host.read_bytes, 0) / seconds
        new, old = sample_of(after, index), sample_of(before, index)
        if new is not None:
            steps = new.steps - (old.steps if old else 0.0)
            active = new.active_s - (old.active_s if old else 0.0)
            point.rate = steps / active if active > 0 and steps >= 0 else math.nan
            joined = new.joined_steps - (old.joined_steps if old else 0)
            if joined > 0 and recording.graph.pipelines[index].consumer == m.CONSUMER_SYNCHRONOUS:
                waited = (new.step_s - new.gap_s) - ((old.step_s - old.gap_s) if old else 0.0)
                point.wait_s = max(waited, 0.0) / joined
        points.append(point)
    return points
