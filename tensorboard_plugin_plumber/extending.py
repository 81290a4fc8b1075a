"""What packages that extend Plumber import (docs/extending.md); these names stay."""

from __future__ import annotations

from tensorboard_plugin_plumber.model.extensions import Finding, Limit
from tensorboard_plugin_plumber.model.findings.case import Case, cheaper, fewer
from tensorboard_plugin_plumber.model.network import Choice, Network, Operator, Settings

__all__ = ["Case", "Choice", "Finding", "Limit", "Network", "Operator", "Settings", "cheaper", "fewer"]
