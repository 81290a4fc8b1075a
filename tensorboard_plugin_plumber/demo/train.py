"""A training script as people write it: small model, photographs, and a pipeline that starves it.

Everything that is expensive stands in one map, one image at a time, with the random augmentation
in the same function as the decode: TensorFlow will neither run it in parallel by itself nor can a
cache be put behind it.
"""

from __future__ import annotations

import keras
import tensorflow as tf

BATCH_SIZE = 32
IMAGE_SIZE = 224
CLASSES = 4

FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def decode_and_augment(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """One record to an augmented image, [IMAGE_SIZE, IMAGE_SIZE, 3] float32, and its label."""
    example = tf.io.parse_single_example(record, FEATURES)
    image = tf.io.decode_jpeg(example["image"], channels=3)
    image = tf.image.resize(image, [256, 256])
    image = tf.image.random_crop(image, [IMAGE_SIZE, IMAGE_SIZE, 3])
    image = tf.image.random_flip_left_right(image)
    image = tf.image.random_hue(image / 255.0, max_delta=0.05)
    image = tf.image.random_saturation(image, 0.8, 1.2)
    image = tf.image.random_contrast(image, 0.8, 1.2)
    image = tf.image.random_brightness(image, max_delta=0.1)
    image = tf.image.random_jpeg_quality(tf.clip_by_value(image, 0.0, 1.0), 60, 100)
    return image, example["label"]


def make_dataset(pattern: str) -> tf.data.Dataset:
    """Batches of images and labels from the TFRecord files that match `pattern`."""
    dataset = tf.data.Dataset.list_files(pattern)
    dataset = dataset.interleave(tf.data.TFRecordDataset)
    dataset = dataset.shuffle(256)
    dataset = dataset.map(decode_and_augment)
    return dataset.batch(BATCH_SIZE)


def make_model() -> keras.Model:
    """A small convolutional classifier: some milliseconds a step on one core."""
    model = keras.Sequential(
        [
            keras.Input([IMAGE_SIZE, IMAGE_SIZE, 3]),
            keras.layers.Conv2D(16, 8, strides=8, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(64, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(
        optimizer="adam",
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def train(pattern: str, epochs: int, callbacks: list[keras.callbacks.Callback]) -> keras.callbacks.History:
    """Train for `epochs` passes over the files; Keras's own progress bar stays off."""
    dataset = make_dataset(pattern)
    return make_model().fit(dataset, epochs=epochs, callbacks=callbacks, verbose=0, shuffle=False)
