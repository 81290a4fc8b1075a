"""Installs the package beside each supported TensorFlow and tries it for real.

    python tools/check_matrix.py                        # every pair that this machine has a Python for
    python tools/check_matrix.py 2.17:3.10 2.21:3.13    # some

Each pair of TensorFlow and Python gets a virtual environment of its own, made without
setuptools (TensorBoard up to 2.20 needs one, and the package must bring it), into which pip installs
this source tree. Then: `pip check`; the import; `plumber --help`; the tab served by that
TensorBoard; a short `fit` with the callback, and the report of what it recorded. The results are
printed and written to docs/compatibility.md. An environment takes 2 GB and is removed after use.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
# What stands behind the table is of `test_versions.py`.
NEXT_PART = "## What each version lacks"
# Every pair for which TensorFlow ships a wheel.
PAIRS = tuple(
    (tensorflow, python)
    for tensorflow, pythons in {
        "2.17": ("3.10", "3.11", "3.12"),
        "2.18": ("3.10", "3.11", "3.12"),
        "2.19": ("3.10", "3.11", "3.12"),
        "2.20": ("3.10", "3.11", "3.12", "3.13"),
        "2.21": ("3.10", "3.11", "3.12", "3.13"),
    }.items()
    for python in pythons
)
SHOWN = ("tensorflow", "tensorboard", "keras", "protobuf", "numpy", "cvxpy", "setuptools")

FIT = """\
import sys
import numpy as np
import tensorflow as tf
import tensorboard_plugin_plumber as plumber

def augment(x):
    noise = tf.random.uniform([256, 256])
    return tf.reduce_sum(tf.linalg.matmul(noise, noise), axis=0) + x, tf.constant(1.0)

def make_dataset():
    dataset = tf.data.Dataset.range(100_000).map(lambda i: tf.cast(i, tf.float32))
    dataset = dataset.map(augment)
    return dataset.batch(8)

model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(make_dataset(), steps_per_epoch=int(sys.argv[2]), epochs=2, verbose=0,
          callbacks=[plumber.PlumberCallback(sys.argv[1])])
"""
AUGMENT_LINE = 1 + FIT.splitlines().index("    dataset = dataset.map(augment)")


@dataclass(frozen=True)
class Result:
    tensorflow: str
    python: str
    # By distribution; empty if the installation failed.
    versions: dict[str, str]
    # What was tried, and "ok" or what went wrong.
    steps: dict[str, str]

    @property
    def passed(self) -> bool:
        return all(outcome == "ok" for outcome in self.steps.values())


class StepFailed(Exception):
    """What a step's program said."""


def run(command: Sequence[str | os.PathLike[str]], cwd: Path) -> str:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    completed = subprocess.run(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if completed.returncode != 0:
        raise StepFailed(_last_line(completed.stderr) or _last_line(completed.stdout))
    return completed.stdout


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def check(tensorflow: str, python: str, directory: Path) -> Result:
    """Installs and tries one pair in `directory`."""
    steps: dict[str, str] = {}
    versions: dict[str, str] = {}
    binaries = directory / "venv" / "bin"
    log_directory = directory / "logs"

    def install() -> None:
        run([find_python(python), "-m", "venv", directory / "venv"], directory)
        run([binaries / "python", "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools"], directory)
        requirements = [str(ROOT), f"tensorflow=={tensorflow}.*"]
        run([binaries / "python", "-m", "pip", "install", "--quiet", *requirements], directory)
        listing = json.loads(run([binaries / "python", "-m", "pip", "list", "--format=json"], directory))
        versions.update({entry["name"].lower(): entry["version"] for entry in listing})

    def light_import() -> None:
        run([binaries / "python", "-c", "import tensorboard_plugin_plumber"], directory)
        run([binaries / "plumber", "--help"], directory)

    def fit_and_report() -> None:
        program = directory / "train.py"
        program.write_text(FIT, encoding="utf-8")
        run([binaries / "python", program, log_directory, "150"], directory)
        report = json.loads(run([binaries / "plumber", "report", log_directory, "--json"], directory))
        sources = {row["id"]: row["source"] for row in report["operators"]}
        bottleneck = sources.get(report["bottleneck"]["operator"])
        if bottleneck != f"train.py:{AUGMENT_LINE}":
            raise StepFailed(f"the bottleneck is {bottleneck}, not train.py:{AUGMENT_LINE}")

    def pip_check() -> None:
        run([binaries / "python", "-m", "pip", "check"], directory)

    def tab() -> None:
        serve_tab(binaries, log_directory, directory)

    tried: dict[str, Callable[[], None]] = {
        "install": install,
        "pip check": pip_check,
        "import": light_import,
        "fit and report": fit_and_report,
        "tab": tab,
    }
    for name, step in tried.items():
        try:
            step()
            steps[name] = "ok"
        except Exception as error:
            steps[name] = str(error) or type(error).__name__
            if name == "install":
                break
    return Result(tensorflow, python, versions, steps)


def serve_tab(binaries: Path, log_directory: Path, directory: Path) -> None:
    """Fetches the tab's code and its runs from a TensorBoard process."""
    log_directory.mkdir(exist_ok=True)
    output = directory / "tensorboard.log"
    command = [str(binaries / "tensorboard"), "--logdir", str(log_directory), "--port", "0"]
    with output.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
    try:
        address = _wait_for_address(process, output)
        listing = json.loads(_get(f"{address}/data/plugins_listing"))
        if "plumber" not in listing:
            raise StepFailed("TensorBoard does not list the plugin")
        _get(f"{address}{listing['plumber']['loading_mechanism']['module_path']}")
        _get(f"{address}/data/plugin/plumber/runs")
    finally:
        process.terminate()
        process.wait()


def _wait_for_address(process: subprocess.Popen[bytes], output: Path) -> str:
    for _ in range(600):
        found = re.search(r"http://[^ :/]+:(\d+)/", output.read_text())
        if found:
            return f"http://localhost:{found[1]}"
        if process.poll() is not None:
            raise StepFailed(_last_line(output.read_text()))
        time.sleep(0.1)
    raise StepFailed("TensorBoard did not start within a minute")


def _get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as response:
        content: str = response.read().decode()
    return content


def find_python(version: str) -> str:
    """Path of an interpreter of this minor version.

    Raises:
      StepFailed: there is none.
    """
    candidates = [
        shutil.which(f"python{version}"),
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/python"),
    ]
    for candidate in filter(None, candidates):
        probe = [str(candidate), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        completed = subprocess.run(probe, capture_output=True, text=True)
        if completed.stdout.strip() == version:
            return str(candidate)
    raise StepFailed(f"no Python {version} on this machine")


def page(results: Sequence[Result]) -> str:
    """The results as docs/compatibility.md."""
    steps = list(dict.fromkeys(step for result in results for step in result.steps))
    header = ["TensorFlow", "Python", *SHOWN[1:], *steps]
    rows = [
        [
            result.versions.get("tensorflow", result.tensorflow),
            result.python,
            *(result.versions.get(name, "–") for name in SHOWN[1:]),
            *(result.steps.get(step, "not reached") for step in steps),
        ]
        for result in results
    ]
    table = "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(NEXT_PART)
    return f"""# Compatibility

Supported are Python 3.10 to 3.13 and TensorFlow 2.17 to 2.21: every pair for which TensorFlow ships a wheel.

Measured by `tools/check_matrix.py`, which writes this table. Each row is a virtual environment made without
setuptools, into which `pip install .` put the package together with that TensorFlow; the other columns are what
pip chose.
*import*: the package, and `plumber --help`. *fit and report*: a short `fit` with `PlumberCallback`, whose
report names the costly map at its line. *tab*: that TensorBoard serves the tab and its runs.

{table}

{NEXT_PART}{rest}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pairs", nargs="*", metavar="TENSORFLOW:PYTHON", help="as 2.17:3.10; default: all")
    parser.add_argument("--no-page", action="store_true", help="leave docs/compatibility.md as it is")
    arguments = parser.parse_args()
    pairs = [tuple(pair.split(":")) for pair in arguments.pairs] or PAIRS
    results = []
    for tensorflow, python in pairs:
        with tempfile.TemporaryDirectory() as directory:
            result = check(tensorflow, python, Path(directory))
        print(f"TensorFlow {tensorflow}, Python {python}: {result.steps}", flush=True)
        results.append(result)
    if not arguments.no_page:
        PAGE.write_text(page(results), encoding="utf-8")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
