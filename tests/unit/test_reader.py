"""Reading recordings from a log directory; the files are written by the real writer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.compat.proto import event_pb2, summary_pb2

from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.events.metadata import FORMAT_VERSION
from tensorboard_plugin_plumber.events.reader import NothingRecorded
from tensorboard_plugin_plumber.events.writer import EventWriter
from tests.support.records import START_S, Training
from tests.unit.test_record_file import record


def event_file(directory: str | Path) -> Path:
    """The one event file of a directory."""
    (path,) = Path(directory).glob("*tfevents*")
    return path


def write_other_events(directory: Path) -> None:
    """What another plugin leaves behind."""
    directory.mkdir(parents=True)
    value = summary_pb2.Summary.Value(tag="loss", simple_value=1.0)
    event = event_pb2.Event(wall_time=START_S, step=1, summary=summary_pb2.Summary(value=[value]))
    (directory / "events.out.tfevents.1.host.1.0").write_bytes(record(event.SerializeToString()))


def test_every_run_and_host_is_found(tmp_path: Path) -> None:
    # GIVEN a run in a folder of its own, one at the top, and another plugin's events
    Training().write(tmp_path / "a" / "b")
    Training().write(tmp_path)
    write_other_events(tmp_path / "a" / "b" / "train")
    # WHEN they are read
    recordings = reader.read(tmp_path)
    # THEN each is named as its log directory is, relative to LOGDIR
    assert [recording.run for recording in recordings] == [".", "a/b"]
    assert {recording.host for recording in recordings} == {recordings[0].host}
    for recording in recordings:
        assert [sample.sequence for sample in recording.samples] == list(range(6))
        assert recording.notes == ()


def test_a_log_directory_inside_a_recording_is_understood(tmp_path: Path) -> None:
    directory = Path(Training().write(tmp_path / "run"))
    for logdir in (directory, directory.parent):
        (recording,) = reader.read(logdir)
        assert (recording.run, recording.host) == (".", directory.name)


def test_links_are_followed_once(tmp_path: Path) -> None:
    Training().write(tmp_path / "logs" / "run")
    (tmp_path / "logs" / "again").symlink_to(tmp_path / "logs")
    assert [recording.run for recording in reader.read(tmp_path / "logs")] == ["run"]


def test_a_resumed_run_gives_its_newest_session(tmp_path: Path) -> None:
    # GIVEN a training that was resumed in the same directory
    Training(session="first", rate=10).write(tmp_path, samples=8)
    Training(session="second", start_s=START_S + 100, rate=20).write(tmp_path, samples=4)
    # WHEN it is read
    (newest,) = reader.read(tmp_path)
    every = reader.read(tmp_path, every_session=True)
    # THEN the newest session is given, and both are to be had, each with its own samples only
    assert newest.graph.session.id == "second"
    assert [recording.graph.session.id for recording in every] == ["first", "second"]
    assert [len(recording.samples) for recording in every] == [8, 4]


def test_a_session_that_has_just_begun_gives_way_to_the_one_before(tmp_path: Path) -> None:
    Training(session="first").write(tmp_path)
    Training(session="second", start_s=START_S + 100).write(tmp_path, samples=1)

    (recording,) = reader.read(tmp_path)

    assert recording.graph.session.id == "first"
    assert recording.notes == ("The newest session has too few records yet: this is the one before it.",)


def test_an_evaluation_after_training_gives_way_to_the_training(tmp_path: Path) -> None:
    # GIVEN a fit, and an evaluation with the same callback
    Training(session="fit").write(tmp_path)
    evaluation = Training(session="evaluate", start_s=START_S + 100)
    graph = evaluation.graph()
    graph.pipelines[0].role = graph.pipelines[0].label = "validation"
    writer = EventWriter(tmp_path)
    writer.write_graph(graph)
    for sequence in range(4):
        writer.write_sample(evaluation.sample(sequence))
    writer.close()
    # WHEN it is read
    (recording,) = reader.read(tmp_path)
    every = reader.read(tmp_path, every_session=True)
    # THEN the training is given, and says so; both are to be had
    assert recording.graph.session.id == "fit"
    assert recording.notes == (
        "The newest session only evaluated or predicted: this is the last one that trained.",
    )
    assert [recording.graph.session.id for recording in every] == ["fit", "evaluate"]


def test_the_last_graph_counts_and_samples_are_sorted(tmp_path: Path) -> None:
    # GIVEN records that were written out of order
    training = Training(labels=("train", "validation"))
    writer = EventWriter(tmp_path)
    writer.write_graph(training.graph(sequence=1))
    writer.write_sample(training.sample(2))
    writer.write_graph(Training(labels=("train",)).graph(sequence=0))
    writer.write_sample(training.sample(1))
    writer.close()
    # WHEN they are read
    (recording,) = reader.read(tmp_path)
    # THEN the graph with the greater sequence is used
    assert len(recording.graph.pipelines) == 2
    assert [sample.sequence for sample in recording.samples] == [1, 2]


def test_a_file_cut_short_is_used_up_to_the_cut(tmp_path: Path) -> None:
    path = event_file(Training().write(tmp_path, samples=6))
    path.write_bytes(path.read_bytes()[:-5])

    (recording,) = reader.read(tmp_path)

    assert len(recording.samples) == 5
    (note,) = recording.notes
    assert f"'{path}' ends in the middle of a record (cut short, or still being written)" in note


def test_a_damaged_file_is_used_up_to_the_damage(tmp_path: Path) -> None:
    path = event_file(Training().write(tmp_path, samples=10))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)

    (recording,) = reader.read(tmp_path)

    assert 2 <= len(recording.samples) < 10
    assert [sample.sequence for sample in recording.samples] == list(range(len(recording.samples)))
    (note,) = recording.notes
    assert "is damaged at byte" in note
    assert note.endswith("what stands before it was used.")


def test_damage_in_one_file_leaves_the_others_alone(tmp_path: Path) -> None:
    path = event_file(Training(session="first").write(tmp_path))
    path.write_bytes(path.read_bytes()[:40])
    Training(session="second", start_s=START_S + 100).write(tmp_path)

    (recording,) = reader.read(tmp_path)

    assert recording.graph.session.id == "second"
    assert len(recording.samples) == 6


@pytest.mark.parametrize("make", ["missing", "file", "empty", "other", "no samples", "broken", "newer"])
def test_nothing_to_analyse_is_one_sentence(tmp_path: Path, make: str) -> None:
    logdir = tmp_path / "logs"
    expected = {
        "missing": ("not-found", "does not exist: give the log directory that"),
        "file": ("not-found", "is a file, not a directory: give the log directory that"),
        "empty": (
            "empty",
            "holds no event files: to record a pipeline, train with PlumberCallback(log_dir)",
        ),
        "other": ("empty", "holds events of other plugins only: to record a pipeline, train with"),
        "no samples": ("empty", "no pipeline with two samples; let it run for some seconds"),
        "broken": ("damaged", "are damaged beyond use: no whole graph and two samples are left"),
        "newer": ("damaged", "this Plumber knows up to"),
    }[make]
    if make == "file":
        logdir.write_text("")
    elif make == "empty":
        logdir.mkdir()
    elif make == "other":
        write_other_events(logdir / "train")
    elif make == "no samples":
        Training().write(logdir, samples=1)
    elif make == "broken":
        path = event_file(Training().write(logdir))
        path.write_bytes(b"\0\0" + path.read_bytes()[2:].replace(b"p", b"q"))
    elif make == "newer":
        graph = Training().graph()
        graph.format_version = FORMAT_VERSION + 1
        writer = EventWriter(logdir)
        writer.write_graph(graph)
        writer.close()

    with pytest.raises(NothingRecorded) as raised:
        reader.read(logdir)

    kind, words = expected
    assert raised.value.kind == kind
    assert words in str(raised.value)
    assert f"'{logdir}'" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_damage_is_watched_while_files_grow(tmp_path: Path) -> None:
    # GIVEN a file whose last record is not whole yet
    directory = Path(Training().write(tmp_path))
    path = event_file(directory)
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    watch = reader.DamageWatch()
    # THEN that is no damage while it is live, and is one if nobody writes any more
    assert watch.sentences(directory, live=True) == ()
    (sentence,) = watch.sentences(directory, live=False)
    assert "ends in the middle of a record" in sentence
    # WHEN the record is finished, THEN all is well
    path.write_bytes(content)
    assert watch.sentences(directory, live=False) == ()
    # WHEN something else follows, THEN that is damage, live or not
    path.write_bytes(content + bytes(50))
    assert f"is damaged at byte {len(content)}" in watch.sentences(directory, live=True)[0]


def test_reading_loads_no_tensorflow(tmp_path: Path) -> None:
    Training().write(tmp_path)
    program = (
        "import sys; from tensorboard_plugin_plumber.events import reader; reader.read(sys.argv[1]); "
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == 0
