"""Files of records, written without TensorFlow."""

from __future__ import annotations

import os
import struct

from tensorboard_plugin_plumber.events.record_file import masked_crc32c


def write_records(path: str, *, count: int, size: int) -> None:
    """Writes a TFRecord file of so many records of so many random bytes, down to the device."""
    content = os.urandom(size)
    header = struct.pack("<Q", size)
    record = b"".join(
        (
            header,
            struct.pack("<I", masked_crc32c(header)),
            content,
            struct.pack("<I", masked_crc32c(content)),
        )
    )
    with open(path, "wb") as file:
        for _ in range(count):
            file.write(record)
        file.flush()
        os.fsync(file.fileno())
