"""Digests of users' functions, the same in every process: of the code as written, and of the graph it was traced to.

A digest names the versions that it can be compared within: "3.11:0f3a…" of bytecode, "2.21:77c1…" of a graph,
"2.21+3.11:aa80…" of a graph that calls Python.
Lines, names of files, seeds and the names that TensorFlow counts up are no part of it.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tensorboard_plugin_plumber.capture import places
from tensorboard_plugin_plumber.capture.functions import python_behind
from tensorboard_plugin_plumber.capture.graphs import is_dataset_op
from tensorboard_plugin_plumber.capture.operations import kind_of

_LENGTH = 16
# Attributes that another process gives other values: counted names, drawn seeds, places in a registry.
_CHANCE = frozenset(
    {
        "config",
        "config_proto",
        "container",
        "executor_type",
        "metadata",
        "seed",
        "seed2",
        "shared_name",
        "token",
    }
)
_STRING = 7  # DT_STRING


def comparable(one: str, other: str) -> bool:
    """Whether two digests say anything of each other: both are known, and of one version."""
    return bool(one and other) and one.partition(":")[0] == other.partition(":")[0]


def code_digest(code: types.CodeType | None) -> str:
    """Of a function's bytecode, with the functions that are defined in it; "" of None."""
    if code is None:
        return ""
    return f"{_python_version()}:{_digest_of_code(code)}"


def _python_version() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


@functools.lru_cache(maxsize=1024)
def _digest_of_code(code: types.CodeType) -> str:
    digest = hashlib.sha256()
    for instruction in dis.get_instructions(code):
        digest.update(f"{instruction.opname} {_constant(instruction.argval)}\n".encode())
    digest.update(repr((code.co_argcount, code.co_kwonlyargcount, code.co_flags)).encode())
    return digest.hexdigest()[:_LENGTH]


def _constant(value: Any) -> str:
    """A constant in words that no hash seed changes."""
    if isinstance(value, types.CodeType):
        return _digest_of_code(value)
    if isinstance(value, frozenset):
        return f"frozenset({sorted(map(_constant, value))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    return repr(value)


class GraphDigests:
    """Digests of traced functions.

    Operators of tf.data that a function builds are no part of it: they are operators of their own.

    Args:
      library: by library name, `FunctionDef`s.
    """

    def __init__(self, library: Mapping[str, Any]) -> None:
        self._library = library
        self._known: dict[str, str] = {}
        # Those that call Python, themselves or by what they call.
        self._python: set[str] = set()

    def of(self, names: Iterable[str]) -> str:
        """The digest of the named functions together; "" if none of them is known."""
        import tensorflow as tf

        names = [name for name in names if name in self._library]
        if not names:
            return ""
        found = [self._of_one(name) for name in names]
        version = ".".join(tf.__version__.split(".")[:2])
        if self._python.intersection(names):
            version += f"+{_python_version()}"
        return f"{version}:{hashlib.sha256(' '.join(found).encode()).hexdigest()[:_LENGTH]}"

    def _of_one(self, name: str) -> str:
        if name not in self._known:
            self._known[name] = "recursive"
            digest = hashlib.sha256()
            for part in self._parts(name, self._library[name]):
                digest.update(part)
                digest.update(b"\n")
            self._known[name] = digest.hexdigest()
        return self._known[name]

    def _parts(self, name: str, function: Any) -> Iterator[bytes]:
        names = {one.name: f"argument {i}" for i, one in enumerate(function.signature.input_arg)}
        yield " ".join(str(one.type) for one in function.signature.input_arg).encode()
        nodes = list(_own_nodes(function))
        names.update((node.name, str(i)) for i, node in enumerate(nodes))
        for node in nodes:
            yield (self._called(name, node.op) if node.op in self._library else node.op).encode()
            if kind_of(node.op).python:
                self._python.add(name)
                yield code_digest(places.code_of(python_behind(node))).encode()
            yield " ".join(_renamed(one, names) for one in node.input).encode()
            for attribute in sorted(node.attr):
                if attribute not in _CHANCE and not attribute.startswith("_"):
                    yield attribute.encode()
                    yield self._value(name, node.attr[attribute])
        for output in function.signature.output_arg:
            yield _renamed(function.ret[output.name], names).encode()

    def _called(self, name: str, called: str) -> str:
        """The digest of a function that another one calls."""
        digest = self._of_one(called)
        if called in self._python:
            self._python.add(name)
        return digest

    def _value(self, name: str, value: Any) -> bytes:
        """The value of an attribute in a function, other functions by their digests."""
        called = [value.func.name] if value.HasField("func") else [one.name for one in value.list.func]
        if called:
            return " ".join(self._called(name, one) for one in called if one in self._library).encode()
        if value.HasField("tensor") and _is_path(value.tensor):
            return b"a path"
        data: bytes = value.SerializeToString(deterministic=True)
        return data


def traced_digest(wrapper: Any) -> str:
    """Of a function that a live dataset has traced, as `GraphDigests` gives it; "" if it is gone.

    Args:
      wrapper: TensorFlow's `StructuredFunctionWrapper`.
    """
    name = getattr(getattr(wrapper, "_function", None), "name", None)
    if name is None:
        return ""
    return GraphDigests(_Registered()).of([name.decode() if isinstance(name, bytes) else str(name)])


class _Registered(Mapping[str, Any]):
    """The functions that TensorFlow knows in this process; which there are, it does not say."""

    def __init__(self) -> None:
        self._looked_up: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        from tensorflow.python.eager import context

        if name not in self._looked_up:
            if not context.context().has_function(name):
                raise KeyError(name)
            self._looked_up[name] = context.context().get_function_def(name)
        return self._looked_up[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._looked_up)

    def __len__(self) -> int:
        return len(self._looked_up)


def _own_nodes(function: Any) -> Iterator[Any]:
    """The nodes of a body without operators of tf.data, and without the constants that only these take."""
    datasets = {node.name for node in function.node_def if is_dataset_op(node.op)}
    taken: dict[str, bool] = {}
    for node in function.node_def:
        for one in node.input:
            name = one.lstrip("^").partition(":")[0]
            taken[name] = taken.get(name, True) and node.name in datasets
    for node in function.node_def:
        if node.name not in datasets and not (node.op == "Const" and taken.get(node.name, False)):
            yield node


def _renamed(reference: str, names: Mapping[str, str]) -> str:
    """A reference to a value by the position of what makes it."""
    name, colon, output = reference.lstrip("^").partition(":")
    return f"{'^' if reference.startswith('^') else ''}{names.get(name, 'dataset')}{colon}{output}"


def _is_path(tensor: Any) -> bool:
    """A constant of paths: hosts keep their files in different places."""
    return tensor.dtype == _STRING and any(b"/" in one or b"\\" in one for one in tensor.string_val)
