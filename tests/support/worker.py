"""One of two workers that train together: `python -m tests.support.worker LOG_DIR fit|loop`, TF_CONFIG set.

Prints how many steps its own loop made. `fit` is Keras 2's: that of Keras 3 fails by itself under this strategy.
"""

from __future__ import annotations

import sys

import tensorflow as tf

import tensorboard_plugin_plumber as plumber

EXAMPLES, BATCH, EPOCHS = 240, 8, 2


def make(_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """An example."""
    return tf.random.uniform([8]), tf.constant([1.0])


def make_dataset() -> tf.data.Dataset:
    """Batches that the workers share."""
    return tf.data.Dataset.range(EXAMPLES).map(make).batch(BATCH, drop_remainder=True)


def fit(strategy: tf.distribute.Strategy, log_dir: str) -> int:
    """Trains with Keras; returns the number of steps."""

    class Count(tf.keras.callbacks.Callback):  # type: ignore[misc]
        steps = 0

        def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
            self.steps += 1

    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input([8]), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    count = Count()
    model.fit(make_dataset(), epochs=EPOCHS, callbacks=[plumber.PlumberCallback(log_dir), count], verbose=0)
    return count.steps


def loop(strategy: tf.distribute.Strategy, log_dir: str) -> int:
    """Trains with a loop of its own; returns the number of steps."""
    with strategy.scope():
        weight = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)

    @tf.function
    def step(batch: tuple[tf.Tensor, tf.Tensor]) -> None:
        def update(x: tf.Tensor, y: tf.Tensor) -> None:
            weight.assign_add(tf.reduce_mean(x) - tf.reduce_mean(y))

        strategy.run(update, args=batch)

    steps = 0
    with plumber.trace(log_dir):
        distributed = strategy.experimental_distribute_dataset(make_dataset())
        for _ in range(EPOCHS):
            for batch in distributed:
                step(batch)
                steps += 1
    return steps


if __name__ == "__main__":
    ways = {"fit": fit, "loop": loop}
    print("steps", ways[sys.argv[2]](tf.distribute.MultiWorkerMirroredStrategy(), sys.argv[1]), flush=True)
