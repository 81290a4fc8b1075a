"""The plugin's HTTP side; docs/http_api.md describes the routes.

Every `_route` is thin over an `_impl` that knows nothing of HTTP. Never imports TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from tensorboard import errors, plugin_util
from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from tensorboard_plugin_plumber.answers import Answers
from tensorboard_plugin_plumber.events import catalog, metadata, reader
from tensorboard_plugin_plumber.model.analyse import NotAnswerable, NotYet
from tensorboard_plugin_plumber.model.questions import QUESTIONS, WhatIf, what_if
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema.jsonify import to_json
from tensorboard_plugin_plumber.schema.recording import Recording

_STATIC = Path(__file__).with_name("static")
_CONTENT_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".map": "application/json",
    ".woff2": "font/woff2",
}
# What stands in for a bundle that was never built: the tab says so instead of staying blank.
_NOT_BUILT = """export function render() {
  document.body.textContent =
    "This installation of Plumber has no frontend. Install it again: " +
    "pip install --force-reinstall tensorboard-plugin-plumber";
}
"""
_REPORT_TO = "see 'plumber --help' for where to report it"

# The pickers need the newest counters only; the rest is read for the run that is looked at.
_CATALOG_SAMPLES = 64
_KEPT_RECORDINGS = 16
_KEPT_SUMMARIES = 1000
_KEPT_ANSWERS = 64
# What was measured of so many pipelines is ready for further questions: some megabytes each.
_KEPT_ASKED = 8
_PROBLEM_AGE_S = 10.0

_logger = logging.getLogger("tensorboard")

_Value = TypeVar("_Value")


class _BadRequest(Exception):
    """A parameter is no use; the message says which and why."""


@dataclasses.dataclass(frozen=True)
class Reply:
    """A message on its way out.

    Attributes:
      body: JSON text.
      status: HTTP status.
    """

    body: str
    status: int = 200


def _route(
    handle: Callable[[PlumberPlugin, wrappers.Request], wrappers.Response],
) -> Callable[..., Iterable[bytes]]:
    """Makes a method that answers requests a WSGI application."""
    # werkzeug's own types know only functions, though it takes methods.
    application: Callable[..., Iterable[bytes]] = wrappers.Request.application(handle)  # type: ignore[arg-type]
    return application


class PlumberPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """Serves what was recorded of input pipelines, analysed, and the tab that shows it."""

    plugin_name = metadata.PLUGIN_NAME

    def __init__(self, context: base_plugin.TBContext) -> None:
        self._data_provider = context.data_provider
        self._logdir = _local_logdir(context.logdir)
        self._summaries: _Kept[Recording | None] = _Kept(_KEPT_SUMMARIES)
        self._recordings: _Kept[Recording | None] = _Kept(_KEPT_RECORDINGS)
        self._asked: _Kept[Answers] = _Kept(_KEPT_ASKED)
        self._answers: _Kept[str] = _Kept(_KEPT_ANSWERS)
        self._problem: _Kept[a.ErrorReply] = _Kept(1)
        self._damage = reader.DamageWatch()
        # Requests come in threads of their own; reading and solving the same thing twice is waste.
        self._reading = threading.Lock()
        self._solving = threading.Lock()
        self._logged: set[str] = set()

    def get_plugin_apps(self) -> Mapping[str, Callable[..., Any]]:
        """The routes, each a WSGI application."""
        return {
            "/index.js": self._index_route,
            "/static/*": self._static_route,
            "/runs": self._runs_route,
            "/analysis": self._analysis_route,
        }

    def is_active(self) -> bool:
        """False: TensorBoard itself marks the tab active where there are records of `plugin_name`."""
        return False

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """How TensorBoard shows the tab."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="Plumber")

    @_route
    def _index_route(self, request: wrappers.Request) -> wrappers.Response:
        path = _STATIC / "index.js"
        content = path.read_bytes() if path.is_file() else _NOT_BUILT.encode()
        return _respond(request, content, _CONTENT_TYPES[".js"])

    @_route
    def _static_route(self, request: wrappers.Request) -> wrappers.Response:
        path = _STATIC / request.path.rpartition("/")[2]
        content_type = _CONTENT_TYPES.get(path.suffix)
        if content_type is None or not path.is_file():
            return _respond_reply(request, _error(404, "not-found", f"There is no file '{path.name}'."))
        return _respond(request, path.read_bytes(), content_type)

    @_route
    def _runs_route(self, request: wrappers.Request) -> wrappers.Response:
        return self._answer(request, self._runs_impl)

    @_route
    def _analysis_route(self, request: wrappers.Request) -> wrappers.Response:
        return self._answer(
            request, lambda context, experiment: self._analysis_impl(context, experiment, request.args)
        )

    def _answer(self, request: wrappers.Request, impl: Callable[[Any, str], Reply]) -> wrappers.Response:
        """Runs an `_impl` and turns whatever comes of it into a response."""
        if request.method not in ("GET", "HEAD"):
            return _respond_reply(request, _error(405, "bad-request", "Only GET is answered here."))
        context = plugin_util.context(request.environ)
        experiment = plugin_util.experiment_id(request.environ)
        try:
            reply = impl(context, experiment)
        except NotYet as error:
            # No error: a browser would log one at each poll while the first samples come in.
            reply = _error(200, "collecting", str(error))
        except (_BadRequest, NotAnswerable) as error:
            reply = _error(400, "bad-request", str(error))
        except catalog.NotFound as error:
            reply = _error(404, "not-found", str(error))
        except reader.NothingRecorded as error:
            reply = _error(404, error.kind, str(error))
        except errors.PublicError as error:
            reply = _error(error.http_code, "not-found", str(error))
        except Exception as error:
            reply = self._internal_error(error)
        return _respond_reply(request, reply)

    def _runs_impl(self, context: Any, experiment: str) -> Reply:
        recordings = self._all_summaries(context, experiment)
        listed = catalog.catalog(recordings, now_s=time.time())
        if not recordings:
            listed.problem.CopyFrom(self._explain_nothing(experiment))
        return Reply(to_json(listed))

    def _analysis_impl(self, context: Any, experiment: str, query: Mapping[str, str]) -> Reply:
        question = _question(query)
        recording, version = self._wanted_recording(context, experiment, query)
        pipeline = catalog.choose_pipeline(recording, query.get("pipeline") or None).id
        live = catalog.is_live(recording, now_s=time.time())
        key = (experiment, recording.run, recording.host, pipeline)

        def solve() -> str:
            known = (version, recording.notes)
            answers = self._asked.get(key, known, lambda: Answers(recording, pipeline))
            analysis = answers.to(question)
            analysis.live = live
            return to_json(analysis)

        with self._solving:
            return Reply(self._answers.get((*key, question), (version, recording.notes, live), solve))

    def _wanted_recording(
        self, context: Any, experiment: str, query: Mapping[str, str]
    ) -> tuple[Recording, tuple[float, ...]]:
        """The whole recording of the run and host that was asked for, and what it depends on."""
        summaries = self._all_summaries(context, experiment)
        if not summaries:
            problem = self._explain_nothing(experiment)
            raise reader.NothingRecorded("damaged" if problem.kind == "damaged" else "empty", problem.error)
        chosen = catalog.choose(summaries, run=query.get("run") or None, host=query.get("host") or None)
        source = next(
            source
            for source in self._sources(context, experiment)
            if (source.run, source.host) == (chosen.run, chosen.host)
        )
        with self._reading:
            recording = self._recordings.get(
                (experiment, source.name),
                source.version,
                lambda: self._read(context, experiment, source, reader.MAX_SAMPLES),
            )
            if recording is None:
                recording = chosen
            live = catalog.is_live(recording, now_s=time.time())
            damage = self._damage.sentences(self._logdir / source.name, live=live) if self._logdir else ()
        return dataclasses.replace(recording, notes=(*recording.notes, *damage)), source.version

    def _all_summaries(self, context: Any, experiment: str) -> list[Recording]:
        """Of each run and host, its newest session with a few of its samples, the last one among them."""
        sources = self._sources(context, experiment)
        with self._reading:
            summaries = [
                self._summaries.get(
                    (experiment, source.name),
                    source.version,
                    functools.partial(self._read, context, experiment, source, _CATALOG_SAMPLES),
                )
                for source in sources
            ]
        return [summary for summary in summaries if summary is not None]

    def _sources(self, context: Any, experiment: str) -> list[reader.Source]:
        return reader.sources(self._data_provider, context, experiment, logdir=str(self._logdir or ""))

    def _read(
        self, context: Any, experiment: str, source: reader.Source, max_samples: int
    ) -> Recording | None:
        recordings = reader.from_data_provider(
            self._data_provider, context, experiment, [source], max_samples=max_samples
        )
        return recordings[-1] if recordings else None

    def _explain_nothing(self, experiment: str) -> a.ErrorReply:
        """Why TensorBoard has no recording of ours to show."""
        logdir = self._logdir
        if logdir is None or experiment:
            return a.ErrorReply(
                kind="empty",
                error=f"Nothing was recorded here: {reader.HOW_TO_RECORD}",
            )
        age = int(time.monotonic() / _PROBLEM_AGE_S)
        with self._reading:
            return self._problem.get((), age, lambda: _explain_directory(logdir))

    def _internal_error(self, error: Exception) -> Reply:
        what = f"{type(error).__name__}: {error}"
        if what not in self._logged:
            self._logged.add(what)
            _logger.error("Plumber: internal error", exc_info=error)
        return _error(500, "internal", f"Plumber failed ({what}): {_REPORT_TO}.")


class _NotModified(wrappers.Response):
    """A 304 with a content type: werkzeug leaves it out, and TensorBoard logs a warning for each answer without."""

    def get_wsgi_headers(self, environ: Any) -> Any:
        headers = super().get_wsgi_headers(environ)
        headers["Content-Type"] = self.content_type or ""
        return headers


class _Kept(Generic[_Value]):
    """Values that were costly to make, each for as long as what it depends on stays the same."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[object, tuple[object, _Value]] = OrderedDict()

    def get(self, key: object, version: object, make: Callable[[], _Value]) -> _Value:
        """The value under `key`, made anew if there is none or it was made for another version."""
        entry = self._entries.get(key)
        if entry is None or entry[0] != version:
            entry = (version, make())
            self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)
        return entry[1]


def _explain_directory(logdir: Path) -> a.ErrorReply:
    try:
        reader.read(logdir)
    except reader.NothingRecorded as error:
        return a.ErrorReply(error=str(error), kind="damaged" if error.kind == "damaged" else "empty")
    return a.ErrorReply(
        error="TensorBoard has not read the recording yet: wait some seconds, or reload.", kind="empty"
    )


def _local_logdir(logdir: str | None) -> Path | None:
    """The log directory as a path; None if it is not one (a bucket, several named ones)."""
    if not logdir or "://" in logdir:
        return None
    return Path(logdir).expanduser()


def _question(query: Mapping[str, str]) -> WhatIf:
    return what_if({name: _quantity(query, name, parse) for name, (_, parse) in QUESTIONS.items()})


def _quantity(query: Mapping[str, str], name: str, parse: Callable[[str], float]) -> float | None:
    text = query.get(name)
    if not text:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise _BadRequest(f"Parameter {name}: {error}.") from None


def _error(status: int, kind: str, sentence: str) -> Reply:
    return Reply(to_json(a.ErrorReply(error=sentence, kind=kind)), status)


def _respond_reply(request: wrappers.Request, reply: Reply) -> wrappers.Response:
    return _respond(request, reply.body.encode(), "application/json", reply.status)


def _respond(
    request: wrappers.Request, content: bytes, content_type: str, status: int = 200
) -> wrappers.Response:
    """Answers with `content`, or with 304 if that is what the client has already."""
    etag = hashlib.sha256(content).hexdigest()[:24]
    # Weak: the same content travels with and without gzip.
    headers = [("ETag", f'W/"{etag}"')]
    if status == 200 and request.if_none_match.contains_weak(etag):
        headers += [("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-cache, must-revalidate")]
        return _NotModified(status=304, headers=headers, content_type=content_type)
    response: wrappers.Response = http_util.Respond(
        request, content, content_type, code=status, headers=headers
    )
    return response
