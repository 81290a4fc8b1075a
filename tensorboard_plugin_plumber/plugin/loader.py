"""Entry point `tensorboard_plugins`: makes the plugin, or explains in one line why not.

An error while this module is imported would end TensorBoard itself: so it needs nothing but the
standard library and TensorBoard's base class.
"""

from __future__ import annotations

import argparse
import logging

from tensorboard.plugins import base_plugin

_PLUGIN_NAME = "plumber"

# 0 keeps every record, on both data servers: their own defaults thin them out to 10 or 100.
_KEEP_ALL = 0


class PlumberLoader(base_plugin.TBLoader):  # type: ignore[misc]
    """Loads the Plumber tab."""

    def fix_flags(self, flags: argparse.Namespace) -> None:
        """Has TensorBoard keep all of our records, unless the user asked for a number."""
        samples_per_plugin = getattr(flags, "samples_per_plugin", None)
        if samples_per_plugin is not None:
            samples_per_plugin.setdefault(_PLUGIN_NAME, _KEEP_ALL)

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin | None:
        """Returns the plugin, or None if it cannot be loaded."""
        try:
            from tensorboard_plugin_plumber.plugin.plugin import PlumberPlugin

            return PlumberPlugin(context)
        except Exception as error:
            # TensorBoard would log a whole traceback for what is mostly a broken installation.
            logging.getLogger("tensorboard").error(
                "The Plumber tab cannot be loaded (%s: %s). Try `pip install --force-reinstall "
                "tensorboard-plugin-plumber`.",
                type(error).__name__,
                error,
            )
            return None
