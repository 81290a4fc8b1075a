"""Importing the package costs milliseconds and loads nothing heavy (PRODUCT: under 50 ms)."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

import pytest

HEAVY = ("tensorflow", "tensorboard", "keras", "cvxpy", "numpy", "google", "rich", "click", "psutil")

# What the interpreter loads before does not count, nor does its start.
IMPORT = """
import json, sys, time
before = set(sys.modules)
start = time.perf_counter()
import tensorboard_plugin_plumber
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "loaded": sorted(set(sys.modules) - before)}))
"""


def run(program: str) -> str:
    completed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120
    )
    return completed.stdout


def test_import_loads_nothing_heavy_and_is_quick() -> None:
    results = [json.loads(run(IMPORT)) for _ in range(7)]
    loaded = {module for result in results for module in result["loaded"]}
    assert not {module for module in loaded if module.split(".")[0] in HEAVY}
    assert statistics.median(result["seconds"] for result in results) < 0.05


def test_the_entry_module_of_the_plugin_loads_no_more_than_tensorboard_itself() -> None:
    """An import error in it would end TensorBoard, so it must need next to nothing."""
    program = """
import sys
import tensorboard.plugins.base_plugin
before = set(sys.modules)
import tensorboard_plugin_plumber.plugin.loader
print(*sorted(set(sys.modules) - before))
"""
    loaded = run(program).split()
    assert not {module for module in loaded if module.split(".")[0] in ("tensorflow", "cvxpy", "google")}


def test_unknown_names_are_attribute_errors() -> None:
    import tensorboard_plugin_plumber as plumber

    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        plumber.optimise  # noqa: B018


def test_public_names_are_listed_and_of_the_right_kind() -> None:
    """GIVEN names that modules could shadow WHEN those are loaded THEN each is still the object itself."""
    program = """
import inspect
import tensorboard_plugin_plumber as plumber
assert set(plumber.__all__) <= set(dir(plumber))
import tensorboard_plugin_plumber.diagnosis, tensorboard_plugin_plumber.tracing
for name in plumber.__all__:
    value = getattr(plumber, name)
    assert not inspect.ismodule(value), name
    assert name == "__version__" or callable(value), name
"""
    run(program)
