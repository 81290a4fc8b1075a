"""Runs what depends on TensorFlow beside each supported one: capture, plugin, report, both data servers.

    python tools/test_versions.py                  # all versions
    python tools/test_versions.py 2.17 2.20        # some
    python tools/test_versions.py --tests tests/integration/test_fit.py
    python tools/test_versions.py --reports DIR    # goes on where an earlier run of these sources ended

Each TensorFlow has a virtual environment of its own, `.venv-tf<version>`, with the TensorBoard, protobuf and
Keras 2 that belong to it; it is kept between runs (2 GB) and made anew when pyproject.toml changes. Each file of
tests runs in a process of its own, two at a time.

What does not depend on TensorFlow is left out (`LEFT_OUT`), and of the table of operators what only repeats
(`CHOSEN`): each operator is tried alone and below a shuffle and a repeat, instead of in five places; `--whole`
tries all. The results are printed; those of all versions are also written to docs/compatibility.md, with what
each version lacks: the reasons for which tests were skipped in it.
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
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from check_matrix import PAGE, ROOT, StepFailed, find_python

# One Python for each: all four minor versions are among them.
PYTHONS = {"2.17": "3.10", "2.18": "3.11", "2.19": "3.12", "2.20": "3.13", "2.21": "3.13"}
SHOWN = (
    "Python",
    "tensorflow",
    "tensorboard",
    "tensorboard-data-server",
    "protobuf",
    "keras",
    "tf-keras",
    "numpy",
)
TESTS = ("tests/integration/test_*.py",)
# Of the units those that stand on TensorFlow, TensorBoard or protobuf; they share a process.
UNITS = ("counters", "device", "epochs", "jsonify", "light_import", "loader", "reader", "schema", "writer")
LEFT_OUT = {
    "packaging": "builds the package",
    "patch": "edits text",
    "host_limits": "reads the kernel's files",
    "soak": "takes minutes",
}
# pytest's -k, by file.
CHOSEN = {"operators": "alone or shuffled_and_repeated or not test_operator["}
# What no file takes on two busy cores: one that hangs keeps nobody from the others.
LIMIT_S = 1800
JOBS = 2
WHOLE_FILE = "the whole file"
BEGIN, END = "<!-- written by tools/test_versions.py -->", "<!-- end -->"


@dataclass(frozen=True)
class Group:
    """What a file of tests said: how many passed, failed, and were skipped, the last with their reasons."""

    passed: int = 0
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.passed} passed"]
        parts += [f"{len(self.failed)} failed"] if self.failed else []
        parts += [f"{len(self.skipped)} skipped"] if self.skipped else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Result:
    """What one version's tests said, by file; a file that was not run is missing."""

    version: str
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


@dataclass(frozen=True)
class Tests:
    """What runs in one process: a file, or the units."""

    name: str
    files: tuple[Path, ...]


def chosen(globs: Sequence[str]) -> list[Tests]:
    """The files that globs name, relative to the source tree; all that depends on TensorFlow if there are none."""
    files = dict.fromkeys(path for one in globs or TESTS for path in sorted(ROOT.glob(one)))
    found = [Tests(file.stem.removeprefix("test_"), (file,)) for file in files]
    if globs:
        return found
    units = Tests("units", tuple(ROOT / "tests" / "unit" / f"test_{name}.py" for name in UNITS))
    return [*(one for one in found if one.name not in LEFT_OUT), units]


@dataclass(frozen=True)
class Runner:
    """Runs tests with one TensorFlow.

    Attributes:
      version: of TensorFlow.
      python: of its environment.
      reports: where reports and output are kept, as `<version>-<tests>.xml` and `.log`.
      whole: leave nothing out of a file.
    """

    version: str
    python: Path
    reports: Path
    whole: bool

    def group(self, tests: Tests) -> Group:
        """Their outcome: that of an earlier run if nothing failed in it, else they run now."""
        earlier = self.earlier(tests)
        if earlier is not None and not earlier.failed:
            return earlier
        began = time.monotonic()
        self._run(tests)
        found = _group(self._report(tests))
        lines = [f"TensorFlow {self.version}: {tests.name}: {found}, {time.monotonic() - began:.0f} s"]
        if found.failed:
            lines += [f"  {name}" for name in found.failed] + self._end_of_log(tests)
        print("\n".join(lines), flush=True)
        return found

    def earlier(self, tests: Tests) -> Group | None:
        """What an earlier run told; None where there was none."""
        report = self._report(tests)
        return _group(report) if report.is_file() else None

    def versions(self) -> dict[str, str]:
        """Version by distribution, and of Python."""
        show = "import json, platform; from importlib import metadata; "
        show += (
            "found = {one.name.lower().replace('_', '-'): one.version for one in metadata.distributions()}; "
        )
        show += "print(json.dumps({**found, 'Python': platform.python_version()}))"
        done = subprocess.run([self.python, "-c", show], cwd=ROOT, capture_output=True, text=True, check=True)
        versions: dict[str, str] = json.loads(done.stdout)
        return versions

    def _run(self, tests: Tests) -> None:
        """Leaves a report whatever happens."""
        report = self._report(tests)
        report.unlink(missing_ok=True)
        command = [
            self.python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            *tests.files,
        ]
        if tests.name in CHOSEN and not self.whole:
            command += ["-k", CHOSEN[tests.name]]
        path = f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        code = None
        with report.with_suffix(".log").open("wb") as log, contextlib.suppress(subprocess.TimeoutExpired):
            code = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "PATH": path, "CUDA_VISIBLE_DEVICES": ""},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
            ).returncode
        # pytest's codes: 0 all passed, 1 some failed, 5 nothing to run, as where all tests are slow ones.
        if code not in (0, 1, 5) or not report.is_file():
            case = ElementTree.Element("testcase", name="the whole file")
            ElementTree.SubElement(case, "error")
            ElementTree.ElementTree(case).write(report)

    def _report(self, tests: Tests) -> Path:
        return self.reports / f"{self.version}-{tests.name}.xml"

    def _end_of_log(self, tests: Tests) -> list[str]:
        log = self._report(tests).with_suffix(".log")
        return log.read_text(encoding="utf-8", errors="replace").splitlines()[-60:]


def _group(report: Path) -> Group:
    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(case.get("name") or "")
        elif skip is not None:
            skipped.append(skip.get("message") or "")
        else:
            passed += 1
    return Group(passed, tuple(dict.fromkeys(failed)), tuple(skipped))


def run(runners: Sequence[Runner], tests: Sequence[Tests]) -> list[Result]:
    """Runs all tests with each TensorFlow, `JOBS` processes at a time; what comes of an interrupt is lost."""
    with ThreadPoolExecutor(JOBS) as pool:
        try:
            groups = {
                runner.version: {one.name: pool.submit(runner.group, one) for one in tests}
                for runner in runners
            }
            return [
                Result(
                    runner.version,
                    runner.versions(),
                    {name: group.result() for name, group in groups[runner.version].items()},
                )
                for runner in runners
            ]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def told(runner: Runner, tests: Sequence[Tests]) -> Result:
    """What earlier runs told."""
    found = {one.name: runner.earlier(one) for one in tests}
    return Result(
        runner.version, runner.versions(), {name: one for name, one in found.items() if one is not None}
    )


def lacks(results: Sequence[Result]) -> dict[str, list[str]]:
    """Reason for which tests were skipped → the versions that skipped them, where others ran them."""
    reasons: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for result in results for name in result.groups):
        ran = [result for result in results if name in result.groups]
        for reason in dict.fromkeys(reason for result in ran for reason in result.groups[name].skipped):
            skipping = [result.version for result in ran if reason in result.groups[name].skipped]
            if len(skipping) < len(ran):
                reasons[reason] = list(dict.fromkeys(reasons.get(reason, []) + skipping))
    return reasons


def as_text(results: Sequence[Result]) -> str:
    """Tables of what was run, and a list of what each version lacks, as Markdown."""
    names = list(
        dict.fromkeys(name for result in results for name, group in result.groups.items() if group != Group())
    )
    rows = [["", *(f"TensorFlow {result.version}" for result in results)]]
    rows.append(["---"] * len(rows[0]))
    rows += [[shown, *(result.versions.get(shown, "–") for result in results)] for shown in SHOWN]
    rows += [[name, *(str(result.groups.get(name, "–")) for result in results)] for name in names]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    if any(name not in result.groups for result in results for name in names):
        table += "\n\n–: not run."
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
    parser.add_argument(
        "--tests", nargs="+", default=[], help="files, or globs of files; default: what depends on it"
    )
    parser.add_argument("--whole", action="store_true", help="leave out no part of a file")
    parser.add_argument("--reports", type=Path, help="keep reports there, and run what has not passed there")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--environments", action="store_true", help="only make the environments")
    only.add_argument("--show", action="store_true", help="run nothing: show and write what --reports holds")
    arguments = parser.parse_args()
    if unknown := set(arguments.versions) - PYTHONS.keys():
        parser.error(f"no TensorFlow {', '.join(sorted(unknown))}: there are {', '.join(PYTHONS)}")
    if arguments.show and arguments.reports is None:
        parser.error("--show needs --reports")
    try:
        pythons = {version: environment(version) / "bin" / "python" for version in arguments.versions}
    except StepFailed as failed:
        parser.exit(2, f"{failed}\n")
    if arguments.environments:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        reports = (arguments.reports or Path(scratch)).absolute()
        reports.mkdir(parents=True, exist_ok=True)
        runners = [Runner(version, python, reports, arguments.whole) for version, python in pythons.items()]
        tests = chosen(arguments.tests)
        results = [told(runner, tests) for runner in runners] if arguments.show else run(runners, tests)
    text = as_text(results)
    print(text)
    if set(arguments.versions) == PYTHONS.keys() and not arguments.tests:
        write_page(text)
    return 0 if not any(group.failed for result in results for group in result.groups.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
