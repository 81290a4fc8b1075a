"""What Plumber concluded, for people who read it in a terminal or in a browser, and as the object of `--json`."""

from tensorboard_plugin_plumber.report.document import Report
from tensorboard_plugin_plumber.report.fleet import FleetEntry, fleet_text, fleet_to_dict
from tensorboard_plugin_plumber.report.terminal import DEFAULT_WIDTH

__all__ = ["DEFAULT_WIDTH", "FleetEntry", "Report", "fleet_text", "fleet_to_dict"]
