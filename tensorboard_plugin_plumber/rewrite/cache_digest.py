"""Whether two processes would keep the same elements: a digest of the graph, and of the files that it reads."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2

from tensorboard_plugin_plumber.capture import graphs, sources, written
from tensorboard_plugin_plumber.capture.operations import Kind, kind_of

#: Part of every digest: another number makes all older caches unusable.
_VERSION = 1
# Names that TensorFlow counts up, places in a registry of the process, and what no element depends on.
_CHANCE = frozenset(
    {"config", "config_proto", "container", "executor_type", "metadata", "shared_name", "token"}
)
# Sources whose elements the graph does not determine, nor files that it names.
_OUTSIDE = (
    "Generator",
    "DataService",
    "Snapshot",
    "Load",
    "Sql",
    "Bigtable",
    "IteratorGetNext",
    "PubSub",
    "Kafka",
)


class NotTheSame(Exception):
    """Nobody can tell whether another process would make the same elements; the message says why."""


def pipeline_digest(dataset: Any) -> str:
    """The same in each process for the same operators, functions and constants over the same files.

    Files are the same if their names, sizes and times of change are.

    Raises:
      NotTheSame: elements depend on Python code, variables, tables or files that cannot be told.
    """
    try:
        graph = graphs.serialise(dataset._variant_tensor)
        tree = graphs.tree(graph)
    except (tf.errors.OpError, ValueError) as error:
        raise NotTheSame(f"TensorFlow cannot write the pipeline down: {error}") from error
    found = hashlib.sha256(f"{_VERSION} {tf.__version__}\n".encode())
    library = {function.signature.name: function for function in graph.library.function}
    found.update(_Digests(library).of_graph(graph))
    for reading in sources.readings_of(written.operators_of(tree, dataset)):
        for line in _files(reading):
            found.update(line)
    return found.hexdigest()


def _files(reading: sources.Reading) -> Iterator[bytes]:
    """Name, size and time of change of each file."""
    names = reading.names
    if names.listing is None or not names.complete:
        raise NotTheSame(
            f"not all files that it reads can be told: {names.note or 'their names are not known'}"
        )
    listing = names.listing()
    for path in listing.pick(range(len(listing))):
        try:
            if "://" in path:
                remote = tf.io.gfile.stat(path)
                size, changed_ns = remote.length, remote.mtime_nsec
            else:
                local = os.stat(path)
                size, changed_ns = local.st_size, local.st_mtime_ns
        except (OSError, tf.errors.OpError) as error:
            raise NotTheSame(f"it reads a file that cannot be looked at: {error}") from error
        yield f"{path} {size} {changed_ns}\n".encode()


class _Digests:
    """Digests of graphs and functions by what they compute, whatever their nodes are called."""

    def __init__(self, library: Mapping[str, Any]) -> None:
        self._library = library
        self._functions: dict[str, bytes] = {}

    def of_graph(self, graph: Any) -> bytes:
        returned = [node.input[0] for node in graph.node if node.op == "_Retval"]
        return self._of_nodes(graph.node, {}, returned)

    def _of_function(self, name: str) -> bytes:
        if name not in self._functions:
            self._functions[name] = b"recursive"
            function = self._library.get(name)
            if function is None:
                raise NotTheSame(f"the function {name} is not known")
            arguments = {one.name: b"argument %d" % i for i, one in enumerate(function.signature.input_arg)}
            outputs = [function.ret[one.name] for one in function.signature.output_arg]
            controls = sorted(function.control_ret.values())
            self._functions[name] = self._of_nodes(function.node_def, arguments, outputs, controls)
        return self._functions[name]

    def _of_nodes(
        self, nodes: Any, arguments: Mapping[str, bytes], outputs: list[str], controls: Any = ()
    ) -> bytes:
        """Of what is computed for the outputs; everything is looked at, from below."""
        by_name = {node.name: node for node in nodes}
        known = dict(arguments)
        for name in [*(_name(one) for one in outputs), *controls]:
            waiting = [name]
            while waiting:
                one = waiting[-1]
                below = [_name(two) for two in by_name[one].input] if one in by_name else []
                unknown = [two for two in below if two not in known and two in by_name]
                if one not in known and unknown:
                    waiting += unknown
                    continue
                waiting.pop()
                if one not in known:
                    known[one] = self._of_node(by_name[one], known) if one in by_name else b"?"
        found = hashlib.sha256()
        for one in outputs:
            found.update(_with_output(one, known))
        for name in sorted(known[one] for one in controls):
            found.update(name)
        return found.digest()

    def _of_node(self, node: Any, known: Mapping[str, bytes]) -> bytes:
        called = node.op in self._library
        if not called:
            _must_be_told(node)
        found = hashlib.sha256(self._of_function(node.op) if called else node.op.encode())
        data = [one for one in node.input if not one.startswith("^")]
        controls = sorted(known.get(_name(one), b"?") for one in node.input if one.startswith("^"))
        for one in data:
            found.update(_with_output(one, known))
        for control in controls:
            found.update(b"^" + control)
        for name in sorted(node.attr):
            if name not in _CHANCE and not name.startswith("_"):
                found.update(name.encode() + b"=" + self._of_value(node.attr[name]))
        return found.digest()

    def _of_value(self, value: Any) -> bytes:
        functions = [value.func.name] if value.HasField("func") else [one.name for one in value.list.func]
        if functions:
            return b" ".join(self._of_function(one) for one in functions if one)
        data: bytes = value.SerializeToString(deterministic=True)
        return hashlib.sha256(data).digest()


def _must_be_told(node: Any) -> None:
    """Refuses what depends on more than the graph."""
    kind: Kind = kind_of(node.op)
    base = graphs.base_op(node.op)
    resource = node.op == "Const" and node.attr["dtype"].type == types_pb2.DT_RESOURCE
    if kind.python:
        raise NotTheSame("it runs Python code, which another process may have otherwise")
    if kind.dataset and any(one in base for one in _OUTSIDE):
        raise NotTheSame(f"nobody can tell what {base.removesuffix('Dataset')} will give in another process")
    if resource or kind.reads_variable or kind.reads_table or kind.writes or kind.clock or kind.unknown:
        raise NotTheSame(f"it depends on the state of this process ({node.op})")


def _name(reference: str) -> str:
    return reference.lstrip("^").partition(":")[0]


def _with_output(reference: str, known: Mapping[str, bytes]) -> bytes:
    """The digest of what makes a value, and which of its outputs it is."""
    name, _, output = reference.partition(":")
    return known.get(name, b"?") + b":" + output.encode()
