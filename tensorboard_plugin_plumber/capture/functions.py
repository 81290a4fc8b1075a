"""What a user's function does, read from its traced graph and its Python bytecode.

Nothing is run. A traced function is walked through every function that it calls; a Python function
behind `py_function`, `numpy_function` or a generator is judged by its bytecode: what it visibly
writes that outlives the call.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tensorflow.python.framework import op_def_registry

from tensorboard_plugin_plumber.capture import graphs, places

PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
_RANDOM_OPS = frozenset(
    {
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "TruncatedNormal",
        "SampleDistortedBoundingBox",
        "SampleDistortedBoundingBoxV2",
        "NonDeterministicInts",
        "RngReadAndSkip",
        "RngSkip",
        "AllCandidateSampler",
        "FixedUnigramCandidateSampler",
        "LearnedUnigramCandidateSampler",
        "LogUniformCandidateSampler",
        "ThreadUnsafeUnigramCandidateSampler",
        "UniformCandidateSampler",
    }
)
_RANDOM_DATASETS = frozenset(
    {"RandomDataset", "ShuffleDataset", "ShuffleAndRepeatDataset", "SamplingDataset"}
)
# Writes, and what to call them.
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
    "WriteScalarSummary": "a summary",
    "WriteSummary": "a summary",
    "WriteImageSummary": "a summary",
    "QueueEnqueue": "a queue",
    "TensorArrayWrite": "",
}
_SCATTERS = ("ResourceScatter", "ResourceStridedSliceAssign", "ResourceApply", "ResourceSparseApply")
_READS_VARIABLE = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableV2", "Variable"}
)
# Stateful in TensorFlow's books, yet the same for the same input.
_HARMLESS = frozenset(
    {
        "Assert",
        "LookupTableFind",
        "LookupTableSize",
        "LookupTableExport",
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
        "AnonymousMemoryCache",
        "TensorArray",
        "TensorArrayRead",
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
_MUTATORS = frozenset(
    {
        "append",
        "extend",
        "insert",
        "add",
        "update",
        "pop",
        "popitem",
        "remove",
        "discard",
        "clear",
        "setdefault",
        "write",
        "writelines",
        "put",
        "put_nowait",
        "send",
        "appendleft",
        "extendleft",
        "popleft",
        "sort",
        "reverse",
        "assign",
        "assign_add",
        "assign_sub",
        "shuffle",
        "seed",
        "__setitem__",
        "__setattr__",
    }
)
_RANDOM_MODULES = frozenset(
    {
        "random",
        "randint",
        "randn",
        "rand",
        "choice",
        "uniform",
        "normal",
        "default_rng",
        "permutation",
        "shuffle",
        "sample",
        "integers",
        "secrets",
        "uuid4",
    }
)


@dataclass(frozen=True)
class PythonFacts:
    """What the bytecode of one Python function shows."""

    name: str
    code: types.CodeType | None
    # What it visibly writes beyond its own locals.
    writes: tuple[str, ...] = ()
    random: bool = False


@dataclass(frozen=True)
class Facts:
    """What one traced function does, with all that it calls."""

    # Python functions it runs for each call; unknown ones have no code.
    python: tuple[PythonFacts, ...] = ()
    # Random ops: those of any kind, and those whose draws a seed or a generator's state decides.
    random: tuple[str, ...] = ()
    seeded: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    reads_variables: bool = False
    # Stateful ops that are on no list.
    unknown: tuple[str, ...] = ()
    stateful: bool = False
    may_wait: bool = False

    @property
    def all_seeded(self) -> bool:
        """It is random, and a seed decides all of it."""
        return bool(self.random) and len(self.random) == len(self.seeded)


def facts_of(names: Iterable[str], library: dict[str, Any]) -> Facts:
    """Walks traced functions by their library names, through every function they call."""
    python: list[PythonFacts] = []
    random: list[str] = []
    seeded: list[str] = []
    writes: list[str] = []
    unknown: list[str] = []
    reads = stateful = waits = False
    todo, seen = list(names), set()
    while todo:
        name = todo.pop()
        function = library.get(name)
        if name in seen or function is None:
            continue
        seen.add(name)
        for node in function.node_def:
            for value in node.attr.values():
                if value.HasField("func"):
                    todo.append(value.func.name)
                todo += [one.name for one in value.list.func]
            op = graphs.base_op(node.op)
            if node.op in PYTHON_OPS:
                python.append(_python_facts(node))
                waits = stateful = True
                continue
            if graphs.is_dataset_op(node.op):
                if op in _RANDOM_DATASETS:
                    random.append(node.op)
                continue
            if is_random_op(node.op):
                random.append(node.op)
                if _is_seeded(node):
                    seeded.append(node.op)
            waits = waits or op in _WAITS
            if op in _READS_VARIABLE:
                reads = True
            elif op in _WRITES or node.op in _WRITES or node.op.startswith(_SCATTERS):
                what = _WRITES.get(op, _WRITES.get(node.op, "a variable"))
                if what:
                    writes.append(what)
                    stateful = True
            elif op not in _HARMLESS and not is_random_op(node.op):
                definition = op_def_registry.get(node.op)
                if definition is not None and definition.is_stateful:
                    unknown.append(node.op)
            definition = op_def_registry.get(node.op)
            stateful = stateful or bool(
                definition is not None and definition.is_stateful and op not in _FRAMES
            )
    for one in python:
        writes += one.writes
    return Facts(
        tuple(python),
        tuple(random),
        tuple(seeded),
        tuple(dict.fromkeys(writes)),
        reads,
        tuple(dict.fromkeys(unknown)),
        stateful,
        waits,
    )


# Call frames, not state of their own.
_FRAMES = frozenset(
    {"StatefulPartitionedCall", "If", "While", "Case", "RemoteCall", "Placeholder", "NoOp", "Assert"}
)


def is_random_op(op: str) -> bool:
    """Whether an op draws random numbers from a state of its own or of a generator."""
    if op in _RANDOM_OPS or op.startswith(
        ("StatefulUniform", "StatefulStandardNormal", "StatefulTruncated", "StatefulRandom")
    ):
        return True
    return op.startswith("Random") and not graphs.is_dataset_op(op)


def _is_seeded(node: Any) -> bool:
    if node.op.startswith(("Stateful", "Rng")):
        return True  # the generator's state decides
    return any(node.attr[name].i for name in ("seed", "seed2") if name in node.attr)


def _python_facts(node: Any) -> PythonFacts:
    """Facts of the Python function behind a py_function or numpy_function node."""
    from tensorflow.python.ops import script_ops

    token = node.attr["token"].s.decode(errors="replace")
    function = script_ops._py_funcs.get(token)
    function = getattr(function, "_func", function)
    if function is None:
        return PythonFacts("a Python function", None)
    code = places.code_of(function)
    return python_facts(places.function_name(function), code, places.fixed_names(function, code))


def python_facts(name: str, code: types.CodeType | None, fixed: frozenset[str] = frozenset()) -> PythonFacts:
    """Facts of a Python function by its bytecode; TensorFlow's own functions are taken as clean.

    Args:
      fixed: names of modules, functions and classes: `np.sort` mutates nothing of the user's.
    """
    if code is None or not places.is_user_file(code.co_filename):
        return PythonFacts(name, code)
    writes, random = _scan(code)
    seen = tuple(one for one in writes if not any(one.startswith(f"{module} by .") for module in fixed))
    return PythonFacts(name, code, seen, random)


@functools.lru_cache(maxsize=1024)
def _scan(code: types.CodeType) -> tuple[tuple[str, ...], bool]:
    """What a code object visibly writes beyond its locals, and whether it names a source of randomness.

    Follows, straight through the instructions, which values on the stack come from outside the
    function (globals, outer variables, self). Jumps are not followed: a linear look is enough to
    see a store or a mutating method.
    """
    writes: list[str] = []
    free = set(code.co_freevars)
    random = bool(_RANDOM_MODULES & set(code.co_names))
    own = "self" if code.co_argcount and code.co_varnames[:1] == ("self",) else None
    stack: list[str | None] = []

    def pop() -> str | None:
        return stack.pop() if stack else None

    for one in dis.get_instructions(code):
        name, operand = one.opname, one.argval
        effect = dis.stack_effect(one.opcode, one.arg, jump=False)
        if name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            writes.append(f"the global {operand}")
        elif name in ("STORE_DEREF", "DELETE_DEREF") and operand in free:
            writes.append(f"the outer variable {operand}")
        if name in ("LOAD_GLOBAL", "LOAD_NAME") or (name.endswith("DEREF") and name.startswith("LOAD")):
            outer = str(operand) if name in ("LOAD_GLOBAL", "LOAD_NAME") or operand in free else None
            stack += [outer] * effect
        elif name.startswith("LOAD_FAST"):
            names = operand if isinstance(operand, tuple) else (operand,)
            stack += ["self" if own and each == "self" else None for each in names]
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            target = pop()
            if target is not None and operand in _MUTATORS:
                writes.append(f"{target} by .{operand}()")
            stack += [target] * (effect + 1)
        elif name in ("BINARY_SUBSCR", "BINARY_SLICE"):
            for _ in range(-effect):
                pop()
        elif name in ("STORE_ATTR", "DELETE_ATTR"):
            target = pop()
            if target is not None:
                writes.append(f"the attribute {target}.{operand}")
            if name == "STORE_ATTR":
                pop()
        elif name in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            pop()
            target = pop()
            if target is not None:
                writes.append(f"the container {target}")
            if name == "STORE_SUBSCR":
                pop()
        elif name in (
            "COPY",
            "DUP_TOP",
            "DUP_TOP_TWO",
            "SWAP",
            "ROT_TWO",
            "ROT_THREE",
            "NOP",
            "RESUME",
            "CACHE",
        ):
            _shuffle_stack(stack, name, one.arg or 0)
        else:
            for _ in range(-effect):
                pop()
            stack += [None] * max(effect, 0)
            if (
                effect <= 0
                and stack
                and name.startswith(("CALL", "BINARY", "BUILD", "COMPARE", "UNARY", "FORMAT"))
            ):
                stack[-1] = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, inner_random = _scan(constant)
            inner_free = set(constant.co_freevars) - free
            writes += [one for one in inner if not any(one.endswith(f" {name}") for name in inner_free)]
            random = random or inner_random
    return tuple(dict.fromkeys(writes)), random


def _shuffle_stack(stack: list[str | None], name: str, count: int) -> None:
    """Copies and swaps: what augmented assignment to a container is compiled to."""
    if name == "COPY":
        stack.append(stack[-count] if len(stack) >= count else None)
    elif name == "DUP_TOP":
        stack.append(stack[-1] if stack else None)
    elif name == "DUP_TOP_TWO":
        stack += stack[-2:]
    elif name == "SWAP" and len(stack) >= count:
        stack[-1], stack[-count] = stack[-count], stack[-1]
    elif name == "ROT_TWO" and len(stack) >= 2:
        stack[-1], stack[-2] = stack[-2], stack[-1]
    elif name == "ROT_THREE" and len(stack) >= 3:
        stack.insert(-2, stack.pop())
