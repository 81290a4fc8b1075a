"""Part of a pass of a real pipeline, as the hook would have recorded it: looks at exact places, no clock."""

from __future__ import annotations

from itertools import islice
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture import iterators
from tensorboard_plugin_plumber.capture.align import align
from tensorboard_plugin_plumber.capture.counters import IteratorCounters, Layout
from tensorboard_plugin_plumber.capture.counts import as_message
from tensorboard_plugin_plumber.capture.describe import Description, describe
from tensorboard_plugin_plumber.capture.flushed import flushed
from tensorboard_plugin_plumber.capture.passes import read_to_end
from tensorboard_plugin_plumber.model.windows import Windows, windows_of
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_LOOKS = 20


class PartialPass:
    """One iterator of a dataset, read from its beginning.

    Args:
      dataset: is described as the hook would.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._description: Description = describe(dataset, role="trace")
        self.pipeline = self._description.pipeline
        bodies = {root for roots in self._description.bodies for root in roots}
        self._counters = IteratorCounters(Layout(self.pipeline.running, bodies), flushed())
        self._iterator = iter(dataset)
        self._mapping: dict[int, int] = {}
        self._records: list[m.SampleRecord] = []

    def read(self, elements: int) -> Windows:
        """Takes so many more elements, or all that are left, with looks in between; the windows so far."""
        step = max(elements // _LOOKS, 1)
        for _ in range(0, elements, step):
            taken = sum(1 for _ in islice(self._iterator, step))
            self._look()
            if taken < step:
                break
        windows = windows_of(self.pipeline, 0, tuple(self._records))
        assert windows is not None
        return windows

    def _look(self) -> None:
        model: Any = iterators.parse_model(self._iterator_model())
        self._mapping = align(self._description, model, self._mapping)
        self._counters.observe(model, self._mapping, flushed=flushed())
        counts = self._counters.counts()
        sample = m.PipelineSample(
            pipeline=0,
            iterators=1,
            operators=[
                as_message(count, count.elements, now)
                for count, now in zip(counts, self._counters.now(), strict=True)
            ],
            steps=float(self._counters.root_elements),
            active_s=len(self._records) + 1.0,
            passes=int(read_to_end(self._description, self._counters.alive(), counts)),
        )
        for operator, count in zip(sample.operators, counts, strict=True):
            operator.pass_elements = count.elements if sample.passes else 0.0
        for index, watch in self._counters.caches().items():
            if watch.state is not None:
                sample.cache_states[index] = watch.state
        self._records.append(
            m.SampleRecord(
                sequence=len(self._records), elapsed_s=len(self._records) + 1.0, pipelines=[sample]
            )
        )

    def _iterator_model(self) -> bytes:
        return bytes(tf.data.experimental.get_model_proto(self._iterator).SerializeToString())
