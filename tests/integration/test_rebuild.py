"""A pipeline made again gives the same elements, and is changed where it was asked to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.rewrite.rebuild import Edit, Edits, Refused, copied, rebuilt
from tests.support.digests import elements
from tests.support.operators import CASES
from tests.support.operators.case import Bench, Case

construction.install()
Dataset = tf.data.Dataset
# Made of data alone: there is nothing above a source that could be made again.
SOURCES = {
    "range", "from_tensors", "from_tensor_slices", "from_list", "random", "list_files_in_order", "text_line",
    "fixed_length_record", "csv", "sql", "load_by_a_function", "load", "from_dataset_id", "legacy_load",
    "legacy_random_dataset",
}  # fmt: skip
UNORDERED = {"map_unordered", "interleave_unordered", "legacy_parallel_interleave", "distribute"}


@pytest.mark.parametrize("case", [pytest.param(one, id=one.name) for one in CASES if one.available])
def test_a_copy_of_any_operator_gives_the_same(case: Case, tmp_path: Path) -> None:
    # GIVEN a pipeline whose randomness comes from one seed
    tf.random.set_seed(11)
    bench = Bench(tmp_path)  # a service lives as long
    dataset = case.make(bench)

    # WHEN all but its sources is made again
    copy = copied(dataset)

    # THEN it is another one, that says and gives the same
    assert (copy is dataset) == (case.name in SOURCES)
    assert copy.element_spec == dataset.element_spec
    assert int(copy.cardinality()) == int(dataset.cardinality())
    assert copy.options()._to_proto() == dataset.options()._to_proto()
    given, wanted = (elements(one, case.steps or 100) for one in (copy, dataset))
    assert sorted(given) == sorted(wanted) if case.name in UNORDERED else given == wanted


@pytest.mark.parametrize("seed", [None, 7])
def test_a_copy_shuffles_as_the_original_would_have(seed: int | None) -> None:
    """Epoch by epoch; and what the copy draws, the original draws all the same later."""
    tf.random.set_seed(3)
    dataset = Dataset.range(30).shuffle(30, seed=seed).batch(5)
    copy = copied(dataset)

    epochs = [elements(copy) for _ in range(3)]

    assert [elements(dataset) for _ in range(3)] == epochs
    assert epochs[0] != epochs[1]


def test_nothing_of_the_users_is_traced_again_and_its_state_is_shared() -> None:
    traced: Counter[str] = Counter()
    offset = tf.Variable(100, dtype=tf.int64)
    words = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, -1, -2, -3)
    words.insert(tf.constant([1], tf.int64), tf.constant([7], tf.int64))

    def add(x: Any) -> Any:
        traced["add"] += 1
        return x + offset + words.lookup(x)

    copy = copied(Dataset.range(3).map(add))
    offset.assign(1000)

    assert [int(x) for x in copy] == [999, 1008, 1001]
    assert traced["add"] == 1


def one_of_each() -> tuple[Any, dict[str, Any]]:
    """A pipeline, and its datasets by name."""
    made: dict[str, Any] = {"range": Dataset.range(8)}
    made["interleave"] = made["range"].interleave(
        lambda x: Dataset.range(x, x + 6), cycle_length=3, block_length=2
    )
    made["map"] = made["interleave"].map(lambda x: x * 2)
    made["parallel"] = made["map"].map(lambda x: x + 1, num_parallel_calls=2)
    made["batch"] = made["parallel"].batch(4, drop_remainder=True)
    return made["batch"], made


@pytest.mark.parametrize(
    ("name", "edit", "type_", "calls"),
    [
        ("interleave", Edit(calls=3), "ParallelInterleave", 3),
        ("interleave", Edit(calls=tf.data.AUTOTUNE), "ParallelInterleave", tf.data.AUTOTUNE),
        ("map", Edit(calls=5), "ParallelMap", 5),
        ("parallel", Edit(calls=7), "ParallelMap", 7),
        ("batch", Edit(calls=2), "ParallelBatch", 2),
        ("map", Edit(cache=""), "MemoryCache", None),
        ("parallel", Edit(prefetch=6), "Prefetch", None),
    ],
)
def test_an_edit_is_made_and_the_elements_stay(name: str, edit: Edit, type_: str, calls: int | None) -> None:
    dataset, made = one_of_each()

    changed = rebuilt(dataset, Edits({id(made[name]): edit}))

    assert elements(changed) == elements(dataset)
    assert changed.element_spec == dataset.element_spec
    assert int(changed.cardinality()) == int(dataset.cardinality())
    pipeline = describe(changed, role="trace").pipeline
    found = [
        one
        for one in pipeline.operators
        if one.type == type_ or (type_ == "MemoryCache" and one.type == "Cache")
    ]
    assert found
    if calls is not None:
        assert calls in [one.num_parallel_calls for one in found]
    # The user's operators keep their lines.
    before = {
        (one.source.path, one.source.line) for one in describe(dataset, role="trace").pipeline.operators
    }
    assert before <= {(one.source.path, one.source.line) for one in pipeline.operators}


def test_a_file_cache_and_a_pool(tmp_path: Path) -> None:
    dataset, made = one_of_each()

    changed = rebuilt(
        dataset, Edits({id(made["map"]): Edit(cache=str(tmp_path / "cache"))}, threadpool_size=9)
    )

    for _ in range(2):
        assert elements(changed) == elements(dataset)
    assert list(tmp_path.glob("cache*index"))
    assert changed.options().threading.private_threadpool_size == 9


def test_what_is_below_is_the_same_object_and_what_is_used_twice_is_made_once() -> None:
    source = Dataset.range(6)
    doubled = source.map(lambda x: x * 2)
    dataset = Dataset.zip((doubled, doubled.skip(1)))

    changed = rebuilt(dataset, Edits({id(doubled): Edit(calls=2)}))

    left, right = construction.inputs_of(changed)
    assert left is construction.inputs_of(right)[0]
    assert construction.inputs_of(left) == [source]
    assert elements(changed) == elements(dataset)


def test_order_stays_where_the_options_give_it_up_for_parallel_operators() -> None:
    options = tf.data.Options()
    options.deterministic = False
    waited = Dataset.range(40).map(
        lambda x: tf.numpy_function(
            lambda y: (__import__("time").sleep(0.02 if y % 7 == 0 else 0), y)[1], [x], tf.int64
        )
    )
    dataset = waited.with_options(options)

    changed = rebuilt(dataset, Edits({id(waited): Edit(calls=8)}))

    assert [int(x) for x in changed] == list(range(40))


def test_what_cannot_be_changed_is_refused() -> None:
    filtered = Dataset.range(9).filter(lambda x: x > 3)
    body = Dataset.range(2)

    with pytest.raises(Refused, match="num_parallel_calls"):
        rebuilt(filtered.batch(2), Edits({id(filtered): Edit(calls=2)}))
    with pytest.raises(Refused, match="cannot be reached"):
        rebuilt(filtered, Edits({id(body): Edit(prefetch=2)}))


def test_a_dataset_that_was_diagnosed_gives_what_it_would_have_given() -> None:
    def make() -> Any:
        tf.random.set_seed(5)
        return Dataset.range(64).shuffle(64, seed=2).map(lambda x: x + 1).batch(8)

    untouched, diagnosed = make(), make()
    report = plumber.diagnose(diagnosed, seconds=0.6)

    assert [elements(diagnosed) for _ in range(2)] == [elements(untouched) for _ in range(2)]
    sources = {one["source"] for one in report.to_dict()["operators"] if not one["injected"]}
    assert all(one.startswith("test_rebuild.py:") for one in sources)


def test_a_memory_cache_is_filled_once() -> None:
    calls: Counter[str] = Counter()

    def count(x: Any) -> Any:
        calls["count"] += 1
        return x

    dataset = Dataset.range(20).map(lambda x: tf.numpy_function(count, [x], tf.int64)).cache()
    plumber.diagnose(dataset, seconds=0.5)

    assert len(elements(dataset)) == 20
    assert calls["count"] == 20


def test_a_copy_fills_no_file_cache_of_the_original(tmp_path: Path) -> None:
    # GIVEN a file cache that is empty, two copies of it, and both read by turns
    dataset = Dataset.range(6).cache(str(tmp_path / "cache"))
    first, second = iter(copied(dataset)), iter(copied(dataset))
    read = [(int(one), int(other)) for one, other in zip(first, second, strict=True)]

    assert read == [(i, i) for i in range(6)]
    assert list(tmp_path.iterdir()) == []

    # WHEN the original has filled it, THEN a copy reads what is there
    assert elements(dataset) == elements(Dataset.range(6))
    assert elements(copied(dataset)) == elements(Dataset.range(6))
    assert list(tmp_path.glob("cache*index"))
