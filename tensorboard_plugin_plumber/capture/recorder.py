"""Makes the records of one session, at growing intervals, and hands them to its sink."""

from __future__ import annotations

import collections
import os
import sys
import time
import uuid
from collections.abc import Sequence

import tensorflow as tf

from tensorboard_plugin_plumber._version import __version__
from tensorboard_plugin_plumber.capture import device, guard, host
from tensorboard_plugin_plumber.capture.gil import LockTimes
from tensorboard_plugin_plumber.capture.pipeline import FollowedPipeline
from tensorboard_plugin_plumber.capture.reads import ReadMeter
from tensorboard_plugin_plumber.capture.sink import Sink
from tensorboard_plugin_plumber.capture.threads import ProcessClock
from tensorboard_plugin_plumber.events.metadata import FORMAT_VERSION
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

# The interval doubles every so many samples: a week of them stays small.
_SAMPLES_PER_INTERVAL = 1000
# A look that would come so much later than a sample is taken with it.
_NEARLY = 1.2


class Recorder:
    """The records of one session.

    All but `send` and `close` are called with the session's lock held; those two never, for disks and
    networks may take long.

    Args:
      kind: "fit", "trace" or "diagnose".
      sink: takes the records.
      interval_s: time between the first samples, seconds.
    """

    def __init__(self, kind: str, sink: Sink, interval_s: float) -> None:
        self._sink = sink
        self._interval_s = interval_s
        self._started_s = 0.0
        self._next_sample_s = 0.0
        self._session = m.Session(kind=kind)
        self._host = m.Host()
        self._sampler = host.HostSampler()
        self._clock = ProcessClock()
        self._lock_times = LockTimes()
        self._reads = ReadMeter()
        self._outgoing: collections.deque[m.GraphRecord | m.SampleRecord] = collections.deque()
        self._graph_sequence = 0
        self._sample_sequence = 0

    def begin(self) -> None:
        """The session begins."""
        self._reads.begin()
        self._started_s = time.perf_counter()
        self._next_sample_s = self._started_s + self._interval_s
        self._session.id = uuid.uuid4().hex
        self._session.start_time_s = time.time()
        self._session.plumber_version = __version__
        self._session.tensorflow_version = tf.__version__
        self._session.program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else ""
        self._host = host.describe_host()
        with guard.protect("list accelerators"):
            for accelerator in device.accelerators():
                self._host.accelerators.append(accelerator.name)
                self._host.accelerator_models.append(accelerator.model)

    @property
    def has_samples(self) -> bool:
        """Whether the first sample was made."""
        return self._sample_sequence > 0

    def is_due(self, now_s: float) -> bool:
        """Whether it is time for a sample; where it is, the time of the next one is set.

        Args:
          now_s: `perf_counter`.
        """
        if now_s < self._next_sample_s:
            return False
        interval_s = self._interval_s * 2 ** (self._sample_sequence // _SAMPLES_PER_INTERVAL)
        self._next_sample_s = max(self._next_sample_s + interval_s, now_s + interval_s / 2)
        return True

    def fitting(self, period_s: float) -> float:
        """A period of looks of about that length, seconds, so that one of them is when the next sample is due.

        Where looks are to be farther apart than samples, samples wait for them.
        """
        left_s = self._next_sample_s - time.perf_counter()
        if left_s <= 0 or period_s > _NEARLY * left_s:
            return period_s
        return left_s / max(1, round(left_s / period_s))

    def make_graph(self, pipelines: Sequence[FollowedPipeline]) -> None:
        """Makes a graph record ready to be sent."""
        for pipeline in pipelines:
            pipeline.note_parameters()
        self._outgoing.append(
            m.GraphRecord(
                format_version=FORMAT_VERSION,
                session=self._session,
                host=self._host,
                pipelines=[p.message for p in pipelines],
                sequence=self._graph_sequence,
            )
        )
        self._graph_sequence += 1

    def make_sample(
        self, pipelines: Sequence[FollowedPipeline], *, poller_cpu_s: float, last: bool, final: bool
    ) -> None:
        """Makes a sample ready to be sent.

        Args:
          pipelines: all that the graph record has.
          poller_cpu_s: CPU time of Plumber's own thread so far, seconds.
          last: no other follows.
          final: training ended in order.
        """
        for pipeline in pipelines:
            # With each sample, so that the pool's time and the counters are of the same moment.
            pipeline.pool.update()
        now_s = time.perf_counter()
        if self._sample_sequence == 0 and last:
            # It was over before the first look: the beginning, at which nothing was counted yet, makes
            # the second sample that a difference needs.
            self._append(m.SampleRecord(wall_time_s=self._session.start_time_s))
        sample = m.SampleRecord(
            wall_time_s=time.time(),
            elapsed_s=now_s - self._started_s,
            host=self._host_sample(pipelines, poller_cpu_s),
            pipelines=[p.sample(now_s, now_s - self._started_s) for p in pipelines],
            final=final,
        )
        self._reads.fill(sample, pipelines)
        self._append(sample)

    def probe_lock(self, pipelines: Sequence[FollowedPipeline], probes: int) -> bool:
        """Sees what threads wait for, where the functions of a live pipeline may wait; without the session's lock.

        Args:
          pipelines: all that the graph record has.
          probes: how often.

        Returns:
          Whether there was a reason to.
        """
        now_s = time.perf_counter()
        pools = [(p.pool.working, p.on_lock) for p in pipelines if p.may_wait and now_s < p.live_until_s]
        for _ in range(probes if pools else 0):
            self._lock_times.probe(pools)
        return bool(pools)

    def send(self) -> None:
        """Hands to the sink what is ready."""
        while self._outgoing:
            record = self._outgoing.popleft()
            if isinstance(record, m.GraphRecord):
                self._sink.write_graph(record)
            else:
                self._sink.write_sample(record)

    def close(self) -> None:
        """Closes the sink."""
        with guard.protect("close the event file"):
            self._sink.close()

    def _host_sample(self, pipelines: Sequence[FollowedPipeline], poller_cpu_s: float) -> m.HostSample:
        sample = self._sampler.sample(poller_cpu_s)
        times = self._clock.read(i for p in pipelines for i in p.pool.ids)
        if times is not None:
            sample.shared_cpu_s, sample.shared_run_queue_s = times.shared.cpu_s, times.shared.run_queue_s
            sample.run_queue_s = times.run_queue_s
        if self._lock_times.probes:
            sample.gil_probes, sample.gil_waits = self._lock_times.probes, self._lock_times.waits
            sample.gil_wait_s = self._lock_times.wait_s
        return sample

    def _append(self, sample: m.SampleRecord) -> None:
        sample.format_version = FORMAT_VERSION
        sample.session_id = self._session.id
        sample.sequence = self._sample_sequence
        self._sample_sequence += 1
        self._outgoing.append(sample)
