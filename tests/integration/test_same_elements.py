"""Random pipelines, rewritten in every legal way, give the same elements; and `prove` tells those that do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.capture.survey import Survey
from tensorboard_plugin_plumber.rewrite.attempts import Verdict
from tensorboard_plugin_plumber.rewrite.planned import places_of
from tensorboard_plugin_plumber.rewrite.proof import prove
from tensorboard_plugin_plumber.rewrite.rebuild import Edit, Edits, rebuilt
from tests.support.random_pipelines import Files, generated

construction.install()
NORMAL, SLOW = range(100), range(100, 1100)
_PASSES = 2
_BUDGET_S, _OPTIMIZER_S = 20.0, 4.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("files"))


def told(element: Any) -> Any:
    """What an element is, in Python's own values; numbers by their bytes."""
    if isinstance(element, dict):
        return {name: told(one) for name, one in element.items()}
    if isinstance(element, tuple | list):
        return [told(one) for one in element]
    if isinstance(element, tf.data.Dataset):
        return ["dataset", *(told(one) for one in element)]
    if isinstance(element, tf.RaggedTensor):
        return ["ragged", told(element.flat_values), [told(one) for one in element.nested_row_splits]]
    if isinstance(element, tf.SparseTensor):
        return ["sparse", told(element.indices), told(element.values), told(element.dense_shape)]
    array = element.numpy() if hasattr(element, "numpy") else element
    content = (
        array.tobytes()
        if isinstance(array, np.ndarray) and array.dtype != object
        else np.asarray(array).tolist()
    )
    if isinstance(array, np.generic):
        content = array.tobytes()
    return [element.dtype.name, tuple(element.shape), content]


def passes(dataset: Any) -> list[list[Any]]:
    """What two iterators give one after the other; an error is told by its class, and is the end.

    What comes after an error is another matter: a prefetch goes on reading below, and may fill a cache without
    the element that failed.
    """
    found: list[list[Any]] = []
    for _ in range(_PASSES):
        found.append([])
        try:
            for element in dataset:
                found[-1].append(told(element))
        except tf.errors.OpError as error:
            found[-1].append(type(error).__name__)
            break
    return found


def legal_edits(dataset: Any, chance: random.Random) -> Edits:
    """Some changes that the facts of the pipeline allow."""
    places = places_of(dataset)
    survey = Survey()
    survey.look_at(dataset)
    within_reach = {id(one) for one in survey.order}  # not what a choice is made by
    edits: dict[int, Edit] = {}
    caches = 0
    for one in describe(dataset, role="trace").pipeline.operators:
        place = places.get(one.id)
        if place is None or id(place.dataset) not in within_reach:
            continue
        calls = chance.choice([2, 3, tf.data.AUTOTUNE]) if chance.random() < 0.7 else None
        if calls is not None and one.HasField("cycle_length"):
            calls = min(calls, one.cycle_length)  # more is an error to TensorFlow
        cache = one.cache.allowed and caches < 2 and chance.random() < 0.3
        caches += cache
        edits[id(place.dataset)] = Edit(
            calls=calls if one.HasField("parallel") and one.parallel.allowed else None,
            cache="" if cache else None,
            prefetch=chance.choice([1, 3]) if chance.random() < 0.3 else None,
        )
    return Edits(edits, threadpool_size=chance.choice([None, None, 3]))


def check(number: int, files: Files) -> None:
    """One random pipeline under random legal edits."""
    pipeline = generated(number, files)
    original, other = pipeline.build(), pipeline.build()
    rewritten = rebuilt(other, legal_edits(other, random.Random(number)))

    assert rewritten.element_spec == original.element_spec, pipeline.code
    assert int(rewritten.cardinality()) == int(original.cardinality()), pipeline.code
    found = prove(other, rewritten, in_order=True, budget_s=_BUDGET_S)
    assert found.same is True, f"{found.reason}\n{pipeline.code}"
    given, wanted = passes(rewritten), passes(original)
    if pipeline.order_is_open or pipeline.draws_freely:
        return  # what they give is left to chance
    assert given == wanted, pipeline.code
    assert found.whole, pipeline.code
    whole_passes = 2 if found.elements == sum(map(elements_of, wanted)) else 1
    assert found.elements == sum(map(elements_of, wanted[:whole_passes])), pipeline.code


def elements_of(one: list[Any]) -> int:
    """Elements of a pass, an error left out."""
    return len(one) - (bool(one) and isinstance(one[-1], str))


def test_calls_do_not_change_the_cycle_of_an_interleave() -> None:
    """Where TensorFlow chooses it, it goes by the calls: a third of the cores if they are tuned, else their number."""
    for calls in (tf.data.AUTOTUNE, None):
        spread = tf.data.Dataset.range(9).interleave(
            lambda x: tf.data.Dataset.from_tensors(x).repeat(3), num_parallel_calls=calls
        )
        described = describe(spread, role="trace").pipeline.operators[0]
        for other in {1, int(described.cycle_length), tf.data.AUTOTUNE}:
            rewritten = rebuilt(spread, Edits({id(spread): Edit(calls=other)}))
            assert passes(rewritten) == passes(spread)


@pytest.mark.parametrize("number", NORMAL)
def test_a_random_pipeline_gives_the_same_when_it_is_rewritten(number: int, files: Files) -> None:
    check(number, files)


Change = Callable[[Any, int], tuple[Any, Any]]


def _flagged(dataset: Any, at: int) -> Any:
    """Each element with whether it is the one at a place."""
    return dataset.enumerate().map(lambda index, element: (index == at, element))


def one_dropped(dataset: Any, at: int) -> tuple[Any, Any]:
    flagged = _flagged(dataset, at)
    return flagged.filter(lambda flag, _: flag | True), flagged.filter(lambda flag, _: ~flag)


def two_swapped(dataset: Any, at: int) -> tuple[Any, Any]:
    numbered = dataset.enumerate()  # so that no two are the same
    first, pair, last = numbered.take(at), numbered.skip(at).take(2), numbered.skip(at + 2)
    one, other = pair.take(1), pair.skip(1)
    return (
        first.concatenate(one).concatenate(other).concatenate(last),
        first.concatenate(other).concatenate(one).concatenate(last),
    )


def last_bit_changed(dataset: Any, at: int) -> tuple[Any, Any]:
    def beside(change: int) -> Any:
        def number(flag: Any, element: Any) -> Any:
            whole = tf.where(flag, tf.constant(1000 + change, tf.int64), tf.constant(1000, tf.int64))
            return element, tf.bitcast(whole, tf.float64)

        return number

    flagged = _flagged(dataset, at)
    return flagged.map(beside(0)), flagged.map(beside(1))


def type_changed(dataset: Any, at: int) -> tuple[Any, Any]:
    flagged = _flagged(dataset, at)
    return flagged, flagged.map(lambda flag, element: (tf.cast(flag, tf.uint8), element))


def cardinality_changed(dataset: Any, at: int) -> tuple[Any, Any]:
    return dataset, dataset.concatenate(dataset.skip(at + 1))


CHANGES: tuple[Change, ...] = (one_dropped, two_swapped, last_bit_changed, type_changed, cardinality_changed)


def check_changes(number: int, files: Files) -> None:
    """One random pipeline, each change of its elements, at a random place."""
    pipeline = generated(number, files)
    dataset = pipeline.build()
    length = len(passes(pipeline.build())[0])
    if length < 2 or pipeline.order_is_open or any("valid" in line for line in pipeline.lines):
        return
    at = random.Random(number).randrange(length - 1)
    for change in CHANGES:
        before, after = change(dataset, at)
        found = prove(before, after, in_order=True, budget_s=_BUDGET_S)
        assert found.same is False, f"{change.__name__} at {at}: {found}\n{pipeline.code}"


@pytest.mark.parametrize("number", NORMAL[::10])
def test_each_change_of_the_elements_of_a_random_pipeline_is_told(number: int, files: Files) -> None:
    check_changes(number, files)


@pytest.mark.slow
@pytest.mark.parametrize("number", SLOW[::5])
def test_each_change_of_the_elements_of_many_random_pipelines_is_told(number: int, files: Files) -> None:
    check_changes(number, files)


def check_optimized(number: int, files: Files) -> None:
    """One random pipeline, costly enough to be rewritten, through all of `optimize`."""
    pipeline = generated(number, files, costly=True)
    original, given = pipeline.build(), pipeline.build()
    tuned = plumber.optimize(given, budget_s=_OPTIMIZER_S, return_report=True)

    assert tuned.dataset.element_spec == original.element_spec, pipeline.code
    assert int(tuned.dataset.cardinality()) == int(original.cardinality()), pipeline.code
    others = [one.why for one in tuned.attempts if one.verdict is Verdict.OTHER_ELEMENTS]
    assert not others, pipeline.code  # nothing was planned that had to be found out
    if not (pipeline.order_is_open or pipeline.draws_freely):
        wanted = passes(original)
        assert passes(tuned.dataset) == wanted, pipeline.code
        # And the original, if it is another one, as if nothing had been.
        if tuned.dataset is not given:
            assert passes(given) == wanted, pipeline.code


@pytest.mark.parametrize("number", NORMAL[:4])
def test_optimize_gives_the_same_elements_of_a_random_pipeline(number: int, files: Files) -> None:
    check_optimized(number, files)


@pytest.mark.slow
@pytest.mark.parametrize("number", NORMAL[4:])
def test_optimize_gives_the_same_elements_of_many_random_pipelines(number: int, files: Files) -> None:
    check_optimized(number, files)


@pytest.mark.slow
@pytest.mark.parametrize("number", SLOW)
def test_one_of_a_thousand_random_pipelines_gives_the_same_when_it_is_rewritten(
    number: int, files: Files
) -> None:
    check(number, files)
