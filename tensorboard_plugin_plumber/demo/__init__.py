"""The demonstration: a training run that waits for its data, and what Plumber says about it."""
