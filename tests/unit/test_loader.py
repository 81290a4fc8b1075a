"""The entry point: what TensorBoard imports before it knows anything of us."""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys

import pytest
from tensorboard.plugins import base_plugin

from tensorboard_plugin_plumber.events.metadata import PLUGIN_NAME
from tensorboard_plugin_plumber.plugin.loader import PlumberLoader


def test_all_records_are_kept_unless_the_user_says_otherwise() -> None:
    flags = argparse.Namespace(samples_per_plugin={"scalars": 5})
    PlumberLoader().fix_flags(flags)
    assert flags.samples_per_plugin == {"scalars": 5, PLUGIN_NAME: 0}
    flags = argparse.Namespace(samples_per_plugin={PLUGIN_NAME: 7})
    PlumberLoader().fix_flags(flags)
    assert flags.samples_per_plugin == {PLUGIN_NAME: 7}


def test_a_broken_installation_is_one_line_and_no_plugin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard_plugin_plumber.plugin.plugin", None)
    with caplog.at_level(logging.WARNING, logger="tensorboard"):
        assert PlumberLoader().load(base_plugin.TBContext()) is None
    (record,) = caplog.records
    assert record.getMessage().startswith("The Plumber tab cannot be loaded (ModuleNotFoundError:")
    assert record.exc_info is None


def test_the_entry_module_imports_next_to_nothing() -> None:
    program = (
        "import sys, tensorboard.plugins.base_plugin; before = set(sys.modules); "
        "import tensorboard_plugin_plumber.plugin.loader; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert loaded.split() == ["tensorboard_plugin_plumber"]


def test_the_plugin_loads_neither_tensorflow_nor_a_solver() -> None:
    program = (
        "import sys; from tensorboard.plugins import base_plugin; "
        "from tensorboard_plugin_plumber.plugin.loader import PlumberLoader; "
        "assert PlumberLoader().load(base_plugin.TBContext()) is not None; "
        "print(*({'tensorflow', 'cvxpy'} & set(sys.modules)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert loaded.strip() == ""
