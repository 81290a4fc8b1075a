"""What each source has read from its files, told apart from all else that the process reads.

The kernel counts what a process has read, whoever read it and whether from a disk or from the page
cache. Two things tell the sources' part: what uncompressed records weigh in their files follows
from what they weigh in memory; and what is left of the process's reads while sources move is that
of the sources whose weight is unknown. Where neither can tell, nothing is said.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tensorboard_plugin_plumber.capture import procfs
from tensorboard_plugin_plumber.capture.pipeline import FollowedPipeline
from tensorboard_plugin_plumber.capture.sources import Reading, is_remote
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

# File bytes of a record less what its string weighs in memory. TensorFlow's string object takes 24 B; a TFRecord
# has 16 B of framing, a line its end.
_FRAMING_BYTES = {"TFRecordDataset": 16 - 24, "TextLineDataset": 1 - 24}
_MODEL_NAMES = {
    "TFRecordDataset": "TFRecord",
    "TextLineDataset": "TextLine",
    "FixedLengthRecordDataset": "FixedLengthRecord",
    "CSVDataset": "CSV",
}
# What the process read is believed rather than the records' weight if the two differ by no more, and if it is so
# much that what else a process reads hardly counts.
_AGREEMENT = 0.15
_MUCH_BYTES = 16 << 20
# An asynchronous operator at the root: the consumer's thread never reads for the pipeline.
_ASYNCHRONOUS = re.compile(r"Prefetch|Parallel|MapAndBatch")


@dataclass
class _Source:
    """One source of one pipeline: where its counters are, and what it was given so far."""

    reading: Reading
    # Index into the running operators: gets the bytes; counts the elements that were taken from files.
    running: int
    counted_by: int
    # Mean size of the files that one element opens, and of all of its files; None until they are known.
    opened_bytes: float | None = None
    file_bytes: float | None = None
    remote: bool = False
    elements: float = 0.0
    # Bytes in the files of `elements`; None if unknown.
    weight: float | None = 0.0
    # Its part of what the weights leave unexplained.
    rest: float = 0.0
    said: float = 0.0
    # Since the last sample.
    new_weight: float = 0.0
    new_produced: float = 0.0
    produced: float = 0.0
    # The pipeline's root elements.
    steps: float = 0.0
    moved: bool = False

    def advance(self, sample: m.PipelineSample) -> None:
        """Takes the counters of one more sample."""
        counters, head = sample.operators[self.counted_by], sample.operators[self.running]
        # Where its own end between two looks was missed, the pipeline's steps show that it moved.
        stepped = sample.steps > self.steps and not self.reading.cached
        self.moved = counters.elements > self.elements or stepped
        self.steps = sample.steps
        # Where the reader itself came and went unseen, the operator hands on the same records.
        seen = counters if counters.elements_seen else head
        size = seen.bytes_produced / seen.elements_seen if seen.elements_seen else 0.0
        produced = counters.elements * size
        self.new_produced, self.produced = max(produced - self.produced, 0.0), produced
        weight = self._weight(counters.elements, size)
        self.new_weight = max((weight or 0.0) - (self.weight or 0.0), 0.0)
        self.elements, self.weight = counters.elements, weight

    def within(self, read: float | None, sample: m.PipelineSample) -> float | None:
        """What was read, but no less than all files in each whole pass, and no more than all in each pass begun."""
        if self.file_bytes is None:
            return read
        if self.reading.whole and sample.passes:
            read = max(read or 0.0, self.file_bytes * sample.passes)
        if self.reading.once and read is not None:
            read = min(read, self.file_bytes * sample.iterators)
        return read

    def _weight(self, elements: float, size: float) -> float | None:
        reading = self.reading
        if reading.reader == "ReadFile":
            return None if self.opened_bytes is None else elements * self.opened_bytes
        if not reading.counted or (reading.compression and not reading.decompressed_by):
            return None
        if reading.record_bytes:
            return elements * reading.record_bytes
        if reading.reader in _FRAMING_BYTES:
            # Records that nobody saw before they were gone weigh nobody knows what.
            return elements * (size + _FRAMING_BYTES[reading.reader]) if size or not elements else None
        return None


class ReadMeter:
    """Fills `OperatorCounters.read_bytes` of the samples of one session."""

    def __init__(self) -> None:
        self._threads = _ThreadReads()
        self._before: int | None = None
        self._sources: dict[int, list[_Source]] = {}
        # While sources moved.
        self._read = 0.0
        # Weighed in earlier samples and not read then: readers read ahead of what they deliver.
        self._ahead = 0.0

    def begin(self) -> None:
        """What was read before now is nobody's."""
        self._before = procfs.io_of().get("rchar")
        self._threads.grown({threading.main_thread().native_id})

    def fill(self, record: m.SampleRecord, pipelines: Sequence[FollowedPipeline]) -> None:
        """Says in a sample what each source has read so far.

        Args:
          record: with the counters of all pipelines and the host's.
          pipelines: by the index that samples name them by.
        """
        read = self._read_by_others(record.host, pipelines)
        parts = {part.pipeline: part for part in record.pipelines}
        for pipeline in pipelines:
            known = self._sources.setdefault(pipeline.index, _sources(pipeline))
            for source in known:
                _take_files(source, pipeline.message)
                source.advance(parts[pipeline.index])
        every = [source for sources in self._sources.values() for source in sources]
        moved = [source for source in every if source.moved]
        if moved and read is not None:
            self._attribute(read, moved)
        # What Python reads is not to be told from what a source reads.
        python = any(o.function.python for pipeline in pipelines for o in pipeline.message.operators)
        scale = 1.0 if python else self._scale(every)
        for index, sources in self._sources.items():
            for source in sources:
                said = source.within(_bytes_of(source, scale, python or read is None), parts[index])
                if said is not None:
                    source.said = max(source.said, said)
                    parts[index].operators[source.running].read_bytes = source.said

    def _read_by_others(self, host: m.HostSample, pipelines: Sequence[FollowedPipeline]) -> float | None:
        """What the process has read since the last sample, Plumber's own reads left out; None if unknown."""
        if not host.HasField("read_bytes") or self._before is None:
            return None
        read, self._before = host.read_bytes - self._before, host.read_bytes
        leave_out = set()
        if threading.current_thread() is not threading.main_thread():
            self._threads.own.add(threading.get_native_id())
        if all(p.message.running and _ASYNCHRONOUS.match(p.message.running[0].type) for p in pipelines):
            leave_out.add(threading.main_thread().native_id)
        return max(float(read - self._threads.grown(leave_out)), 0.0)

    def _attribute(self, read: float, moved: Sequence[_Source]) -> None:
        """Divides what was read among the sources that moved."""
        here = [source for source in moved if not source.remote]
        weighed = sum(source.new_weight for source in here)
        unknown = [source for source in here if source.weight is None]
        self._read += read
        if not unknown:
            return
        rest = read - weighed - self._ahead
        self._ahead = max(-rest, 0.0)
        # Compressed alike, as far as anybody knows.
        total = sum(source.new_produced for source in unknown)
        for source in unknown:
            share = source.new_produced / total if total else 1 / len(unknown)
            source.rest += max(rest, 0.0) * share

    def _scale(self, sources: Sequence[_Source]) -> float:
        """What the process read over what the sources' records weigh, if the one can be taken for the other."""
        here = [source for source in sources if not source.remote]
        weighed = sum(source.weight or 0.0 for source in here)
        if self._read < _MUCH_BYTES or any(source.weight is None for source in here):
            return 1.0
        # A function may open fewer files than it has names: behind a condition.
        lowest = 0.0 if any(s.reading.reader == "ReadFile" for s in here) else 1 - _AGREEMENT
        return self._read / weighed if lowest * weighed <= self._read <= (1 + _AGREEMENT) * weighed else 1.0


def _bytes_of(source: _Source, scale: float, others: bool) -> float | None:
    """What is said of a source; None where nothing can be."""
    if source.weight is not None:
        return source.weight * (1.0 if source.remote else scale)
    return None if others or source.remote else source.rest


class _ThreadReads:
    """Reads of single threads."""

    def __init__(self) -> None:
        # Native ids of Plumber's own threads.
        self.own: set[int] = set()
        self._last: dict[int, int] = {}

    def grown(self, more: Collection[int | None]) -> int:
        """Bytes that own threads and `more` have read since the last call that asked for them."""
        total = 0
        for thread_id in {*self.own, *more}:
            now = procfs.io_of(f"self/task/{thread_id}").get("rchar") if thread_id else None
            if thread_id is None or now is None:
                continue
            total += now - self._last.get(thread_id, now)
            self._last[thread_id] = now
        return total


def _sources(pipeline: FollowedPipeline) -> list[_Source]:
    """The sources of a pipeline that run."""
    message, inputs = pipeline.message, pipeline.description.inputs
    operators = {operator.id: operator for operator in message.operators}
    found = []
    for reading in pipeline.description.readings:
        operator = operators.get(reading.operator)
        if operator is None or not operator.HasField("running"):
            continue
        head = operator.running
        counted_by = head
        if reading.reader == "ReadFile":
            # Of a map that is fused with its batch only batches are counted: what it takes tells its calls.
            counted_by = inputs[head][0] if inputs[head] else head
        else:
            name = _MODEL_NAMES.get(reading.reader, "")
            for index, running in enumerate(message.running):
                if reading.operator in running.operators and running.type.startswith(name) and name:
                    counted_by = index
        found.append(_Source(reading, head, counted_by))
    return found


def _take_files(source: _Source, message: m.Pipeline) -> None:
    """What was found out about its files meanwhile."""
    if source.opened_bytes is not None:
        return
    for files in message.files:
        if files.operator == source.reading.operator and files.count:
            source.opened_bytes = files.bytes / files.count * source.reading.opens
            source.file_bytes = float(files.bytes) if files.complete else None
            source.remote = any(is_remote(path) for path in files.paths)
