"""Rules and constraints of packages that are really installed, and what broken ones do: one note."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PIP_INSTALL = (
    *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
    *("--no-deps", "--no-build-isolation", "--no-index"),
)


def analysed(folder: Path, **environment: str) -> dict[str, Any]:
    """The analysis of tests/support/extended.py in a process that finds what is installed in `folder`."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.extended"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the two example packages."""
    folder = tmp_path_factory.mktemp("installed")
    source = tmp_path_factory.mktemp("source")
    for name in ("plumber_rule", "plumber_constraint"):
        # pip builds in the source's own folder.
        copy = source / name
        copy.mkdir()
        for file in (ROOT / "examples" / name).iterdir():
            if file.is_file():
                (copy / file.name).write_bytes(file.read_bytes())
        subprocess.run(
            [*PIP_INSTALL, "--target", str(folder), str(copy)],
            check=True,
            timeout=120,
        )
    return folder


def by_hand(folder: Path, name: str, group: str, code: str) -> None:
    """An installed package as an installer leaves it: a module, and its metadata with one entry point."""
    (folder / f"{name}.py").write_text(textwrap.dedent(code))
    info = folder / f"{name}-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nmine = {name}:mine\n")


def test_installed_packages_have_their_say(installed: Path) -> None:
    answer = analysed(installed, DEVICE_LINK_BYTES_PER_S="400e6")

    # THEN the rule's finding stands among Plumber's own, with the gain that the model finds ...
    (finding,) = [one for one in answer["findings"] if one["code"] == "batch-of-one"]
    assert finding["operator"] == "op0"
    # ... but for the constraint, which holds the rate where it is: then nothing is gained
    assert finding["gain"] is None
    assert finding["severity"] == "low"
    # THEN the constraint is a bound of its own, below all others: it binds, and the plan stays below it
    assert answer["bounds"][0]["label"] == "link to the accelerator, 0.4 GB/s"
    assert answer["bounds"][0]["rate"] == pytest.approx(400)
    assert [one["label"] for one in answer["bounds"] if one["binds"]] == [answer["bounds"][0]["label"]]
    assert answer["plan"]["predicted_rate"] <= 400
    assert any("link to the accelerator" in note for note in answer["notes"])


def test_a_constraint_above_what_binds_is_only_shown(installed: Path) -> None:
    answer = analysed(installed, DEVICE_LINK_BYTES_PER_S="400e9")
    (row,) = [one for one in answer["bounds"] if one["label"].startswith("link to")]
    assert row["rate"] == pytest.approx(400e3)
    assert not row["binds"]
    (finding,) = [one for one in answer["findings"] if one["code"] == "batch-of-one"]
    assert finding["gain"] == pytest.approx(1, rel=0.1)
    assert answer["notes"] == []


IMPORT = "from tensorboard_plugin_plumber.extending import Finding, Limit\n"
#: Group, code, and what the note about it says.
BROKEN = [
    ("findings", "raise RuntimeError('at import')", "RuntimeError: at import"),
    ("findings", "mine = 3", "TypeError: its entry point names a int"),
    ("findings", "other = 3", "AttributeError"),
    ("findings", "def mine(case): raise KeyError('x')", "KeyError"),
    ("findings", "def mine(case): return 5", "TypeError"),
    ("findings", "def mine(case): raise SystemExit(3)", "SystemExit: 3"),
    ("findings", "def mine(case): yield 'slow'", "TypeError: a rule yields Finding"),
    ("findings", "def mine(case): case.binding = None", "FrozenInstanceError"),
    (
        "findings",
        IMPORT + "def mine(case): yield Finding('a', 'm', 'f', operator='nowhere')",
        "no such operator",
    ),
    (
        "findings",
        IMPORT + "def mine(case): yield Finding('a', 'm', 'f', gain=float('nan'))",
        "a finite number",
    ),
    ("findings", IMPORT + "def mine(case): yield Finding('No', 'm', 'f')", "lower-case words"),
    ("constraints", "def mine(network, settings): raise ValueError('no')", "ValueError: no"),
    ("constraints", "def mine(network, settings): return 7.0", "a constraint returns Limit or None"),
    ("constraints", IMPORT + "def mine(network, settings): return Limit(-1.0, 'less')", "a rate above 0"),
]


def test_each_broken_extension_is_one_note(tmp_path: Path, plain: dict[str, Any]) -> None:
    # GIVEN many packages, each with a fault of its own
    for i, (group, code, _) in enumerate(BROKEN):
        by_hand(tmp_path, f"outside{i}", f"plumber.{group}", code)
    answer = analysed(tmp_path)

    # THEN there is one note about each, and the rest is as if none of them were there
    notes = answer.pop("notes")
    assert len(notes) == len(BROKEN)
    for i, (_, _, words) in enumerate(BROKEN):
        (note,) = (one for one in notes if f"mine (outside{i} 2.0) is left out: " in one)
        assert words in note
    assert _lasting(answer) == _lasting(plain)


def test_what_a_rule_does_to_its_case_changes_nothing(tmp_path: Path, plain: dict[str, Any]) -> None:
    spoil = """
    def mine(case):
        case.pipeline.operators[0].type = "Spoilt"
        case.last.steps = 0
        case.estimate.written[0].batch_size = 99
        case.estimate.service.cpu_s[:] = 0
        case.estimate.position.clear()
        return []
    """
    by_hand(tmp_path, "spoiler", "plumber.findings", spoil)
    answer = analysed(tmp_path)
    assert answer.pop("notes") == []
    assert _lasting(answer) == _lasting(plain)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same analysis where nothing is installed."""
    answer = analysed(tmp_path_factory.mktemp("empty"))
    assert answer.pop("notes") == []
    return answer


def _lasting(answer: dict[str, Any]) -> dict[str, Any]:
    """What two analyses of one recording share: all but the time that they took."""
    return {
        key: {name: it for name, it in value.items() if name != "solve_s"}
        if isinstance(value, dict)
        else value
        for key, value in answer.items()
    }
