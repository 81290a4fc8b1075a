"""A constraint for Plumber: the link to the accelerator carries only so many bytes per second."""

from __future__ import annotations

import os

from tensorboard_plugin_plumber.extending import Limit, Network, Settings

#: What the link carries, bytes/s: 12 GB/s, unless the environment says otherwise.
LINK_BYTES_PER_S = float(os.environ.get("DEVICE_LINK_BYTES_PER_S", "12e9"))


def device_link(network: Network, settings: Settings) -> Limit | None:
    """Bounds the steps per second by the bytes of one step's elements."""
    root = network.operators[0]
    if root.element_bytes <= 0:
        return None
    return Limit(
        LINK_BYTES_PER_S / root.element_bytes,
        f"link to the accelerator, {LINK_BYTES_PER_S / 1e9:.3g} GB/s",
        operators=[root.id],
    )
