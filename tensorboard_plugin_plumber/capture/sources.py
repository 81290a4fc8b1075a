"""The files that the sources of a pipeline read, with their sizes and how they are compressed.

Finding out takes two steps. While a pipeline is described, `readings_of` follows the names through
the written graph, which costs little. Later, in the poller's thread, `look_up` reads the names and
asks the file system for the sizes, bounded in number and in time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tensorboard_plugin_plumber.capture import graphs, guard, storage
from tensorboard_plugin_plumber.capture.filenames import Flow, Names, functions_of, together
from tensorboard_plugin_plumber.capture.graphs import Node
from tensorboard_plugin_plumber.capture.listings import Constants, Listing, spread
from tensorboard_plugin_plumber.capture.written import Written
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

# Files whose size is asked for, and the time that may take; beyond that, sizes are extrapolated.
_MOST_FILES = 2000
_MOST_S = 0.3
# Names that a record carries.
_PATHS = 16
_READERS = frozenset(
    {"TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset", "CSVDataset", "LMDBDataset"}
)
# Operators that read all of their input in a pass, once.
_WHOLE = frozenset(
    {
        "Map",
        "ParallelMap",
        "Filter",
        "Batch",
        "ParallelBatch",
        "PaddedBatch",
        "Unbatch",
        "Shuffle",
        "Prefetch",
        "Enumerate",
        "Concatenate",
        "Interleave",
        "ParallelInterleave",
        "FlatMap",
        "Scan",
        "Unique",
        "AssertCardinality",
    }
)
_MAGIC = {b"\x1f\x8b": "GZIP", b"\x78\x01": "ZLIB", b"\x78\x9c": "ZLIB", b"\x78\xda": "ZLIB"}
# Bytes of fixed-length records can look like anything.
_TELLING = frozenset({"TFRecordDataset", "TextLineDataset", "CSVDataset"})


@dataclass(frozen=True)
class Reading:
    """One operator that reads files, and the names that reach it.

    Attributes:
      operator: Operator.id.
      reader: the operation that opens the files: "TFRecordDataset", "ReadFile" ….
      names: not read yet.
      compression: what the reader is told, or what undoes it further down the pipeline.
      decompressed_by: Operator.id of a map that decompresses; empty where the reader does.
      record_bytes: file bytes of every record where that is fixed, else 0.
      opens: files that one element opens, where the operator's function opens them.
      whole: a pass of the pipeline reads all of its files.
      once: a pass of the pipeline reads none of its files twice.
      counted: all records that it reads are; those that a shard or a skip has it pass over are not.
      cached: a cache may serve instead of it.
    """

    operator: str
    reader: str
    names: Names
    compression: str = ""
    decompressed_by: str = ""
    record_bytes: int = 0
    opens: int = 1
    whole: bool = False
    once: bool = False
    counted: bool = True
    cached: bool = False


def readings_of(root: Written) -> tuple[Reading, ...]:
    """The operators of a pipeline that read files by names that the graph shows, in pre-order.

    Args:
      root: the user's tree of operators.
    """
    owners = {id(node): one for one in root.walk() for node in one.nodes}
    flow = Flow(
        lambda node: owners[id(node)].live.get(id(node)) if id(node) in owners else None,
        lambda node: id(node) in owners and _method(owners[id(node)]) == "list_files",
    )
    found: list[Reading] = []
    for one in root.walk():
        if not one.foreign:
            with guard.protect("follow the names of files"):
                found += _readings(flow, one)
    return tuple(found)


def look_up(reading: Reading) -> m.SourceFiles:
    """Names and sizes of the files of one source; takes some tenths of a second at most on a local disk.

    Raises:
      tf.errors.OpError: a pattern cannot be expanded.
    """
    found = m.SourceFiles(
        operator=reading.operator,
        compression=reading.compression,
        complete=reading.names.complete,
        found_by=reading.names.found_by,
        named_by_elements=reading.names.by_elements,
    )
    notes = [reading.names.note] if reading.names.note else []
    if reading.names.listing is not None:
        listing = reading.names.listing()
        found.count = len(listing)
        notes += _measure(found, listing)
        found.paths.extend(listing.pick(range(min(len(listing), _PATHS))))
        found.sizes.extend(size if (size := _size(path)) is not None else 0 for path in found.paths)
        found.device = storage.device_of(found.paths)
        notes += _looked_into(reading, found)
    if reading.decompressed_by:
        notes.append(f"{reading.compression} is undone by a function ({reading.decompressed_by})")
    found.note = "; ".join(notes)
    return found


def is_remote(path: str) -> bool:
    """Whether a file lies behind a network that the process's own read counters do not see."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme not in ("file", "ram")


def _readings(flow: Flow, one: Written) -> list[Reading]:
    found = []
    for node in one.nodes:
        base = graphs.base_op(node.op)
        if base in _READERS:
            references = [ref for name, ref in graphs.named_inputs(node.proto) if name == "filenames"]
            names = flow.into(node.scope, references[0])
            found.append(_reading(flow, one, base, names, _told(node), record_bytes=_record_bytes(node)))
        opened = [
            flow.into(scope, proto.input[0])
            for scope in functions_of(flow, node)
            for proto in scope.nodes.values()
            if proto.op == "ReadFile"
        ]
        if opened:
            found.append(_reading(flow, one, "ReadFile", together(opened), "", opens=len(opened)))
    return found


def _reading(
    flow: Flow,
    one: Written,
    reader: str,
    names: Names,
    compression: str,
    *,
    record_bytes: int = 0,
    opens: int = 1,
) -> Reading:
    undone = None if compression else _decompression(flow, one)
    if undone is not None:
        compression = undone[0]
    above = list(_above(one))
    return Reading(
        operator=one.id,
        reader=reader,
        names=names,
        compression=compression,
        decompressed_by=undone[1] if undone else "",
        record_bytes=record_bytes,
        opens=opens,
        whole=all(_reads_whole(consumer) for consumer in above),
        once=names.once
        and not any(graphs.base_op(node.op) == "RepeatDataset" for user in above for node in user.nodes),
        counted=reader == "ReadFile" or not above or above[0].type not in ("Shard", "Skip"),
        cached=any(consumer.type == "Cache" for consumer in above),
    )


def _above(one: Written) -> Iterator[Written]:
    """The operators that it feeds."""
    while one.parent is not None:
        one = one.parent
        yield one


def _reads_whole(consumer: Written) -> bool:
    """Whether an operator reads all of its inputs in a pass."""
    if consumer.type in _WHOLE or consumer.foreign:
        return True
    mixes = [node for node in consumer.nodes if graphs.base_op(node.op) == "DirectedInterleaveDataset"]
    return consumer.type == "SampleFromDatasets" and not any(
        node.attribute("stop_on_empty_dataset") for node in mixes
    )


def _told(node: Node) -> str:
    """What the reader is told of the compression."""
    for proto in node.inputs_named("compression_type"):
        if proto is not None and proto.op == "Const":
            return "".join(Constants(proto.attr["value"].tensor).pick([0]))
    return ""


def _record_bytes(node: Node) -> int:
    """Bytes of a fixed-length record."""
    value = node.constant("record_bytes")
    return value if isinstance(value, int) else 0


def _decompression(flow: Flow, reader: Written) -> tuple[str, str] | None:
    """What a function of the operator or of one that it feeds undoes, and the operator's id."""
    for one in (reader, *_above(reader)):
        for node in one.nodes:
            for scope in functions_of(flow, node):
                for proto in scope.nodes.values():
                    if proto.op == "DecodeCompressed" and proto.attr["compression_type"].s:
                        return proto.attr["compression_type"].s.decode(), one.id
    return None


def _method(one: Written) -> str:
    return one.pair.construction.method if one.pair.construction is not None else ""


def _measure(found: m.SourceFiles, listing: Listing) -> list[str]:
    """Sums up sizes, of a sample where there are too many; returns what there is to say about it."""
    began_s = time.perf_counter()
    positions = spread(len(listing), _MOST_FILES)
    total = measured = missing = 0
    for path in listing.pick(positions):
        size = _size(path)
        if size is None:
            missing += 1
        else:
            total += size
            measured += 1
        if time.perf_counter() - began_s > _MOST_S:
            break
    asked = measured + missing
    found.bytes = total if asked == len(listing) else round(total / max(measured, 1) * len(listing))
    notes = []
    if asked < len(listing):
        notes.append(f"sizes of {asked:,} of {len(listing):,} files were asked for, the rest extrapolated")
    if missing:
        notes.append(f"{missing:,} of {asked:,} files were not found")
    return notes


def _size(path: str) -> int | None:
    """Bytes of a file; None if it cannot be had."""
    if "://" not in path:
        try:
            return os.stat(path).st_size
        except OSError:
            return None
    import tensorflow as tf

    try:
        return int(tf.io.gfile.stat(path).length)
    except tf.errors.OpError:
        return None


def _looked_into(reading: Reading, found: m.SourceFiles) -> list[str]:
    """A reader that is told nothing of the compression that the first file's beginning shows."""
    if found.compression or reading.reader not in _TELLING or not found.paths or "://" in found.paths[0]:
        return []
    try:
        with open(found.paths[0], "rb", buffering=0) as file:
            looks = _MAGIC.get(file.read(2))
    except OSError:
        return []
    return [f"the files look like {looks}, of which the reader is told nothing"] if looks else []


def sources_of(readings: tuple[Reading, ...]) -> list[m.SourceFiles]:
    """`look_up` of each; what cannot be looked up is said in its note."""
    found: list[m.SourceFiles] = []
    for reading in readings:
        try:
            found.append(look_up(reading))
        except Exception as error:
            found.append(_failed(reading, error))
    return found


def _failed(reading: Reading, error: Exception) -> m.SourceFiles:
    text = str(error).split("\n", 1)[0]
    return m.SourceFiles(
        operator=reading.operator,
        compression=reading.compression,
        found_by=reading.names.found_by,
        note=f"the files could not be looked up: {text}",
    )
