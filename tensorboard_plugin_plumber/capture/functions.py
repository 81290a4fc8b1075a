"""What a user's function does, read from its traced graph.

Nothing is run. A traced function is walked through every function that it calls; each body is looked
at once. Python that it runs (`py_function`, `numpy_function`) is judged by `python_functions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tensorflow.python.framework import dtypes, op_def_registry, tensor_util

from tensorboard_plugin_plumber.capture import places
from tensorboard_plugin_plumber.capture.operations import kind_of, takes_parts
from tensorboard_plugin_plumber.capture.python_functions import PythonFacts, python_facts


@dataclass(frozen=True)
class DatasetDraw:
    """A random dataset made inside a function; a new one for each call.

    Attributes:
      op: "ShuffleDatasetV3".
      seeded: a seed decides all of its draws, so that each new one draws the same.
    """

    op: str
    seeded: bool


@dataclass(frozen=True)
class Facts:
    """What traced functions do, with all that they call. Names are those of TensorFlow's ops.

    Attributes:
      python: Python functions that they run for each call.
      random: ops that draw from a state of their own or of a generator.
      seeded: those of `random` whose draws a seed or a generator's state decides.
      generators: those of `random` that draw from a generator's state.
      stateless: ops that draw from a seed that is their input.
      fed: some seed of `stateless` depends on an argument of the function.
      datasets: random datasets that are made inside.
      graph_writes: what their ops write, in words.
      reads_variables, reads_tables: they read some that may change.
      clocks: ops that read the time.
      unknown: stateful ops that are on no list.
      stateful: they hold ops that TensorFlow calls stateful.
      may_wait: they hold ops that may wait for something else than a core.
      telling: ops that tell what they are for: decoding, cropping, resizing, padding, parsing, casts from integers
        to floats ("CastToFloat").
      takes_parts: their results are parts of their arguments, changed element by element at most.
    """

    python: tuple[PythonFacts, ...] = ()
    random: tuple[str, ...] = ()
    seeded: tuple[str, ...] = ()
    generators: tuple[str, ...] = ()
    stateless: tuple[str, ...] = ()
    fed: bool = False
    datasets: tuple[DatasetDraw, ...] = ()
    graph_writes: tuple[str, ...] = ()
    reads_variables: bool = False
    reads_tables: bool = False
    clocks: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    stateful: bool = False
    may_wait: bool = False
    telling: tuple[str, ...] = ()
    takes_parts: bool = False

    @property
    def writes(self) -> tuple[str, ...]:
        """What their ops and the Python functions write, in words."""
        in_python = (what for one in self.python for what in one.writes)
        return tuple(dict.fromkeys((*self.graph_writes, *in_python)))

    @property
    def draws(self) -> bool:
        """It draws random numbers that nothing it is given decides."""
        return bool(self.random or self.datasets or (self.stateless and self.graph_writes))

    @property
    def all_seeded(self) -> bool:
        """It draws from states, and seeds decide all of that."""
        return bool(self.random) and len(self.random) == len(self.seeded)


class Library:
    """The traced functions of one serialised dataset.

    Args:
      functions: by library name, `FunctionDef`s.
      claimed: (function, node) of the datasets in function bodies that are operators of their own,
        whose functions are not part of what the function around them does.
    """

    def __init__(
        self, functions: Mapping[str, Any], claimed: frozenset[tuple[str, str]] = frozenset()
    ) -> None:
        self._functions = functions
        self._claimed = claimed
        self._bodies: dict[str, _Body] = {}

    def facts(self, names: Iterable[str], *, whole: bool = False) -> Facts:
        """What the named functions do.

        Args:
          whole: claimed datasets inside them count as part of them.
        """
        bodies = [body for body in self._walk(list(names), whole) if body is not _PLAIN]
        facts = [body.whole if whole else body.own for body in bodies]
        if not facts:
            return Facts()
        return facts[0] if len(facts) == 1 else _union(facts)

    def _walk(self, todo: list[str], whole: bool) -> list[_Body]:
        found: dict[str, _Body] = {}
        while todo:
            name = todo.pop()
            if name in found or name not in self._functions:
                continue
            body = found[name] = self._body(name)
            todo += body.calls
            if whole:
                todo += body.claimed_calls
        return list(found.values())

    def _body(self, name: str) -> _Body:
        if name not in self._bodies:
            self._bodies[name] = _look(self._functions[name], self._claimed)
        return self._bodies[name]


@dataclass(frozen=True)
class _Body:
    """One function body: what it does itself, and what it calls."""

    own: Facts
    # With the claimed datasets in it.
    whole: Facts
    calls: tuple[str, ...]
    # Functions of claimed datasets.
    claimed_calls: tuple[str, ...]


_PLAIN = _Body(Facts(), Facts(), (), ())


def _union(facts: list[Facts]) -> Facts:
    def every(name: str) -> tuple[Any, ...]:
        return tuple(one for each in facts for one in getattr(each, name))

    return Facts(
        python=every("python"),
        random=every("random"),
        seeded=every("seeded"),
        generators=every("generators"),
        stateless=every("stateless"),
        fed=any(one.fed for one in facts),
        datasets=every("datasets"),
        graph_writes=tuple(dict.fromkeys(every("graph_writes"))),
        reads_variables=any(one.reads_variables for one in facts),
        reads_tables=any(one.reads_tables for one in facts),
        clocks=tuple(dict.fromkeys(every("clocks"))),
        unknown=tuple(dict.fromkeys(every("unknown"))),
        stateful=any(one.stateful for one in facts),
        may_wait=any(one.may_wait for one in facts),
        telling=tuple(dict.fromkeys(every("telling"))),
        takes_parts=any(one.takes_parts for one in facts),
    )


def _look(function: Any, claimed: frozenset[tuple[str, str]]) -> _Body:
    """Looks through one function body once."""
    name = function.signature.name
    python: list[PythonFacts] = []
    random: list[str] = []
    seeded: list[str] = []
    generators: list[str] = []
    stateless: list[Any] = []
    datasets: list[DatasetDraw] = []
    claimed_datasets: list[DatasetDraw] = []
    clocks: list[str] = []
    writes: list[str] = []
    unknown: list[str] = []
    calls: list[str] = []
    claimed_calls: list[str] = []
    telling: list[str] = []
    variables = tables = stateful = waits = False
    hands_on_parts = takes_parts([node.op for node in function.node_def])
    nodes = [node for node in function.node_def if not kind_of(node.op).plain]
    if not nodes:
        return _Body(Facts(takes_parts=True), Facts(takes_parts=True), (), ()) if hands_on_parts else _PLAIN
    for node in nodes:
        op = node.op
        kind = kind_of(op)
        is_claimed = kind.dataset and (name, node.name) in claimed
        if kind.calls or kind.list_calls:
            into = claimed_calls if is_claimed else calls
            into += [node.attr[one].func.name for one in kind.calls if one in node.attr]
            into += [each.name for one in kind.list_calls for each in node.attr[one].list.func]
        elif op_def_registry.get(op) is None:
            calls.append(op)  # a call by the function's own name
        if kind.random_dataset:
            draw = DatasetDraw(op, _is_seeded_dataset(node, function))
            (claimed_datasets if is_claimed else datasets).append(draw)
        if kind.python:
            python.append(_python_function(node))
        if kind.random:
            random.append(op)
            if kind.generator:
                generators.append(op)
            if kind.generator or any(node.attr[one].i for one in ("seed", "seed2") if one in node.attr):
                seeded.append(op)
        if kind.stateless:
            stateless.append(node)
        if kind.writes:
            writes.append(kind.writes)
        if kind.clock:
            clocks.append(op)
        if kind.unknown:
            unknown.append(op)
        if kind.telling:
            telling.append(kind.telling)
        if kind.cast and _widens_to_float(node):
            telling.append("CastToFloat")
        variables = variables or kind.reads_variable
        tables = tables or kind.reads_table
        stateful = stateful or kind.stateful
        waits = waits or kind.waits
    own = Facts(
        tuple(python),
        tuple(random),
        tuple(seeded),
        tuple(generators),
        tuple(node.op for node in stateless),
        bool(stateless) and _is_fed(function, stateless),
        tuple(datasets),
        tuple(dict.fromkeys(writes)),
        variables,
        tables,
        tuple(dict.fromkeys(clocks)),
        tuple(dict.fromkeys(unknown)),
        stateful,
        waits,
        tuple(dict.fromkeys(telling)),
        hands_on_parts,
    )
    whole = own if not claimed_datasets else _union([own, Facts(datasets=tuple(claimed_datasets))])
    return _Body(own, whole, tuple(calls), tuple(claimed_calls))


def _widens_to_float(node: Any) -> bool:
    source, target = (dtypes.as_dtype(node.attr[name].type) for name in ("SrcT", "DstT"))
    return bool(source.is_integer and target.is_floating and target.size > source.size)


def _python_function(node: Any) -> PythonFacts:
    """Facts of the Python function behind a py_function or numpy_function node."""
    function = python_behind(node)
    return PythonFacts("a Python function", None) if function is None else python_facts(function)


def python_behind(node: Any) -> Any:
    """The Python function that a py_function or numpy_function node calls; None if it is gone."""
    from tensorflow.python.ops import script_ops

    token = node.attr["token"].s.decode(errors="replace")
    function = script_ops._py_funcs.get(token)
    return _given(getattr(function, "_func", function))


def _given(function: Any) -> Any:
    """What the user gave: TensorFlow wraps what is neither a function nor a method without a trace."""
    code = getattr(function, "__code__", None)
    if code is None or not places.is_tensorflow_file(code.co_filename) or "func" not in code.co_freevars:
        return function
    return function.__closure__[code.co_freevars.index("func")].cell_contents


def _is_fed(function: Any, nodes: list[Any]) -> bool:
    """Whether a seed of stateless draws depends on an argument: on the element, or on what was captured."""
    by_name = {node.name: node for node in function.node_def}
    todo = [one for node in nodes for one in node.input[1:]]  # the first is the shape
    seen = set()
    while todo:
        name = todo.pop().split(":", 1)[0].lstrip("^")
        if name in seen:
            continue
        seen.add(name)
        if name not in by_name:
            return True
        todo += by_name[name].input
    return False


def _is_seeded_dataset(node: Any, function: Any) -> bool:
    """Whether a random dataset in a function body has a seed; one that is computed counts as one."""
    definition = op_def_registry.get(node.op)
    if definition is None:
        return False
    names = [one.name for one in definition.input_arg]
    by_name = {one.name: one for one in function.node_def}
    for argument in ("seed", "seed2"):
        if argument in names and names.index(argument) < len(node.input):
            producer = by_name.get(node.input[names.index(argument)].split(":", 1)[0])
            if producer is None or producer.op != "Const":
                return True
            if tensor_util.MakeNdarray(producer.attr["value"].tensor).any():
                return True
    return False
