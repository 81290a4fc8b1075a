"""One analysis as people and programs read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Real

from tensorboard_plugin_plumber.model.questions import QUESTIONS, WhatIf, what_if
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
    # Asks the recording again.
    _ask: Callable[[WhatIf], a.Analysis] | None = field(default=None, repr=False, compare=False)

    def what_if(
        self,
        *,
        cores: float | None = None,
        memory: float | str | None = None,
        storage: float | str | None = None,
        rate: float | None = None,
        epochs: float | None = None,
        consumer_rate: float | None = None,
    ) -> Report:
        """The same recording under other limits; each call starts from what was measured.

        Args:
          cores: what if it had so many cores?
          memory: what if its memory limit were this? Bytes, or as "8GiB".
          storage: what if storage delivered this? Bytes per second, or as "200MB/s".
          rate: what would so many steps/s take? `analysis.sizing` says the fewest cores and the least memory.
          epochs: what if training passed so many times over its data?
          consumer_rate: what if training could take so many steps/s?

        Raises:
          TypeError, ValueError: a value makes no sense.
          NotAnswerable (of `model.analyse`): the recording cannot answer that.
        """
        if self._ask is None:
            raise ValueError("this report does not know its recording: ask one that `plumber.diagnose` made")
        given = {
            "cores": cores,
            "memory": memory,
            "storage": storage,
            "rate": rate,
            "epochs": epochs,
            "consumer_rate": consumer_rate,
        }
        question = what_if({name: _quantity(name, value) for name, value in given.items()})
        return replace(self, analysis=self._ask(question))

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


def _quantity(name: str, value: float | str | None) -> float | None:
    """A number, or what the command line takes for one."""
    if value is None:
        return None
    if not isinstance(value, (Real, str)) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: a number is wanted")
    try:
        return QUESTIONS[name][1](value if isinstance(value, str) else repr(float(value)))
    except ValueError as error:
        raise ValueError(f"{name}={value!r}: {error}") from None
