"""The one way from a recording to an answer: analysed, with its plan as a patch of the user's files."""

from __future__ import annotations

from tensorboard_plugin_plumber.model.analyse import Analyst
from tensorboard_plugin_plumber.model.questions import AS_MEASURED, WhatIf
from tensorboard_plugin_plumber.patch.diff import fill_patch
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema.recording import Recording


class Answers:
    """Answers about one pipeline of one recording: the second question costs a solve, and little else.

    Args:
      recording: one session of one run on one host.
      pipeline: a Pipeline.id or label; by default the training pipeline with most steps.

    Raises:
      NotAnswerable: there is no such pipeline.
    """

    def __init__(self, recording: Recording, pipeline: str | None = None) -> None:
        self._analyst = Analyst(recording, pipeline)
        self._since_s = recording.graph.session.start_time_s

    def to(self, what_if: WhatIf = AS_MEASURED) -> a.Analysis:
        """The analysis under the limits of `what_if`.

        Raises:
          NotAnswerable: the recording cannot answer that.
          NotYet: too little was recorded so far.
        """
        analysis = self._analyst.analyse(what_if)
        fill_patch(analysis, since_s=self._since_s)
        return analysis
