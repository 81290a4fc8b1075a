"""Plumber for TensorBoard: says why training waits for its tf.data pipeline."""
