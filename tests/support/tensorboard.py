"""A real `tensorboard` process for tests, and the few requests they make to it."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Reply:
    """One HTTP answer, its body already decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON, refusing the NaN and Infinity that Python's parser would accept."""
        return json.loads(self.body, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True)
class TensorBoard:
    """A running TensorBoard.

    Attributes:
      url: its address with the path prefix and a trailing slash.
      log_path: the file that holds everything it wrote to stdout and stderr.
    """

    url: str
    log_path: Path

    @property
    def log(self) -> str:
        """Everything TensorBoard printed so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def get(self, path: str, headers: Mapping[str, str] | None = None, **query: object) -> Reply:
        """GETs `path`, relative to `url`, with `query` as its parameters; error statuses are answers too."""
        url = urllib.parse.urljoin(self.url, path)
        if query:
            url += "?" + urllib.parse.urlencode(query)
        request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return _reply(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return _reply(error.code, error.headers, error.read())

    def plumber(self, route: str, headers: Mapping[str, str] | None = None, **query: object) -> Reply:
        """GETs a route of the plugin, e.g. "runs" or "analysis"."""
        return self.get(f"data/plugin/plumber/{route}", headers, **query)

    def wait_for_runs(self, count: int = 1, timeout_s: float = 60.0) -> Any:
        """The answer of `runs` once it lists at least `count` runs; AssertionError if it never does."""
        deadline = time.monotonic() + timeout_s
        while True:
            reply = self.plumber("runs")
            if reply.status == 200 and len(reply.json["runs"]) >= count:
                return reply.json
            assert time.monotonic() < deadline, f"{reply.status}: {reply.body[:500]!r}\n{self.log[-2000:]}"
            time.sleep(0.25)


def _reply(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    plain = gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
    return Reply(status, headers, plain)


# TensorBoard imports TensorFlow where it finds it; that one's own lines are not TensorBoard's. And up to 2.20 it
# imports pkg_resources, which warns of its own end.
_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONWARNINGS": "ignore:pkg_resources is deprecated:UserWarning",
}


def free_port() -> int:
    """A TCP port of localhost that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serve(
    logdir: str | os.PathLike[str],
    log_path: Path,
    *arguments: str,
    load_fast: bool = True,
    path_prefix: str = "",
    reload_interval_s: int = 1,
) -> Iterator[TensorBoard]:
    """Runs `tensorboard --logdir=LOGDIR` on a free port for the length of a `with` block.

    Args:
      logdir: what to serve; it need not exist.
      log_path: where its own output goes.
      *arguments: more command line arguments of TensorBoard.
      load_fast: True for the data server written in Rust, False for the one in Python.
      path_prefix: as TensorBoard's, e.g. "/behind/a/proxy".
      reload_interval_s: seconds between two scans of the log directory.

    Raises:
      AssertionError: TensorBoard did not start to answer.
    """
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        f"--logdir={logdir}",
        "--host=127.0.0.1",
        f"--port={port}",
        f"--load_fast={'true' if load_fast else 'false'}",
        f"--reload_interval={reload_interval_s}",
        *([f"--path_prefix={path_prefix}"] if path_prefix else []),
        *arguments,
    ]
    with log_path.open("wb") as log:
        # A session of its own: the data server is a child of TensorBoard and must end with it.
        process = subprocess.Popen(
            command,
            env={**os.environ, **_QUIET},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    board = TensorBoard(f"http://127.0.0.1:{port}{path_prefix}/", log_path)
    try:
        _wait_until_it_answers(board, process)
        yield board
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_it_answers(board: TensorBoard, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        assert process.poll() is None, f"TensorBoard ended with {process.returncode}:\n{board.log}"
        with contextlib.suppress(OSError):
            if board.get("data/environment").status == 200:
                return
        assert time.monotonic() < deadline, f"TensorBoard does not answer:\n{board.log}"
        time.sleep(0.1)
