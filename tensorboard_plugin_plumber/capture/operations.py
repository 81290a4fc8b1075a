"""What is known of a TensorFlow operation by its name: what it draws, reads, writes, calls and waits for."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass

from tensorflow.python.framework import op_def_registry

from tensorboard_plugin_plumber.capture import graphs

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
class Kind:
    """What is known of an op by its name alone.

    Attributes:
      calls: attributes that name a function that it calls.
      list_calls: attributes that name several.
      dataset, python, random, generator, stateless, random_dataset: what it is.
      writes: what it writes, in words.
      reads_variable, reads_table, clock, stateful: what it reads and holds.
      unknown: it is stateful, and on no list.
      waits: it may wait for something else than a core.
      telling: its name, where that tells what a function is for.
      cast: it changes types.
      plain: none of the above.
    """

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
    plain: bool = False


@functools.lru_cache(maxsize=4096)
def kind_of(op: str) -> Kind:
    """What is known of it.

    Args:
      op: name of the operation, or of a function that is called by its own name.
    """
    base = graphs.base_op(op)
    definition = op_def_registry.get(op)
    calls = list_calls = ()
    declared = False
    if definition is not None:
        calls = tuple(one.name for one in definition.attr if one.type == "func")
        list_calls = tuple(one.name for one in definition.attr if one.type == "list(func)")
        declared = definition.is_stateful
    if graphs.is_dataset_op(op):
        return Kind(calls, list_calls, dataset=True, random_dataset=base in RANDOM_DATASETS)
    if op in PYTHON_OPS:
        return Kind(python=True, stateful=True, waits=True)
    stateless = base not in _NO_DRAWS and (base in _STATELESS_OPS or base.startswith(_STATELESS_PREFIXES))
    generator = base in _GENERATOR_OPS or op.startswith(_GENERATOR_PREFIXES)
    random = generator or base in _RANDOM_OPS or op in _RANDOM_OPS or _is_random_by_name(op, base)
    writes = _WRITES.get(base) or _WRITES.get(op) or ""
    writes = writes or next((what for name, what in _WRITES_BY_PREFIX.items() if op.startswith(name)), "")
    reads_variable, reads_table, clock = base in _READS_VARIABLE, base in _READS_TABLE, base in _CLOCKS
    known = random or writes or reads_variable or reads_table or clock or base in _HARMLESS
    kind = Kind(
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
    return Kind(plain=True) if kind == Kind() and not called else kind


def _is_random_by_name(op: str, base: str) -> bool:
    return op.startswith("Random") and base not in _STATELESS_OPS and base not in _NO_DRAWS


def takes_parts(ops: Collection[str]) -> bool:
    """Whether a function of these operations picks parts out of its arguments, and looks at nothing else of them."""
    ops = set(ops)
    return not ops.isdisjoint(_PARTS) and ops <= _PARTS | _ELEMENTWISE
