"""Edits of calls in Python source, made on the syntax tree: all that is not edited stays as it was written.

Importing this module loads LibCST.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

#: Stands in an edit's code for the module tf.data, by whatever name the file has it.
DATA_MODULE = "__tf_data__"
#: Position of the arguments that a plan sets, where they are given without their names.
_POSITIONS: Mapping[str, Mapping[str, int]] = {
    "map": {"num_parallel_calls": 1, "deterministic": 2, "use_unbounded_threadpool": 4},
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
        return _edited(source, edits)
    except cst.ParserSyntaxError as error:
        raise SyntaxError(str(error)) from error
    except RecursionError as error:
        raise CannotEdit("the file nests its calls too deeply") from error


def _edited(source: str, edits: Sequence[Edit]) -> str:
    module = cst.parse_module(source)
    if module.code != source:
        raise CannotEdit("the file cannot be written as it was read")
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    finder = _Finder()
    wrapper.visit(finder)
    chosen: dict[cst.Call, Edit] = {}
    for edit in edits:
        call = finder.call_at(edit.place)
        if call in chosen:
            raise CannotEdit("two changes meet at one call")
        chosen[call] = edit
    changed = wrapper.module.visit(_Editor(chosen, finder)).code
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's own code
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
        self._statement: list[cst.SimpleStatementLine] = []
        # The functions around what is visited, and for each import of tf.data its line, those around it, and its name.
        self._functions: list[cst.FunctionDef] = []
        self._imports: list[tuple[int, tuple[cst.FunctionDef, ...], str]] = []
        self._places: dict[cst.SimpleStatementLine, tuple[int, tuple[cst.FunctionDef, ...]]] = {}

    def call_at(self, place: Place) -> cst.Call:
        found = [
            (end, call)
            for line, method, end, call in self.calls
            if (line, method) == (place.line, place.method)
        ]
        if not found:
            raise CannotEdit(f"there is no call of {place.method} at line {place.line} any more")
        if len(found) < place.calls:
            raise CannotEdit(f"line {place.line} runs more than once for this pipeline")
        if len(found) != place.calls:
            raise CannotEdit(f"line {place.line} calls {place.method} {len(found)} times, not {place.calls}")
        return sorted(found, key=lambda one: one[0])[place.rank][1]

    def visit_Name(self, node: cst.Name) -> None:
        self.names.add(node.value)

    def data_module(self, statement: cst.SimpleStatementLine) -> str:
        """How the module tf.data is called where a statement stands.

        Raises:
          CannotEdit: it has no name there.
        """
        line, functions = self._places[statement]
        for imported, around, name in reversed(self._imports):
            # What a function imports is known only inside it; what the module imports, also in functions above it.
            if around == functions[: len(around)] and (imported < line or len(around) < len(functions)):
                return name
        raise CannotEdit("the file does not import tensorflow by name")

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._functions.append(node)

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self._functions.pop()

    def visit_Import(self, node: cst.Import) -> None:
        for alias in node.names:
            if alias.evaluated_name in ("tensorflow", "tensorflow.compat.v2"):
                self._note_import(node, f"{alias.evaluated_alias or alias.evaluated_name}.data")

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if isinstance(node.names, cst.ImportStar) or node.relative:
            return
        module = cst.helpers.get_full_name_for_node(node.module) if node.module is not None else None
        for alias in node.names:
            name = alias.evaluated_alias or alias.evaluated_name
            if (module, alias.evaluated_name) == ("tensorflow", "data"):
                self._note_import(node, name)
            elif (module, alias.evaluated_name) == ("tensorflow.compat", "v2"):
                self._note_import(node, f"{name}.data")

    def _note_import(self, node: cst.CSTNode, name: str) -> None:
        position: Any = self.get_metadata(PositionProvider, node)
        self._imports.append((position.start.line, tuple(self._functions), name))

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> None:
        position: Any = self.get_metadata(PositionProvider, node)
        self._places[node] = (position.start.line, tuple(self._functions))
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
            call = _with_argument(call, edit.place.method, name, self._named(original_node, value))
        appended = [self._named(original_node, code) for code in edit.appended]
        if edit.options:
            appended.append(f".with_options({self._options(original_node, edit.options)})")
        dot = updated_node.func.dot if isinstance(updated_node.func, cst.Attribute) else cst.Dot()
        for code in appended:
            call = _appended(call, code, dot)
        if appended and call.rpar:  # a chain's last call: its comment stands before the parenthesis
            behind = call.rpar[0].whitespace_before
            kept = _with_comment_first(call, behind, len(appended))
            if kept is not None:
                closing = call.rpar[0].with_changes(whitespace_before=_without_comment(behind))
                return kept.with_changes(rpar=(closing, *call.rpar[1:]))
        return call

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """A comment behind a call to which others were appended stays on the line of that call."""
        edit = self._chosen.get(original_node.value) if isinstance(original_node.value, cst.Call) else None
        if edit is None or not (edit.appended or edit.options):
            return updated_node
        behind = updated_node.dot.whitespace_before
        kept = _with_comment_first(
            cst.ensure_type(updated_node.value, cst.Call), behind, len(edit.appended) + bool(edit.options)
        )
        if kept is None:
            return updated_node
        dot = updated_node.dot.with_changes(whitespace_before=_without_comment(behind))
        return updated_node.with_changes(value=kept, dot=dot)

    def _named(self, call: cst.Call, code: str) -> str:
        """The code with the file's own name for tf.data."""
        if DATA_MODULE not in code:
            return code
        statement = self._finder.statements.get(call)
        if statement is None:
            raise CannotEdit("the call stands in the head of a compound statement")
        return code.replace(DATA_MODULE, self._finder.data_module(statement))

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
        name = next(one for one in _option_names() if one not in self._finder.names)
        self._finder.names.add(name)
        lines = [
            f"{name} = {self._finder.data_module(statement)}.Options()",
            *(f"{name}.{one}" for one in settings),
        ]
        self._before.setdefault(statement, []).extend(
            cst.ensure_type(cst.parse_statement(line), cst.SimpleStatementLine) for line in lines
        )
        return name


def _option_names() -> Iterator[str]:
    yield from ("options", "data_options")
    yield from (f"data_options_{i}" for i in itertools.count(2))


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


def _with_comment_first(
    call: cst.Call, behind: cst.BaseParenthesizableWhitespace, appended: int
) -> cst.Call | None:
    """The call with the comment of `behind` in front of the first of its `appended` last calls.

    None where there is no comment, or where the appended calls stand on the line of the call itself.
    """
    func = call.func
    if not isinstance(behind, cst.ParenthesizedWhitespace) or behind.first_line.comment is None:
        return None
    if not isinstance(func, cst.Attribute):
        return None
    if appended > 1:
        inner = _with_comment_first(cst.ensure_type(func.value, cst.Call), behind, appended - 1)
        return None if inner is None else call.with_changes(func=func.with_changes(value=inner))
    before = func.dot.whitespace_before
    if not isinstance(before, cst.ParenthesizedWhitespace):
        return None
    dot = func.dot.with_changes(whitespace_before=before.with_changes(first_line=behind.first_line))
    return call.with_changes(func=func.with_changes(dot=dot))


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
