"""JAX: tf.data feeds a jitted step through a thread that reads ahead. Needs `pip install jax`."""

import queue
import sys
import threading
import time

import tensorflow as tf

import tensorboard_plugin_plumber as plumber

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit("This example needs JAX: pip install jax")

tf.config.set_visible_devices([], "GPU")  # the accelerator is JAX's; TensorFlow only reads
images = tf.random.uniform([512, 64, 64, 3])
dataset = tf.data.Dataset.from_tensor_slices(images)
dataset = dataset.map(lambda image: tf.image.random_hue(image, 0.1)).batch(32).repeat(60)


@jax.jit
def step(weights, batch):
    """One step of gradient descent."""

    def loss(w):
        return jnp.mean((batch.reshape(len(batch), -1) @ w - 1.0) ** 2)

    return weights - 1e-4 * jax.grad(loss)(weights)


# JAX returns before a step is done, so nobody can see from outside how long it takes. We can: on a batch at hand.
weights, batch = jnp.zeros([64 * 64 * 3, 1]), jnp.zeros([32, 64, 64, 3])
step(weights, batch).block_until_ready()  # compiles
began_s = time.perf_counter()
for _ in range(20):
    step(weights, batch).block_until_ready()
steps_per_s = 20 / (time.perf_counter() - began_s)

with plumber.trace("logs/jax", consumer=steps_per_s):
    batches = queue.Queue(maxsize=2)

    def read_ahead():
        """Puts batches on the device; None is the end."""
        for numpy_batch in dataset.as_numpy_iterator():
            batches.put(jax.device_put(numpy_batch))
        batches.put(None)

    threading.Thread(target=read_ahead).start()
    while (batch := batches.get()) is not None:
        weights = step(weights, batch)
    weights.block_until_ready()
