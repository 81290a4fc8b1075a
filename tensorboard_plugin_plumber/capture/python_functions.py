"""What a Python function of the user's does that outlives a call: writes, randomness, the clock.

A pipeline runs Python in `py_function`, `numpy_function` and generators. The function's bytecode
says which names it touches (`bytecode`), and its module, its closure and what it is bound to say
what these are. Nothing of the user's is run: only dictionaries are read. Functions of the user's own
that it calls are followed.
"""

from __future__ import annotations

import builtins
import functools
import logging
import os
import random
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorboard_plugin_plumber.capture import bytecode, places
from tensorboard_plugin_plumber.capture.bytecode import Write

# Calls of the user's own functions are followed so deep.
_DEPTH = 2
_CONTAINERS = (list, dict, set, bytearray)
_IMMUTABLE = (str, bytes, int, float, complex, tuple, frozenset, type(None))
# Modules of classes whose attributes can be read without running anybody's code.
_PLAIN_MODULES = frozenset({"builtins", "datetime", "random", "logging", "time"})
_CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
_CLOCKS = frozenset(
    {
        "time.time",
        "time.time_ns",
        "time.perf_counter",
        "time.perf_counter_ns",
        "time.monotonic",
        "time.monotonic_ns",
        "time.process_time",
        "time.localtime",
        "time.gmtime",
        "time.ctime",
        "time.strftime",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
    }
)
_RANDOM = frozenset({"os.urandom", "uuid.uuid1", "uuid.uuid4"})
_RANDOM_MODULES = ("random", "numpy.random", "secrets")
_RANDOM_FUNCTIONS = ("random.", "numpy.random.", "secrets.", "tensorflow.python.ops.random_ops.")
_FILE_WRITERS = frozenset(
    {
        *(
            f"os.{name}"
            for name in (
                "mkdir",
                "makedirs",
                "remove",
                "unlink",
                "rename",
                "replace",
                "rmdir",
                "removedirs",
                "symlink",
                "link",
                "truncate",
            )
        ),
        *(f"shutil.{name}" for name in ("copy", "copy2", "copyfile", "copytree", "move", "rmtree")),
        *(f"numpy.{name}" for name in ("save", "savez", "savez_compressed", "savetxt")),
        "pickle.dump",
        "json.dump",
    }
)
_CONSOLE = frozenset({"builtins.print", "warnings.warn", "tensorflow.python.ops.logging_ops.print_v2"})
_LOG_METHODS = frozenset(
    {"debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log"}
)
_PROCESSES = ("subprocess", "multiprocessing")


@dataclass(frozen=True)
class PythonFacts:
    """What the bytecode of one Python function shows.

    Attributes:
      name: what the user calls it.
      code: None where it is not made of bytecode (C functions).
      place: path, line and scope of its definition; None if it has none.
      writes: what it visibly writes beyond its own locals.
      random: it draws random numbers.
      clock: it reads the time.
    """

    name: str
    code: types.CodeType | None
    place: tuple[str, int, str] | None = None
    writes: tuple[str, ...] = ()
    random: bool = False
    clock: bool = False


@dataclass
class _Found:
    writes: dict[str, None] = field(default_factory=dict)
    random: bool = False
    clock: bool = False


@dataclass(frozen=True)
class _Seen:
    """Where a look has been, and the package of the function that it began at."""

    codes: frozenset[types.CodeType]
    package: str


def python_facts(function: Any) -> PythonFacts:
    """Facts of a Python callable; what is not the user's own code is taken as clean.

    Args:
      function: a function, a method, a partial, a class's instance with `__call__`, a C function.
    """
    name, code = places.function_name(function), places.code_of(function)
    found = _Found()
    inner, bound = _bound(function)
    if code is None:
        _judge_object(inner, found)
        _judge_bound_method(inner, found)
    elif places.is_user_file(code.co_filename):
        seen = _Seen(frozenset({code}), _package(inner))
        _judge(code, _names(inner, bound), frozenset(bound), found, _DEPTH, seen)
    return PythonFacts(name, code, places.definition_of(code), tuple(found.writes), found.random, found.clock)


def facts_of_code(name: str, code: types.CodeType | None, fixed: frozenset[str]) -> PythonFacts:
    """Facts of a function of which only the code is left.

    Args:
      fixed: names that stand for modules, functions and classes: `np.sort` mutates nothing of the user's.
    """
    if code is None or not places.is_user_file(code.co_filename):
        return PythonFacts(name, code, places.definition_of(code))
    found = _Found()

    def names(name: str) -> Any:
        return types.ModuleType(name) if name in fixed else vars(builtins).get(name)

    lasting = frozenset({"self"} & set(code.co_varnames[:1]))
    _judge(code, names, lasting, found, 0, _Seen(frozenset({code}), ""))
    return PythonFacts(name, code, places.definition_of(code), tuple(found.writes), found.random, found.clock)


def _judge(
    code: types.CodeType,
    names: Callable[[str], Any],
    lasting: frozenset[str],
    found: _Found,
    depth: int,
    seen: _Seen,
) -> None:
    """Adds what the code does; `names` gives the value of a name from outside, None if unknown."""
    touched = bytecode.scan(code, lasting)
    for write in touched.writes:
        words = _words(write, names)
        if words:
            found.writes[words] = None
    if touched.opens_to_write or touched.methods & bytecode.FILE_METHODS:
        found.writes["a file"] = None
    for path in touched.uses:
        owner, value = _resolve(path, names)
        if value is None:
            continue
        _judge_object(value, found)
        called = _followed(owner, value)
        if called is None or depth == 0:
            continue
        inner, bound = called
        if inner.__code__ not in seen.codes and _is_users(inner, seen.package):
            below = _Found()
            further = _Seen(seen.codes | {inner.__code__}, seen.package)
            _judge(inner.__code__, _names(inner, bound), frozenset(bound), below, depth - 1, further)
            found.writes.update(dict.fromkeys(f"{one} (in {inner.__name__})" for one in below.writes))
            found.random = found.random or below.random
            found.clock = found.clock or below.clock


def _package(function: Any) -> str:
    return str(getattr(function, "__module__", "")).split(".", 1)[0]


def _is_users(function: types.FunctionType, package: str) -> bool:
    """Whether a function is the user's own: no library's, or of the package that the user's function is of."""
    path = function.__code__.co_filename
    return places.is_user_file(path) and (_package(function) == package or not _is_library(path))


@functools.lru_cache(maxsize=1024)
def _is_library(path: str) -> bool:
    folders = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return any(path.startswith(folders[name] + os.sep) for name in names if name in folders)


def _words(write: Write, names: Callable[[str], Any]) -> str:
    """What is written, for people; "" if it is nothing that lasts."""
    path = write.path.removeprefix(bytecode.IMPORTED)
    if write.kind == "global":
        return f"the global {path}"
    if write.kind == "outer":
        return f"the outer variable {path}"
    if write.kind == "attribute":
        return f"the attribute {path}.{write.name}"
    if write.kind == "item":
        return f"the container {path}"
    _, value = _resolve(write.path, names)
    if write.name == "seed" and _is_random(value):
        return f"the random state of {path}"
    if isinstance(value, (*_CODE, *_IMMUTABLE[:-1])):
        return ""
    if value is None and isinstance(_resolve(write.path.split(".", 1)[0], names)[1], types.ModuleType):
        return ""  # a function or a class of a module that loads lazily
    return f"{path} by .{write.name}()"


def _judge_object(value: Any, found: _Found) -> None:
    """Adds what using a known object means: drawing, reading the time, writing."""
    if _is_random(value):
        # A module is named on the way to its functions, which tell more.
        found.random = found.random or not isinstance(value, types.ModuleType)
        return
    name = _qualified(value)
    if name in _CLOCKS:
        found.clock = True
    elif name in _CONSOLE:
        found.writes["the console"] = None
    elif name in _FILE_WRITERS:
        found.writes["a file"] = None
    elif name.startswith("logging.") or isinstance(getattr(value, "__self__", None), logging.Logger):
        if name.rsplit(".", 1)[-1] in _LOG_METHODS:
            found.writes["the log"] = None
    elif name.startswith(_PROCESSES) and callable(value):
        found.writes["other processes"] = None


def _judge_bound_method(value: Any, found: _Found) -> None:
    """A C method of a container given as the function: `py_function(seen.append, …)`."""
    target = getattr(value, "__self__", None)
    if isinstance(target, _CONTAINERS) and getattr(value, "__name__", "") in bytecode.MUTATORS:
        found.writes[f"a {type(target).__name__} by .{value.__name__}()"] = None


def _is_random(value: Any) -> bool:
    """Whether something draws random numbers: a generator, a method of one, a function of a random module."""
    if value is None:
        return False
    owner = getattr(value, "__self__", None) if callable(value) else None
    for one in (value, owner):
        kind = type(one)
        if isinstance(one, random.Random) or (
            kind.__module__.startswith("numpy.random") and kind.__name__ in ("Generator", "RandomState")
        ):
            return True
    if isinstance(value, types.ModuleType):
        return value.__name__ in _RANDOM_MODULES
    name = _qualified(value)
    return name in _RANDOM or name.startswith(_RANDOM_FUNCTIONS)


def _qualified(value: Any) -> str:
    """ "time.perf_counter", as the standard library and NumPy name it; "" for what is no function."""
    if not isinstance(
        value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
    ) and not (callable(value) and hasattr(value, "__name__")):
        return ""
    module = getattr(value, "__module__", None)
    owner = getattr(value, "__self__", None)
    if module is None and isinstance(owner, type):  # datetime.now is a method of a class in C
        return f"{owner.__module__}.{owner.__qualname__}.{value.__name__}"
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "")
    module = {"posix": "os", "nt": "os", "_pickle": "pickle", "_warnings": "warnings"}.get(
        str(module), str(module)
    )
    if module == "json":
        return f"json.{name}"
    return f"{module}.{name}"


def _followed(owner: Any, value: Any) -> tuple[types.FunctionType, dict[str, Any]] | None:
    """The Python function behind a value that is called, and what its parameters are bound to."""
    if isinstance(value, types.FunctionType) and owner is not None and not isinstance(owner, _CODE):
        method: types.FunctionType = value
        parameters = method.__code__.co_varnames[:1]
        if getattr(type(owner), method.__name__, None) is method and parameters:
            return method, {**_mutable_defaults(method), parameters[0]: owner}
    calls = isinstance(type(value).__dict__.get("__call__"), types.FunctionType)
    if calls or isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
        inner, bound = _bound(value)
        if isinstance(inner, types.FunctionType):
            return inner, bound
    return None


def _bound(function: Any) -> tuple[Any, dict[str, Any]]:
    """The innermost function of a callable, and the parameters whose values outlive a call."""
    function, positional, keywords = places.unwrap_bound(function)
    if not hasattr(function, "__code__") and not isinstance(function, type):
        call = type(function).__dict__.get("__call__")
        if isinstance(call, types.FunctionType):
            positional = [function, *positional]
            function = call
    if not isinstance(function, types.FunctionType):
        return function, {}
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    bound = {**_mutable_defaults(function), **dict(zip(names, positional, strict=False)), **keywords}
    return function, bound


def _mutable_defaults(function: types.FunctionType) -> dict[str, Any]:
    """Parameters whose default is a container: one for all calls."""
    code = function.__code__
    defaults = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    every = {**dict(zip(names, defaults, strict=True)), **(function.__kwdefaults__ or {})}
    return {name: value for name, value in every.items() if isinstance(value, _CONTAINERS)}


def _names(function: types.FunctionType, bound: Mapping[str, Any]) -> Callable[[str], Any]:
    """What the names of a function's code stand for, None if unknown."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    scope = function.__globals__

    def value_of(name: str) -> Any:
        if name in bound:
            return bound[name]
        if name in cells:
            try:
                return cells[name].cell_contents
            except ValueError:  # not assigned yet
                return None
        return scope[name] if name in scope else vars(builtins).get(name)

    return value_of


def _resolve(path: str, names: Callable[[str], Any]) -> tuple[Any, Any]:
    """(owner, value) of a chain of attributes; None for what cannot be told without running code."""
    if path.startswith(bytecode.IMPORTED):
        root, *attributes = path.removeprefix(bytecode.IMPORTED).split(".")
        value: Any = sys.modules.get(root)
    else:
        root, *attributes = path.split(".")
        value = names(root)
    owner = None
    for attribute in attributes:
        if value is None:
            return None, None
        owner, value = value, next(_attribute(value, attribute), None)
    return owner, value


def _attribute(owner: Any, name: str) -> Iterator[Any]:
    """The value of an attribute, as far as dictionaries tell: no property and no descriptor is run."""
    if isinstance(owner, types.ModuleType):
        if name in vars(owner):
            yield vars(owner)[name]
        return
    kind = owner if isinstance(owner, type) else type(owner)
    if not isinstance(owner, type):
        try:
            own = object.__getattribute__(owner, "__dict__")
        except AttributeError:
            own = {}
        if isinstance(own, dict) and name in own:
            yield own[name]
    if kind.__module__ in _PLAIN_MODULES or kind.__module__.startswith("numpy.random"):
        yield getattr(owner, name, None)  # classes that are known to run nothing
        return
    for base in kind.__mro__:
        if name in base.__dict__:
            value = base.__dict__[name]
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            if not isinstance(value, property):
                yield value
            return
