"""What was read of one session: the value that crosses from `events` to `model`."""

from __future__ import annotations

from dataclasses import dataclass

from tensorboard_plugin_plumber.schema import measurement_pb2 as m


@dataclass(frozen=True)
class Recording:
    """One session of one run on one host.

    Attributes:
      run: the log directory of the callback relative to LOGDIR, "." when equal.
      host: the last part of the recording's directory, "<hostname>-<worker index>".
      graph: the session's last graph record.
      samples: by `sequence`; holes are what TensorBoard's sampling dropped.
      notes: what was damaged or missing, a sentence each.
    """

    run: str
    host: str
    graph: m.GraphRecord
    samples: tuple[m.SampleRecord, ...]
    notes: tuple[str, ...] = ()

    def last_sample(self, index: int) -> m.PipelineSample | None:
        """The newest sample of the pipeline at `index` of the graph record; None if there is none."""
        found = (sample_of(record, index) for record in reversed(self.samples))
        return next((sample for sample in found if sample is not None), None)

    def steps(self, index: int) -> float:
        """Root elements that the pipeline at `index` has delivered in this session."""
        sample = self.last_sample(index)
        return sample.steps if sample is not None else 0.0

    def main_pipeline(self) -> int:
        """Index of the training pipeline with most steps; where nothing has trained yet, of the one with most.

        Raises:
          ValueError: no pipeline was seen.
        """

        def order(index: int) -> tuple[bool, float]:
            steps = self.steps(index)
            return self.graph.pipelines[index].role == "train" and steps > 0, steps

        return max(range(len(self.graph.pipelines)), key=order)


def sample_of(record: m.SampleRecord, index: int) -> m.PipelineSample | None:
    """What `record` holds of the pipeline at `index` of the graph record."""
    return next((part for part in record.pipelines if part.pipeline == index), None)
