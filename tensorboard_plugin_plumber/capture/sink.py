"""Where the records of a session go."""

from __future__ import annotations

from collections.abc import Callable
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


class LazySink:
    """A sink that is opened for the first record, in the thread that writes it.

    Training's own thread does not wait for a log directory on a file system that hangs.

    Args:
      open_sink: opens it; may raise what it likes.
    """

    def __init__(self, open_sink: Callable[[], Sink]) -> None:
        self._open_sink = open_sink
        self._sink: Sink | None = None
        self._closed = False

    def write_graph(self, record: m.GraphRecord) -> None:
        """Writes a graph record; once it is closed, nothing."""
        if not self._closed:
            self._opened().write_graph(record)

    def write_sample(self, record: m.SampleRecord) -> None:
        """Writes a sample record; once it is closed, nothing."""
        if not self._closed:
            self._opened().write_sample(record)

    def close(self) -> None:
        """Closes it; where nothing was written, nothing was opened."""
        self._closed = True
        if self._sink is not None:
            self._sink.close()

    def _opened(self) -> Sink:
        if self._sink is None:
            self._sink = self._open_sink()
        return self._sink


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
