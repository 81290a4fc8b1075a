"""The command line, run as users run it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RecordedRun
from tests.support.records import START_S, Training
from tests.unit.test_reader import event_file, write_other_events

SCRIPT = '''
"""A script as people write them: it talks, cleans up after itself, and does more when run."""
import atexit, sys, threading, time
import helper
print("import says", __name__, sys.argv)
import numpy as np
import tensorflow as tf

MARK = sys.path[0] + "/cleaned-up"
atexit.register(lambda: (open(MARK, "w").close(), print("exit says bye")))

def load(index):
    time.sleep(0.002)
    return np.float32(index)

def make_dataset():
    print("function says hello")
    def augment(index):
        image = tf.random.uniform([300, 100])
        return tf.reduce_sum(tf.cumsum(image)) + tf.cast(index, tf.float32)
    return (
        tf.data.Dataset.range(helper.LENGTH)
        .map(augment)
        .batch(4)
    )

def make_python_dataset():
    ds = tf.data.Dataset.range(100000).map(lambda i: tf.numpy_function(load, [i], tf.float32))
    global kept
    kept = iter(ds)  # keeps the interpreter from ending, unless somebody minds
    next(kept)
    return ds.batch(4)

if __name__ == "__main__":
    raise SystemExit("this is not for Plumber")
'''


USELESS = """
import sys

MARK = 1

def raises(): raise ValueError("no such folder\\nsecond line")
def not_a_dataset(): return [1]
def needs_arguments(folder, *, size=3): return None
def exits(): sys.exit("never mind")

def has_no_element():
    import tensorflow as tf
    return tf.data.Dataset.range(0)

def fails_later():
    import tensorflow as tf
    def check(index):
        if index.numpy() > 2:
            raise RuntimeError("bad record")
        return index
    return tf.data.Dataset.range(10).map(lambda index: tf.py_function(check, [index], tf.int64))
"""


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def plumber(*arguments: object, cwd: Path | None = None, timeout: float = 120) -> Result:
    """Runs `plumber`, with nothing but files behind its three streams."""
    command = [sys.executable, "-m", "tensorboard_plugin_plumber.cli", *map(str, arguments)]
    process = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Result(process.returncode, process.stdout, process.stderr)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The user's script, with a module beside it."""
    (tmp_path / "helper.py").write_text("LENGTH = 2000\n")
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, one of them on two hosts."""
    root = tmp_path_factory.mktemp("logs")
    Training(start_s=START_S).write(root / "old", samples=10, final=True)
    fast = Path(
        Training(start_s=START_S + 100, labels=("train", "validation")).write(root / "new", samples=10)
    )
    fast.rename(fast.with_name("fast-0"))
    slow = Path(
        Training(start_s=START_S + 100, rate=5, labels=("train", "validation")).write(
            root / "new", samples=10
        )
    )
    slow.rename(slow.with_name("slow-1"))
    return root


def assert_refused(result: Result, *words: str) -> None:
    """Exit code 2, one line on stderr, nothing on stdout."""
    assert result.code == 2, result
    assert result.out == ""
    (line,) = result.err.splitlines()
    assert line.startswith("plumber: ")
    for word in words:
        assert word in line


def test_help_is_complete_and_loads_nothing_heavy() -> None:
    result = plumber("--help")
    assert result.code == 0
    for words in (
        "plumber demo [--logdir D] [--no-serve]",
        "plumber trace TARGET [--logdir D] [--seconds S]",
        "plumber diagnose TARGET [--seconds S] [--consumer-rate R] [--json]",
        "plumber report LOGDIR [--run R] [--host H] [--pipeline P] [--all]",
        "plumber check LOGDIR [--run R] [--host H] [--pipeline P]",
        "Exit codes: 0 done; 1 a check failed; 2 bad usage or input",
    ):
        assert words in result.out
    program = (
        "import sys; from tensorboard_plugin_plumber.cli import run_command; run_command(['--help']); "
        "print(*({'tensorflow', 'tensorboard', 'cvxpy', 'numpy', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stderr
    assert loaded.strip() == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reprot"], "No such command 'reprot'"),
        (["report"], "Missing argument 'LOGDIR'; see 'plumber report --help'."),
        (["report", ".", "--cores", "many"], "Invalid value for '--cores': 'many' is not a positive number"),
        (["report", ".", "--memory", "4"], "'4' is 4 bytes, less than any training takes: did you mean 4GB"),
        (["report", ".", "--memory", "8XB"], "'8XB' is not a size: write bytes, or a suffix as in 8GiB"),
        (["report", ".", "--nonsense"], "No such option"),
        (["check", "."], "Say what to check: --max-wait PERCENT, --min-rate STEPS_PER_S, or both."),
        (["check", ".", "--max-wait", "101"], "101.0 is not in the range 0<=x<=100"),
        (["report", ".", "--all", "--run", "x"], "--all takes every run: leave out --run"),
        (["diagnose", "train.py"], "'train.py' is no TARGET: write 'file.py:function' or 'module:function'"),
        (["diagnose", "nowhere.py:f"], "There is no file 'nowhere.py': TARGET is"),
        (["diagnose", "no.such.module:f"], "Module 'no.such.module' cannot be imported: ModuleNotFoundError"),
        (["diagnose", "x.py:f", "--seconds", "0"], "Invalid value for '--seconds'"),
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], words: str) -> None:
    assert_refused(plumber(*arguments), words)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("missing", "does not exist: give the log directory"),
        ("empty", "holds no event files: to record a pipeline, train with"),
        ("other", "holds events of other plugins only"),
        ("broken", "are damaged beyond use: no whole graph and two samples are left"),
    ],
)
def test_a_log_directory_of_no_use_is_one_line(tmp_path: Path, what: str, words: str) -> None:
    logdir = tmp_path / "logs"
    if what == "empty":
        logdir.mkdir()
    elif what == "other":
        write_other_events(logdir / "train")
    elif what == "broken":
        event_file(Training().write(logdir)).write_bytes(b"not an event file, whatever its name says")
    assert_refused(plumber("report", logdir), str(logdir), words)


def test_report_of_the_default_choice(logdir: Path) -> None:
    answer = plumber("report", logdir, "--json").json
    assert (answer["run"], answer["host"], answer["pipeline_label"]) == ("new", "slow-1", "train")
    text = plumber("report", logdir)
    assert text.out.startswith(answer["verdict"]["sentence"].split(".")[0][:60])
    assert "Map decode (train.py:57)" in text.out
    assert "\x1b" not in text.out


def test_report_of_what_was_asked_for(logdir: Path) -> None:
    answer = plumber(
        "report", logdir, "--run", "new", "--host", "fast-0", "--pipeline", "validation", "--cores", 8,
        "--memory", "1GiB", "--consumer-rate", 100, "--json",
    ).json  # fmt: skip
    assert (answer["run"], answer["host"], answer["pipeline_label"]) == ("new", "fast-0", "validation")
    assert answer["limits"]["cores"] == 8
    assert answer["limits"]["memory_bytes"] == 2**30
    assert answer["verdict"]["consumer_rate"] == 100


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--run", "x"), "There is no run 'x': there are 'new', 'old'."),
        (("--host", "x"), "No run has a host 'x'"),
        (("--pipeline", "x"), "There is no pipeline 'x' in run 'new': there are 'train'"),
    ],
)
def test_what_was_asked_for_and_is_not_there(logdir: Path, option: tuple[str, str], words: str) -> None:
    assert_refused(plumber("report", logdir, *option), words)


def test_a_line_per_run(logdir: Path) -> None:
    told = plumber("report", logdir, "--all", "--json").json
    assert [(entry["run"], entry["host"]) for entry in told["runs"]] == [
        ("new", "slow-1"),
        ("old", told["runs"][1]["host"]),
    ]
    assert told["totals"]["runs"] == 2
    text = plumber("report", logdir, "--all").out
    assert "2 runs" in text


def test_what_else_was_recorded_is_told_on_stderr(logdir: Path) -> None:
    (line,) = plumber("report", logdir).err.splitlines()
    assert "This is the newest of 2 runs; --all lists them, --run shows one." in line
    assert "--pipeline shows another one of this run: 'validation'." in line
    assert plumber("report", logdir, "--run", "old").err == ""
    assert plumber("report", logdir, "--json").err == ""


def test_a_file_cut_short_is_used_and_told_on_stderr(tmp_path: Path) -> None:
    path = event_file(Training().write(tmp_path, samples=8))
    path.write_bytes(path.read_bytes()[:-9])
    result = plumber("report", tmp_path, "--json")
    assert result.code == 0
    (line,) = result.err.splitlines()
    assert line.startswith(f"plumber: '{path}' ends in the middle of a record")
    assert result.json["steps"] == pytest.approx(60)
    assert any(str(path) in note for note in result.json["notes"])


def test_an_output_that_is_closed_early_is_no_error(logdir: Path) -> None:
    command = f"{sys.executable} -m tensorboard_plugin_plumber.cli report {logdir} --json | head -c 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert (result.stdout, result.stderr) == ("{", "")


def test_report_of_a_real_training(recorded_run: RecordedRun) -> None:
    answer = plumber("report", recorded_run.logdir, "--json").json
    assert answer["run"] == recorded_run.run
    assert answer["pipeline_label"] == "train"
    assert answer["verdict"]["input_bound"] is True
    (binding,) = (row for row in answer["operators"] if row["id"] == answer["bottleneck"]["operator"])
    assert (binding["type"], binding["label"]) == ("Map", "augment")
    assert binding["source"].startswith("fit.py:")


def test_diagnose_answers_on_stdout_alone(script: Path) -> None:
    result = plumber("diagnose", script.name + ":make_dataset", "--seconds", 3, "--json", cwd=script.parent)
    assert result.code == 0, result.err
    answer = result.json
    line = SCRIPT[: SCRIPT.index(".map(augment)")].count("\n") + 1
    (augment,) = (row for row in answer["operators"] if row["label"] == "augment")
    assert augment["source"] == f"train.py:{line}"
    assert answer["measured"] is None
    # What the user's code prints is still to be seen, in the order of its running.
    printed = [text for text in result.err.splitlines() if "says" in text]
    assert printed == [
        "import says plumber_target_train ['train.py']",
        "function says hello",
        "exit says bye",
    ]
    assert (script.parent / "cleaned-up").exists()


def test_a_python_pipeline_that_is_still_held_does_not_hang(script: Path) -> None:
    result = plumber("diagnose", f"{script}:make_python_dataset", "--seconds", 2, "--consumer-rate", 1e6)
    assert result.code == 0, result.err
    assert "Map" in result.out
    assert (script.parent / "cleaned-up").exists()


def test_trace_records_what_report_reads(script: Path) -> None:
    result = plumber("trace", "train:make_dataset", "--logdir", "logs/one", "--seconds", 2, cwd=script.parent)
    assert result.code == 0, result.err
    assert "of train:make_dataset in logs/one." in result.out
    answer = plumber("report", "logs", "--json", cwd=script.parent).json
    assert answer["run"] == "one"
    assert answer["steps"] > 0
    assert answer["verdict"]["input_bound"] is None  # nobody consumed it


def test_trace_where_nothing_can_be_written(script: Path) -> None:
    blocked = script.parent / "file"
    blocked.write_text("")
    result = plumber("trace", f"{script}:make_dataset", "--logdir", blocked / "logs")
    assert_refused(result, f"Cannot record in '{blocked / 'logs'}'", "--logdir")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("nothing", "'nothing' does not exist: {script} has raises, not_a_dataset, needs_arguments"),
        ("MARK", "'MARK' is not a function"),
        ("raises", "{script}:raises failed: ValueError: no such folder (train.py:"),
        ("not_a_dataset", "{script}:not_a_dataset returned a list: it must return a tf.data.Dataset."),
        (
            "needs_arguments",
            "{script}:needs_arguments needs arguments (folder, *, size=3): name a function of no",
        ),
        ("exits", "{script}:exits failed: it calls sys.exit('never mind') (train.py:"),
        ("has_no_element", "{script}:has_no_element cannot be measured: the dataset has no element."),
        ("fails_later", "The pipeline of {script}:fails_later fails while it runs:"),
    ],
)
def test_a_function_of_no_use_is_one_line(script: Path, function: str, words: str) -> None:
    script.write_text(USELESS)
    assert_refused(plumber("diagnose", f"{script}:{function}", "--seconds", 2), words.format(script=script))


def test_a_script_that_cannot_be_imported_is_one_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os\nimport no_such_thing\n")
    assert_refused(
        plumber("diagnose", f"{script}:f"),
        "cannot be imported: ModuleNotFoundError: No module named 'no_such_thing' (train.py:2)",
    )
    script.write_text("def f(:\n")
    assert_refused(plumber("diagnose", f"{script}:f"), "cannot be imported: SyntaxError:", "(train.py:1)")


def test_a_fault_of_our_own_says_where_to_report_it(logdir: Path) -> None:
    program = textwrap.dedent(
        """
        import sys
        from tensorboard_plugin_plumber import cli
        from tensorboard_plugin_plumber.events import reader
        reader.read = lambda logdir: 1 / 0
        cli.main(["report", sys.argv[1]])
        """
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(logdir)], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 3
    assert result.stdout == ""
    assert "ZeroDivisionError" in result.stderr
    assert "Please report it in the issue tracker" in result.stderr.splitlines()[-1]
