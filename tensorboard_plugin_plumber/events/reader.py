"""Reads back what the hook wrote: from a log directory, or through TensorBoard's data provider.

Never imports TensorFlow. Both ways end in the same grouping of records, which trusts nothing
but the records' own session, sequence and times: the two data servers of TensorBoard order and
drop the records of a resumed run differently.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2

from tensorboard_plugin_plumber.events import layout, metadata
from tensorboard_plugin_plumber.events.compact import Restorer
from tensorboard_plugin_plumber.events.record_file import Records, read_records
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording

# A difference of counters needs two samples.
MIN_SAMPLES = 2

# Of one tag, at one reading through the data provider. More than a month of records.
MAX_SAMPLES = 100_000

HOW_TO_RECORD = (
    "to record a pipeline, train with PlumberCallback(log_dir), or wrap the loop in plumber.trace(log_dir)."
)

# Roles of pipelines that a session has without training.
_AFTER_TRAINING = frozenset({"validation", "predict"})

Problem: TypeAlias = Literal["not-found", "empty", "damaged"]


class NothingRecorded(Exception):
    """There is nothing to analyse; the message is one sentence for people.

    Attributes:
      kind: "not-found": LOGDIR does not exist. "empty": nothing was recorded, or not enough yet.
        "damaged": event files exist, but nothing in them can be used.
    """

    def __init__(self, kind: Problem, message: str) -> None:
        super().__init__(message)
        self.kind: Problem = kind


@dataclass(frozen=True)
class Source:
    """Where TensorBoard keeps what was recorded of one run on one host.

    Attributes:
      run, host: as in `Recording`.
      name: TensorBoard's own name of the run.
      version: changes whenever TensorBoard has read a newer record.
    """

    run: str
    host: str
    name: str
    version: tuple[float, ...]


def read(logdir: str | os.PathLike[str], *, every_session: bool = False) -> list[Recording]:
    """Reads everything that was recorded under a log directory.

    Args:
      logdir: a local directory, as given to TensorBoard.
      every_session: also return the sessions before the newest one of each run and host.

    Returns:
      By run and host, and from the oldest session to the newest within these. Each holds a whole
      graph and at least two samples; a session with less gives way to the one before it, and one
      that only evaluated or predicted to the last that trained.

    Raises:
      NothingRecorded: there is no such recording.
    """
    root = Path(logdir)
    if not root.is_dir():
        what = "is a file, not a directory" if root.exists() else "does not exist"
        raise NothingRecorded(
            "not-found",
            f"{_shown(root)} {what}: give the log directory that PlumberCallback or plumber.trace wrote to.",
        )
    found = _Found()
    for directory, event_files in _event_directories(root):
        place = _place(os.path.relpath(directory, root), root)
        if place is None:
            found.other_events = True
        else:
            found.add(place, directory, event_files)
    recordings = [
        recording
        for place in sorted(found.journals)
        for recording in found.journals[place].recordings(every_session=every_session)
    ]
    if not recordings:
        raise found.problem(root)
    return recordings


class DamageWatch:
    """Finds damage in event files that may still grow, reading each byte of them once.

    TensorBoard's data servers keep silent about damage, and stop at it.
    """

    def __init__(self) -> None:
        self._read_to: dict[Path, Records] = {}

    def sentences(self, directory: Path, *, live: bool) -> tuple[str, ...]:
        """What is wrong with the event files of one host's directory, one sentence each.

        Args:
          directory: the host's directory; () if it is not there, as with a remote log directory.
          live: it is being written, so that a record without its end is no damage.
        """
        found = []
        for path in _event_files(directory):
            before = self._read_to.get(path)
            records = _read_file(path, before.end if before is not None else 0)
            self._read_to[path] = dataclasses.replace(records, data=())
            if not (live and records.cut_short) and (sentence := _damage_sentence(path, records)):
                found.append(sentence)
        return tuple(found)


def sources(data_provider: Any, context: Any, experiment_id: str, *, logdir: str) -> list[Source]:
    """Lists what TensorBoard has read of our records.

    Args:
      data_provider: `tensorboard.data.provider.DataProvider`.
      context: the request's `RequestContext`.
      experiment_id: as TensorBoard's request has it; may be "".
      logdir: TensorBoard's log directory, or "" where it has none.

    Raises:
      tensorboard.errors.PublicError: the data provider cannot answer.
    """
    series = data_provider.list_tensors(
        context, experiment_id=experiment_id, plugin_name=metadata.PLUGIN_NAME
    )
    listed = []
    for name, tags in series.items():
        run, host = _place(name, Path(logdir), ours=True) or (".", name)
        # The greatest step alone is stale after a resume under one of the data servers.
        version = tuple(
            value for tag in sorted(tags) for value in (tags[tag].max_step, tags[tag].max_wall_time)
        )
        listed.append(Source(run, host, name, version))
    return sorted(listed, key=lambda source: (source.run, source.host))


def from_data_provider(
    data_provider: Any,
    context: Any,
    experiment_id: str,
    wanted: Sequence[Source],
    *,
    max_samples: int = MAX_SAMPLES,
    every_session: bool = False,
) -> list[Recording]:
    """Reads the recordings of some sources through TensorBoard.

    Args:
      data_provider, context, experiment_id: as for `sources`.
      wanted: which to read.
      max_samples: no more than so many samples of each are fetched; the newest always is.
      every_session: as for `read`.

    Returns:
      As `read` does, but empty where there is no whole recording.

    Raises:
      tensorboard.errors.PublicError: the data provider cannot answer.
    """
    from tensorboard.data import provider

    if not wanted:
        return []
    by_name = {source.name: _Journal(source.run, source.host) for source in wanted}
    # Graphs are few, and each session needs its own last one: only samples are thinned out.
    thinned: set[str] = set()
    for tag, limit in ((metadata.GRAPH_TAG, MAX_SAMPLES), (metadata.SAMPLE_TAG, max_samples)):
        series = data_provider.read_tensors(
            context,
            experiment_id=experiment_id,
            plugin_name=metadata.PLUGIN_NAME,
            downsample=limit,
            run_tag_filter=provider.RunTagFilter(runs=sorted(by_name), tags=[tag]),
        )
        for name, tags in series.items():
            data = tags.get(tag, ())
            for datum in data:
                by_name[name].add(tag, datum.numpy.item())
            if len(data) >= limit:
                thinned.add(name)
    found = []
    for source in wanted:
        journal = by_name[source.name]
        if max_samples < MAX_SAMPLES and source.name in thinned and not journal.is_newest_whole:
            # A session that has just begun may have lost its few samples among the many before it.
            found += from_data_provider(
                data_provider, context, experiment_id, [source], every_session=every_session
            )
        else:
            found += journal.recordings(every_session=every_session)
    return found


class _Found:
    """What lies under a log directory."""

    def __init__(self) -> None:
        self.journals: dict[tuple[str, str], _Journal] = {}
        self.other_events = False
        self._damaged: list[Path] = []

    def add(self, place: tuple[str, str], directory: Path, event_files: Sequence[Path]) -> None:
        journal = self.journals.setdefault(place, _Journal(*place))
        for path in event_files:
            records = _read_file(path)
            for tag, content in _summaries(records.data):
                journal.add(tag, content)
            if sentence := _damage_sentence(path, records):
                self._damaged.append(path)
                journal.notes.append(sentence)

    def problem(self, root: Path) -> NothingRecorded:
        """Why nothing here can be analysed."""
        shown = _shown(root)
        unreadable = next(
            (journal.unreadable for journal in self.journals.values() if journal.unreadable), ""
        )
        if unreadable:
            return NothingRecorded("damaged", f"Nothing under {shown} can be read: {unreadable}")
        if self._damaged:
            return NothingRecorded(
                "damaged",
                f"The event files under {shown} are damaged beyond use: no whole graph and two samples are left in "
                f"{_shown(self._damaged[0])}; record the run again.",
            )
        if self.journals:
            return NothingRecorded(
                "empty",
                f"Too little has been recorded under {shown} yet: no pipeline with two samples; let it run for some "
                "seconds, and check that training reads from a tf.data.Dataset.",
            )
        if self.other_events:
            return NothingRecorded("empty", f"{shown} holds events of other plugins only: {HOW_TO_RECORD}")
        return NothingRecorded("empty", f"{shown} holds no event files: {HOW_TO_RECORD}")


@dataclass
class _Session:
    graph: m.GraphRecord | None = None
    samples: dict[int, m.SampleRecord] = field(default_factory=dict)

    @property
    def order(self) -> tuple[float, float]:
        start_s = self.graph.session.start_time_s if self.graph is not None else 0.0
        return start_s, max((sample.wall_time_s for sample in self.samples.values()), default=0.0)

    @property
    def is_whole(self) -> bool:
        return self.graph is not None and len(self.graph.pipelines) > 0 and len(self.samples) >= MIN_SAMPLES

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(p.role for p in self.graph.pipelines) if self.graph is not None else frozenset()


class _Journal:
    """Everything that was recorded of one run on one host, in whatever order it was read."""

    def __init__(self, run: str, host: str) -> None:
        self._run = run
        self._host = host
        self._sessions: dict[str, _Session] = {}
        self.notes: list[str] = []
        # Why records that are whole could not be used; "" if all could.
        self.unreadable = ""

    def add(self, tag: str, content: bytes) -> None:
        try:
            if tag == metadata.GRAPH_TAG:
                self._add_graph(m.GraphRecord.FromString(content))
            elif tag == metadata.SAMPLE_TAG:
                self._add_sample(m.SampleRecord.FromString(content))
        except (DecodeError, TypeError):
            self._note_unreadable("a record is no message that Plumber writes; record the run again.")

    @property
    def is_newest_whole(self) -> bool:
        sessions = self._in_order()
        return bool(sessions) and sessions[-1].is_whole

    def recordings(self, *, every_session: bool) -> list[Recording]:
        sessions = self._in_order()
        whole = [session for session in sessions if session.is_whole]
        notes = list(self.notes)
        if whole and whole[-1] is not sessions[-1]:
            notes.append("The newest session has too few records yet: this is the one before it.")
        chosen = whole if every_session else whole[-1:]
        if not every_session and chosen and chosen[0].roles <= _AFTER_TRAINING:
            # `evaluate` and `predict` after `fit`, with the callback of `fit`: it is the training that matters.
            trained = [session for session in whole if "train" in session.roles]
            if trained:
                chosen = trained[-1:]
                notes.append(
                    "The newest session only evaluated or predicted: this is the last one that trained."
                )
        return [self._recording(session, notes) for session in chosen]

    def _in_order(self) -> list[_Session]:
        return sorted(self._sessions.values(), key=lambda session: session.order)

    def _recording(self, session: _Session, notes: Sequence[str]) -> Recording:
        assert session.graph is not None
        graph = session.graph
        restorer = Restorer(graph)
        samples = tuple(restorer.restore(session.samples[sequence]) for sequence in sorted(session.samples))
        return Recording(self._run, self._host, graph, samples, tuple(notes))

    def _add_graph(self, graph: m.GraphRecord) -> None:
        if self._is_too_new(graph.format_version):
            return
        session = self._sessions.setdefault(graph.session.id, _Session())
        if session.graph is None or graph.sequence >= session.graph.sequence:
            session.graph = graph

    def _add_sample(self, sample: m.SampleRecord) -> None:
        if not self._is_too_new(sample.format_version):
            self._sessions.setdefault(sample.session_id, _Session()).samples[sample.sequence] = sample

    def _is_too_new(self, format_version: int) -> bool:
        if format_version <= metadata.FORMAT_VERSION:
            return False
        self._note_unreadable(
            f"records have format {format_version}, and this Plumber knows up to {metadata.FORMAT_VERSION}; update "
            "tensorboard-plugin-plumber."
        )
        return True

    def _note_unreadable(self, why: str) -> None:
        if not self.unreadable:
            self.unreadable = why
            self.notes.append(f"Some records were left out: {why}")


def _event_directories(root: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Every directory under `root` that has event files, with these; links are followed, once each."""
    seen: set[tuple[int, int]] = set()
    for directory, subdirectories, _ in os.walk(root, followlinks=True):
        status = os.stat(directory)
        if (status.st_dev, status.st_ino) in seen:
            subdirectories.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        subdirectories.sort()
        event_files = _event_files(Path(directory))
        if event_files:
            yield Path(directory), event_files


def _event_files(directory: Path) -> list[Path]:
    """By name, which begins with the time of their making."""
    return sorted(path for path in directory.glob("*tfevents*") if path.is_file())


def _place(name: str, root: Path, *, ours: bool = False) -> tuple[str, str] | None:
    """Run and host of the directory `name` relative to the log directory `root`; None if it is not ours.

    A log directory inside a recording ("run1/plumber", "run1/plumber/<host>") is understood too. With
    `ours` set, the records themselves prove whose they are, and the directory's name is taken as it is.
    """
    place = layout.split_run(name)
    if place is not None:
        return place
    directory = Path(os.path.abspath(root / name))
    if ours or directory.parent.name == layout.DIRECTORY:
        return ".", directory.name
    return None


def _read_file(path: Path, start: int = 0) -> Records:
    try:
        return read_records(path, start)
    except OSError as error:
        return Records((), start, f"cannot be read ({error.strerror or error})")


def _summaries(records: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Tag and content of each of our summaries in serialized events."""
    for record in records:
        try:
            event = event_pb2.Event.FromString(record)
        except DecodeError:
            continue
        for value in event.summary.value:
            if value.tag in (metadata.GRAPH_TAG, metadata.SAMPLE_TAG) and value.tensor.string_val:
                yield value.tag, value.tensor.string_val[0]


def _damage_sentence(path: Path, records: Records) -> str:
    if not records.damage:
        return ""
    hint = " (cut short, or still being written)" if records.cut_short else ""
    return f"{_shown(path)} {records.damage}{hint}: what stands before it was used."


def _shown(path: Path) -> str:
    return f"'{path}'"
