"""What a dataset delivers, in a form that can be compared."""

from __future__ import annotations

import itertools
from typing import Any

import tensorflow as tf


def elements(dataset: Any, most: int = 40) -> list[str]:
    """The first elements, each as text of all its components."""
    return [
        str([_content(part) for part in tf.nest.flatten(element, expand_composites=True)])
        for element in itertools.islice(iter(dataset), most)
    ]


def _content(part: Any) -> Any:
    if isinstance(part, tf.data.Dataset):  # of a window
        return elements(part)
    return part.numpy().tolist() if hasattr(part.numpy(), "tolist") else part.numpy()
