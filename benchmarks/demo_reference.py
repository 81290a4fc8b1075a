"""How long the demo's training really waits: its model and data in an eager loop, without Plumber.

    python -m benchmarks.demo_reference [--epochs 3]

Prints one JSON object. The wait fraction is the time inside next() over the total, the first
epoch (tracing, cold files) left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"

from tensorboard_plugin_plumber.demo import photographs
from tensorboard_plugin_plumber.demo.train import make_dataset, make_model


@dataclass(frozen=True)
class Reference:
    """What a stopwatch in the loop itself says, over `steps` steps."""

    wait_fraction: float
    steps_per_s: float
    steps: int


def measure(pattern: str, epochs: int) -> Reference:
    """One warm-up epoch, then `epochs` timed ones, over the files that match `pattern`."""
    dataset, model = make_dataset(pattern), make_model()
    wait_s = total_s = 0.0
    steps = 0
    for epoch in range(epochs + 1):
        iterator = iter(dataset)
        begin = time.perf_counter()
        epoch_wait_s, epoch_steps = 0.0, 0
        while True:
            asked = time.perf_counter()
            batch = next(iterator, None)
            epoch_wait_s += time.perf_counter() - asked
            if batch is None:
                break
            # Returns the loss as a number: the step is over when it does.
            model.train_on_batch(*batch)
            epoch_steps += 1
        if epoch > 0:
            total_s += time.perf_counter() - begin
            wait_s += epoch_wait_s
            steps += epoch_steps
    return Reference(wait_s / total_s, steps / total_s, steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3, metavar="E", help="timed epochs (default: 3)")
    options = parser.parse_args()
    shards = photographs.prepare()
    print(json.dumps(asdict(measure(shards.pattern, options.epochs))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
