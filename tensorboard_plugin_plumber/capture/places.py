"""From a stack of frames to the line of the user's that built a dataset.

Walking the stack is done when a dataset is built and must be cheap (some 20 µs): frames are told
apart by their file's name alone, remembered in a table. Everything that can wait, the exact line
in a chain of calls over several lines, waits until somebody asks (`Call.line`).
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import os
import re
import sys
import threading
import types
from dataclasses import dataclass
from typing import Any

_USER, _TENSORFLOW, _TF_DATA, _LIBRARY, _GENERATED, _PLUMBER = range(6)
# tf.distribute puts operators of its own around the user's pipeline.
_DISTRIBUTE = os.sep + os.path.join("tensorflow", "python", "distribute") + os.sep
_AUTOGRAPH = os.sep + os.path.join("tensorflow", "python", "autograph") + os.sep
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# The demo's training script plays the user; the rest of the package is Plumber.
_DEMO = os.path.join(_HERE, "demo") + os.sep
_kinds: dict[str, int] = {}


@dataclass(frozen=True)
class Call:
    """A call in the user's code, resolved to a line only when asked."""

    code: types.CodeType
    # Index of the instruction, as `frame.f_lasti`.
    instruction: int
    # Line that the interpreter reports for the frame.
    frame_line: int
    # The method called there: "map".
    method: str
    # Autograph runs a converted copy: the place in the user's own file, if known.
    origin: tuple[str, int, str] | None = None

    @property
    def path(self) -> str:
        """Absolute path, as Python reports it."""
        return self.origin[0] if self.origin else self.code.co_filename

    @property
    def scope(self) -> str:
        """Name of the function that contains the line."""
        return self.origin[2] if self.origin else self.code.co_name

    @property
    def line(self) -> int:
        """Line of the method's name at the call, from 1."""
        return _line_of(self)


def locate(frame: types.FrameType | None) -> tuple[str, Call | None, tuple[str, int] | None]:
    """Walks up from inside tf.data.

    Returns:
      The name of the tf.data entry point; the user's call (None if no user frame is on the stack);
      the file and instruction that called the entry point, whoever's code that is.
    """
    method = called = ""
    site: tuple[str, int] | None = None
    inside = True
    while frame is not None:
        code = frame.f_code
        kind = _kind(code.co_filename)
        if kind == _PLUMBER:  # what it wraps of TensorFlow's
            frame = frame.f_back
            continue
        if inside:
            if kind == _TF_DATA:
                if code.co_name == "wrapper_helper" and _is_given(frame.f_locals.get("self")):
                    # A body of the user's that is itself TensorFlow's: interleave(tf.data.TFRecordDataset).
                    inside = False
                    site = (code.co_filename, frame.f_lasti)
                else:
                    called = code.co_name
                    method = _applied(frame, method) if called == "apply" else called
            elif kind != _TENSORFLOW or _DISTRIBUTE in code.co_filename:
                inside = False
                site = (code.co_filename, frame.f_lasti)
        if kind in (_USER, _GENERATED):
            origin = None
            if kind == _GENERATED:
                origin = _origin(code.co_filename, frame.f_lineno)
                if origin is None or _kind(origin[0]) != _USER:
                    frame = frame.f_back
                    continue
            call = Call(code, frame.f_lasti, frame.f_lineno, _public(called), origin)
            return _public(method), call, site
        frame = frame.f_back
    return _public(method), None, site


def called_directly(frame: types.FrameType | None, method: str) -> Call | None:
    """The user's call of a method of a dataset; None where it is TensorFlow, a library or Plumber that calls it.

    Args:
      frame: the caller's.
      method: its name.
    """
    while frame is not None:
        code = frame.f_code
        kind = _kind(code.co_filename)
        if kind == _USER:
            return Call(code, frame.f_lasti, frame.f_lineno, method)
        if kind == _GENERATED:
            origin = _origin(code.co_filename, frame.f_lineno)
            of_user = origin is not None and _kind(origin[0]) == _USER
            return Call(code, frame.f_lasti, frame.f_lineno, method, origin) if of_user else None
        # Between the two stand only autograph, and the methods of TensorFlow 1's class of the same name.
        same = kind == _TF_DATA and code.co_name == method
        if not (same or (kind == _TENSORFLOW and _AUTOGRAPH in code.co_filename)):
            return None
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=1024)
def _public(name: str) -> str:
    """The name by which people know an entry point: "sample_from_datasets_v2" -> "sample_from_datasets"."""
    # Autograph has its own entry for Python's `enumerate(dataset)`, `zip(…)` and the like.
    return re.sub(r"_?[vV]\d$", "", name.removeprefix("_tf_ag_dataset_"))


def _applied(frame: types.FrameType, inner: str) -> str:
    """What `apply` was asked to do where that is TensorFlow's own: "unique", "copy_to_device"; else what is inside."""
    given: Any = frame.f_locals.get("transformation_func")
    code = getattr(given, "__code__", None)
    if code is None or _kind(code.co_filename) != _TF_DATA:
        return inner or "apply"
    name: str = given.__qualname__
    return name.split(".", 1)[0].lstrip("_")


def _is_given(wrapper: Any) -> bool:
    """Whether the function being traced was given by the user, not nested in TensorFlow's own code."""
    function = getattr(wrapper, "_func", None)
    return not (isinstance(function, types.FunctionType) and "<locals>" in function.__qualname__)


def is_generated(code: types.CodeType | None) -> bool:
    """Whether autograph wrote the code."""
    return code is not None and _kind(code.co_filename) == _GENERATED


def is_tensorflow_file(path: str) -> bool:
    """Whether a file is TensorFlow's own."""
    return _kind(path) in (_TENSORFLOW, _TF_DATA)


def is_user_file(path: str) -> bool:
    """Whether a file is neither TensorFlow's, nor Keras's, nor Plumber's."""
    return _kind(path) == _USER


def code_of(function: Any) -> types.CodeType | None:
    """The Python code behind a callable: functions, methods, partials, wrapped ones, objects with __call__."""
    function = unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None and function is not None and not isinstance(function, type):
        code = getattr(type(function).__dict__.get("__call__"), "__code__", None)
    return code if isinstance(code, types.CodeType) else None


def unwrap(function: Any) -> Any:
    """The innermost function behind partials, bound methods, tf.function and functools.wraps."""
    return unwrap_bound(function)[0]


def unwrap_bound(function: Any) -> tuple[Any, list[Any], dict[str, Any]]:
    """What `unwrap` finds, and the arguments that it is bound to on the way: by position, and by name."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for _ in range(16):
        if isinstance(function, functools.partial):
            positional = [*function.args, *positional]
            keywords = {**function.keywords, **keywords}
            function = function.func
        elif isinstance(function, types.MethodType):
            positional = [function.__self__, *positional]
            function = function.__func__
        elif hasattr(function, "python_function"):
            function = function.python_function
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            break
    return function, positional, keywords


def function_name(function: Any) -> str:
    """What the user calls the function: "decode", "<lambda>", or the class of a callable object."""
    function = unwrap(function)
    name = getattr(function, "__name__", None)
    if isinstance(function, type):
        name = re.sub(r"V\d+$", "", function.__name__)  # tf.data.TFRecordDataset is TFRecordDatasetV2
    return name if isinstance(name, str) else type(function).__name__


def definition_of(code: types.CodeType | None) -> tuple[str, int, str] | None:
    """Path, line and name of a function's definition in the user's own file; None if it is not the user's.

    While autograph traces, code that it generated is traced back.
    """
    if code is None:
        return None
    kind = _kind(code.co_filename)
    if kind == _USER:
        return code.co_filename, code.co_firstlineno, code.co_name
    if kind == _GENERATED:
        origin = _origin(code.co_filename, code.co_firstlineno)
        if origin is not None and _kind(origin[0]) == _USER:
            return origin[0], origin[1], code.co_name
    return None


def fixed_names(function: Any, code: types.CodeType | None) -> frozenset[str]:
    """Names in a function's code that stand for modules, functions or classes of its module."""
    scope = getattr(unwrap(function), "__globals__", None)
    if code is None or not isinstance(scope, dict):
        return frozenset()
    fixed = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
    return frozenset(name for name in code.co_names if isinstance(scope.get(name), fixed))


def _kind(path: str) -> int:
    kind = _kinds.get(path)
    if kind is None:
        kind = _kinds[path] = _classify(path)
    return kind


def _classify(path: str) -> int:
    if "__autograph_generated_file" in path:
        return _GENERATED
    if path.startswith(_HERE) and not path.startswith(_DEMO):
        return _PLUMBER
    if path.startswith("<frozen "):
        return _LIBRARY
    for name in ("tensorflow", "keras", "tf_keras"):
        module = sys.modules.get(name)
        for folder in getattr(module, "__path__", ()) or ():
            if path.startswith(folder + os.sep):
                if name != "tensorflow":
                    return _LIBRARY
                inside = path[len(folder) :]
                return _TF_DATA if inside.startswith(f"{os.sep}python{os.sep}data{os.sep}") else _TENSORFLOW
    return _USER


def _origin(path: str, line: int) -> tuple[str, int, str] | None:
    """Autograph's own map from the generated file to the user's, valid while it traces."""
    from tensorflow.python.util import tf_stack

    stack = tf_stack._source_mapper_stacks.get(threading.get_ident())
    if not stack:
        return None
    found = stack[-1].get_effective_source_map().get((path, line))
    return None if found is None else (found[0], found[1], found[2] or "<lambda>")


@functools.lru_cache(maxsize=4096)
def _line_of(call: Call) -> int:
    if call.origin is not None:
        return _line_in_source(call, call.origin[0], call.origin[1])
    if sys.version_info >= (3, 11):
        return call.frame_line  # the interpreter reports the line of the method's name
    return _line_in_bytecode(call)


def _line_in_bytecode(call: Call) -> int:
    """Python 3.10 gives a call with keywords the line where its whole expression begins.

    The callee was pushed by the attribute access just below the call's arguments, and that access
    carries the line of the name: go back over the instructions until the stack is that low.
    """
    before = [one for one in dis.get_instructions(call.code) if one.offset <= call.instruction]
    if not before or not before[-1].opname.startswith("CALL"):
        return call.frame_line
    last = before[-1]
    count = last.arg or 0
    wanted = {
        "CALL_FUNCTION_KW": count + 2,
        "CALL_FUNCTION": count + 1,
        "CALL_METHOD": count + 2,
        "CALL_FUNCTION_EX": 2 + (count & 1),
    }.get(last.opname)
    if wanted is None:
        return call.frame_line
    depth = 0
    lines = _lines_by_offset(call.code)
    for one in reversed(before[:-1]):
        depth += dis.stack_effect(one.opcode, one.arg, jump=False)
        if depth >= wanted:
            named = one.opname in ("LOAD_ATTR", "LOAD_METHOD")
            return lines.get(one.offset, call.frame_line) if named else call.frame_line
        if one.opname in ("LOAD_ATTR", "LOAD_METHOD") and one.argval == call.method and depth + 1 >= wanted:
            return lines.get(one.offset, call.frame_line)
    return call.frame_line


def _lines_by_offset(code: types.CodeType) -> dict[int, int]:
    lines: dict[int, int] = {}
    for start, end, line in code.co_lines():
        if line is not None:
            lines.update(dict.fromkeys(range(start, end, 2), line))
    return lines


def _line_in_source(call: Call, path: str, line: int) -> int:
    """The line of `.method(` in the user's statement at `line`.

    Autograph writes a chain of calls on one line; its calls of one name keep their order, so the
    k-th in the converted line is the k-th in the user's statement.
    """
    statement = _statement_at(path, line)
    if statement is None:
        return line
    found = [
        node.func
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == call.method
    ]
    found.sort(key=lambda one: (one.end_lineno or 0, one.end_col_offset or 0))
    lines = _lines_by_offset(call.code)
    rank = (
        sum(
            one.opname in ("LOAD_ATTR", "LOAD_METHOD")
            and one.argval == call.method
            and one.offset < call.instruction
            and lines.get(one.offset) == call.frame_line
            for one in dis.get_instructions(call.code)
        )
        - 1
    )
    if not 0 <= rank < len(found):
        # A call of a class stands where autograph says; a function under another name, at the statement.
        return line if call.method == "__init__" or hasattr(statement, "body") else statement.lineno
    return found[rank].end_lineno or line


def _statement_at(path: str, line: int) -> ast.stmt | None:
    """The innermost statement that spans a line."""
    tree = _parsed(path)
    spanning = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return min(spanning, key=lambda one: (one.end_lineno or one.lineno) - one.lineno, default=None)


@functools.lru_cache(maxsize=64)
def _parsed(path: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return None
