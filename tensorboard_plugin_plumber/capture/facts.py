"""What holds of each operator's output: randomness, side effects, Python, state, endlessness.

An operator has facts of its own, from its kind and from what its functions do. What holds of its
output is the union of all that stands below it, changed on the way: a cache hands on the outcome of
randomness but draws no more, a take ends what never ends, and a seed that starts again with each
iterator goes on under a repeat (docs/model.md, "Randomness and epochs").
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tensorboard_plugin_plumber.capture import graphs, places
from tensorboard_plugin_plumber.capture.functions import Facts, Library
from tensorboard_plugin_plumber.capture.graphs import Node
from tensorboard_plugin_plumber.capture.python_functions import PythonFacts, facts_of_code, python_facts
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

Place = tuple[str, int, str]


class Epochs(enum.Enum):
    """Whether randomness gives another outcome in each epoch."""

    SAME = "the same in each"
    ANOTHER = "another in each"
    # A seeded op begins again with each new iterator, and goes on where a repeat begins again.
    ANOTHER_WITH_REPEAT = "another where a repeat stands above"

    def differ(self, repeated: bool) -> bool:
        """Whether epochs differ, given whether a repeat stands above."""
        return self is Epochs.ANOTHER or (self is Epochs.ANOTHER_WITH_REPEAT and repeated)


@dataclass(frozen=True, eq=False)
class Fact:
    """One thing that holds of an operator's output.

    Attributes:
      kind: a `m.FactKind`.
      reason: in words.
      operator: the one that is the reason.
      place: path, line and scope of the reason; None if unknown.
      seeded, epochs: of randomness.
      draws: of randomness: numbers are drawn, not an order.
      fed: of randomness: the seed comes with the elements.
      uncacheable: why a cache of it would not hold the same elements; "" if it would.
      sequential: why calls of the operator must come one after the other; "" if they need not.
      reserve: what a cache takes for granted; "" if nothing.
    """

    kind: m.FactKind.ValueType
    reason: str
    operator: Written
    place: Place | None = None
    seeded: bool = False
    epochs: Epochs = Epochs.SAME
    draws: bool = False
    fed: bool = False
    uncacheable: str = ""
    sequential: str = ""
    reserve: str = ""

    def message(self, repeated: bool) -> m.Fact:
        """As it is recorded, for an output above which a repeat stands or not."""
        random = self.kind == m.FACT_RANDOM
        out = m.Fact(
            kind=self.kind,
            reason=self.reason,
            operator=self.operator.id,
            seeded=random and self.seeded,
            changes_each_epoch=random and self.epochs.differ(repeated),
        )
        if self.place is not None:
            out.source.path, out.source.line, out.source.scope = self.place
        return out


@dataclass(frozen=True)
class Edge:
    """An operator's output: all that holds of it, the operator's own facts first."""

    facts: tuple[Fact, ...]
    # A repeat stands above it.
    repeated: bool


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
            below = tuple(_frozen(fact, operator) for fact in below if fact.kind in _OUTLIVE_A_CACHE)
        own = tuple(_as_random_as(fact, below) for fact in self.own(operator))
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
        call = _place_of_call(operator)
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
        yield from _random_facts(operator, found, place)
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
            return bool(node.constant("filename")) or not _enclosed(operator)
    return False


def _frozen(fact: Fact, cache: Written) -> Fact:
    if fact.kind != m.FACT_RANDOM:
        return fact
    kept = f"{fact.reason}; {describe_operator(cache)} keeps the first epoch's"
    return replace(fact, reason=kept, epochs=Epochs.SAME, uncacheable="")


def _as_random_as(fact: Fact, below: tuple[Fact, ...]) -> Fact:
    """Draws whose seed comes with the elements are as random as the draws below."""
    if not fact.fed:
        return fact
    drawn = [one for one in below if one.draws and one.epochs is not Epochs.SAME]
    return fact if not drawn else replace(fact, epochs=drawn[0].epochs)


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
    return Fact(m.FACT_INFINITE, "never ends", operator, _place_of_call(operator), uncacheable=why)


def _dataset_facts(node: Node, operator: Written, place: Place | None) -> Iterator[Fact]:
    """What holds by the kind of dataset alone."""
    base = graphs.base_op(node.op)
    if base in _SHUFFLES:
        yield _shuffle_fact(node, operator, place)
    elif base in ("RandomDataset", "SamplingDataset"):
        yield _random_dataset_fact(node, operator, place)
    elif "DataService" in base:
        words = "takes its elements from a tf.data service"
        yield Fact(m.FACT_STATE, words, operator, place, uncacheable=words)


def _shuffle_fact(node: Node, operator: Written, place: Place | None) -> Fact:
    seeded = _is_seeded(node)
    reshuffles = node.attribute("reshuffle_each_iteration") is not False
    # In a body each call of the function makes a new one.
    another = not seeded if _enclosed(operator) else reshuffles
    words = "draws a new order each epoch" if another else "draws one order for all epochs"
    return _random_fact(operator, place, words, seeded=seeded, another=another)


def _random_dataset_fact(node: Node, operator: Written, place: Place | None) -> Fact:
    seeded = _is_seeded(node)
    # Without a seed it draws one when it is made, and keeps it.
    again = node.op == "SamplingDataset" or bool(node.attribute("rerandomize_each_iteration"))
    another = not seeded if _enclosed(operator) else again
    words = f"draws random numbers ({node.op})"
    return _random_fact(operator, place, words, seeded=seeded, another=another, draws=True)


def _random_fact(
    operator: Written, place: Place | None, words: str, *, seeded: bool, another: bool, draws: bool = False
) -> Fact:
    """A dataset that draws; `another`: something else in each epoch."""
    return Fact(
        m.FACT_RANDOM,
        words,
        operator,
        place,
        seeded=seeded,
        epochs=Epochs.ANOTHER if another else Epochs.SAME,
        draws=draws,
        uncacheable=words if another else "",
    )


def _is_seeded(node: Node) -> bool:
    """Whether a random dataset has a seed; one that is computed counts as one."""
    for name in ("seed", "seed2"):
        value = node.constant(name)
        if value is None and node.inputs_named(name):
            return True
        if value:
            return True
    return False


def _random_facts(operator: Written, found: Facts, place: Place | None) -> Iterator[Fact]:
    """At most one fact about the draws of an operator's functions."""
    seeded = bool(found.seeded)
    if found.random:
        epochs = Epochs.ANOTHER_WITH_REPEAT if found.all_seeded and not found.generators else Epochs.ANOTHER
        ops = _few(found.random)
        words = f"draws random numbers ({ops})"
        kept = f"draws random numbers from a generator's state ({ops})"
        with_seed = f"draws random numbers with a seed ({ops})"
        yield Fact(
            m.FACT_RANDOM,
            kept if found.generators else with_seed if found.all_seeded else words,
            operator,
            place,
            seeded=found.all_seeded,
            epochs=epochs,
            draws=True,
            uncacheable=words,
            sequential=f"{with_seed}: the order of the calls decides the draws" if seeded else "",
        )
        return
    if found.stateless and not any(graphs.base_op(node.op) == "RandomDataset" for node in operator.nodes):
        changes = bool(found.graph_writes or found.clocks)
        words = f"draws random numbers ({_few(found.stateless)})"
        seed = "seeds in the elements" if found.fed else "a fixed seed"
        yield Fact(
            m.FACT_RANDOM,
            words if changes else f"{words} from {seed}",
            operator,
            place,
            seeded=True,
            epochs=Epochs.ANOTHER if changes else Epochs.SAME,
            draws=True,
            fed=found.fed and not changes,
            uncacheable=words if changes else "",
        )
    if found.datasets:
        seeded = all(one.seeded for one in found.datasets)
        words = f"draws random numbers in its function ({_few([one.op for one in found.datasets])})"
        yield Fact(
            m.FACT_RANDOM,
            words,
            operator,
            place,
            seeded=seeded,
            epochs=Epochs.SAME if seeded else Epochs.ANOTHER,
            draws=True,
            uncacheable="" if seeded else words,
        )


def _few(ops: Any) -> str:
    return ", ".join(list(dict.fromkeys(ops))[:3])


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


def _enclosed(operator: Written) -> bool:
    """Whether the operator lives, at any depth, in the body of a function."""
    one: Written | None = operator
    while one is not None:
        if one.in_body:
            return True
        one = one.parent
    return False


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


def _place_of_call(operator: Written) -> Place | None:
    made = operator.pair.construction
    return None if made is None or made.call is None else (made.call.path, made.call.line, made.call.scope)


def user_function(operator: Written) -> Any:
    """The record of the function the user gave: the first that is not TensorFlow's own; None if none is."""
    for one in operator.functions.values():
        if one.code is None or not places.is_tensorflow_file(one.code.co_filename):
            return one
    return None


def function_place(operator: Written) -> Place | None:
    """Where the user defined the operator's function; None if there is none, or nobody knows."""
    record = user_function(operator)
    if record is None or record.place is None:
        return None
    path, line, scope = record.place
    call = _place_of_call(operator)
    if record.name == "<lambda>" and places.is_generated(record.code) and call is not None:
        line = call[1]  # autograph knows the statement only; the call is nearer
    return path, line, scope


def describe_operator(operator: Written) -> str:
    """For people: "Map decode (train.py:57)"."""
    name = next((one.name for one in operator.functions.values() if one.name != "<lambda>"), "")
    words = f"{operator.type} {name}".strip()
    call = _place_of_call(operator)
    return words if call is None else f"{words} ({call[0].rsplit('/', 1)[-1]}:{call[1]})"
