"""What the devices deliver that hold the files of a pipeline's sources.

A device is measured only where nobody trains, after a run of Plumber's own. What was measured is kept in the
user's cache directory, and put into the records of trainings on the same device.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from tensorboard_plugin_plumber.capture import guard, procfs, read_speed
from tensorboard_plugin_plumber.capture.sink import Sink
from tensorboard_plugin_plumber.events import layout
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: A curve that is older than this is measured again.
_KEPT_S = 7 * 86400.0
#: Raised when what is kept would be misread.
_VERSION = 1
#: File systems without a device of this host behind them.
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})


def device_of(paths: Iterable[str]) -> str:
    """The device that files lie on, as "8:1 ext4 6a12f3": its number, kind and id of the file system.

    Returns:
      "" where they lie on none of this host (a bucket, memory), on several, or none can be found.
    """
    found: dict[int, str] = {}
    for path in paths:
        if "://" in path:
            return ""
        try:
            device = os.stat(path).st_dev
            if device not in found:
                found[device] = _name_of(device, path)
        except (OSError, AttributeError):
            continue
    return next(iter(found.values())) if len(found) == 1 else ""


class StorageSink:
    """A sink before another one: adds to graph records what is known of the devices that they speak of.

    Args:
      sink: takes the records.
      measure: at the end, devices of which nothing is known, or only what is old, are measured. Takes up to
        a second for each: nobody may train meanwhile.
    """

    def __init__(self, sink: Sink, *, measure: bool = False) -> None:
        self._sink = sink
        self._measure = measure
        self._graph: m.GraphRecord | None = None
        self._moved = False

    def write_graph(self, record: m.GraphRecord) -> None:
        """Writes a graph record, with the curves that were kept."""
        with guard.protect("look for what is known of storage"):
            known = {curve.device for curve in record.host.storage}
            curves = [kept(device) for device in devices_of(record) if device not in known]
            record.host.storage.extend(curve for curve in curves if curve is not None)
        self._graph = record
        self._sink.write_graph(record)

    def write_sample(self, record: m.SampleRecord) -> None:
        """Writes a sample record."""
        self._moved = any(part.steps > 0 for part in record.pipelines)
        self._sink.write_sample(record)

    def close(self) -> None:
        """Measures what is to be measured, and closes the sink."""
        try:
            if self._measure and self._graph is not None and self._moved:
                with guard.protect("measure storage"):
                    self._write_measured(self._graph)
        finally:
            self._sink.close()

    def _write_measured(self, graph: m.GraphRecord) -> None:
        known = {curve.device: curve for curve in graph.host.storage}
        old = [device for device in devices_of(graph) if not (device in known and _is_fresh(known[device]))]
        if not old:
            return
        known |= {device: measured(device, _paths_on(graph, device)) for device in old}
        record = m.GraphRecord()
        record.CopyFrom(graph)
        record.sequence += 1
        del record.host.storage[:]
        record.host.storage.extend(known.values())
        self._sink.write_graph(record)


def devices_of(graph: m.GraphRecord) -> list[str]:
    """The devices that hold files of the pipelines' sources, each once."""
    devices = (files.device for pipeline in graph.pipelines for files in pipeline.files)
    return [device for device in dict.fromkeys(devices) if device]


def measured(device: str, paths: Sequence[str]) -> m.StorageCurve:
    """Measures a device on files that lie on it, and keeps the curve; without points where that fails.

    Args:
      device: of `device_of`.
      paths: local files.
    """
    curve = m.StorageCurve(device=device, measured_time_s=time.time())
    try:
        speed = read_speed.measure(paths)
    except read_speed.NotMeasured as error:
        curve.sentence = f"What {device} delivers was not measured: {error}."
        return curve
    hull = read_speed.curve_through(zip(speed.readers, speed.bytes_per_s, strict=True))
    curve.readers.extend(float(readers) for readers, _ in hull)
    curve.bytes_per_s.extend(rate for _, rate in hull)
    curve.past_page_cache = speed.past_page_cache
    curve.read_bytes = speed.read_bytes
    how = (
        "past the page cache"
        if speed.past_page_cache
        else "perhaps from the page cache: nobody can tell here"
    )
    curve.sentence = (
        f"Measured on {time.strftime('%Y-%m-%d', time.localtime(curve.measured_time_s))} by reading "
        f"{speed.read_bytes / 1e6:.0f} MB of the pipeline's own files, {how}."
    )
    _keep(curve)
    return curve


def kept(device: str) -> m.StorageCurve | None:
    """What was measured of a device before, on this host; None if nothing was, or it cannot be read."""
    try:
        content = json.loads(_path_of(device).read_text())
        if content["version"] != _VERSION:
            return None
        curve = json_format.ParseDict(content["curve"], m.StorageCurve())
    except (OSError, ValueError, KeyError, TypeError, json_format.ParseError):
        return None
    return curve if curve.device == device and _makes_sense(curve) else None


def cache_directory() -> Path:
    """Where this user's programs keep what they can find out again."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "plumber"


def _keep(curve: m.StorageCurve) -> None:
    """Writes a curve for later; where that cannot be done, it is measured again then."""
    content: dict[str, Any] = {
        "version": _VERSION,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(curve.measured_time_s)),
        "curve": json_format.MessageToDict(curve, preserving_proto_field_name=True),
    }
    path = _path_of(curve.device)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)


def _path_of(device: str) -> Path:
    name = "".join(letter if letter.isalnum() else "-" for letter in f"{layout.host_name()} {device}")
    return cache_directory() / f"storage-{name}.json"


def _is_fresh(curve: m.StorageCurve) -> bool:
    return bool(curve.readers) and 0 <= time.time() - curve.measured_time_s < _KEPT_S


def _makes_sense(curve: m.StorageCurve) -> bool:
    """Whether its points can be points of a curve, whoever has had the file in hand."""
    points = list(zip(curve.readers, curve.bytes_per_s, strict=False))
    return (
        len(points) == len(curve.readers) == len(curve.bytes_per_s) > 0
        and all(math.isfinite(x) and math.isfinite(y) and x > 0 and y > 0 for x, y in points)
        and list(curve.readers) == sorted(set(curve.readers))
    )


def _paths_on(graph: m.GraphRecord, device: str) -> list[str]:
    return [
        path
        for pipeline in graph.pipelines
        for files in pipeline.files
        if files.device == device
        for path in files.paths
    ]


def _name_of(device: int, path: str) -> str:
    number = f"{os.major(device)}:{os.minor(device)}"
    kind = _kinds().get(number, "unknown")
    return "" if kind in _IN_MEMORY else f"{number} {kind} {os.statvfs(path).f_fsid:x}"


def _kinds() -> dict[str, str]:
    """Kinds of the file systems that are mounted, by the numbers of their devices."""
    try:
        lines = procfs.read("/proc/self/mountinfo").decode(errors="replace").splitlines()
    except OSError:
        return {}
    # "36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw"
    found = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) > 2 and after:
            found[fields[2]] = after.split()[0]
    return found
