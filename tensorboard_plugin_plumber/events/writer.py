"""Writes records as TensorBoard summaries into an event file of their own."""

from __future__ import annotations

import itertools
import os
import posixpath
import struct
import time
from collections.abc import Callable
from typing import BinaryIO, Protocol

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2

from tensorboard_plugin_plumber.events import layout, metadata
from tensorboard_plugin_plumber.events.compact import compact
from tensorboard_plugin_plumber.events.record_file import masked_crc32c
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_FILE_VERSION = "brain.Event:2"
_HEADER = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_file_numbers = itertools.count()

GRAPH_DESCRIPTION = "The tf.data pipelines that Plumber saw, as written and as run."
SAMPLE_DESCRIPTION = "What Plumber counted of the tf.data pipelines so far."


class _Output(Protocol):
    def write(self, data: bytes, /) -> object: ...
    def flush(self) -> object: ...
    def close(self) -> object: ...


class EventWriter:
    """A sink for records: `<log_dir>/plumber/<hostname>-<worker>/events.out.tfevents.…`.

    Each record is flushed as it is written, so that TensorBoard sees it at once and a killed
    training loses nothing. Steps only grow, also over the runs that resume in one directory.

    Args:
      log_dir: what the user gave to the callback; made if it does not exist. A directory of
        another file system ("gs://…") needs `open_remote`.
      open_remote: opens a path of another file system for writing bytes.

    Raises:
      OSError: the directory or the file cannot be made.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        *,
        open_remote: Callable[[str], _Output] | None = None,
    ) -> None:
        self._graph: m.GraphRecord | None = None
        self._claim = layout.directory_for(log_dir)
        try:
            # The process id and the number keep apart what is opened within one second.
            name = (
                f"events.out.tfevents.{int(time.time()):010d}.{layout.host_name()}."
                f"{os.getpid()}.{next(_file_numbers)}"
            )
            self._last_step = _last_step(self._claim.path)
            self._file = self._open(name, open_remote)
            self._write(event_pb2.Event(wall_time=time.time(), file_version=_FILE_VERSION))
        except BaseException:
            self._claim.release()
            raise

    @property
    def directory(self) -> str:
        """Where the event file is."""
        return self._claim.path

    def write_graph(self, record: m.GraphRecord) -> None:
        """Writes a graph record."""
        self._graph = record
        self._write_summary(metadata.GRAPH_TAG, GRAPH_DESCRIPTION, record.SerializeToString(), time.time())

    def write_sample(self, record: m.SampleRecord) -> None:
        """Writes a sample record, without what the last graph record says."""
        content = compact(record, self._graph).SerializeToString()
        self._write_summary(metadata.SAMPLE_TAG, SAMPLE_DESCRIPTION, content, record.wall_time_s)

    def close(self) -> None:
        """Closes the file and lets another process have the directory's name."""
        try:
            self._file.close()
        finally:  # a full disk lets nothing be closed properly
            self._claim.release()

    def _open(self, name: str, open_remote: Callable[[str], _Output] | None) -> _Output:
        directory = self._claim.path
        if layout.is_remote(directory):
            if open_remote is None:
                raise OSError(f"'{directory}' is not a local directory")
            return open_remote(posixpath.join(directory, name))
        file: BinaryIO = open(os.path.join(directory, name), "xb")  # noqa: SIM115 - closed in close()
        return file

    def _write_summary(self, tag: str, description: str, content: bytes, wall_time_s: float) -> None:
        # Milliseconds of Unix time: a resumed training goes on behind the one before it.
        self._last_step = max(self._last_step + 1, int(wall_time_s * 1000))
        value = summary_pb2.Summary.Value(
            tag=tag,
            metadata=metadata.create_summary_metadata(description=description),
            tensor=tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[content]),
        )
        value.tensor.tensor_shape.SetInParent()  # rank 0
        self._write(
            event_pb2.Event(
                wall_time=wall_time_s, step=self._last_step, summary=summary_pb2.Summary(value=[value])
            )
        )

    def _write(self, event: event_pb2.Event) -> None:
        data = event.SerializeToString()
        header = _HEADER.pack(len(data))
        # In one piece, so that a reader hardly ever meets half a record.
        self._file.write(
            b"".join((header, _CRC.pack(masked_crc32c(header)), data, _CRC.pack(masked_crc32c(data))))
        )
        self._file.flush()


def _last_step(directory: str) -> int:
    """Largest step in the directory's event files, 0 if there is none.

    A clock that was set back must not make steps shrink: TensorBoard would drop what was recorded.
    """
    if layout.is_remote(directory):
        return 0
    last = 0
    for entry in os.scandir(directory):
        if "tfevents" in entry.name and entry.is_file():
            last = max(last, _last_step_of_file(entry.path))
    return last


def _last_step_of_file(path: str) -> int:
    last = 0
    with open(path, "rb") as file:
        while header := file.read(_HEADER.size + _CRC.size):
            if len(header) < _HEADER.size + _CRC.size:
                break
            (length,) = _HEADER.unpack_from(header)
            body = file.read(length + _CRC.size)
            if len(body) < length + _CRC.size:
                break
            try:
                last = max(last, event_pb2.Event.FromString(body[:length]).step)
            except Exception:  # damage of any kind: what stands behind it is out of reach
                break
    return last
