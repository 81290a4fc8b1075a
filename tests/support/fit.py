"""A real, short training with the callback: `python -m tests.support.fit LOG_DIR [--seconds S]`.

Its map `augment` draws random numbers, so TensorFlow leaves it sequential, and takes far longer than
the training step: training waits for it.
"""

from __future__ import annotations

import argparse
import time

import keras
import tensorflow as tf

import tensorboard_plugin_plumber as plumber

BATCH = 4
SIDE = 700


def make_dataset(examples: int) -> tf.data.Dataset:
    """Batches of small images and labels."""
    noise = tf.random.stateless_uniform([SIDE, SIDE, 3], seed=(1, 2), maxval=256, dtype=tf.int32)
    jpeg = tf.io.encode_jpeg(tf.cast(noise, tf.uint8))

    def augment(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # One core for some milliseconds, and a little randomness.
        image = tf.image.random_flip_left_right(tf.io.decode_jpeg(jpeg))
        return tf.cast(image[:8, :8], tf.float32) / 255.0, tf.cast(index % 2, tf.float32)

    return tf.data.Dataset.range(examples).map(augment).batch(BATCH)


class StopAfter(keras.callbacks.Callback):
    """Ends training after some seconds of it."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._end_s = 0.0

    def on_train_begin(self, logs: object = None) -> None:
        self._end_s = time.monotonic() + self._seconds

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if time.monotonic() > self._end_s:
            self.model.stop_training = True


def main() -> None:
    """Trains for a while."""
    parser = argparse.ArgumentParser()
    parser.add_argument("log_dir")
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    model = keras.Sequential([keras.Input([8, 8, 3]), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(loss="mse", optimizer="sgd")
    model.fit(
        make_dataset(800),
        validation_data=make_dataset(80),
        epochs=1000,
        verbose=0,
        callbacks=[plumber.PlumberCallback(options.log_dir), StopAfter(options.seconds)],
    )


if __name__ == "__main__":
    main()
