"""Where recordings live."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tensorboard_plugin_plumber.events import layout, metadata


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("plumber/node1-0", (".", "node1-0")),
        ("fit/plumber/node1-0.1", ("fit", "node1-0.1")),
        ("a/b/plumber/node1-3", ("a/b", "node1-3")),
        ("fit/train", None),
        ("plumber", None),
        (".", None),
    ],
)
def test_split_run(name: str, expected: tuple[str, str] | None) -> None:
    assert layout.split_run(name) == expected


def test_live_processes_of_one_name_get_directories_of_their_own(tmp_path: Path) -> None:
    program = (
        "import sys, tensorboard_plugin_plumber.events.layout as l; "
        "c = l.directory_for(sys.argv[1]); print(c.path, flush=True); input()"
    )
    with layout.directory_for(tmp_path) as first:
        other = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert other.stdout is not None
        second = other.stdout.readline().strip()
        with layout.directory_for(tmp_path) as third:
            assert second == first.path + ".1"
            assert third.path == first.path + ".2"
        other.communicate("\n")

    # THEN a later process has the plain name again
    with layout.directory_for(tmp_path) as again:
        assert again.path == first.path


def test_worker_index_comes_from_tf_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {}, "task": {"type": "worker", "index": 3}}')
    with layout.directory_for(tmp_path) as claim:
        assert claim.path.endswith("-3")
    for broken in ("", "no json", "[]", '{"task": null}'):
        monkeypatch.setenv("TF_CONFIG", broken)
        assert layout.worker_index() == 0


def test_metadata_round_trip() -> None:
    made = metadata.create_summary_metadata(description="d")

    assert made.plugin_data.plugin_name == metadata.PLUGIN_NAME
    assert metadata.parse_plugin_metadata(made.plugin_data.content) == metadata.FORMAT_VERSION
    with pytest.raises(ValueError, match="no metadata"):
        metadata.parse_plugin_metadata(b"\xff")
