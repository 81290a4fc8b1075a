"""MirroredStrategy: several devices share one pipeline. On all GPUs, or without any on two halves of the CPU."""

import keras
import tensorflow as tf

import tensorboard_plugin_plumber as plumber

# Devices must be made before TensorFlow does anything else.
devices = [device.name.removeprefix("/physical_device:") for device in tf.config.list_physical_devices("GPU")]
if not devices:
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    devices = ["CPU:0", "CPU:1"]

images = tf.random.uniform([512, 64, 64, 3])
dataset = tf.data.Dataset.from_tensor_slices((images, tf.zeros([512])))
dataset = dataset.map(lambda image, label: (tf.image.random_hue(image, 0.1), label)).batch(32)

with tf.distribute.MirroredStrategy(devices).scope():
    model = keras.Sequential([keras.Input([64, 64, 3]), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(loss="mse")

# The strategy hides the pipeline behind its devices; the callback sees it all the same. Every device takes an
# element of its own in each step, so the report counts as many elements per step as there are devices.
model.fit(dataset, epochs=20, callbacks=[plumber.PlumberCallback("logs/mirrored")])
