"""How many elements a live dataset has, by TensorFlow's own rules where its class and attributes tell.

TensorFlow tells it, too, but takes milliseconds for the first time that a process asks.
"""

from __future__ import annotations

from typing import Any

from tensorboard_plugin_plumber.capture.construction import inputs_of

INFINITE = -1
UNKNOWN = -2
# As many elements as their input, whatever that has.
_HAND_ON = frozenset(
    {"_PrefetchDataset", "_ShuffleDataset", "CacheDataset", "_OptionsDataset", "_RestructuredDataset"}
)
_MAPS = frozenset({"_MapDataset", "_ParallelMapDataset"})
_BATCHES = frozenset({"_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset"})
# Only their elements tell.
_NEVER_KNOWN = frozenset(
    {
        "_FilterDataset",
        "TextLineDatasetV2",
        "TFRecordDatasetV2",
        "FixedLengthRecordDatasetV2",
        "_GeneratorDataset",
    }
)


def cardinality_of(dataset: Any, known: dict[int, int | None] | None = None) -> int:
    """Elements of one pass; `INFINITE` or `UNKNOWN` where it is no number.

    Args:
      dataset: an eager dataset.
      known: what was found of datasets before, by id(), for as long as all of them live: what stands below
        several of them is worked out once.
    """
    found = _by_rule(dataset, known)
    if found is not None:
        return found
    from tensorflow.python.ops import gen_dataset_ops

    return int(gen_dataset_ops.dataset_cardinality(dataset._variant_tensor).numpy())


def _by_rule(dataset: Any, known: dict[int, int | None] | None = None) -> int | None:
    """None where only TensorFlow knows."""
    known = {} if known is None else known
    if id(dataset) not in known:
        try:
            known[id(dataset)] = _worked_out(dataset, known)
        # Another version's attributes, or a chain that is too long to be walked down.
        except (AttributeError, TypeError, ValueError, IndexError, RecursionError):
            known[id(dataset)] = None
    return known[id(dataset)]


def _worked_out(dataset: Any, known: dict[int, int | None]) -> int | None:
    name = type(dataset).__name__
    if name in _NEVER_KNOWN:
        return UNKNOWN
    if name == "_TensorDataset":
        return 1
    if name == "_TensorSliceDataset":
        return int(dataset._tensors[0].shape[0])
    if name == "_RangeDataset":
        start, stop, step = (_number(one) for one in (dataset._start, dataset._stop, dataset._step))
        return len(range(start, stop, step))
    inputs = inputs_of(dataset)
    below = _by_rule(inputs[0], known) if len(inputs) == 1 else None
    return None if below is None else _above(name, dataset, below)


def _above(name: str, dataset: Any, below: int) -> int | None:
    if name in _HAND_ON:
        return below
    if name in _MAPS:
        return below if dataset._preserve_cardinality else UNKNOWN
    if name in _BATCHES:
        return batched(below, _number(dataset._batch_size), bool(_number(dataset._drop_remainder)))
    if name == "_RepeatDataset":
        return repeated(below, _number(dataset._count))
    if name == "_TakeDataset":
        return taken(below, _number(dataset._count))
    if name == "_SkipDataset":
        return skipped(below, _number(dataset._count))
    return None


def _number(tensor: Any) -> int:
    return int(tensor.numpy())


# TensorFlow's rules, of the elements below and an operator's numbers.


def batched(below: int, size: int, drop_remainder: bool) -> int:
    """Batches of so many elements."""
    return below if below < 0 else below // size if drop_remainder else -(-below // size)


def repeated(below: int, count: int) -> int:
    """So many passes; endless ones if negative."""
    if count < 0:
        return 0 if below == 0 else INFINITE
    return 0 if count == 0 else below if below < 0 else below * count


def taken(below: int, count: int) -> int:
    """The first ones; all if negative."""
    if below == UNKNOWN or count < 0:
        return below
    return count if below == INFINITE else min(count, below)


def skipped(below: int, count: int) -> int:
    """All but the first ones; none if negative."""
    if below < 0:
        return below
    return 0 if count < 0 else max(0, below - count)
