"""The first half and its cache below a shuffle or a repeat: the same elements at the same places."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.rewrite.proof import prove
from tensorboard_plugin_plumber.rewrite.split import Candidate, applied, candidates, prove_split, splitting
from tests.support import augmented
from tests.support.augmented import pictures
from tests.support.digests import elements

construction.install()
Dataset = tf.data.Dataset


def multiplied(index: Any) -> Any:
    ones = tf.fill((2, 2), tf.cast(index, tf.float32))
    return tf.matmul(ones, ones) + tf.random.uniform((2, 2), seed=1), tf.random.normal((), seed=3)


def cached_at_the_cut(one: Candidate, dataset: Any, **options: Any) -> Any:
    """The map in its first two halves, with a cache between."""
    return applied(
        one.splits[0],
        dataset,
        dataset._input_dataset,
        between=lambda first: first.cache(),
        through=one.through,
        **options,
    )


def kinds(dataset: Any) -> list[str]:
    """Operators from the last one down."""
    found = []
    while dataset is not None:
        found.append(type(dataset).__name__.strip("_").removesuffix("Dataset"))
        dataset = getattr(dataset, "_input_dataset", None)
    return found


INPUTS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "shuffle": (lambda: Dataset.range(20).shuffle(7, seed=5), ["Shuffle"]),
    "the same order each time": (
        lambda: Dataset.range(20).shuffle(7, seed=5, reshuffle_each_iteration=False),
        [],  # a cache may as well stand above it
    ),
    "shuffle and repeat": (lambda: Dataset.range(20).shuffle(30, seed=5).repeat(3), ["Repeat", "Shuffle"]),
    "repeat and shuffle": (lambda: Dataset.range(20).repeat(2).shuffle(9, seed=5), ["Shuffle", "Repeat"]),
    "a map between": (
        lambda: (
            Dataset.range(10)
            .map(lambda index: index * 3)
            .shuffle(4, seed=1)
            .map(lambda index: index + 1)
            .prefetch(2)
            .repeat(2)
        ),
        ["Repeat", "Prefetch", "Shuffle"],
    ),
}


@pytest.mark.parametrize("name", INPUTS)
def test_the_order_and_the_draws_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "LEAST_SECONDS", 0.0)  # the costs do not matter here
    make, above = INPUTS[name]
    dataset = make().map(multiplied)

    # WHEN the first half goes as far down as it may
    (one,) = (each for each in candidates(dataset) if each.map_dataset is dataset)
    assert one.splits, one.refused
    split = one.splits[0]
    made = cached_at_the_cut(one, dataset)

    # THEN the cache is below what shuffles and repeats
    assert kinds(made)[: len(above) + 2] == ["Map", *above, "Cache"]
    assert prove_split(split, dataset, 8).same
    # AND each of three epochs holds what the original's does, in its order
    assert [elements(made, 100) for _ in range(3)] == [elements(dataset, 100) for _ in range(3)]
    assert made.element_spec == dataset.element_spec
    assert int(made.cardinality()) == int(dataset.cardinality())


def test_what_is_random_or_looks_at_elements_is_not_passed() -> None:
    for source in (
        pictures().shuffle(6).filter(lambda jpeg, label: label > 0),
        pictures().shuffle(6).map(lambda jpeg, label: (jpeg, label + tf.random.uniform((), 1, 9, tf.int32))),
        pictures().shuffle(6).batch(1).unbatch(),
    ):
        found = {id(one.map_dataset): one for one in candidates(source.map(augmented.plain).batch(2))}
        refusals = [one.refused for one in found.values()]
        assert all("no cache may stand on its input" in one or "µs" in one for one in refusals), refusals


def test_an_endless_pipeline_is_cut_below_its_repeat() -> None:
    dataset = pictures().shuffle(6).repeat().map(augmented.as_dictionary, num_parallel_calls=2)
    pipeline = dataset.batch(3).prefetch(1)

    (one,) = candidates(pipeline)

    assert (one.through, one.buffered) == (True, 6)
    made = cached_at_the_cut(one, dataset, pipeline=pipeline)
    assert kinds(made)[:5] == ["ParallelMap", "Repeat", "Shuffle", "Cache", "ParallelMap"]
    labels = [int(element["label"]) for element in made.take(18)]
    assert [sorted(labels[start : start + 6]) for start in (0, 6, 12)] == [[1, 2, 3, 4, 5, 6]] * 3


# Random draws in loops, and prints, keep the whole pipeline from being compared; `prove_split` compares these.
NOT_COMPARED = {"in_a_loop", "row_by_row", "printed"}


def test_what_is_not_random_goes_below_a_shuffle_as_a_whole(tmp_path: Path) -> None:
    """Files listed in a random order, read and decoded: a cache may stand nowhere above that."""
    for index, jpeg in enumerate(augmented.jpegs(5)):
        (tmp_path / f"{index}.jpg").write_bytes(jpeg)

    def load(path: Any) -> Any:
        image = augmented.decoded(tf.io.read_file(path))
        return tf.image.resize(image, (96, 96)), tf.strings.split(path, "/")[-1]

    dataset = Dataset.list_files(str(tmp_path / "*.jpg"), seed=3).map(load)
    (one,) = candidates(dataset)

    made = cached_at_the_cut(one, dataset)

    assert (one.through, one.buffered) == (True, 5)
    assert kinds(made)[:4] == ["Map", "Shuffle", "Cache", "Map"]
    assert one.splits[0].why == ""
    assert "DecodeJpeg" not in {node.op for node in one.splits[0].rest.function.graph.as_graph_def().node}
    assert [elements(made) for _ in range(3)] == [elements(dataset) for _ in range(3)]


@pytest.mark.parametrize("function", augmented.FUNCTIONS, ids=lambda one: one.__name__)
def test_the_whole_pipeline_gives_the_same_where_chance_is_held_still(function: Callable[..., Any]) -> None:
    """A proof that knows nothing of cuts: what a function calls was not spread out for it."""
    dataset = pictures().shuffle(6, seed=1).map(function)
    (one,) = candidates(dataset)

    made = cached_at_the_cut(one, dataset)
    proof = prove(dataset, made, in_order=True, budget_s=20)

    assert kinds(made)[:3] == ["Map", "Shuffle", "Cache"]
    assert proof.same is (None if function.__name__ in NOT_COMPARED else True), proof.reason
