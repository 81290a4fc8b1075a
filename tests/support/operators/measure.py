"""Runs a pipeline by hand, with a look at its model after every element: what capture and model make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture.align import align
from tensorboard_plugin_plumber.capture.counters import IteratorCounters, Layout
from tensorboard_plugin_plumber.capture.describe import Description, describe
from tensorboard_plugin_plumber.model.estimate import estimate, limits_of
from tensorboard_plugin_plumber.model.rows import rows_of
from tensorboard_plugin_plumber.model.windows import windows_of
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


@dataclass(frozen=True)
class Measured:
    """A pipeline that was run.

    Attributes:
      description: of its dataset.
      rows: of the operator table, in its order.
      steps: elements that it delivered.
      unmapped: names of live nodes that belong to no running operator.
    """

    description: Description
    rows: list[a.OperatorRow]
    steps: int
    unmapped: frozenset[str]


def measure(dataset: Any, steps: int | None = None) -> Measured:
    """Describes a dataset, runs it and reads its counters.

    Args:
      steps: elements to draw; None: all.
    """
    options = tf.data.Options()
    # It would run ahead of the looks, to an end at which TensorFlow drops the counters.
    options.experimental_optimization.inject_prefetch = False
    # As many calls at a time, on however many cores.
    options.threading.private_threadpool_size = 2
    dataset = dataset.with_options(options)
    description = describe(dataset, role="trace")
    bodies = {index for bodies in description.bodies for index in bodies}
    counters = IteratorCounters(Layout(description.pipeline.running, bodies))
    unmapped: set[str] = set()
    drawn = 0
    iterator = iter(dataset)
    for drawn, _ in enumerate(iterator, 1):
        model = tf.data.experimental.get_model_proto(iterator)
        mapping = align(description, model)
        counters.observe(model, mapping)
        unmapped |= {
            node.name for id_, node in model.nodes.items() if id_ not in mapping and node.name != "Root"
        }
        if drawn == steps:
            break
    return Measured(description, _rows(description.pipeline, counters, drawn), drawn, frozenset(unmapped))


def _rows(pipeline: m.Pipeline, counters: IteratorCounters, steps: int) -> list[a.OperatorRow]:
    sample = m.PipelineSample(
        operators=[
            m.OperatorCounters(
                elements=count.elements, elements_seen=count.seen, processing_time_ns=count.processing_ns
            )
            for count in counters.counts()
        ],
        steps=steps,
        active_s=1.0,
    )
    record = m.SampleRecord(elapsed_s=2.0, pipelines=[sample])
    windows = windows_of(pipeline, 0, (record,))
    assert windows is not None
    found = estimate(
        pipeline, windows, limits_of(m.Host(cores=2, memory_bytes=1 << 33), None, 0.0, None, None)
    )
    return rows_of(pipeline, found, windows, set())
