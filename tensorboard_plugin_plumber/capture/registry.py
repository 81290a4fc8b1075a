"""The pipelines of one session: finds the one that an iterator belongs to, or describes a new one."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from tensorboard_plugin_plumber.capture import guard, overhead
from tensorboard_plugin_plumber.capture.boundary import without_injected_prefetch
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.capture.following import FollowedIterator
from tensorboard_plugin_plumber.capture.likeness import likeness_of
from tensorboard_plugin_plumber.capture.pipeline import FollowedPipeline
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

# A program that builds new pipelines again and again would grow the graph without end.
_MAX_PIPELINES = 32
# CPU that describing new datasets may take: so much at once, and then this share of the time. A loop that makes
# a new dataset for every step gets only some of them described.
_DESCRIBING_S = 1.0
_DESCRIBING_SHARE = 0.01


@dataclass(frozen=True)
class PipelineSettings:
    """What a session says of all its pipelines.

    Attributes:
      kind: "fit", "trace" or "diagnose".
      consumer: how the consumer relates to its requests.
      consumer_rate: what the user says that the consumer could take, steps/s.
      amend: changes what is written of a pipeline, once, when it is found.
    """

    kind: str
    consumer: m.Consumer.ValueType
    consumer_rate: float | None = None
    amend: Callable[[m.Pipeline], None] | None = None


class PipelineRegistry:
    """All pipelines that a session has found.

    Args:
      settings: what is said of each.
    """

    def __init__(self, settings: PipelineSettings) -> None:
        self.pipelines: list[FollowedPipeline] = []
        # Since it was last written.
        self.changed = False
        self._settings = settings
        self._budget = _Budget()

    @property
    def describing_cpu_s(self) -> float:
        """CPU time that describing has taken so far, seconds."""
        return self._budget.spent_s

    def knows(self, dataset: Any) -> bool:
        """Whether the dataset is one of a pipeline here."""
        return any(pipeline.dataset() is dataset for pipeline in self.pipelines)

    def assign(self, iterator: FollowedIterator) -> None:
        """Finds the pipeline of an iterator, or describes it; ignores it where that fails."""
        dataset = iterator.dataset() or iterator.last_dataset
        if dataset is None:
            iterator.ignored = True
            return
        for pipeline in self.pipelines:
            if pipeline.dataset() is dataset and _is_same_way(pipeline, iterator):
                iterator.attach(pipeline)
                return
        like = likeness_of(dataset)
        found = self._built_before(like, iterator) or self._describe_within_budget(dataset, iterator)
        if found is None:
            iterator.ignored = True
        else:
            found.likeness = like
            iterator.attach(found)

    def uncalibrated(self) -> list[FollowedPipeline]:
        """Those whose calls cost something that matters, and that nobody has measured yet."""
        return [p for p in self.pipelines if overhead.is_missing(p.message) and p.calls_matter()]

    def calibrated(self, pipelines: list[FollowedPipeline]) -> None:
        """What calls cost has been measured: their messages say it from now on."""
        for pipeline in pipelines:
            overhead.fill(pipeline.message)
        self.changed = True

    def without_files(self) -> list[FollowedPipeline]:
        """Those whose files nobody has looked up yet."""
        return [p for p in self.pipelines if p.description.readings and not p.message.files]

    def found_files(self, pipeline: FollowedPipeline, files: list[m.SourceFiles]) -> None:
        """The files of its sources have been looked up: its message says them from now on."""
        pipeline.message.files.extend(files)
        self.changed = True

    def _built_before(self, like: Hashable | None, iterator: FollowedIterator) -> FollowedPipeline | None:
        """The pipeline of a dataset that the same lines built, and that is gone: not described again."""
        for pipeline in self.pipelines if like is not None else ():
            if pipeline.likeness == like and pipeline.dataset() is None and _is_same_way(pipeline, iterator):
                pipeline.dataset = iterator.dataset
                return pipeline
        return None

    def _describe_within_budget(self, dataset: Any, iterator: FollowedIterator) -> FollowedPipeline | None:
        if self._budget.is_spent():
            guard.warn(
                "follow every dataset", RuntimeError("new ones come faster than they can be described")
            )
            return None
        began_cpu_s = time.thread_time()
        try:
            return self._describe(dataset, iterator)
        except Exception as error:
            guard.warn("describe a pipeline", error)
            return None
        finally:
            self._budget.spent_s += time.thread_time() - began_cpu_s

    def _describe(self, dataset: Any, iterator: FollowedIterator) -> FollowedPipeline | None:
        """A new pipeline, or the one that an equal dataset had that is gone; None if there are too many."""
        runs = dataset if iterator.whole else without_injected_prefetch(dataset)
        description = describe(runs, role=iterator.role)
        same = [p for p in self.pipelines if p.description.pipeline.id == description.pipeline.id]
        for pipeline in same:
            # Strategies build an equal dataset for each of their iterators.
            if _is_same_way(pipeline, iterator) and (pipeline.dataset() is None or iterator.through_boundary):
                pipeline.dataset = iterator.dataset
                return pipeline
        if len(self.pipelines) >= _MAX_PIPELINES:
            guard.warn(
                "follow more pipelines", RuntimeError(f"{_MAX_PIPELINES} are followed in this session")
            )
            return None
        pipeline = FollowedPipeline(len(self.pipelines), description, iterator.dataset)
        message = pipeline.message
        if same:  # built by the same lines, and alive at the same time
            message.id = f"{message.id}-{len(same) + 1}"
            message.label = f"{message.label} ({len(same) + 1})"
        self._say_settings(message, iterator)
        overhead.fill(message)
        self.pipelines.append(pipeline)
        self.changed = True
        return pipeline

    def _say_settings(self, message: m.Pipeline, iterator: FollowedIterator) -> None:
        settings = self._settings
        message.consumer = settings.consumer
        if settings.kind == "fit" and iterator.role == "trace":
            message.consumer = m.CONSUMER_UNKNOWN  # not Keras's own loop
        if settings.consumer_rate is not None:
            message.consumer_rate = settings.consumer_rate
        message.has_counters = not iterator.without_model
        message.through_boundary = iterator.through_boundary
        message.iterated_by = iterator.iterated_by
        if iterator.thread_ids and not message.threadpool_size:
            message.threadpool_size = len(iterator.thread_ids)
        if settings.amend is not None:
            settings.amend(message)


def _is_same_way(pipeline: FollowedPipeline, iterator: FollowedIterator) -> bool:
    """Whether an iterator has a pipeline's role and is iterated in the same way."""
    message = pipeline.message
    return bool(message.role == iterator.role and message.iterated_by == iterator.iterated_by)


@dataclass
class _Budget:
    """CPU time for describing: `_DESCRIBING_S` at once, and `_DESCRIBING_SHARE` of the time that passes."""

    spent_s: float = 0.0
    _began_s: float = field(default_factory=time.perf_counter)

    def is_spent(self) -> bool:
        elapsed_s = time.perf_counter() - self._began_s
        return self.spent_s > _DESCRIBING_S + _DESCRIBING_SHARE * elapsed_s
