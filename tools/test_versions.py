"""Runs the tests of capture, plugin, report and both data servers beside each supported TensorFlow.

    python tools/test_versions.py                  # all versions
    python tools/test_versions.py 2.17 2.20        # some
    python tools/test_versions.py --tests tests/integration/test_fit.py
    python tools/test_versions.py --reports DIR    # goes on where an earlier run of these sources ended

Each TensorFlow has a virtual environment of its own, `.venv-tf<version>`, with the TensorBoard, protobuf and
Keras 2 that belong to it; it is kept between runs (2 GB) and made anew when pyproject.toml changes. Each file of
tests runs in a process of its own. The results are printed; those of all versions are also written to
docs/compatibility.md, with what each version lacks: the reasons for which tests were skipped in it.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from check_matrix import PAGE, ROOT, StepFailed, find_python

# One Python for each: all four minor versions are among them.
PYTHONS = {"2.17": "3.10", "2.18": "3.11", "2.19": "3.12", "2.20": "3.13", "2.21": "3.13"}
SHOWN = ("tensorflow", "tensorboard", "tensorboard-data-server", "protobuf", "keras")
TESTS = tuple(
    f"tests/integration/test_{name}.py"
    for name in (
        "describe*",
        "construction",
        "fusion",
        "operators*",
        "operations",
        "counters*",
        "trace",
        "iterating*",
        "boundary",
        "fit*",
        "keras_ways",
        "keras_inputs",
        "tf_keras",
        "sources",
        "sizes",
        "legality",
        "autotune",
        "import_orders",
        "diagnosis",
        "plugin",
        "cli",
    )
)
# What no file takes on two busy cores: one that hangs keeps nobody from the others.
LIMIT_S = 1800
BEGIN, END = "<!-- written by tools/test_versions.py -->", "<!-- end -->"


@dataclass(frozen=True)
class Group:
    """One file of tests: how many passed, failed, and were skipped, the last with their reasons."""

    passed: int
    failed: tuple[str, ...]
    skipped: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"{self.passed} passed"]
        parts += [f"{len(self.failed)} failed"] if self.failed else []
        parts += [f"{len(self.skipped)} skipped"] if self.skipped else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Result:
    """What one version's tests said, by file."""

    version: str
    python: str
    versions: dict[str, str]
    groups: dict[str, Group]


def environment(version: str) -> Path:
    """The virtual environment of a TensorFlow, made where it is not there or not of today's pyproject.toml.

    Raises:
      StepFailed: there is no Python for it, or pip failed.
    """
    directory = ROOT / f".venv-tf{version}"
    stamp = directory / ".made-of"
    made_of = os.fsencode(ROOT) + (ROOT / "pyproject.toml").read_bytes()
    wanted = hashlib.sha1(made_of, usedforsecurity=False).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return directory
    if not (directory / "bin" / "python").is_file():
        _call([find_python(PYTHONS[version]), "-m", "venv", directory])
    pip = [directory / "bin" / "python", "-m", "pip", "install", "--quiet"]
    _call([*pip, "--editable", f"{ROOT}[test]", f"tensorflow=={version}.*", f"tf-keras=={version}.*"])
    stamp.write_text(wanted)
    return directory


def _call(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise StepFailed(f"{' '.join(map(str, command))}:\n{done.stderr or done.stdout}")


def run(version: str, tests: Sequence[str], reports: Path) -> Result:
    """Runs the tests with one TensorFlow.

    Args:
      tests: globs of files, relative to the source tree.
      reports: where each file's report is kept, as `<version>-<file>.xml`; a file whose report is there already
        is not run again.
    """
    python = environment(version) / "bin" / "python"
    listing = subprocess.run(
        [python, "-m", "pip", "list", "--format=json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    versions = {entry["name"].lower(): entry["version"] for entry in json.loads(listing.stdout)}
    groups = {}
    for file in (path for test in tests for path in sorted(ROOT.glob(test))):
        report = reports / f"{version}-{file.stem}.xml"
        if not report.is_file():
            _run_file(python, file, report)
        name = file.stem.removeprefix("test_")
        groups[name] = _group(report)
        failed = " ".join(groups[name].failed)
        print(f"TensorFlow {version}: {name}: {groups[name]} {failed}".rstrip(), flush=True)
    return Result(version, PYTHONS[version], versions, groups)


def _run_file(python: Path, file: Path, report: Path) -> None:
    """Runs one file of tests; where it hangs or ends early it leaves no report."""
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", file],
            cwd=ROOT,
            env={**os.environ, "PATH": path, "CUDA_VISIBLE_DEVICES": ""},
            stdin=subprocess.DEVNULL,
            timeout=LIMIT_S,
        )


def _group(report: Path) -> Group:
    if not report.is_file():
        return Group(0, ("the whole file",), ())
    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(case.get("name") or "")
        elif skip is not None:
            skipped.append(skip.get("message") or "")
        else:
            passed += 1
    return Group(passed, tuple(failed), tuple(skipped))


def lacks(results: Sequence[Result]) -> dict[str, list[str]]:
    """Reason for which tests were skipped → the versions that skipped them, of those that not all skipped."""
    reasons: dict[str, list[str]] = {}
    for result in results:
        for reason in dict.fromkeys(reason for group in result.groups.values() for reason in group.skipped):
            reasons.setdefault(reason, []).append(result.version)
    return {reason: versions for reason, versions in reasons.items() if len(versions) < len(PYTHONS)}


def as_text(results: Sequence[Result]) -> str:
    """Tables of what was run, and a list of what each version lacks, as Markdown."""
    names = list(dict.fromkeys(name for result in results for name in result.groups))
    rows = [["", *(f"TensorFlow {result.version}" for result in results)]]
    rows.append(["---"] * len(rows[0]))
    rows.append(["Python", *(result.python for result in results)])
    rows += [[shown, *(result.versions.get(shown, "–") for result in results)] for shown in SHOWN]
    rows += [[name, *(str(result.groups.get(name, "–")) for result in results)] for name in names]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    missing = [f"- {reason} (skipped with {', '.join(found)})" for reason, found in lacks(results).items()]
    return f"{table}\n\nSkipped in some version only:\n\n" + ("\n".join(missing) or "- nothing")


def write_page(text: str) -> None:
    """Puts the results between their marks in docs/compatibility.md."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="*", default=list(PYTHONS), help="of TensorFlow; default: all")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files, or globs of files")
    parser.add_argument("--reports", type=Path, help="keep reports there, and run what has none yet")
    parser.add_argument("--environments", action="store_true", help="only make the environments")
    arguments = parser.parse_args()
    if unknown := set(arguments.versions) - PYTHONS.keys():
        parser.error(f"no TensorFlow {', '.join(sorted(unknown))}: there are {', '.join(PYTHONS)}")
    if arguments.environments:
        for version in arguments.versions:
            print(f"TensorFlow {version}: {environment(version)}", flush=True)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        reports = (arguments.reports or Path(scratch)).absolute()
        reports.mkdir(parents=True, exist_ok=True)
        results = [run(version, arguments.tests, reports) for version in arguments.versions]
    text = as_text(results)
    print(text)
    if set(arguments.versions) == PYTHONS.keys() and tuple(arguments.tests) == TESTS:
        write_page(text)
    return 0 if not any(group.failed for result in results for group in result.groups.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
