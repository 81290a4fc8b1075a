"""The plugin in a real TensorBoard, with both of its data servers, over HTTP."""

from __future__ import annotations

import dataclasses
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.events.writer import EventWriter
from tensorboard_plugin_plumber.model.analyse import analyse
from tensorboard_plugin_plumber.patch.diff import fill_patch
from tensorboard_plugin_plumber.report import Report
from tests.conftest import RecordedRun
from tests.support.records import START_S, Training
from tests.support.tensorboard import TensorBoard, serve
from tests.unit.test_reader import event_file, write_other_events

PREFIX = "/behind/a/proxy"
both_servers = pytest.mark.parametrize("load_fast", [True, False], ids=["rust", "python"])


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory, recorded_run: RecordedRun) -> Path:
    """A real run, and made ones: resumed, on two hosts, cut short."""
    root = tmp_path_factory.mktemp("logs")
    shutil.copytree(recorded_run.logdir / recorded_run.run, root / "real")
    Training(session="first", rate=10).write(root / "resumed", samples=30)
    Training(session="second", start_s=START_S + 100, rate=20).write(root / "resumed", samples=5, final=True)
    first = Path(Training(rate=10).write(root / "hosts"))
    first.rename(first.with_name("fast-0"))
    second = Path(Training(rate=6, labels=("train", "validation")).write(root / "hosts"))
    second.rename(second.with_name("slow-1"))
    cut = event_file(Training(start_s=START_S + 1000).write(root / "cut", samples=8))
    cut.write_bytes(cut.read_bytes()[:-7])
    write_other_events(root / "resumed" / "train")
    return root


@pytest.fixture(scope="module", params=[True, False], ids=["rust", "python"])
def board(
    request: pytest.FixtureRequest, logdir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TensorBoard]:
    """A TensorBoard over `logdir`, behind a path prefix."""
    log_path = tmp_path_factory.mktemp("board") / "log"
    with serve(logdir, log_path, load_fast=request.param, path_prefix=PREFIX) as running:
        running.wait_for_runs(4)
        yield running


# What TensorFlow logs while TensorBoard imports it, and TensorBoard's greeting.
_USUAL = re.compile(
    r"[IWE]0000 |WARNING: All log messages before|To enable the following|TensorBoard 2\.|\s*$"
)


def own_lines(board: TensorBoard) -> list[str]:
    """What TensorBoard logged beyond what it logs without Plumber."""
    return [line for line in board.log.splitlines() if not _USUAL.match(line)]


def test_the_tab_is_listed_and_loads_its_module(board: TensorBoard) -> None:
    listing = board.get("data/plugins_listing").json["plumber"]
    assert listing["tab_name"] == "Plumber"
    assert listing["enabled"] is True  # although is_active() says False
    assert listing["loading_mechanism"] == {
        "type": "IFRAME",
        "module_path": f"{PREFIX}/data/plugin/plumber/index.js",
    }
    module = board.plumber("index.js")
    assert module.status == 200
    assert module.headers["Content-Type"].startswith("text/javascript")
    assert module.headers["X-Content-Type-Options"] == "nosniff"


def test_runs(board: TensorBoard) -> None:
    runs = board.plumber("runs").json
    # The newest run first: the real one, then by their made-up times.
    assert [entry["run"] for entry in runs["runs"]] == ["real", "cut", "resumed", "hosts"]
    assert runs["run"] == "real"
    assert runs["problem"] is None
    by_run = {entry["run"]: entry for entry in runs["runs"]}
    assert [host["host"] for host in by_run["hosts"]["hosts"]] == ["fast-0", "slow-1"]
    assert [host["rate"] for host in by_run["hosts"]["hosts"]] == [pytest.approx(10), pytest.approx(6)]
    assert not any(
        host["live"] for entry in runs["runs"] for host in entry["hosts"] if entry["run"] != "real"
    )


def test_analysis_of_a_real_run_is_that_of_the_report(board: TensorBoard, logdir: Path) -> None:
    # GIVEN what the command line makes of the same files
    (recording,) = (recording for recording in reader.read(logdir) if recording.run == "real")
    made = analyse(recording)
    fill_patch(made, since_s=recording.graph.session.start_time_s)
    expected = Report(made).to_dict()
    # WHEN the tab asks
    reply = board.plumber("analysis", run="real")
    # THEN it is the same, however TensorBoard stores it
    assert reply.status == 200
    answer = reply.json
    assert without_moment(answer) == without_moment(expected)
    assert answer["verdict"]["observed_rate"] > 0
    assert {row["type"] for row in answer["operators"]} >= {"Range", "Map", "Batch"}


def without_moment(analysis: dict[str, Any]) -> dict[str, Any]:
    """Without what depends on when it was asked, and how long that took."""
    plan = {**analysis["plan"], "solve_s": None}
    return {**analysis, "plan": plan, "live": None}


def test_a_resumed_run_shows_its_newest_session(board: TensorBoard) -> None:
    answer = board.plumber("analysis", run="resumed").json
    assert answer["verdict"]["observed_rate"] == pytest.approx(20, rel=0.01)
    assert answer["steps"] == pytest.approx(80)
    assert answer["live"] is False


def test_the_slowest_host_and_its_training_are_the_default(board: TensorBoard) -> None:
    answer = board.plumber("analysis", run="hosts").json
    assert (answer["host"], answer["pipeline_label"]) == ("slow-1", "train")
    other = board.plumber("analysis", run="hosts", host="fast-0").json
    assert other["host"] == "fast-0"
    validation = board.plumber("analysis", run="hosts", host="slow-1", pipeline="validation").json
    assert validation["pipeline_label"] == "validation"


def test_a_file_cut_short_is_noted(board: TensorBoard) -> None:
    answer = board.plumber("analysis", run="cut").json
    assert answer["steps"] == pytest.approx(60)
    (note,) = (note for note in answer["notes"] if "tfevents" in note)
    assert "ends in the middle of a record" in note


def test_what_if(board: TensorBoard) -> None:
    now = board.plumber("analysis", run="resumed").json
    richer = board.plumber("analysis", run="resumed", cores=16, memory="1GiB", consumer_rate=1000).json
    assert now["limits"]["cores"] == 2
    assert richer["limits"]["cores"] == 16
    assert richer["limits"]["memory_bytes"] == 2**30
    assert richer["verdict"]["consumer_rate"] == 1000
    assert richer["plan"]["predicted_rate"] > now["plan"]["predicted_rate"]


@pytest.mark.parametrize(
    ("query", "status", "kind", "words"),
    [
        (
            {"run": "<script>"},
            404,
            "not-found",
            "There is no run '<script>': there are 'cut', 'hosts', 'real', 'resumed'.",
        ),
        ({"run": "hosts", "host": "x"}, 404, "not-found", "it has 'fast-0', 'slow-1'."),
        ({"run": "hosts", "pipeline": "x"}, 404, "not-found", "There is no pipeline 'x'"),
        ({"cores": "many"}, 400, "bad-request", "Parameter cores: 'many' is not a positive number."),
        (
            {"memory": "4"},
            400,
            "bad-request",
            "Parameter memory: '4' is 4 bytes, less than any training takes",
        ),
        ({"memory": "8XB"}, 400, "bad-request", "Parameter memory: '8XB' is not a size"),
        (
            {"consumer_rate": "nan"},
            400,
            "bad-request",
            "Parameter consumer_rate: 'nan' is not a positive number.",
        ),
    ],
)
def test_bad_requests_are_told_in_one_sentence(
    board: TensorBoard, query: dict[str, str], status: int, kind: str, words: str
) -> None:
    reply = board.plumber("analysis", **query)
    assert reply.status == status
    assert reply.json["kind"] == kind
    assert words in reply.json["error"]
    # A name that is HTML must never be shown as a page.
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


def test_no_file_outside_of_the_bundle_is_served(board: TensorBoard) -> None:
    for path in (
        "static/..%2fplugin.py",
        "static/../plugin.py",
        "static/plugin.py",
        "static/%2e%2e/loader.py",
    ):
        assert board.plumber(path).status == 404


def test_what_has_not_changed_is_not_sent_again(board: TensorBoard) -> None:
    for route in ("analysis", "index.js"):
        first = board.plumber(route)
        again = board.plumber(route, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")
    assert first.headers["Content-Encoding"] == "gzip"
    assert (
        "Content-Encoding" not in board.plumber("analysis", headers={"Accept-Encoding": "identity"}).headers
    )


def test_another_experiment_is_asked_for_by_its_address(board: TensorBoard) -> None:
    # The data servers of a local TensorBoard hold one experiment, whatever it is called.
    assert board.get("experiment/abc/data/plugin/plumber/runs").json["run"] == "real"


def test_nothing_of_all_this_is_in_the_log(board: TensorBoard) -> None:
    """Runs last in this file for each of the servers."""
    assert [line for line in own_lines(board) if "not found, sending 404" not in line] == []


@both_servers
def test_a_live_run_is_followed_and_its_resumption_too(tmp_path: Path, load_fast: bool) -> None:
    # GIVEN a TensorBoard over a directory that does not exist yet
    logdir = tmp_path / "logs"
    with serve(logdir, tmp_path / "log", load_fast=load_fast) as board:
        assert board.plumber("runs").json["problem"]["kind"] == "empty"
        # WHEN a training begins
        training = Training(session="first", start_s=time.time() - 60)
        writer = EventWriter(logdir / "run")
        writer.write_graph(training.graph())
        for sequence in range(4):
            writer.write_sample(training.sample(sequence))
        # THEN it appears
        board.wait_for_runs()
        before = board.plumber("analysis")
        assert before.json["steps"] == pytest.approx(30)
        assert not before.json["live"]  # by the records' own times it fell silent a minute ago
        # WHEN it goes on, THEN the same question gets a newer answer
        training = dataclasses.replace(training, start_s=time.time() - 10)
        for sequence in range(4, 9):
            writer.write_sample(training.sample(sequence))
        writer.close()
        after = wait_for_steps(board, 80, etag=before.headers["ETag"])
        assert after["live"]
        # WHEN it is resumed, THEN the new session is shown
        Training(session="second", start_s=time.time(), rate=3).write(logdir / "run", samples=5, final=True)
        resumed = wait_for_steps(board, 12)
        assert not resumed["live"]
        assert own_lines(board) == []


@both_servers
def test_a_run_whose_first_element_is_still_to_come_is_no_error(tmp_path: Path, load_fast: bool) -> None:
    # GIVEN two samples in which nothing was delivered yet
    training = Training(start_s=time.time())
    writer = EventWriter(tmp_path / "logs" / "run")
    writer.write_graph(training.graph())
    for sequence in range(2):
        sample = training.sample(sequence)
        sample.pipelines[0].CopyFrom(training.sample(0).pipelines[0])
        writer.write_sample(sample)
    writer.close()
    # WHEN the analysis is asked for
    with serve(tmp_path / "logs", tmp_path / "log", load_fast=load_fast) as board:
        board.wait_for_runs()
        answer = board.plumber("analysis")
        # THEN the answer is no failure that a browser would log
        assert (answer.status, answer.json["kind"]) == (200, "collecting")
        assert "has delivered no element yet" in answer.json["error"]
        assert own_lines(board) == []


def wait_for_steps(board: TensorBoard, steps: float, etag: str = "") -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        reply = board.plumber("analysis", headers={"If-None-Match": etag} if etag else None)
        if reply.status == 200 and reply.json["steps"] == pytest.approx(steps):
            answer: dict[str, Any] = reply.json
            return answer
        assert time.monotonic() < deadline, (reply.status, reply.body[:300])
        time.sleep(0.3)


@pytest.mark.parametrize(
    ("what", "load_fast", "kind", "words"),
    [
        ("missing", True, "empty", "does not exist: give the log directory that"),
        ("other", False, "empty", "holds events of other plugins only: to record a pipeline"),
        ("broken", True, "damaged", "are damaged beyond use: no whole graph and two samples are left"),
        ("broken", False, "damaged", "are damaged beyond use: no whole graph and two samples are left"),
    ],
)
def test_where_nothing_can_be_shown_the_tab_says_why(
    tmp_path: Path, what: str, load_fast: bool, kind: str, words: str
) -> None:
    logdir = tmp_path / "logs"
    if what == "other":
        write_other_events(logdir / "train")
    elif what == "broken":
        path = event_file(Training().write(logdir))
        content = bytearray(path.read_bytes())
        content[60:] = bytes(len(content) - 60)
        path.write_bytes(content)

    with serve(logdir, tmp_path / "log", load_fast=load_fast) as board:
        time.sleep(2)  # one scan of the directory more
        for _ in range(3):
            runs = board.plumber("runs")
            assert runs.status == 200
            assert runs.json["runs"] == []
            assert runs.json["problem"]["kind"] == kind
            assert words in runs.json["problem"]["error"]
            analysis = board.plumber("analysis")
            assert (analysis.status, analysis.json["kind"]) == (404, kind)
        assert len(own_lines(board)) <= 1
        assert "Traceback" not in board.log


@both_servers
def test_a_limit_on_samples_leaves_a_right_analysis(tmp_path: Path, load_fast: bool) -> None:
    # GIVEN a TensorBoard that was told to keep few of our records
    Training(session="first").write(tmp_path / "logs", samples=100)
    Training(session="second", start_s=START_S + 1000, rate=20).write(tmp_path / "logs", samples=200)
    # WHEN it is asked
    with serve(
        tmp_path / "logs", tmp_path / "log", "--samples_per_plugin=plumber=20", load_fast=load_fast
    ) as board:
        board.wait_for_runs()
        answer = board.plumber("analysis").json
    # THEN cumulative counters make up for what was dropped
    assert answer["windows"] < 25
    assert answer["steps"] == pytest.approx(199 * 20)
    assert answer["verdict"]["observed_rate"] == pytest.approx(20, rel=0.01)
