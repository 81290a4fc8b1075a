"""Event files that EventWriter writes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tensorboard.compat.proto import event_pb2

from tensorboard_plugin_plumber.events import metadata, reader
from tensorboard_plugin_plumber.events.record_file import read_records
from tensorboard_plugin_plumber.events.writer import EventWriter
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


def write(log_dir: Path, session: str, samples: int) -> EventWriter:
    writer = EventWriter(log_dir)
    graph = m.GraphRecord(format_version=metadata.FORMAT_VERSION, session=m.Session(id=session))
    graph.pipelines.add(id="p")
    writer.write_graph(graph)
    for sequence in range(samples):
        writer.write_sample(
            m.SampleRecord(
                format_version=metadata.FORMAT_VERSION,
                session_id=session,
                sequence=sequence,
                wall_time_s=time.time(),
            )
        )
    return writer


def events(writer: EventWriter) -> list[event_pb2.Event]:
    files = sorted(Path(writer.directory).glob("*tfevents*"))
    return [event_pb2.Event.FromString(record) for file in files for record in read_records(file).data]


def test_each_record_can_be_read_before_the_file_is_closed(tmp_path: Path) -> None:
    writer = write(tmp_path, "s", samples=3)

    (recording,) = reader.read(tmp_path)

    assert len(recording.samples) == 3
    assert recording.notes == ()
    writer.close()


def test_an_event_file_begins_as_tensorboard_wants_it(tmp_path: Path) -> None:
    writer = write(tmp_path, "s", samples=1)
    first, graph, sample = events(writer)
    writer.close()

    assert first.file_version == "brain.Event:2"
    for event, tag in ((graph, metadata.GRAPH_TAG), (sample, metadata.SAMPLE_TAG)):
        (value,) = event.summary.value
        assert value.tag == tag
        assert value.metadata.plugin_data.plugin_name == "plumber"
        assert not value.tensor.tensor_shape.dim
        assert len(value.tensor.string_val) == 1


def test_steps_only_grow_even_if_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a", samples=3).close()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600)

    writer = write(tmp_path, "b", samples=3)
    writer.close()

    by_session: dict[str, list[int]] = {"a": [], "b": []}
    for event in events(writer):
        for value in event.summary.value:
            if value.tag == metadata.SAMPLE_TAG:
                record = m.SampleRecord.FromString(value.tensor.string_val[0])
                by_session[record.session_id].append(event.step)
    assert by_session["b"] == sorted(set(by_session["b"]))
    assert by_session["b"][0] > by_session["a"][-1]


def test_a_damaged_file_of_an_earlier_session_is_no_obstacle(tmp_path: Path) -> None:
    writer = write(tmp_path, "a", samples=2)
    writer.close()
    (file,) = Path(writer.directory).glob("*tfevents*")
    file.write_bytes(file.read_bytes()[:-5] + b"\x00")

    write(tmp_path, "b", samples=2).close()

    assert reader.read(tmp_path)[0].graph.session.id == "b"


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(OSError, match="file"):
        EventWriter(tmp_path / "file")
