"""What-ifs: the same numbers from Python, from the command line and over HTTP, of a real recording."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.answers import Answers
from tensorboard_plugin_plumber.diagnosis import record
from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.report import Report
from tests.integration.test_cli import Result, assert_refused
from tests.integration.test_plugin import without_moment
from tests.support.tensorboard import TensorBoard, serve

#: By name: as text, and as a number in Python.
QUESTIONS: dict[str, tuple[str, float]] = {
    "cores": ("16", 16),
    "memory": ("2GB", 2e9),
    "storage": ("1MB/s", 1e6),
    "rate": ("100", 100),
    "epochs": ("3", 3),
    "consumer_rate": ("50", 50),
}


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline that reads records and computes, run on its own."""
    root = tmp_path_factory.mktemp("what-if")
    path = str(root / "records")
    with tf.io.TFRecordWriter(path) as writer:
        for _ in range(2000):
            writer.write(os.urandom(20_000))

    def busy(content: tf.Tensor) -> tf.Tensor:
        noise = tf.random.stateless_uniform([120, 120], seed=(1, 2))
        return tf.strings.length(content) + tf.cast(tf.reduce_sum(noise @ noise) > 0, tf.int32)

    dataset = tf.data.TFRecordDataset(path).map(busy).batch(8)
    record(dataset, root / "logs" / "run", seconds=3)
    return root / "logs"


@pytest.fixture(scope="module")
def report(logdir: Path) -> Report:
    (recording,) = reader.read(logdir)
    answers = Answers(recording)
    return Report(answers.to(), answers.to)


@pytest.fixture(scope="module")
def board(logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorBoard]:
    with serve(logdir, tmp_path_factory.mktemp("board") / "log", load_fast=True) as running:
        running.wait_for_runs(1)
        yield running


def command(*arguments: object) -> Result:
    run = [sys.executable, "-m", "tensorboard_plugin_plumber.cli", *map(str, arguments)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_has_one_answer(name: str, report: Report, board: TensorBoard, logdir: Path) -> None:
    text, number = QUESTIONS[name]
    # GIVEN what Python says, of a number and of its text
    asked = report.what_if(**{name: number})
    expected = without_moment(asked.to_dict())
    assert without_moment(report.what_if(**{name: text}).to_dict()) == expected  # type: ignore[arg-type]
    # THEN so say the tab's route and the command line
    assert without_moment(board.plumber("analysis", **{name: text}).json) == expected
    option = f"--{name.replace('_', '-')}"
    told = command("report", logdir, option, text, "--json")
    assert told.code == 0, told.err
    assert without_moment(told.json) == expected
    # ... and it is an answer to that question
    assert expected != without_moment(report.to_dict())


def test_the_answers_say_what_they_suppose(report: Report) -> None:
    asked = report.what_if(cores=16, memory="2GB", storage="1MB/s", rate=100, epochs=3, consumer_rate=50)
    found: dict[str, Any] = asked.to_dict()
    limits = found["limits"]
    assert (limits["cores"], limits["memory_bytes"], limits["epochs"]) == (16, 2e9, 3)
    assert limits["wanted_rate"] == 100
    assert limits["storage"][-1]["bytes_per_s"] == 1e6
    assert found["verdict"]["consumer_rate"] == 50
    assert found["sizing"]["wanted_rate"] == 100
    # A step reads eight records of 20 kB.
    (bound,) = (bound for bound in found["bounds"] if bound["constraint"] == "storage")
    assert bound["rate"] == pytest.approx(1e6 / 160e3, rel=0.25)
    # Each question starts from what was measured.
    assert report.what_if().to_dict()["limits"] == report.to_dict()["limits"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("cores", "-1", "'-1' is not a positive number"),
        ("memory", "12", "'12' is 12 bytes, less than any training takes"),
        ("storage", "fast", "'fast' is not a speed: write bytes per second, or a suffix as in 200MB/s"),
        ("rate", "0", "'0' is not a positive number"),
        ("epochs", "0.5", "'0.5' is less than one epoch"),
        ("consumer_rate", "inf", "'inf' is not a positive number"),
    ],
)
def test_a_value_that_makes_no_sense_is_one_line(
    name: str, text: str, words: str, report: Report, board: TensorBoard, logdir: Path
) -> None:
    with pytest.raises(ValueError, match=f"{name}='{text}': "):
        report.what_if(**{name: text})  # type: ignore[arg-type]
    reply = board.plumber("analysis", **{name: text})
    assert reply.status == 400
    assert reply.json["error"].startswith(f"Parameter {name}: {words}")
    assert_refused(command("report", logdir, f"--{name.replace('_', '-')}", text), words)


def test_a_report_without_its_recording_says_so(report: Report) -> None:
    with pytest.raises(ValueError, match="does not know its recording"):
        Report(report.analysis).what_if(cores=2)
    with pytest.raises(TypeError, match="a number is wanted"):
        report.what_if(cores=True)
