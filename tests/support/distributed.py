"""Ways of iterating under a strategy: `python -m tests.support.distributed mirrored|one LOG_DIR`.

Prints a line of JSON for each: the way, the steps that its loop made, and whether it got the same
sums as without Plumber.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import keras
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tests.support.ways import Delivered, make_dataset

BATCHES = 60


class Loops:
    """Loops over one distributed dataset; each makes two epochs and returns its steps.

    Args:
      strategy: the strategy.
      delivered: gets the batches.
    """

    def __init__(self, strategy: tf.distribute.Strategy, delivered: Delivered) -> None:
        self._strategy = strategy
        self._delivered = delivered
        self._distributed = strategy.experimental_distribute_dataset(make_dataset(BATCHES))
        self._from_function = strategy.distribute_datasets_from_function(lambda _: make_dataset(BATCHES))

    def eager(self) -> int:
        """`for batch in distributed`."""
        return self._eager(self._distributed)

    def from_function(self) -> int:
        """The same, of datasets that a function makes."""
        return self._eager(self._from_function)

    def graph(self) -> int:
        """`for batch in distributed` in a tf.function that closes over it."""

        @tf.function
        def epoch() -> tf.Tensor:
            steps = tf.constant(0, tf.int64)
            for batch in self._distributed:
                steps += self._step(batch)
            return steps

        return int(epoch() + epoch())

    def graph_from_function(self) -> int:
        """The same, of datasets that a function makes, and given as an argument."""
        return self._argument(self._from_function)

    def argument(self) -> int:
        """`for batch in distributed` in a tf.function that is given it."""
        return self._argument(self._distributed)

    def iterator(self) -> int:
        """A tf.function that is given the iterator."""

        @tf.function
        def step(iterator: object) -> tf.Tensor:
            return self._step(next(iterator))

        steps = 0
        for _ in range(2):
            iterator = iter(self._distributed)
            for _ in range(BATCHES):
                steps += int(step(iterator))
        return steps

    def _eager(self, distributed: object) -> int:
        steps = 0
        for _ in range(2):
            for batch in distributed:
                self._step(batch)
                steps += 1
        return steps

    def _argument(self, distributed: object) -> int:
        @tf.function
        def epoch(given: object) -> tf.Tensor:
            steps = tf.constant(0, tf.int64)
            for batch in given:
                steps += self._step(batch)
            return steps

        return int(epoch(distributed) + epoch(distributed))

    def _step(self, batch: object) -> tf.Tensor:
        """Adds up what the devices got; returns 1."""
        sums = self._strategy.run(tf.reduce_sum, args=(batch,))
        total = self._strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)
        return self._delivered.in_graph(total)


def fit(strategy: tf.distribute.Strategy, log_dir: str) -> int:
    """Two epochs of Keras's fit."""

    def make(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(tf.reshape(x, [-1, 1]), tf.float32), tf.constant([1.0])

    with strategy.scope():
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(
        make_dataset(BATCHES).unbatch().map(make).batch(4).map(lambda x, y: (x[:, 0], y)),
        epochs=2,
        callbacks=[plumber.PlumberCallback(log_dir)],
        verbose=0,
    )
    return 2 * BATCHES


def main() -> None:
    """Runs all ways."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    mirrored = sys.argv[1] == "mirrored"
    strategy = (
        tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        if mirrored
        else tf.distribute.OneDeviceStrategy("/cpu:0")
    )
    names = ["eager", "from_function", "graph", "graph_from_function", "argument", "iterator"]
    for name in names:
        without, delivered = Delivered(body_s=0.0), Delivered()
        way: Callable[[], int] = getattr(Loops(strategy, without), name)
        way()
        loops = Loops(strategy, delivered)
        with plumber.trace(os.path.join(sys.argv[2], name)):
            steps = getattr(loops, name)()
        print(json.dumps([name, steps, without.sums == delivered.sums and len(delivered.sums) == steps]))
    print(json.dumps(["fit", fit(strategy, os.path.join(sys.argv[2], "fit")), True]))


if __name__ == "__main__":
    main()
