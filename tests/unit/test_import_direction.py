"""The rooms of the house import one way (docs/architecture.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "tensorboard_plugin_plumber"
ROOT = Path(__file__).resolve().parents[2] / PACKAGE

# Room -> floor. A room imports itself, and rooms of lower floors.
FLOORS = {
    "_import_hook": 6,
    "cli": 7,
    "commands": 6,
    "demo": 6,
    "callback": 5,
    "answers": 3,
    "checking": 3,
    "diagnosis": 5,
    "optimizing": 5,
    "extending": 3,
    "tracing": 4,
    "rewrite": 4,
    "capture": 3,
    "plugin": 4,
    "report": 3,
    "target": 3,
    "events": 2,
    "model": 2,
    "patch": 2,
    "progress": 1,
    "quiet": 1,
    "schema": 1,
    "_version": 0,
}
# Library -> rooms that never import it.
NEVER = {
    "tensorflow": {"schema", "events", "model", "patch", "plugin", "report", "_import_hook", "_version"},
    "keras": {"schema", "events", "model", "patch", "plugin", "report", "_import_hook", "_version"},
    "tensorboard": {"schema", "model", "patch", "capture", "_import_hook", "_version"},
    "cvxpy": {"schema", "events", "patch", "capture", "plugin", "report", "_import_hook", "_version"},
}
# Costs a second: only inside the functions that solve.
LAZY = "cvxpy"


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Yields each import statement with the full name that it imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_itself_and_lower_floors(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return  # the public names are looked up lazily: test_light_import.py
    for node, name in imports(parse(path)):
        parts = name.split(".")
        if parts[0] != PACKAGE or len(parts) < 2 or parts[1] not in FLOORS:
            continue
        allowed = parts[1] == room or FLOORS[parts[1]] < FLOORS[room] or room == "cli"
        assert allowed, f"{path.name}:{node.lineno}: {room} must not import {parts[1]}"


@pytest.mark.parametrize("library", NEVER)
def test_a_room_keeps_away_from_what_it_does_not_need(library: str) -> None:
    offences = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules()
        if room_of(path) in NEVER[library]
        for node, name in imports(parse(path))
        if name.split(".")[0] == library
    ]
    assert not offences


def test_the_solver_is_imported_only_where_it_solves() -> None:
    offences = []
    for path in modules():
        tree = parse(path)
        in_functions = {
            id(inner)
            for outer in ast.walk(tree)
            if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef))
            for inner in ast.walk(outer)
        }
        offences += [
            f"{path.relative_to(ROOT)}:{node.lineno}"
            for node, name in imports(tree)
            if name.split(".")[0] == LAZY and id(node) not in in_functions
        ]
    assert not offences


def test_every_module_belongs_to_a_room() -> None:
    assert {room_of(path) for path in modules()} <= {*FLOORS, "__init__"}


def test_every_folder_is_a_package() -> None:
    """A folder without __init__.py is left out of the wheel."""
    assert [
        path for path in {module.parent for module in modules()} if not (path / "__init__.py").exists()
    ] == []
