"""Edits of calls in Python source, made on the syntax tree: all that is not edited stays as it was written.

Importing this module loads LibCST.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

#: Position of the arguments that a plan sets, where they are given without their names.
_POSITIONS: Mapping[str, Mapping[str, int]] = {
    "map": {"num_parallel_calls": 1, "deterministic": 2},
    "interleave": {"cycle_length": 1, "block_length": 2, "num_parallel_calls": 3, "deterministic": 4},
    "batch": {"num_parallel_calls": 2, "deterministic": 3},
    "prefetch": {"buffer_size": 0},
}


class CannotEdit(Exception):
    """The source cannot express the edit at this call; the message says why, as the end of a sentence."""


@dataclass(frozen=True)
class Place:
    """A call in a file.

    Attributes:
      line: of the method's name.
      method: "map", "TFRecordDataset".
      rank: which of the calls of this method on this line, the innermost first.
      calls: how many of them there must be.
    """

    line: int
    method: str
    rank: int = 0
    calls: int = 1


@dataclass(frozen=True)
class Edit:
    """What becomes of one call.

    Attributes:
      arguments: set to these values, as code.
      appended: calls to be made on its result, as code: ".cache()".
      options: settings of tf.data.Options for its result, as code: "threading.private_threadpool_size = 16".
    """

    place: Place
    arguments: Mapping[str, str] = field(default_factory=dict)
    appended: Sequence[str] = ()
    options: Sequence[str] = ()


def edited(source: str, edits: Sequence[Edit]) -> str:
    """The source with all of the edits.

    Raises:
      CannotEdit: one of them cannot be made; nothing is then.
      SyntaxError: the source is no Python that this version understands.
    """
    try:
        wrapper = MetadataWrapper(cst.parse_module(source))
    except cst.ParserSyntaxError as error:
        raise SyntaxError(str(error)) from error
    finder = _Finder()
    wrapper.visit(finder)
    chosen: dict[cst.Call, Edit] = {}
    for edit in edits:
        call = finder.call_at(edit.place)
        if call in chosen:
            raise CannotEdit("two changes meet at one call")
        chosen[call] = edit
    changed = wrapper.module.visit(_Editor(chosen, finder)).code
    compile(changed, "<patched>", "exec")
    return changed


class _Finder(cst.CSTVisitor):
    """Finds calls by the place of their names, and what tells how to set options."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[int, str, tuple[int, int], cst.Call]] = []
        self.statements: dict[cst.Call, cst.SimpleStatementLine] = {}
        self.names: set[str] = set()
        self.tensorflow: str | None = None
        self._statement: list[cst.SimpleStatementLine] = []

    def call_at(self, place: Place) -> cst.Call:
        found = [
            (end, call)
            for line, method, end, call in self.calls
            if (line, method) == (place.line, place.method)
        ]
        if not found:
            raise CannotEdit(f"there is no call of {place.method} at line {place.line} any more")
        if len(found) != place.calls:
            raise CannotEdit(f"line {place.line} calls {place.method} {len(found)} times, not {place.calls}")
        return sorted(found, key=lambda one: one[0])[place.rank][1]

    def visit_Name(self, node: cst.Name) -> None:
        self.names.add(node.value)

    def visit_Import(self, node: cst.Import) -> None:
        for alias in node.names:
            if alias.evaluated_name == "tensorflow":
                self.tensorflow = alias.evaluated_alias or "tensorflow"

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> None:
        self._statement.append(node)

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine) -> None:
        self._statement.pop()

    def visit_Call(self, node: cst.Call) -> None:
        name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
        if not isinstance(name, cst.Name):
            return
        begin: Any = self.get_metadata(PositionProvider, name)
        whole: Any = self.get_metadata(PositionProvider, node)
        end = (whole.end.line, whole.end.column)
        self.calls.append((begin.start.line, name.value, end, node))
        if self._statement:
            self.statements[node] = self._statement[-1]


class _Editor(cst.CSTTransformer):
    """Makes the edits at the calls that were chosen."""

    def __init__(self, chosen: Mapping[cst.Call, Edit], finder: _Finder) -> None:
        super().__init__()
        self._chosen = chosen
        self._finder = finder
        self._before: dict[cst.SimpleStatementLine, list[cst.SimpleStatementLine]] = {}

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        edit = self._chosen.get(original_node)
        if edit is None:
            return updated_node
        call: cst.Call = updated_node
        for name, value in edit.arguments.items():
            call = _with_argument(call, edit.place.method, name, value)
        appended = list(edit.appended)
        if edit.options:
            appended.append(f".with_options({self._options(original_node, edit.options)})")
        dot = updated_node.func.dot if isinstance(updated_node.func, cst.Attribute) else cst.Dot()
        for code in appended:
            call = _appended(call, code, dot)
        return call

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        before = self._before.get(original_node)
        if before is None:
            return updated_node
        first = before[0].with_changes(leading_lines=updated_node.leading_lines)
        return cst.FlattenSentinel([first, *before[1:], updated_node.with_changes(leading_lines=())])

    def _options(self, call: cst.Call, settings: Sequence[str]) -> str:
        """Writes the statements that make an options object, and returns its name."""
        statement = self._finder.statements.get(call)
        if statement is None:
            raise CannotEdit("the call stands in the head of a compound statement")
        if self._finder.tensorflow is None:
            raise CannotEdit("the file does not import tensorflow by name")
        name = next(
            one for one in ("options", "data_options", "plumber_options") if one not in self._finder.names
        )
        lines = [
            f"{name} = {self._finder.tensorflow}.data.Options()",
            *(f"{name}.{one}" for one in settings),
        ]
        self._before.setdefault(statement, []).extend(
            cst.ensure_type(cst.parse_statement(line), cst.SimpleStatementLine) for line in lines
        )
        return name


def _with_argument(call: cst.Call, method: str, name: str, value: str) -> cst.Call:
    """The call with an argument set, by its name or where it stands already."""
    if any(argument.star for argument in call.args):
        raise CannotEdit("the call takes its arguments from a variable")
    expression = cst.parse_expression(value)
    position = _POSITIONS.get(method, {}).get(name)
    if position is None:
        raise CannotEdit(f"{method} takes no {name}")
    arguments = list(call.args)
    for i, argument in enumerate(arguments):
        given = argument.keyword.value if argument.keyword is not None else None
        if given == name or (given is None and i == position):
            arguments[i] = argument.with_changes(value=expression)
            return call.with_changes(args=arguments)
    new = cst.Arg(
        expression,
        keyword=cst.Name(name),
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    if arguments:
        last = arguments[-1]
        between = _separator(call)
        if isinstance(last.comma, cst.Comma):
            end = last.comma.whitespace_after
            new = new.with_changes(comma=last.comma.with_changes(whitespace_after=_without_comment(end)))
        else:
            end = last.whitespace_after_arg
            new = new.with_changes(whitespace_after_arg=_without_comment(end))
        # A comment behind the last argument speaks of that one, and stays on its line.
        arguments[-1] = last.with_changes(
            comma=cst.Comma(whitespace_after=_with_comment_of(end, between)),
            whitespace_after_arg=cst.SimpleWhitespace(""),
        )
    return call.with_changes(args=[*arguments, new])


def _separator(call: cst.Call) -> cst.BaseParenthesizableWhitespace:
    """What follows the commas between arguments in this call."""
    if len(call.args) > 1:
        comma = call.args[-2].comma
        if isinstance(comma, cst.Comma):
            return _without_comment(comma.whitespace_after)
    if isinstance(call.whitespace_before_args, cst.ParenthesizedWhitespace):  # each on a line of its own
        return _without_comment(call.whitespace_before_args)
    return cst.SimpleWhitespace(" ")


def _without_comment(space: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    return space.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=())


def _with_comment_of(
    space: cst.BaseParenthesizableWhitespace, layout: cst.BaseParenthesizableWhitespace
) -> cst.BaseParenthesizableWhitespace:
    """The layout, with the comments that `space` holds."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return layout
    if not isinstance(layout, cst.ParenthesizedWhitespace):
        return space if space.first_line.comment or space.empty_lines else layout
    return layout.with_changes(first_line=space.first_line, empty_lines=space.empty_lines)


def _appended(call: cst.Call, code: str, dot: cst.Dot) -> cst.Call:
    """The call with another behind it, on a line of its own where the call itself has one."""
    parsed = cst.ensure_type(cst.parse_expression(f"x{code}"), cst.Call)
    attribute = cst.ensure_type(parsed.func, cst.Attribute)
    layout = dot.with_changes(whitespace_before=_without_comment(dot.whitespace_before))
    # Parentheses around the call, as around a chain over several lines, go around the longer one.
    inner = call.with_changes(lpar=(), rpar=())
    return parsed.with_changes(
        func=attribute.with_changes(value=inner, dot=layout), lpar=call.lpar, rpar=call.rpar
    )
