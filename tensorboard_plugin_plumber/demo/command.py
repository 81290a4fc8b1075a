"""`plumber demo`: data, a training run with the callback, its report, and TensorBoard at the tab."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings

from rich.console import Console
from rich.status import Status

RUN = "badly-configured"
EPOCHS = 16
DEFAULT_PORT = 6006
_START_TIMEOUT_S = 60.0


def run_demo(logdir: str | None, serve: bool) -> int:
    """Make the data, train, print the report on stdout, and serve TensorBoard until Ctrl-C.

    Args:
      logdir: where the events go; a new temporary directory, which is kept, by default.
      serve: start TensorBoard after the report; else return.

    Returns:
      0; another number only when TensorBoard itself ended with it.

    Raises:
      OSError: the log directory or the cache cannot be written.
      RuntimeError: TensorBoard did not start.
    """
    logdir = logdir or tempfile.mkdtemp(prefix="plumber-demo-")
    console = Console(stderr=True)
    with console.status("Starting TensorFlow …") as status:
        _train(os.path.join(logdir, RUN), status)
        status.update("Analysing what was recorded …")
        text = _report(logdir)
    print(text, flush=True)
    if console.is_terminal:
        console.print(f"Recorded in {logdir}; the report again: plumber report {logdir}", highlight=False)
    return serve_tensorboard(logdir) if serve else 0


def _train(log_dir: str, status: Status) -> None:
    # TensorFlow's own start-up lines are no part of the demonstration; a user's setting stays.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras

    import tensorboard_plugin_plumber as plumber
    from tensorboard_plugin_plumber.demo import photographs
    from tensorboard_plugin_plumber.demo.train import train

    def tell_files(done: int, total: int) -> None:
        status.update(f"Making JPEG images: {done} of {total} files (kept for next time) …")

    def tell_epoch(epoch: int, logs: object = None) -> None:
        del logs
        status.update(f"Training on {shards.images} images: epoch {epoch + 1} of {EPOCHS} …")

    shards = photographs.prepare(progress=tell_files)
    with warnings.catch_warnings():
        # Keras calls the end of an epoch of unknown length "ran out of data".
        warnings.filterwarnings("ignore", message="Your input ran out of data")
        train(
            shards.pattern,
            EPOCHS,
            [plumber.PlumberCallback(log_dir), keras.callbacks.LambdaCallback(on_epoch_begin=tell_epoch)],
        )


def _report(logdir: str) -> str:
    from tensorboard_plugin_plumber.answers import Answers
    from tensorboard_plugin_plumber.events import reader
    from tensorboard_plugin_plumber.report import DEFAULT_WIDTH, Report

    recordings = [recording for recording in reader.read(logdir) if recording.run == RUN]
    newest = max(recordings, key=lambda recording: recording.graph.session.start_time_s)
    report = Report(Answers(newest).to())
    width = max(40, min(shutil.get_terminal_size((DEFAULT_WIDTH, 0)).columns, 160))
    return report.text(width=width, color=sys.stdout.isatty() and "NO_COLOR" not in os.environ)


def serve_tensorboard(logdir: str) -> int:
    """Runs TensorBoard on a free port, prints the address of the tab, and ends with Ctrl-C.

    Returns:
      0 after Ctrl-C; TensorBoard's own exit status if it ended by itself.

    Raises:
      RuntimeError: TensorBoard did not start.
    """
    port = _free_port()
    # In its own session Ctrl-C does not reach it: we end it in order, also when we are ended ourselves.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", logdir, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_until_it_answers(process, port)
        print(f"TensorBoard: http://localhost:{port}/#plumber (Ctrl-C ends it)", flush=True)
        return process.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(f"http://localhost:{port}/data/environment", timeout=5).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"TensorBoard did not start on port {port}")


def _free_port() -> int:
    """TensorBoard's usual port where it is free, else any."""
    for port in (DEFAULT_PORT, 0):
        with socket.socket() as probe:
            # As TensorBoard itself binds: a connection in TIME_WAIT does not occupy the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("localhost", port))
                return int(probe.getsockname()[1])
    raise RuntimeError("no free port on localhost")
