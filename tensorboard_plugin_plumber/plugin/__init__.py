"""The TensorBoard plugin: reads the events, solves, serves JSON and the tab."""
