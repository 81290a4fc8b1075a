"""Keras: one callback. Then look: `plumber report logs`, or `tensorboard --logdir logs`."""

import keras
import tensorflow as tf

import tensorboard_plugin_plumber as plumber

# A pipeline with a costly map. It draws random numbers, so TensorFlow runs one call at a time.
images = tf.random.uniform([512, 64, 64, 3])
dataset = tf.data.Dataset.from_tensor_slices((images, tf.zeros([512])))
dataset = dataset.map(lambda image, label: (tf.image.random_hue(image, 0.1), label)).batch(32)

# A model that needs far less time than its input: it waits, and the report says for what.
model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1)])
model.compile(loss="mse")
model.fit(dataset, epochs=40, callbacks=[plumber.PlumberCallback("logs/fit")])
