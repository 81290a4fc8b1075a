"""Builds what is generated: the schema from `proto/` and the tab from `frontend/`.

Everything else about the package is in pyproject.toml. Both commands write into the source
tree (git ignores it there), so that an editable install has it too; from there build_py takes
it into the wheel as package data, and sdist takes it along with its sources.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Command, setup
from setuptools.command.build import build
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
PACKAGE = "tensorboard_plugin_plumber"


class _Generate(Command):
    """A sub-command of build, in the form that setuptools asks for (setuptools.command.build.SubCommand)."""

    user_options: list[tuple[str, str | None, str]] = []  # noqa: RUF012  (setuptools' form)

    def initialize_options(self) -> None:
        self.editable_mode = False
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def get_source_files(self) -> list[str]:
        raise NotImplementedError

    def generated(self) -> list[str]:
        """Paths of what it makes in the source tree, those that are part of the package."""
        raise NotImplementedError

    def get_outputs(self) -> list[str]:
        return list(self.get_output_mapping())

    def get_output_mapping(self) -> dict[str, str]:
        if self.editable_mode:
            return {}
        return {os.path.join(self.build_lib or "", path): path for path in self.generated()}


class BuildSchema(_Generate):
    """Descriptors, stubs and TypeScript types from proto/*.proto."""

    description = "generate the schema's descriptors, stubs and TypeScript types"

    def get_source_files(self) -> list[str]:
        return _files("proto")

    def generated(self) -> list[str]:
        names = ("descriptors.binpb", "measurement_pb2.pyi", "analysis_pb2.pyi")
        return [f"{PACKAGE}/schema/{name}" for name in names]

    def run(self) -> None:
        subprocess.run([sys.executable, str(ROOT / "proto" / "generate.py")], check=True)


class BuildFrontend(_Generate):
    """The tab: frontend/ bundled into plugin/static/, by the Node that comes as a wheel."""

    description = "bundle the frontend"

    def get_source_files(self) -> list[str]:
        return _files("frontend")

    def generated(self) -> list[str]:
        return _files(f"{PACKAGE}/plugin/static")

    def run(self) -> None:
        if self._is_current():
            return
        subprocess.run([sys.executable, str(ROOT / "tools" / "npm.py"), "run", "build"], check=True)

    def _is_current(self) -> bool:
        """Whether the bundle is newer than all it is made of; so it is in an unpacked sdist."""
        made = [(ROOT / path).stat().st_mtime for path in self.generated()]
        sources = [(ROOT / path).stat().st_mtime for path in self.get_source_files()]
        return bool(made) and min(made) >= max(sources)


class Build(build):
    """build, with what is generated made first: build_py collects it."""

    sub_commands = [("build_schema", None), ("build_frontend", None), *build.sub_commands]  # noqa: RUF012


class SourceDistribution(sdist):
    """sdist, with what is generated in it: installing from it needs no download of npm packages."""

    def run(self) -> None:
        self.run_command("build_schema")
        self.run_command("build_frontend")
        super().run()


def _files(directory: str) -> list[str]:
    """Paths of the files below a directory of the source tree, relative to the tree."""
    found = []
    for parent, directories, names in os.walk(ROOT / directory):
        directories[:] = sorted(set(directories) - {"node_modules"})
        found += [str((Path(parent) / name).relative_to(ROOT)) for name in sorted(names)]
    return found


setup(
    cmdclass={
        "build": Build,
        "build_frontend": BuildFrontend,
        "build_schema": BuildSchema,
        "sdist": SourceDistribution,
    }
)
