"""What a function is for is told by the operations of its graph."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture.describe import describe


def crop(path):
    image = tf.io.decode_jpeg(tf.io.read_file(path), 3)
    return tf.cast(image[:8, :8], tf.float32) / 255.0


def shrink(path):
    return tf.image.resize(tf.io.decode_png(tf.io.read_file(path), 3), [8, 8])


def parse(path):
    example = tf.io.parse_single_example(path, {"x": tf.io.FixedLenFeature([], tf.int64)})
    return tf.cond(
        example["x"] > 0, lambda: tf.pad([example["x"]], [[0, 3]]), lambda: tf.zeros([4], tf.int64)
    )


def nothing(path):
    return tf.strings.length(path) + 1


@pytest.mark.parametrize(
    ("function", "operations"),
    [
        (crop, {"DecodeJpeg", "StridedSlice", "CastToFloat"}),
        (shrink, {"DecodePng", "ResizeBilinear"}),
        (parse, {"ParseExample", "Pad"}),  # in a branch, too
        (nothing, set()),
    ],
)
def test_operations_that_tell_what_a_function_is_for(function, operations):
    dataset = tf.data.Dataset.from_tensor_slices(["a", "b"]).map(function)
    mapped, _ = describe(dataset, role="diagnose").pipeline.operators
    assert operations <= set(mapped.function.operations)
    assert bool(operations) == bool(mapped.function.operations)
