"""Estimates of one pipeline under any limits: what was measured is worked out once, and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tensorboard_plugin_plumber.model.decisions import unchanged
from tensorboard_plugin_plumber.model.estimate import Estimate, limits_of, measured, observed_bytes, under
from tensorboard_plugin_plumber.model.memory import buffer_bytes
from tensorboard_plugin_plumber.model.network import Limits, Network
from tensorboard_plugin_plumber.model.questions import NOTHING_BARRED, Barred, WhatIf
from tensorboard_plugin_plumber.model.service import variation
from tensorboard_plugin_plumber.model.sizes import sizes_of
from tensorboard_plugin_plumber.model.storage import Storage, storage_of, supposed_storage
from tensorboard_plugin_plumber.model.windows import Array, Windows
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


class Estimates:
    """What the windows of one pipeline say of it.

    Args:
      pipeline: of a graph record.
      windows: of it.
      host: of the same record.
      used: the newest sample of the host.
    """

    def __init__(self, pipeline: m.Pipeline, windows: Windows, host: m.Host, used: m.HostSample) -> None:
        self.pipeline, self.windows = pipeline, windows
        self._host, self._used = host, used
        self._spread, self._sizes = variation(windows), sizes_of(pipeline, windows)
        self._storage = storage_of(pipeline, host, windows)
        self._kept: dict[tuple[bool, bytes | None], Estimate] = {}

    def storage(self, what_if: WhatIf) -> Storage:
        """The storage that its sources read from."""
        supposed = what_if.storage_bytes_per_s
        if supposed is None:
            return self._storage
        return supposed_storage(self.pipeline, self.windows, supposed)

    def under(self, what_if: WhatIf) -> Callable[[Array | None], Estimate]:
        """A function from weights of the windows (None: each once) to the estimate under the limits of `what_if`."""
        storage = self.storage(what_if)
        limits = limits_of(
            self._host,
            self._used,
            observed_bytes(self.windows),
            what_if.cores,
            what_if.memory_bytes,
            storage.curve,
            what_if.memory_share,
        )
        given = what_if.consumer_rate
        if given is None and self.pipeline.HasField("consumer_rate"):
            given = self.pipeline.consumer_rate
        supposed = what_if.storage_bytes_per_s is not None

        def estimate(weights: Array | None) -> Estimate:
            key = (supposed, None if weights is None else weights.tobytes())
            if key not in self._kept:
                self._kept[key] = self._measured(limits, storage, weights)
            found = under(
                self.pipeline, self.windows, self._kept[key], limits, weights=weights, given_rate=given
            )
            network = replace(found.network, epochs=what_if.epochs)
            if what_if.added_bytes is not None:
                network = _with_added_bytes(network, what_if.added_bytes)
            return replace(found, network=_without(network, what_if.barred))

        return estimate

    def _measured(self, limits: Limits, storage: Storage, weights: Array | None) -> Estimate:
        return measured(
            self.pipeline,
            self.windows,
            limits,
            weights=weights,
            spread=self._spread,
            sizes=self._sizes,
            stored=storage.shares,
        )


def _with_added_bytes(network: Network, added: float) -> Network:
    """The network under a limit of what a plan may add; what is not free cannot be added."""
    limits = network.limits
    free = limits.memory_free_bytes / limits.memory_share if limits.memory_share > 0 else 0.0
    today = buffer_bytes(network, unchanged(network))
    return replace(network, limits=replace(limits, memory_free_bytes=today + min(added, free)))


def _without(network: Network, barred: Barred) -> Network:
    """The network in which nothing that is barred may be decided."""
    if barred == NOTHING_BARRED:
        return network
    operators = tuple(
        replace(
            one,
            may_parallel=one.may_parallel and one.id not in barred.calls,
            may_unbounded=one.may_unbounded and not barred.unbounded and one.id not in barred.calls,
            may_prefetch=one.may_prefetch and not barred.prefetch,
            may_cache=one.may_cache and one.id not in barred.cached,
            cache_bytes=None if barred.memory_caches else one.cache_bytes,
            file_cache_bytes=None if barred.file_caches else one.file_cache_bytes,
        )
        for one in network.operators
    )
    return replace(network, operators=operators, pool_fixed=barred.threadpool)
