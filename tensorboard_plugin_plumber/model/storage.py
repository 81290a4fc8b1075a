"""What storage can deliver to a pipeline, and how much of what its sources read comes from there.

Storage bounds a rate only where its speed is known: measured on the device that holds the files, or supposed by
a what-if. What the kernel serves from its page cache does not touch the device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.network import StorageCurve
from tensorboard_plugin_plumber.model.windows import Totals, Windows
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: Below this share of bytes that come from the device, it is the page cache that serves.
LEAST_FROM_STORAGE = 0.5
#: Sources that read less than this are not worth a word, bytes/s.
_WORTH_SAYING = 1e6


@dataclass(frozen=True)
class Storage:
    """Where the sources of a pipeline read, as far as it matters for its rate."""

    #: B(k); None where it is unknown, or not what serves.
    curve: StorageCurve | None = None
    #: The share of the bytes that a source reads which comes from there, by Operator.id; 0 for all others.
    shares: Mapping[str, float] = field(default_factory=dict)
    #: What there is to say, one sentence each.
    notes: tuple[str, ...] = ()


def storage_of(pipeline: m.Pipeline, host: m.Host, windows: Windows) -> Storage:
    """The storage that a pipeline reads from, as measured.

    Args:
      host: with the curves of its devices.
    """
    totals = windows.total()
    read = _read_by_source(pipeline, totals)
    seconds = totals["elapsed_s"]
    if not read or seconds <= 0 or sum(read.values()) < _WORTH_SAYING * seconds:
        return Storage()
    notes = _remote_notes(pipeline, read)
    by_device: dict[str, list[str]] = {}
    for files in pipeline.files:
        if files.operator in read and files.device:
            by_device.setdefault(files.device, []).append(files.operator)
    if not by_device:
        return Storage(notes=notes)
    share = _share_from_storage(totals)
    if not math.isfinite(share):
        return Storage(notes=notes)
    if share < LEAST_FROM_STORAGE:
        return Storage(
            notes=(
                *notes,
                f"{words.percent(share)} of the bytes read came from storage, the rest from the page cache: what "
                "storage delivers is no limit as long as the files stay in memory.",
            )
        )
    known = {
        curve.device: points
        for curve in host.storage
        if curve.device in by_device and curve.past_page_cache and (points := _points_of(curve)) is not None
    }
    if not known:
        why = [curve.sentence for curve in host.storage if curve.device in by_device and curve.sentence]
        never = (
            "What the storage delivers that it reads from was never measured: `plumber diagnose` does that."
        )
        return Storage(notes=(*notes, *(why or [never])))

    def load(device: str) -> float:
        return sum(read[source] for source in by_device[device]) / known[device].points[-1][1]

    busiest = max(known, key=load)
    said = [curve.sentence for curve in host.storage if curve.device == busiest and curve.sentence]
    return Storage(
        known[busiest],
        dict.fromkeys(by_device[busiest], share),
        (*notes, *(f"Storage ({busiest}): {sentence}" for sentence in said)),
    )


def supposed_storage(pipeline: m.Pipeline, windows: Windows, bytes_per_s: float) -> Storage:
    """Storage of so many bytes/s, from which all comes that sources read; no shares if nobody knows how much."""
    read = _read_by_source(pipeline, windows.total())
    return Storage(StorageCurve(((1.0, bytes_per_s),)), dict.fromkeys(read, 1.0))


def _points_of(curve: m.StorageCurve) -> StorageCurve | None:
    """The curve as the model takes it; None where it has no points, or none that can be a curve's."""
    try:
        return StorageCurve(tuple(zip(curve.readers, curve.bytes_per_s, strict=True)))
    except ValueError:
        return None


def _read_by_source(pipeline: m.Pipeline, totals: Totals) -> dict[str, float]:
    """Bytes that each source read, by Operator.id, as far as they are known and any."""
    running = {one.id: one.running for one in pipeline.operators if one.HasField("running")}
    found = {}
    for files in pipeline.files:
        if files.operator in running:
            read = float(totals.read_bytes[running[files.operator]])
            if math.isfinite(read) and read > 0:
                found[files.operator] = read
    return found


def _share_from_storage(totals: Totals) -> float:
    """Bytes that the process fetched from storage over those that it read, at most 1; NaN where nobody counts."""
    read, fetched = totals["read_bytes"], totals["storage_read_bytes"]
    return min(fetched / read, 1.0) if read > 0 else math.nan


def _remote_notes(pipeline: m.Pipeline, read: Mapping[str, float]) -> tuple[str, ...]:
    schemes = sorted(
        {
            path.partition("://")[0]
            for files in pipeline.files
            if files.operator in read
            for path in files.paths
            if "://" in path and not path.startswith(("file://", "ram://"))
        }
    )
    return tuple(
        f"What {scheme}:// delivers was not measured: nothing is bounded by it." for scheme in schemes
    )
