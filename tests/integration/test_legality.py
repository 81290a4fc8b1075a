"""What holds of each edge, and why: one pipeline per construct, with the facts that must and must not hold.

Whether randomness gives another outcome in each epoch is compared with what the pipeline really delivers.
"""

from __future__ import annotations

import inspect
import timeit

import numpy as np
import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import graphs, settings
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.capture.facts import PipelineFacts
from tensorboard_plugin_plumber.capture.written import operators_of
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.legality import CASES, draws
from tests.support.legality.case import source


def described(make):
    return describe(make(), role="trace").pipeline


def root_of(pipeline):
    return pipeline.operators[0]


def line_in(make, comment):
    lines, first = inspect.getsourcelines(make)
    (found,) = [first + i for i, line in enumerate(lines) if line.rstrip().endswith(comment)]
    return found


@pytest.mark.parametrize("one", CASES, ids=repr)
def test_the_facts_of_a_construct(one):
    pipeline = described(one.make)

    operators = {operator.id: operator for operator in pipeline.operators}
    left = list(root_of(pipeline).facts)
    for expected in one.facts:
        found = next(
            fact
            for fact in left
            if m.FactKind.Name(fact.kind) == f"FACT_{expected.kind}"
            and operators[fact.operator].type == expected.operator
            and expected.words in fact.reason
            and (fact.seeded, fact.changes_each_epoch) == (expected.seeded, expected.changes)
            and (not expected.line or fact.source.line == line_in(one.make, expected.line))
        )
        left.remove(found)
    assert [(fact.reason, fact.operator) for fact in left] == []


@pytest.mark.parametrize("one", CASES, ids=repr)
def test_the_verdicts_agree_with_the_facts(one):
    pipeline = described(one.make)

    root = root_of(pipeline)
    assert root.cache.allowed == one.cache
    if one.parallel is not None:
        maps = [operator for operator in pipeline.operators if operator.type.endswith("Map")]
        named = next(operator for operator in maps if operator.HasField("parallel"))
        assert named.parallel.allowed == one.parallel
    for operator in pipeline.operators:
        if operator.injected:
            continue
        kinds = {fact.kind for fact in operator.facts}
        forbidden = kinds & {m.FACT_SIDE_EFFECT, m.FACT_PYTHON, m.FACT_INFINITE}
        changing = any(fact.changes_each_epoch for fact in operator.facts)
        if forbidden or changing:
            assert not operator.cache.allowed
        if not operator.cache.allowed:
            culprits = [fact for fact in operator.facts if fact.operator == operator.cache.operator]
            assert culprits
            assert operator.cache.reason


EPOCHS = [one for one in CASES if any(fact.kind == "RANDOM" for fact in one.facts)]


@pytest.mark.parametrize("one", EPOCHS, ids=repr)
def test_epochs_differ_where_the_facts_say_so(one):
    """Of iterators made one after the other, and of the passes of a repeat."""
    if one.make in (draws.random_layer_of_keras, draws.resample):
        pytest.skip("slow, and the same as others")
    # GIVEN each epoch as an iterator of its own
    dataset = one.make()
    passes = [delivered(dataset) for _ in range(3)]
    claimed = any(fact.changes_each_epoch for fact in root_of(described(lambda: dataset)).facts)

    assert claimed == (not all(each == passes[0] for each in passes))

    # GIVEN epochs by a repeat
    dataset = one.make()
    repeated = delivered(dataset.repeat(3))
    length = len(repeated) // 3
    parts = [repeated[i * length : (i + 1) * length] for i in range(3)]
    pipeline = described(lambda: dataset.repeat(3))
    below = next(operator for operator in pipeline.operators if operator.parent == root_of(pipeline).id)
    claimed = any(fact.changes_each_epoch for fact in below.facts)

    assert claimed == (not all(each == parts[0] for each in parts))


def delivered(dataset):
    return [np.asarray(one).tolist() for x in dataset for one in tf.nest.flatten(x)]


def test_a_fact_stands_on_every_edge_above_its_reason_and_on_none_below():
    def augment(x):
        return tf.cast(x, tf.float32) + tf.random.uniform([])

    dataset = source().map(lambda x: x + 1).map(augment).batch(4).cache().prefetch(1)
    operators = {one.type: one for one in described(lambda: dataset).operators if not one.injected}
    order = [one for one in described(lambda: dataset).operators if not one.injected]

    assert [one.type for one in order] == ["Prefetch", "Cache", "Batch", "Map", "Map", "Range"]
    assert [len(one.facts) for one in order] == [1, 1, 1, 1, 0, 0]
    assert [any(fact.changes_each_epoch for fact in one.facts) for one in order] == [
        False, False, True, True, False, False,
    ]  # fmt: skip
    assert {fact.operator for one in order for fact in one.facts} == {order[3].id}
    assert operators["Batch"].facts[0].source.scope == "augment"


def test_facts_cost_little_beside_the_description():
    """By the fastest of many tries: others run on this machine."""

    def augment(x):
        image = tf.zeros([32, 32, 3]) + x
        image = tf.image.random_flip_left_right(image)
        image = tf.image.random_contrast(tf.image.random_brightness(image, 0.2), 0.1, 0.2)
        return tf.reduce_sum(tf.image.resize(image, [16, 16]))

    dataset = source().map(lambda x: tf.cast(x, tf.float32))
    for _ in range(9):
        dataset = dataset.map(augment)
    found = graphs.read(dataset)
    root = operators_of(found.written, dataset)
    cardinalities = {one.id: settings.cardinality_of(one) for one in root.walk()}

    def judge():
        return PipelineFacts(root, found.library, cardinalities)

    facts_s = min(timeit.repeat(judge, number=1, repeat=30))
    read_s = min(timeit.repeat(lambda: graphs.read(dataset), number=1, repeat=5))
    assert len(judge().edges) == 11
    print(f"facts {facts_s * 1e3:.2f} ms, graph {read_s * 1e3:.2f} ms")
    assert facts_s < 0.2 * read_s
