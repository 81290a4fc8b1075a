"""A map's function cut in two, with a cache between, gives what it gave, and draws anew in each epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.capture.operations import kind_of
from tensorboard_plugin_plumber.rewrite.rebuild import Refused
from tensorboard_plugin_plumber.rewrite.split import (
    Split,
    applied,
    candidates,
    prove_split,
    split_at_fewest_bytes,
    split_at_randomness,
    splits_of,
)
from tests.support import augmented
from tests.support.augmented import SIDE, decoded, pictures
from tests.support.digests import elements

construction.install()
Dataset = tf.data.Dataset


def cached(first: Any) -> Any:
    return first.cache()


def types_before(split: Split) -> set[str]:
    return {node.op for node in split.first.function.graph.as_graph_def().node}


def types_behind(split: Split) -> set[str]:
    return {node.op for node in split.rest.function.graph.as_graph_def().node}


@pytest.mark.parametrize("calls", [None, 2])
@pytest.mark.parametrize("function", augmented.FUNCTIONS, ids=lambda one: one.__name__)
def test_decoding_goes_before_the_cache_and_all_is_as_it_was(function: Any, calls: int | None) -> None:
    # GIVEN a map that decodes and augments
    source = pictures()
    dataset = source.map(function, num_parallel_calls=calls)

    # WHEN it is cut, with a cache between
    split = split_at_randomness(dataset)
    made = applied(split, dataset, source, between=cached)

    # THEN the decoding is before the cut, and nothing that draws
    assert "DecodeJpeg" in types_before(split)
    assert "DecodeJpeg" not in types_behind(split)
    kinds = [kind_of(one) for one in types_before(split)]
    assert not any(one.random or one.stateless or one.writes or one.python for one in kinds)
    # AND both give the same where they draw the same, to the last bit
    proof = prove_split(split, dataset, 4)
    assert proof.same, proof.reason
    assert (proof.elements, proof.how) == (4, "in order")
    # AND the elements are of the same kind, and as many, in each epoch
    assert made.element_spec == dataset.element_spec
    assert int(made.cardinality()) == int(dataset.cardinality())
    assert [sum(1 for _ in made) for _ in range(2)] == [6, 6]


def test_each_epoch_draws_anew_and_reads_the_cache() -> None:
    source = pictures()
    dataset = source.map(augmented.as_dictionary)
    split = split_at_randomness(dataset)
    made = applied(split, dataset, source, between=cached)

    epochs = [list(made) for _ in range(2)]

    assert [[int(one["label"]) for one in epoch] for epoch in epochs] == [[1, 2, 3, 4, 5, 6]] * 2
    assert [int(one["more"]["square"]) for one in epochs[1]] == [1, 4, 9, 16, 25, 36]
    images = [[one["image"].numpy().tobytes() for one in epoch] for epoch in epochs]
    assert images[0] != images[1]
    # The decoded picture crosses, not the JPEG and not what was cropped of it.
    assert SIDE * SIDE * 3 <= split.crossing_bytes < SIDE * SIDE * 3 + 1000


def test_both_halves_keep_the_settings_of_the_map() -> None:
    source = pictures()
    dataset = source.map(augmented.plain, num_parallel_calls=2, deterministic=False, name="both")
    made = applied(split_at_randomness(dataset), dataset, source, between=lambda first: first)

    for one in (made, made._input_dataset):
        assert type(one).__name__ == "_ParallelMapDataset"
        assert int(one._num_parallel_calls) == 2
        assert (one._deterministic, one._name) == ("false", "both")
        assert one._use_unbounded_threadpool == dataset._use_unbounded_threadpool


def test_a_table_and_a_variable_are_the_very_same() -> None:
    # GIVEN a function that reads a table and, before all else, a variable
    keys = tf.lookup.KeyValueTensorInitializer(tf.range(1, 7), tf.range(10, 70, 10))
    table = tf.lookup.StaticHashTable(keys, -1)
    looked_up = pictures().map(augmented.of_a_table(table))
    variable = tf.Variable(1.0, trainable=False)
    scaled = pictures().map(augmented.of_a_variable(variable))

    of_table, of_variable = split_at_randomness(looked_up), split_at_randomness(scaled)

    # THEN the table's values come out
    made = applied(of_table, looked_up, looked_up._input_dataset, between=cached)
    assert [int(label) for _, label in made] == [10, 20, 30, 40, 50, 60]
    # AND what is read before the cut is taken not to change, which is said
    assert of_variable.assumptions == ("assumes that the variables its function reads do not change",)
    assert of_table.assumptions == ()  # it costs nothing to look up behind the cut
    for split, dataset in ((of_table, looked_up), (of_variable, scaled)):
        assert prove_split(split, dataset, 3).same
    # AND the variable is not a copy
    made = applied(of_variable, scaled, scaled._input_dataset, between=lambda first: first)
    variable.assign(-1.0)
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(made)


def test_a_generator_goes_on_drawing_and_the_proof_leaves_its_state_alone() -> None:
    generator = tf.random.Generator.from_seed(3)
    dataset = pictures().map(augmented.of_a_generator(generator))
    before = generator.state.numpy().tolist()

    split = split_at_randomness(dataset)
    assert prove_split(split, dataset, 3).same

    assert generator.state.numpy().tolist() == before
    made = applied(split, dataset, dataset._input_dataset, between=cached)
    wanted = elements(dataset)
    generator.reset_from_seed(3)
    assert elements(made) == wanted


def test_the_layers_of_keras_keep_the_state_of_their_seeds() -> None:
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.layers.RandomFlip(seed=3), keras.layers.RandomCrop(64, 64, seed=4)]

    def function(jpeg: Any, label: Any) -> Any:
        image = tf.image.resize(decoded(jpeg), (96, 96))
        for layer in layers:
            image = layer(image, training=True)
        return image, label

    dataset = pictures().map(function)
    states = [layer.generator.state for layer in layers]
    before = [state.numpy().tolist() for state in states]

    split = split_at_randomness(dataset)
    proof = prove_split(split, dataset, 3)

    assert proof.same, proof.reason
    assert {"DecodeJpeg", "ResizeBilinear"} <= types_before(split)
    assert [state.numpy().tolist() for state in states] == before
    made = applied(split, dataset, dataset._input_dataset, between=cached)
    wanted = elements(dataset)
    for state, value in zip(states, before, strict=True):
        state.assign(value)
    assert elements(made) == wanted


def test_structures_of_the_input_reach_the_first_half() -> None:
    """Ragged and sparse components and a nested dictionary, of which one part only is handed on."""

    def function(element: Any) -> Any:
        rows = element["rows"]
        return {
            "image": augmented.augmented(decoded(element["image"]["jpeg"])),
            "rows": rows,
            "lengths": rows.row_lengths() + 1,
            "sparse": element["sparse"],
        }

    source = Dataset.from_tensor_slices(
        {
            "image": {"jpeg": augmented.jpegs(4), "unused": tf.range(4)},
            "rows": tf.ragged.constant([[[1], [2, 3]], [[4, 5], []], [[6], []], [[], [7, 8, 9]]]),
            "sparse": tf.sparse.from_dense(tf.eye(4)),
        }
    )
    dataset = source.map(function)

    split = split_at_randomness(dataset)
    made = applied(split, dataset, source, between=cached)

    assert all(spec.dtype not in (tf.variant, tf.resource) for spec in split.crossing)
    assert made.element_spec == dataset.element_spec
    proof = prove_split(split, dataset, 4)
    assert proof.same, proof.reason
    for one, other in zip(made, dataset, strict=True):
        assert one["rows"].to_list() == other["rows"].to_list()
        assert one["lengths"].numpy().tolist() == other["lengths"].numpy().tolist()
        assert (
            tf.sparse.to_dense(one["sparse"]).numpy().tolist()
            == tf.sparse.to_dense(other["sparse"]).numpy().tolist()
        )


def test_strings_are_weighed_by_what_they_hold() -> None:
    """A parsed text of unknown length crosses rather than the whole record."""

    def function(record: Any) -> Any:
        parsed = tf.io.parse_single_example(
            record,
            {
                "text": tf.io.FixedLenFeature([], tf.string),
                "waste": tf.io.FixedLenFeature([100_000], tf.int64),
            },
        )
        return tf.strings.join([parsed["text"], tf.strings.as_string(tf.random.uniform(()))])

    def record(index: int) -> bytes:
        numbers = tf.train.Feature(int64_list=tf.train.Int64List(value=[index] * 100_000))
        text = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"x" * 500]))
        features = tf.train.Features(feature={"text": text, "waste": numbers})
        return bytes(tf.train.Example(features=features).SerializeToString())

    dataset = Dataset.from_tensor_slices([record(index) for index in range(4)]).map(function)

    split = split_at_randomness(dataset)

    assert [spec.dtype for spec in split.crossing] == [tf.string]
    assert 500 < split.crossing_bytes < 700
    assert prove_split(split, dataset, 4).same


def test_of_several_cuts_each_holds_less_than_the_one_before() -> None:
    def function(jpeg: Any, label: Any) -> Any:
        larger = tf.image.resize(decoded(jpeg), (2 * SIDE, 2 * SIDE))
        return tf.image.random_crop(larger, (SIDE, SIDE, 3)), label

    dataset = pictures().map(function)

    splits = splits_of(dataset, share=0.1)

    assert len(splits) == 2
    assert "ResizeBilinear" in types_before(splits[0])
    assert "ResizeBilinear" in types_behind(splits[1])
    assert splits[1].crossing_bytes < splits[0].crossing_bytes / 8
    assert splits[1].first_seconds < splits[0].first_seconds
    assert all(prove_split(one, dataset, 3).same for one in splits)


def test_what_is_not_random_is_cut_before_a_cast_that_makes_it_larger() -> None:
    def function(jpeg: Any, label: Any) -> Any:
        image = decoded(jpeg)
        for _ in range(3):
            image = tf.cast(tf.image.resize(image, (SIDE, SIDE), "bicubic"), tf.uint8)
        return tf.cast(image, tf.float64) / 255.0, tf.one_hot(label, 1000)

    dataset = pictures().map(function)

    split = split_at_fewest_bytes(dataset)
    made = applied(split, dataset, dataset._input_dataset, between=cached)

    assert split.crossing_bytes < SIDE * SIDE * 3 + 1000
    assert split.why == ""
    assert [elements(made) for _ in range(2)] == [elements(dataset)] * 2
    assert prove_split(split, dataset, 3).same


def test_the_candidates_of_a_pipeline_say_what_speaks_against_the_others() -> None:
    source = pictures().map(lambda jpeg, label: (jpeg, label + 1))
    dataset = source.map(augmented.plain).shuffle(10).map(lambda image, label: (image, label)).batch(2)

    found = candidates(dataset)

    by_operator = {id(one.map_dataset): one for one in found}
    assert len(by_operator) == 3
    last, plain, first = found
    assert (last.splits, first.splits) == ((), ())
    assert "no cache may stand on its input" in last.refused
    assert "µs" in first.refused
    assert plain.splits
    assert plain.refused == ""
    assert prove_split(plain.splits[0], plain.map_dataset, 3).same


@pytest.mark.parametrize("function", [augmented.plain, augmented.printed], ids=lambda one: one.__name__)
def test_a_map_of_a_map_that_was_cut_is_cut_again(function: Callable[..., Any]) -> None:
    """The halves are maps like any other."""
    source = pictures()
    dataset = source.map(function)
    once = applied(split_at_randomness(dataset), dataset, source, between=lambda first: first)

    with pytest.raises(Refused, match=r"(nothing can be done before the cut|µs of its work)"):
        split_at_randomness(once)
    assert elements(once._input_dataset) == elements(once._input_dataset)
