"""Opens event files where TensorFlow can: on local disks and in buckets."""

from __future__ import annotations

import os
from typing import Any

from tensorboard_plugin_plumber.events.writer import EventWriter


def open_writer(log_dir: str | os.PathLike[str]) -> EventWriter:
    """An event writer below `log_dir`.

    Raises:
      OSError, tf.errors.OpError: the directory or the file cannot be made.
    """
    return EventWriter(log_dir, open_remote=_open_remote)


def _open_remote(path: str) -> Any:
    import tensorflow as tf

    tf.io.gfile.makedirs(os.path.dirname(path))
    return tf.io.gfile.GFile(path, "wb")
