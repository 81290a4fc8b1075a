"""What holds of each operator's output: randomness, side effects, Python, state, endlessness.

An operator has facts of its own, from its kind and from what its functions do. What holds of its
output is the union of all that stands below it, changed on the way: a cache hands on the outcome of
randomness but draws no more, a take ends what never ends, and a seed that starts again with each
iterator goes on under a repeat (docs/model.md, "Randomness and epochs").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tensorboard_plugin_plumber.capture import graphs, places
from tensorboard_plugin_plumber.capture.functions import Facts, Library
from tensorboard_plugin_plumber.capture.graphs import Node
from tensorboard_plugin_plumber.capture.python_functions import PythonFacts, facts_of_code, python_facts
from tensorboard_plugin_plumber.capture.randomness import (
    as_random_as,
    frozen,
    random_dataset_fact,
    random_facts,
    shuffle_fact,
)
from tensorboard_plugin_plumber.capture.reasons import (
    Edge,
    Epochs,
    Fact,
    Place,
    describe_operator,
    function_place,
    is_enclosed,
    place_of_call,
)
from tensorboard_plugin_plumber.capture.written import Written
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

INFINITE = -1
_SHUFFLES = ("ShuffleDataset", "ShuffleAndRepeatDataset")
_REPEATS = ("RepeatDataset", "ShuffleAndRepeatDataset")
_ENDLESS_SOURCES = frozenset({"Counter", "RandomDataset", "Random"})
# They end with the first of their inputs that ends.
_END_TOGETHER = frozenset({"ZipDataset", "DirectedInterleaveDataset"})
# Inputs that hold what functions have captured.
_CAPTURES = (
    "other_arguments",
    "key_func_other_arguments",
    "reduce_func_other_arguments",
    "window_size_func_other_arguments",
    "init_func_other_arguments",
    "finalize_func_other_arguments",
)
_MUTABLE_TABLES = ("MutableHashTable", "MutableDenseHashTable", "AnonymousMutable")
_STATIC_TABLES = ("HashTable", "AnonymousHashTable")


class PipelineFacts:
    """The facts of a whole pipeline.

    Args:
      root: the user's last operator.
      functions: the function library of the written graph.
      cardinalities: elements of one pass of each operator's output by its id, as `m.Operator` has them.
    """

    def __init__(self, root: Written, functions: Mapping[str, Any], cardinalities: Mapping[str, int]) -> None:
        operators = list(root.walk())
        claimed = frozenset(
            (node.function, node.name) for one in operators for node in one.nodes if node.function
        )
        self._library = Library(functions, claimed)
        self._cardinalities = cardinalities
        self._functions = {id(one): self._library.facts(_names(one)) for one in operators}
        self._captured = {id(one): _captured_variables(one) for one in operators}
        self._written_variables = self._writers("a variable")
        self._tables_are_written = any("a table" in one.graph_writes for one in self._functions.values())
        self._own: dict[int, tuple[Fact, ...]] = {}
        for one in operators:
            self._own[id(one)] = () if one.foreign else tuple(self._own_facts(one))
        self.edges: dict[str, Edge] = {}
        self._flow(root, repeated=False)

    def own(self, operator: Written) -> tuple[Fact, ...]:
        """What the operator itself is the reason of, but endlessness that only its elements' count tells."""
        return self._own[id(operator)]

    def whole(self, operator: Written) -> Facts:
        """What the operator's functions do, with the datasets that they build."""
        return self._library.facts(_names(operator), whole=True)

    def _flow(self, operator: Written, *, repeated: bool) -> tuple[Fact, ...]:
        begins_again = repeated or _repeats(operator)
        inputs = [self._flow(child, repeated=begins_again) for child in operator.children]
        below = tuple(dict.fromkeys(fact for facts in inputs for fact in facts))
        if freezes(operator):
            below = tuple(frozen(fact, operator) for fact in below if fact.kind in _OUTLIVE_A_CACHE)
        own = tuple(as_random_as(fact, below) for fact in self.own(operator))
        facts = (*own, *below)
        ends = self._cardinalities.get(operator.id, 0 if operator.foreign else -2)
        if not operator.foreign:
            if ends >= 0 or self._ends(operator, inputs):
                facts = tuple(fact for fact in facts if fact.kind != m.FACT_INFINITE)
            elif ends == INFINITE and all(fact.kind != m.FACT_INFINITE for fact in facts):
                facts = (_endless(operator), *facts)
            self.edges[operator.id] = Edge(facts, repeated)
        return facts

    def _ends(self, operator: Written, inputs: list[tuple[Fact, ...]]) -> bool:
        """Whether an operator may end although something below it does not."""
        base = graphs.base_op(operator.head.op)
        if base == "TakeWhileDataset":
            return True
        if base == "TakeDataset":
            count = operator.head.constant("count")
            return isinstance(count, int) and count >= 0
        if base in _END_TOGETHER and self._cardinalities.get(operator.id) != INFINITE:
            return not all(any(fact.kind == m.FACT_INFINITE for fact in facts) for facts in inputs)
        return False

    def _own_facts(self, operator: Written) -> Iterator[Fact]:
        call = place_of_call(operator)
        for node in operator.nodes:
            yield from _dataset_facts(node, operator, call)
        if _never_ends(operator):
            yield _endless(operator)
        found = self._functions[id(operator)]
        place = function_place(operator) or call
        yield from self._function_facts(operator, found, place)
        for one in python_of(operator, found):
            yield from _python_facts(one, operator, one.place or place)

    def _function_facts(self, operator: Written, found: Facts, place: Place | None) -> Iterator[Fact]:
        """Of what the operator's traced functions do by TensorFlow's own ops."""
        yield from random_facts(operator, found, place)
        writes = [one for one in found.graph_writes if one != _GENERATOR_STATE]
        if writes:
            words = f"writes {', '.join(writes)}"
            yield Fact(m.FACT_SIDE_EFFECT, words, operator, place, uncacheable=words, sequential=words)
        if found.reads_variables:
            yield self._variable_fact(operator, place)
        if found.reads_tables and not _only_static_tables(operator):
            if self._tables_are_written:
                words = "reads a table that the pipeline writes"
                yield Fact(m.FACT_STATE, words, operator, place, uncacheable=words)
            else:
                reserve = "assumes that the tables its function reads do not change"
                yield Fact(m.FACT_STATE, "reads a table that may change", operator, place, reserve=reserve)
        if found.clocks:
            words = f"reads the clock ({', '.join(found.clocks)})"
            yield Fact(m.FACT_STATE, words, operator, place, uncacheable=words)
        if found.unknown:
            words = f"holds state that is not understood ({', '.join(found.unknown)})"
            yield Fact(m.FACT_STATE, words, operator, place, uncacheable=words, sequential=words)

    def _variable_fact(self, operator: Written, place: Place | None) -> Fact:
        captured = self._captured[id(operator)]
        trained = [one for one in captured.values() if getattr(one, "trainable", False)]
        if trained:
            words = f"reads variables that training changes ({_variable_names(trained)})"
            return Fact(m.FACT_STATE, words, operator, place, uncacheable=words)
        changed = [one for key, one in captured.items() if key in self._written_variables]
        if changed:
            words = f"reads variables that the pipeline writes ({_variable_names(changed)})"
            return Fact(m.FACT_STATE, words, operator, place, uncacheable=words)
        names = _variable_names(list(captured.values()))
        return Fact(
            m.FACT_STATE,
            f"reads variables ({names})" if names else "reads variables",
            operator,
            place,
            reserve="assumes that the variables its function reads do not change",
        )

    def _writers(self, what: str) -> frozenset[int]:
        """Ids of the variables that functions which write one have captured."""
        return frozenset(
            key
            for operator, found in self._functions.items()
            if what in found.graph_writes
            for key in self._captured[operator]
        )


_GENERATOR_STATE = "a random generator's state"
_OUTLIVE_A_CACHE = (m.FACT_RANDOM, m.FACT_INFINITE)


def _names(operator: Written) -> list[str]:
    return [name for node in operator.nodes for name in node.functions().values()]


def freezes(operator: Written) -> bool:
    """Whether the operator hands on in every epoch what it took in the first.

    A memory cache in a function body does not: each call of the function makes a new one.
    """
    for node in operator.nodes:
        base = graphs.base_op(node.op)
        if base == "SnapshotDataset":
            return True
        if base == "CacheDataset":
            return bool(node.constant("filename")) or not is_enclosed(operator)
    return False


def _repeats(operator: Written) -> bool:
    for node in operator.nodes[:1]:
        if graphs.base_op(node.op) in _REPEATS:
            return node.constant("count") not in (0, 1)
    return False


def _never_ends(operator: Written) -> bool:
    if operator.type in _ENDLESS_SOURCES:
        return True
    count = operator.head.constant("count") if graphs.base_op(operator.head.op) in _REPEATS else None
    return isinstance(count, int) and count < 0


def _endless(operator: Written) -> Fact:
    why = f"its input never ends ({describe_operator(operator)}), so that a cache would never be complete"
    return Fact(m.FACT_INFINITE, "never ends", operator, place_of_call(operator), uncacheable=why)


def _dataset_facts(node: Node, operator: Written, place: Place | None) -> Iterator[Fact]:
    """What holds by the kind of dataset alone."""
    base = graphs.base_op(node.op)
    if base in _SHUFFLES:
        yield shuffle_fact(node, operator, place)
    elif base in ("RandomDataset", "SamplingDataset"):
        yield random_dataset_fact(node, operator, place)
    elif "DataService" in base:
        words = "takes its elements from a tf.data service"
        yield Fact(m.FACT_STATE, words, operator, place, uncacheable=words)


def python_of(operator: Written, found: Facts) -> list[PythonFacts]:
    """The Python functions that an operator runs for each element; of a generator the user's own."""
    if operator.type != "Generator":
        return list(found.python)
    records = list(operator.functions.values())
    own = [one for one in records if one.code is None or not places.is_tensorflow_file(one.code.co_filename)]
    python = []
    for one in own:
        function = one.function() if one.function is not None else None
        python.append(
            facts_of_code(one.name, one.code, one.fixed) if function is None else python_facts(function)
        )
    return python or [PythonFacts("a generator", None)]


def _python_facts(one: PythonFacts, operator: Written, place: Place | None) -> Iterator[Fact]:
    purity = (
        "whose results may differ from epoch to epoch"
        if operator.type == "Generator"
        else "of unknown purity"
    )
    yield Fact(
        m.FACT_PYTHON,
        f"runs Python code ({one.name})",
        operator,
        place,
        uncacheable=f"runs Python code ({one.name}) {purity}",
    )
    if one.writes:
        words = f"writes {', '.join(one.writes)}"
        yield Fact(
            m.FACT_SIDE_EFFECT,
            f"{words} in Python ({one.name})",
            operator,
            place,
            uncacheable=words,
            sequential=words,
        )
    if one.random:
        words = f"draws random numbers in Python ({one.name})"
        yield Fact(
            m.FACT_RANDOM, words, operator, place, epochs=Epochs.ANOTHER, draws=True, uncacheable=words
        )
    if one.clock:
        words = f"reads the clock in Python ({one.name})"
        yield Fact(m.FACT_STATE, words, operator, place, uncacheable=words)


def _captured_variables(operator: Written) -> dict[int, Any]:
    """Variables that the operator's functions hold, by id; of one in a body, those of the operator around it."""
    one: Written | None = operator
    while one is not None and one.pair.dataset is None:
        one = one.parent
    found: dict[int, Any] = {}
    for value in list(getattr(one.pair.dataset, "__dict__", {}).values()) if one is not None else ():
        if type(value).__name__ != "StructuredFunctionWrapper":
            continue
        graph = getattr(getattr(value, "_function", None), "graph", None)
        try:
            variables = tuple(graph.variables) if graph is not None else ()
        except ReferenceError:  # the user has dropped one
            variables = ()
        found.update({id(variable): variable for variable in variables})
    return found


def _variable_names(variables: list[Any]) -> str:
    return ", ".join(str(getattr(one, "name", "")).split(":", 1)[0] for one in variables[:3])


def _only_static_tables(operator: Written) -> bool:
    """Whether all tables that an operator's functions hold are known never to change."""
    ops = [
        graphs.base_op(proto.op)
        for node in operator.nodes
        for argument in _CAPTURES
        for proto in node.inputs_named(argument)
        if proto is not None
    ]
    if any(op.startswith(_MUTABLE_TABLES) for op in ops):
        return False
    return any(op.startswith(_STATIC_TABLES) for op in ops)
