"""What a row of the operator table says of files, bytes read and sizes."""

from __future__ import annotations

import math

from tensorboard_plugin_plumber.model.sizes import Size
from tensorboard_plugin_plumber.model.windows import Windows
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


def show_size(row: a.OperatorRow, size: Size | None) -> None:
    """Elements and bytes of one pass."""
    if size is None:
        return
    row.infinite = size.infinite
    if size.elements is not None:
        row.elements_per_pass = size.elements.value
        row.elements_per_pass_low = size.elements.low
        if math.isfinite(size.elements.high):
            row.elements_per_pass_high = size.elements.high
    if size.materialised_bytes is not None:
        row.materialised_bytes = size.materialised_bytes.value
        row.materialised_low_bytes = size.materialised_bytes.low
        if math.isfinite(size.materialised_bytes.high):
            row.materialised_high_bytes = size.materialised_bytes.high


def show_files(row: a.OperatorRow, pipeline: m.Pipeline, operator: m.Operator) -> None:
    """The files of a source, known before it has read any."""
    for files in pipeline.files:
        if files.operator == operator.id:
            row.compression = files.compression
            if files.count:
                row.files, row.file_bytes = files.count, files.bytes


def show_reads(
    row: a.OperatorRow,
    operator: m.Operator,
    last: m.OperatorCounters,
    windows: Windows,
    rate: float | None,
) -> None:
    """What a source reads; the state of a cache.

    Args:
      last: counters of the operator.
      rate: steps/s.
    """
    state = windows.last.cache_states.get(operator.running) if operator.type == "Cache" else None
    if state is not None:
        row.cache_state = state
    if not last.HasField("read_bytes"):
        return
    if row.elements > 0:
        row.read_bytes_per_element = last.read_bytes / row.elements
        if rate:
            row.read_bytes_per_s = row.read_bytes_per_element * row.visit_ratio * rate
