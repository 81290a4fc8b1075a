"""One analysis as people and programs read it."""

from __future__ import annotations

from dataclasses import dataclass

from tensorboard_plugin_plumber.report.terminal import DEFAULT_WIDTH
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema.jsonify import Json, to_dict, to_json


@dataclass(frozen=True)
class Report:
    """What Plumber concluded about one pipeline.

    Attributes:
      analysis: the `Analysis` message of proto/analysis.proto; treat it as read-only.
    """

    analysis: a.Analysis

    def to_dict(self) -> dict[str, Json]:
        """Returns exactly the object that `plumber report --json` prints."""
        return to_dict(self.analysis)

    def to_json(self) -> str:
        """Returns `to_dict()` as JSON text."""
        return to_json(self.analysis, indent=1)

    def text(self, *, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
        """Returns the report to be read.

        Args:
          width: columns to fill; 80 and more read well.
          color: with ANSI colours, for a terminal.
        """
        from tensorboard_plugin_plumber.report.text import report_text

        return report_text(self.analysis, width=width, color=color)

    def html(self) -> str:
        """Returns the report as one self-contained page: it loads nothing and runs no script."""
        from tensorboard_plugin_plumber.report.html import page

        return page(self.analysis)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Report({self.analysis.verdict.sentence!r})"
