"""Any loop, in Python or in a tf.function: one context manager around it."""

import tensorflow as tf

import tensorboard_plugin_plumber as plumber

images = tf.random.uniform([512, 64, 64, 3])
dataset = tf.data.Dataset.from_tensor_slices(images)
dataset = dataset.map(lambda image: tf.image.random_hue(image, 0.1)).batch(32).repeat(60)

# On a CPU each step is over when it returns: we say so, and the time between requests is the step's own.
weights = tf.Variable(tf.zeros([64 * 64 * 3, 1]))
with plumber.trace("logs/loop", consumer="synchronous"):
    for batch in dataset:
        error = tf.matmul(tf.reshape(batch, [-1, 64 * 64 * 3]), weights) - 1.0
        weights.assign_sub(1e-4 * tf.reduce_mean(error) * tf.ones_like(weights))
