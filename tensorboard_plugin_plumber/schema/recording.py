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
