"""sdist and wheel hold what they should, and the wheel works in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "tensorboard_plugin_plumber"
GENERATED = (
    f"{PACKAGE}/plugin/static/index.js",
    f"{PACKAGE}/schema/analysis_pb2.pyi",
    f"{PACKAGE}/schema/descriptors.binpb",
    f"{PACKAGE}/schema/measurement_pb2.pyi",
)
PACKAGE_DATA = (f"{PACKAGE}/report/page.css", f"{PACKAGE}/report/page.html")


class Distributions(NamedTuple):
    source: Path
    wheel: Path


def run(command: Sequence[str | os.PathLike[str]], cwd: Path, **variables: str) -> str:
    environment = {**os.environ, **variables}
    # The tests' own Python path must not help the built package.
    environment.pop("PYTHONPATH", None)
    completed = subprocess.run(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stdout[-4000:] + completed.stderr[-4000:]
    return completed.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """An sdist made of the sources alone, and a wheel made of that sdist alone."""
    directory = tmp_path_factory.mktemp("packaging")
    sources = directory / "sources"
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout, to know the sources from what was generated")
    listing = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], ROOT)
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, sources / name)
    assert not [name for name in GENERATED if (sources / name).exists()]

    run([sys.executable, "-m", "build", "--sdist", "--outdir", directory], sources)
    (source,) = directory.glob("*.tar.gz")
    unpacked = directory / "unpacked"
    with tarfile.open(source) as archive:
        archive.extractall(unpacked)
    (tree,) = unpacked.iterdir()
    # Nothing can be had from npm's registry here.
    offline = {"npm_config_offline": "true", "npm_config_cache": str(directory / "empty-cache")}
    run([sys.executable, "-m", "build", "--wheel", "--outdir", directory], tree, **offline)
    (wheel,) = directory.glob("*.whl")
    return Distributions(source, wheel)


def test_sdist_holds_sources_and_what_is_generated(built: Distributions) -> None:
    with tarfile.open(built.source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "setup.py",
        "tools/npm.py",
        "proto/analysis.proto",
        "proto/measurement.proto",
        "proto/generate.py",
        "frontend/package.json",
        "frontend/package-lock.json",
        "frontend/vite.config.ts",
        "frontend/src/lib/schema.ts",
        f"{PACKAGE}/py.typed",
        *GENERATED,
    }
    assert not [name for name in names if "node_modules" in name or "__pycache__" in name]


def test_wheel_holds_the_package_and_nothing_else(built: Distributions) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
        assert archive.read(f"{PACKAGE}/schema/descriptors.binpb")
    assert names >= {f"{PACKAGE}/__init__.py", f"{PACKAGE}/py.typed", *PACKAGE_DATA, *GENERATED}
    with tarfile.open(built.source) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    modules = {name for name in sources if name.startswith(f"{PACKAGE}/") and name.endswith(".py")}
    assert {name for name in names if name.endswith(".py")} == modules
    assert {name.partition("/")[0] for name in names} == {PACKAGE, metadata.partition("/")[0]}
    assert "\nName: tensorboard-plugin-plumber\n" in text
    assert "\nLicense-Expression: Apache-2.0\n" in text


def test_wheel_works_in_a_fresh_environment(built: Distributions, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    run([sys.executable, "-m", "venv", environment], tmp_path)
    python = environment / "bin" / "python"
    run([python, "-m", "pip", "install", "--no-deps", "--no-index", built.wheel], tmp_path)
    program = f"""
import importlib.metadata, importlib.resources
import {PACKAGE} as plumber
distribution = importlib.metadata.distribution("tensorboard-plugin-plumber")
assert distribution.version == plumber.__version__
(plugin,) = importlib.metadata.entry_points(group="tensorboard_plugins")
assert plugin.value == "{PACKAGE}.plugin.loader:PlumberLoader"
tab = importlib.resources.files({PACKAGE!r}) / "plugin" / "static" / "index.js"
assert "render" in tab.read_text()
print(plumber.__file__)
"""
    assert str(environment) in run([python, "-I", "-c", program], tmp_path)
    assert (environment / "bin" / "plumber").exists()


def test_committed_files_hold_nothing_generated_and_no_registry_addresses() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    tracked = run(["git", "ls-files"], ROOT).splitlines()
    assert not set(tracked) & set(GENERATED)
    assert "frontend/src/lib/schema.ts" not in tracked
    assert '"resolved"' not in (ROOT / "frontend" / "package-lock.json").read_text(encoding="utf-8")
