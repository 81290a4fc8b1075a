"""A short training on two logical devices: `python -m tests.support.mirrored_fit LOG_DIR`."""

from __future__ import annotations

import sys

import keras
import tensorflow as tf

import tensorboard_plugin_plumber as plumber

EXAMPLES, BATCH, EPOCHS = 200, 10, 2


def make_dataset(examples: int) -> tf.data.Dataset:
    """Batches that the devices share."""

    def make(_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.random.uniform([8]), tf.constant([1.0])

    return tf.data.Dataset.range(examples).map(make).batch(BATCH)


def main() -> None:
    """Trains."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(
        make_dataset(EXAMPLES),
        epochs=EPOCHS,
        validation_data=make_dataset(EXAMPLES // 2),
        callbacks=[plumber.PlumberCallback(sys.argv[1])],
        verbose=0,
    )


if __name__ == "__main__":
    main()
