"""What more of a resource is worth, and what a wanted rate takes, as an analysis shows them."""

from __future__ import annotations

from tensorboard_plugin_plumber.model.network import Network
from tensorboard_plugin_plumber.model.plan import fastest_loop
from tensorboard_plugin_plumber.model.prices import prices
from tensorboard_plugin_plumber.model.sizing import sentence, size_for
from tensorboard_plugin_plumber.schema import analysis_pb2 as a


def prices_of(network: Network) -> list[a.Price]:
    """The price of each resource that the pipeline could have more of."""
    return [
        a.Price(
            resource=a.Resource.Value(f"RESOURCE_{price.resource.name}"),
            amount=price.amount,
            rate=price.rate,
            gain=price.gain,
            sentence=price.sentence,
        )
        for price in prices(network, most=fastest_loop(network))
    ]


def sizing_of(network: Network, wanted_rate: float) -> a.Sizing:
    """The least of cores, and of memory, that reaches `wanted_rate` (steps/s)."""
    sizing = size_for(network, wanted_rate)
    shown = a.Sizing(wanted_rate=wanted_rate, reachable=sizing.reachable, sentence=sentence(network, sizing))
    if sizing.cores is not None:
        shown.cores = sizing.cores
    if sizing.memory_bytes is not None:
        shown.memory_bytes = sizing.memory_bytes
    return shown
