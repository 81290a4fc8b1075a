"""Tells whether an iterator was read to its end: the only sure way to know how long a pass is.

Nobody is told when a sequence ends. But most operators let go of their input when it is exhausted,
and the model then no longer has it.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tensorboard_plugin_plumber.capture.describe import Description

# Under an endless repeat there is no end. A cache that serves never had an input.
_NOTHING_TO_SEE = re.compile(r"ForeverRepeat|(Memory|File)Cache")


def read_to_end(description: Description, alive: Collection[int]) -> bool:
    """Whether a sequence that has delivered elements has come to its end, as far as that shows.

    Args:
      description: of the pipeline.
      alive: indices of the running operators that the iterator's model has now.
    """
    index = 0
    while not _NOTHING_TO_SEE.match(description.pipeline.running[index].type):
        for below in (description.inputs[index], description.bodies[index]):
            if below and set(alive).isdisjoint(below):
                return True
        if len(description.inputs[index]) != 1:
            break
        (index,) = description.inputs[index]
    return False
