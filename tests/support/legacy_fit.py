"""A training with tf-keras: `python -m tests.support.legacy_fit LOG_DIR`; prints what it counted itself.

With TF_USE_LEGACY_KERAS=1 the callback derives from tf-keras's own class, else from Keras 3's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

import tensorboard_plugin_plumber as plumber
from tests.support.counted import FEATURES, CountedDataset, step_counter

BATCHES = 20


class Photographs(tf_keras.utils.Sequence):
    """Batches made by Python."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros([4, FEATURES], "float32"), np.zeros([4, 1], "float32")


def fit(log_dir: Path, x: Any, *others: Any, **options: Any) -> Any:
    """Trains; returns the model."""
    model = tf_keras.Sequential([tf_keras.layers.Input([FEATURES]), tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, callbacks=[plumber.PlumberCallback(log_dir), *others], verbose=0, **options)
    return model


def main() -> None:
    """Trains, evaluates and predicts."""
    root = Path(sys.argv[1])
    train, validation, counter = CountedDataset(300), CountedDataset(100), step_counter(tf_keras)
    model = fit(root / "fit", train.dataset, counter, validation_data=validation.dataset, epochs=2)
    inputs = CountedDataset(200, targets=False)
    model.predict(inputs.dataset, callbacks=[plumber.PlumberCallback(root / "predict"), counter], verbose=0)
    once = CountedDataset(100)
    once.dataset = once.dataset.repeat()
    fit(root / "endless", once.dataset, counter, epochs=2, steps_per_epoch=25)
    fit(root / "sequence", Photographs(), epochs=2)
    calls = {"train": train.calls, "validation": validation.calls, "predict": inputs.calls}
    legacy = issubclass(plumber.PlumberCallback, tf_keras.callbacks.Callback)
    own = {"steps": counter.steps, "calls": {role: int(count) for role, count in calls.items()}}
    print("counted", json.dumps({**own, "derives": legacy, "tensorflow": tf.__version__}))


if __name__ == "__main__":
    main()
