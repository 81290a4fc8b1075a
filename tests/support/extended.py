"""Prints what an analysis says with the extensions that are installed: run in a process of its own."""

from __future__ import annotations

import sys

from tensorboard_plugin_plumber.model.analyse import analyse
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.jsonify import to_json
from tests.support.recordings import Cost, Run, chain


def main() -> None:
    """A batch of one over a map, run alone at what they cost."""
    batch = m.Operator(type="Batch", batch_size=1, cardinality=-2)
    decode = m.UserFunction(name="decode")
    costs = [
        Cost("BatchV2", 1, 1e-3, 1e6, written=[batch]),
        Cost("Map", 1, 1e-3, 1e6, function=decode),
        Cost("TFRecord", 1, 1e-6, 1e6),
    ]
    run = Run(rate=499, consumer=m.CONSUMER_NONE, process_cores=1.0, pool_cores=0.5)
    sys.stdout.write(to_json(analyse(chain(costs, run))))


if __name__ == "__main__":
    main()
