"""`plumber optimize`, run as users run it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import tensorboard_plugin_plumber as package
from tests.integration.test_cli import assert_refused, plumber
from tests.integration.test_optimize import BUDGET_S

SCRIPT = """
import time
import tensorflow as tf

print("the script talks")

def wait(index):
    def call(value):
        time.sleep(0.02)
        return value
    return tf.numpy_function(call, [index], tf.int64)

def make_dataset():
    print("and its function, too")
    return (
        tf.data.Dataset.range(400)
        .map(wait)
        .batch(2)
    )

def nothing_to_gain():
    return tf.data.Dataset.range(100000)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("script") / "input.py"
    path.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def answer(script: Path) -> dict[str, Any]:
    plan = script.parent / "plan.json"
    result = plumber("optimize", f"{script}:make_dataset", "--seconds", 4, "--json", "--plan-out", plan)
    assert result.code == 0, result.err
    found: dict[str, Any] = json.loads(result.out)
    return found


def test_the_answer_is_the_report_with_what_was_measured(answer: dict[str, Any]) -> None:
    measured = answer["measured"]
    assert measured["after"] > 5 * measured["before"] > 0
    assert measured["same_elements"] is True
    assert {change["kind"] for change in answer["plan"]["changes"]} >= {"parallelism", "threadpool"}
    assert "num_parallel_calls" in answer["plan"]["patch"]


def test_the_patch_applies_and_does_what_it_says(answer: dict[str, Any], script: Path) -> None:
    patched = script.parent / "patched"
    patched.mkdir()
    (patched / script.name).write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    diff = answer["plan"]["patch"].replace(f"a{script.parent}", "a").replace(f"b{script.parent}", "b")
    subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=patched, check=True)
    assert "private_threadpool_size" in (patched / script.name).read_text(encoding="utf-8")


def test_the_plan_that_it_saves_can_be_used(answer: dict[str, Any], script: Path) -> None:
    program = f"""
        import importlib.util, sys
        import tensorboard_plugin_plumber as plumber
        spec = importlib.util.spec_from_file_location("input", {str(script)!r})
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        dataset = module.make_dataset()
        found = plumber.optimize(dataset, plan={str(script.parent / "plan.json")!r}, budget_s={BUDGET_S})
        print(found is not dataset, found.options().threading.private_threadpool_size)
        import os; sys.stdout.flush(); os._exit(0)
    """

    root = Path(package.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=root,
    )
    changed, pool = done.stdout.splitlines()[-1].split()
    assert changed == "True"
    assert int(pool) > 2


def test_what_people_read_says_before_after_and_predicted(script: Path) -> None:
    result = plumber("optimize", f"{script}:nothing_to_gain", "--seconds", 2)

    assert result.code == 0, result.err
    assert "Nothing was faster: the dataset stays as it is" in result.out
    assert "the script talks" not in result.out


def test_bad_input_is_refused_in_one_line(script: Path) -> None:
    target = f"{script}:make_dataset"
    assert_refused(plumber("optimize", target, "--service", "localhost:1"), "--service")
    assert_refused(plumber("optimize", target, "--memory", "much"), "not a size")
    assert_refused(plumber("optimize", target, "--epochs", "0.5"), "less than one epoch")
