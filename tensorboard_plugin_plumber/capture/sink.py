"""Where the records of a session go."""

from __future__ import annotations

from typing import Protocol

from tensorboard_plugin_plumber.events import layout
from tensorboard_plugin_plumber.events.metadata import FORMAT_VERSION
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording


class Sink(Protocol):
    """Takes records, from one thread at a time."""

    def write_graph(self, record: m.GraphRecord) -> None: ...
    def write_sample(self, record: m.SampleRecord) -> None: ...
    def close(self) -> None: ...


class MemorySink:
    """Keeps records in memory."""

    def __init__(self) -> None:
        self.graphs: list[m.GraphRecord] = []
        self.samples: list[m.SampleRecord] = []

    def write_graph(self, record: m.GraphRecord) -> None:
        """Keeps a graph record."""
        self.graphs.append(record)

    def write_sample(self, record: m.SampleRecord) -> None:
        """Keeps a sample record."""
        self.samples.append(record)

    def close(self) -> None:
        """There is nothing to close."""

    def recording(self) -> Recording:
        """What was recorded so far."""
        return Recording(
            run=".",
            host=f"{layout.host_name()}-{layout.worker_index()}",
            graph=self.graphs[-1] if self.graphs else m.GraphRecord(format_version=FORMAT_VERSION),
            samples=tuple(self.samples),
        )
