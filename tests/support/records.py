"""Records of a small training run, for tests of what happens to them afterwards.

The pipeline is TFRecord → Map decode → Batch, with the prefetch that TensorFlow adds; the map is
sequential, takes nearly all of one core, and training waits for it. Counters grow evenly.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from tensorboard_plugin_plumber.events.metadata import FORMAT_VERSION
from tensorboard_plugin_plumber.events.writer import EventWriter
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

BATCH = 8
MAP_S = 0.011
START_S = 1_767_225_600.0


@dataclass(frozen=True)
class Training:
    """One session of training.

    Attributes:
      session: its id.
      start_s: Unix time at which it began.
      rate: steps/s that it made.
      labels: a pipeline per label; the first has the role "train", others "validation".
      interval_s: time between samples.
    """

    session: str = "5e5510"
    start_s: float = START_S
    rate: float = 10.0
    labels: Sequence[str] = ("train",)
    interval_s: float = 1.0

    def graph(self, sequence: int = 0) -> m.GraphRecord:
        """The graph record with that sequence number."""
        return m.GraphRecord(
            format_version=FORMAT_VERSION,
            session=m.Session(
                id=self.session,
                kind="fit",
                start_time_s=self.start_s,
                plumber_version="0",
                tensorflow_version="2.21.0",
                program="train.py",
            ),
            host=m.Host(
                name="worker",
                cores=2,
                cores_from="affinity",
                memory_bytes=16_000_000_000,
                memory_from="machine",
                process_id=1,
            ),
            pipelines=[_pipeline(label, index) for index, label in enumerate(self.labels)],
            sequence=sequence,
        )

    def sample(self, sequence: int, *, final: bool = False) -> m.SampleRecord:
        """The sample with that sequence number."""
        elapsed_s = sequence * self.interval_s
        return m.SampleRecord(
            format_version=FORMAT_VERSION,
            session_id=self.session,
            sequence=sequence,
            wall_time_s=self.start_s + elapsed_s,
            elapsed_s=elapsed_s,
            host=m.HostSample(
                process_cpu_s=elapsed_s, rss_bytes=500_000_000, memory_used_bytes=500_000_000, read_bytes=0
            ),
            pipelines=[self._counters(index, elapsed_s) for index in range(len(self.labels))],
            final=final,
        )

    def _counters(self, index: int, elapsed_s: float) -> m.PipelineSample:
        # Validation makes a tenth of the steps.
        steps = elapsed_s * self.rate / (10 if index else 1)
        ours = [
            # elements per step, own seconds per element, bytes per element, parallelism
            (1.0, 1e-6, BATCH * 1000, None),
            (1.0, 1e-4, BATCH * 1000, None),
            (float(BATCH), MAP_S, 1000, 1.0),
            (float(BATCH), 1e-5, 300, None),
        ]
        return m.PipelineSample(
            pipeline=index,
            iterators=1,
            operators=[
                m.OperatorCounters(
                    elements=steps * visits,
                    elements_seen=steps * visits,
                    processing_time_ns=int(steps * visits * seconds * 1e9),
                    bytes_produced=int(steps * visits * size),
                    parallelism=parallelism,
                )
                for visits, seconds, size, parallelism in ours
            ],
            steps=steps,
            active_s=elapsed_s,
            joined_steps=int(steps),
            gap_s=0.2 * elapsed_s,
            step_s=elapsed_s,
            waits_over_1ms=int(steps),
            waits_seen=int(steps),
            pool_cpu_s=0.9 * elapsed_s,
            pool_run_queue_s=0.0,
            gap_low_s=0.2 / self.rate,
            live=True,
        )

    def write(
        self, log_dir: str | os.PathLike[str], samples: int = 6, *, first: int = 0, final: bool = False
    ) -> str:
        """Writes the graph and so many samples with a real EventWriter; the directory they are in."""
        writer = EventWriter(log_dir)
        try:
            writer.write_graph(self.graph())
            for sequence in range(first, first + samples):
                writer.write_sample(self.sample(sequence, final=final and sequence == first + samples - 1))
            return writer.directory
        finally:
            writer.close()


def _pipeline(label: str, index: int) -> m.Pipeline:
    def at(line: int) -> m.SourceLine:
        return m.SourceLine(path="/home/user/train.py", line=line, scope="make_dataset")

    allowed = m.Legality(allowed=True)
    return m.Pipeline(
        id=f"{label}-0123abcd",
        label=label,
        role="validation" if index else "train",
        operators=[
            m.Operator(
                id="op0", type="Batch", label="Batch", flows_to="injected0", running=1, batch_size=BATCH,
                source=at(58), cardinality=125, cache=allowed, parallel=allowed,
            ),
            m.Operator(
                id="op1", type="Map", label="decode", parent="op0", flows_to="op0", running=2, source=at(57),
                function=m.UserFunction(name="decode", source=at(30)), cardinality=1000, cache=allowed,
                parallel=allowed,
            ),
            m.Operator(
                id="op2", type="TFRecord", label="TFRecord", parent="op1", flows_to="op1", running=3,
                source=at(56), cardinality=1000, cache=allowed,
            ),
            m.Operator(id="injected0", type="Prefetch", label="Prefetch", injected=True, running=0),
        ],
        running=[
            m.RunningOperator(type="Prefetch", operators=["injected0"], deterministic=True, buffer_size=-1),
            m.RunningOperator(
                type="BatchV2", parent=0, operators=["op0"], deterministic=True, batch_size=BATCH
            ),
            m.RunningOperator(
                type="Map", parent=1, operators=["op1"], calls_function=True, deterministic=True,
                call_overhead_s=5e-5,
            ),
            m.RunningOperator(type="TFRecord", parent=2, operators=["op2"], deterministic=True),
        ],
        consumer=m.CONSUMER_SYNCHRONOUS,
        has_counters=True,
        threadpool_size=2,
        autotune_enabled=True,
        default_optimizations=True,
        inject_prefetch=True,
    )  # fmt: skip
