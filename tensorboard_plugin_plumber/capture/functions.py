"""What a user's function does, read from its traced graph.

Nothing is run. A traced function is walked through every function that it calls; each body is looked
at once. Python that it runs (`py_function`, `numpy_function`) is judged by `python_functions`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tensorflow.python.framework import dtypes, op_def_registry, tensor_util

from tensorboard_plugin_plumber.capture import graphs, places
from tensorboard_plugin_plumber.capture.python_functions import PythonFacts, python_facts

PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
#: Datasets whose outcome depends on random draws.
RANDOM_DATASETS = frozenset({"RandomDataset", "ShuffleDataset", "ShuffleAndRepeatDataset", "SamplingDataset"})
_RANDOM_OPS = frozenset(
    {
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "TruncatedNormal",
        "SampleDistortedBoundingBox",
        "SampleDistortedBoundingBoxV2",
        "NonDeterministicInts",
        "AllCandidateSampler",
        "FixedUnigramCandidateSampler",
        "LearnedUnigramCandidateSampler",
        "LogUniformCandidateSampler",
        "ThreadUnsafeUnigramCandidateSampler",
        "UniformCandidateSampler",
    }
)
_GENERATOR_OPS = frozenset({"RngReadAndSkip", "RngSkip"})
_GENERATOR_PREFIXES = (
    "StatefulUniform",
    "StatefulStandardNormal",
    "StatefulTruncated",
    "StatefulRandom",
)
# As random as their seed, which is an input.
_STATELESS_PREFIXES = (
    "StatelessRandom",
    "StatelessTruncated",
    "StatelessParameterized",
    "StatelessMultinomial",
)
_STATELESS_OPS = frozenset({"StatelessSampleDistortedBoundingBox", "StatelessShuffle", "RandomIndexShuffle"})
# They only prepare a seed, or are derivatives: no draws of their own.
_NO_DRAWS = frozenset(
    {
        "StatelessRandomGetAlg",
        "StatelessRandomGetKeyCounter",
        "StatelessRandomGetKeyCounterAlg",
        "RandomGammaGrad",
    }
)
# Writes, and what to call them; the rest of those that write variables goes by the prefixes below.
_WRITES = {
    "AssignVariableOp": "a variable",
    "AssignAddVariableOp": "a variable",
    "AssignSubVariableOp": "a variable",
    "Assign": "a variable",
    "AssignAdd": "a variable",
    "AssignSub": "a variable",
    "RngReadAndSkip": "a random generator's state",
    "RngSkip": "a random generator's state",
    "LookupTableInsert": "a table",
    "LookupTableRemove": "a table",
    "LookupTableImport": "a table",
    "WriteFile": "a file",
    "SaveV2": "a file",
    "Save": "a file",
    "PrintV2": "the console",
    "Print": "the console",
    "QueueEnqueue": "a queue",
    "QueueEnqueueMany": "a queue",
    "QueueDequeue": "a queue",
    "QueueDequeueMany": "a queue",
    "QueueDequeueUpTo": "a queue",
    "Stage": "a staging area",
    "Unstage": "a staging area",
}
_WRITES_BY_PREFIX = {
    "ResourceScatter": "a variable",
    "ResourceStridedSliceAssign": "a variable",
    "ResourceApply": "a variable",
    "ResourceSparseApply": "a variable",
    "WriteScalarSummary": "a summary",
    "WriteSummary": "a summary",
    "WriteImageSummary": "a summary",
    "WriteAudioSummary": "a summary",
    "WriteHistogramSummary": "a summary",
    "WriteGraphSummary": "a summary",
    "WriteRawProtoSummary": "a summary",
    "StatefulUniform": "a random generator's state",
    "StatefulStandardNormal": "a random generator's state",
    "StatefulTruncated": "a random generator's state",
    "StatefulRandom": "a random generator's state",
}
_READS_VARIABLE = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableV2", "Variable"}
)
_READS_TABLE = frozenset({"LookupTableFind", "LookupTableSize", "LookupTableExport"})
_CLOCKS = frozenset({"Timestamp"})
# Stateful in TensorFlow's books, yet the same for the same input.
_HARMLESS = frozenset(
    {
        "Assert",
        "HashTable",
        "MutableHashTable",
        "MutableDenseHashTable",
        "AnonymousHashTable",
        "AnonymousMutableHashTable",
        "AnonymousMutableDenseHashTable",
        "VarHandleOp",
        "VarIsInitializedOp",
        "StatefulPartitionedCall",
        "PartitionedCall",
        "If",
        "While",
        "Case",
        "RemoteCall",
        "SymbolicGradient",
        "Placeholder",
        "NoOp",
        "DummyMemoryCache",
        "DummySeedGenerator",
        "DummyIterationCounter",
        "AnonymousSeedGenerator",
        "AnonymousRandomSeedGenerator",
        "AnonymousMemoryCache",
        "AnonymousIterator",
        "AnonymousIteratorV2",
        "AnonymousIteratorV3",
        "MakeIterator",
        "IteratorGetNext",
        "IteratorGetNextAsOptional",
        "DeleteIterator",
        "ReduceDataset",
        "DatasetToSingleElement",
        "FlushSummaryWriter",
        "TensorArray",
        "TensorArrayRead",
        "TensorArrayWrite",
        "TensorArrayGather",
        "TensorArrayScatter",
        "TensorArraySize",
        "TensorArrayClose",
        "TensorArrayConcat",
        "TensorArraySplit",
        "Stack",
        "StackPush",
        "StackPop",
        "StackClose",
        "MatchingFiles",
        "ReadFile",
        "OptionalFromValue",
        "GetElementAtIndex",
    }
)
# Call frames, not state of their own.
_FRAMES = frozenset(
    {"StatefulPartitionedCall", "If", "While", "Case", "RemoteCall", "Placeholder", "NoOp", "Assert"}
)
_WAITS = PYTHON_OPS | {
    "ReadFile",
    "MatchingFiles",
    "WholeFileReader",
    "TextLineReader",
    "TFRecordReader",
    "IteratorGetNext",
    "DecodeVideo",
    "Barrier",
    "QueueDequeue",
    "BigQueryReader",
}


# Ops that tell what a function is for; findings speak of them.
_TELLING = frozenset(
    {
        "DecodeAndCropJpeg",
        "DecodeBmp",
        "DecodeCompressed",
        "DecodeCSV",
        "DecodeGif",
        "DecodeImage",
        "DecodeJpeg",
        "DecodePng",
        "DecodeRaw",
        "DecodeWebP",
        "ExtractGlimpse",
        "CropAndResize",
        "Pad",
        "PadV2",
        "MirrorPad",
        "RaggedTensorToTensor",
        "Slice",
        "StridedSlice",
    }
)
# They hand on parts of what they are given ...
_PARTS = frozenset({"Slice", "StridedSlice", "Gather", "GatherV2", "GatherNd", "Split", "SplitV", "Unpack"})
# ... or change it element by element: what they leave out, nothing has looked at.
_ELEMENTWISE = frozenset(
    {
        "Add", "AddV2", "Cast", "Const", "DecodeRaw", "EnsureShape", "ExpandDims", "Identity", "IdentityN", "Mul",
        "Neg", "NoOp", "Pack", "Placeholder", "RealDiv", "Reshape", "Shape", "Sqrt", "Square", "Squeeze", "Sub",
    }
)  # fmt: skip
_TELLING_PREFIXES = ("Resize", "ParseExample", "ParseSingleExample", "ScaleAndTranslate")


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


@dataclass(frozen=True)
class _Kind:
    """What is known of an op by its name alone."""

    calls: tuple[str, ...] = ()
    list_calls: tuple[str, ...] = ()
    dataset: bool = False
    python: bool = False
    random: bool = False
    generator: bool = False
    stateless: bool = False
    random_dataset: bool = False
    writes: str = ""
    reads_variable: bool = False
    reads_table: bool = False
    clock: bool = False
    unknown: bool = False
    stateful: bool = False
    waits: bool = False
    telling: str = ""
    cast: bool = False
    # None of the above.
    plain: bool = False


@functools.lru_cache(maxsize=4096)
def _kind(op: str) -> _Kind:
    base = graphs.base_op(op)
    definition = op_def_registry.get(op)
    calls = list_calls = ()
    declared = False
    if definition is not None:
        calls = tuple(one.name for one in definition.attr if one.type == "func")
        list_calls = tuple(one.name for one in definition.attr if one.type == "list(func)")
        declared = definition.is_stateful
    if graphs.is_dataset_op(op):
        return _Kind(calls, list_calls, dataset=True, random_dataset=base in RANDOM_DATASETS)
    if op in PYTHON_OPS:
        return _Kind(python=True, stateful=True, waits=True)
    stateless = base not in _NO_DRAWS and (base in _STATELESS_OPS or base.startswith(_STATELESS_PREFIXES))
    generator = base in _GENERATOR_OPS or op.startswith(_GENERATOR_PREFIXES)
    random = generator or base in _RANDOM_OPS or op in _RANDOM_OPS or _is_random_by_name(op, base)
    writes = _WRITES.get(base) or _WRITES.get(op) or ""
    writes = writes or next((what for name, what in _WRITES_BY_PREFIX.items() if op.startswith(name)), "")
    reads_variable, reads_table, clock = base in _READS_VARIABLE, base in _READS_TABLE, base in _CLOCKS
    known = random or writes or reads_variable or reads_table or clock or base in _HARMLESS
    kind = _Kind(
        calls,
        list_calls,
        random=random,
        generator=generator,
        stateless=stateless,
        writes=writes,
        reads_variable=reads_variable,
        reads_table=reads_table,
        clock=clock,
        unknown=declared and not known,
        stateful=bool(writes) or (declared and base not in _FRAMES),
        waits=base in _WAITS,
        telling=base if base in _TELLING or base.startswith(_TELLING_PREFIXES) else "",
        cast=base == "Cast",
    )
    called = bool(calls or list_calls) or definition is None
    return _Kind(plain=True) if kind == _Kind() and not called else kind


def _is_random_by_name(op: str, base: str) -> bool:
    return op.startswith("Random") and base not in _STATELESS_OPS and base not in _NO_DRAWS


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
    takes_parts = _takes_parts(function)
    nodes = [node for node in function.node_def if not _kind(node.op).plain]
    if not nodes:
        return _Body(Facts(takes_parts=True), Facts(takes_parts=True), (), ()) if takes_parts else _PLAIN
    for node in nodes:
        op = node.op
        kind = _kind(op)
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
        takes_parts,
    )
    whole = own if not claimed_datasets else _union([own, Facts(datasets=tuple(claimed_datasets))])
    return _Body(own, whole, tuple(calls), tuple(claimed_calls))


def _takes_parts(function: Any) -> bool:
    """Whether a function body picks parts out of its arguments, and looks at nothing else of them."""
    ops = {node.op for node in function.node_def}
    return not ops.isdisjoint(_PARTS) and ops <= _PARTS | _ELEMENTWISE


def _widens_to_float(node: Any) -> bool:
    source, target = (dtypes.as_dtype(node.attr[name].type) for name in ("SrcT", "DstT"))
    return bool(source.is_integer and target.is_floating and target.size > source.size)


def _python_function(node: Any) -> PythonFacts:
    """Facts of the Python function behind a py_function or numpy_function node."""
    from tensorflow.python.ops import script_ops

    token = node.attr["token"].s.decode(errors="replace")
    function = script_ops._py_funcs.get(token)
    function = _given(getattr(function, "_func", function))
    return PythonFacts("a Python function", None) if function is None else python_facts(function)


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
