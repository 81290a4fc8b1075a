"""Plans made by hand for a live pipeline, as if a trace had found them."""

from __future__ import annotations

from typing import Any

from tensorboard_plugin_plumber.capture import host
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.rewrite.saved_plan import SavedPlan, from_json, saved, to_json
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

#: (kind, label of the operator or "" for none, the new setting).
Wanted = tuple[str, str, "int | str"]


def plan_for(dataset: Any, *wanted: Wanted, cores: float | None = None) -> SavedPlan:
    """A plan with these changes, through JSON and back; caches take 1 kB.

    Args:
      dataset: the pipeline.
      wanted: the changes; an operator is named by its label, the last one in pre-order (the most upstream) of that
        label, or by its id.
      cores: of the host that it was made on; by default of this one.
    """
    return plan_of(describe(dataset, role="diagnose").pipeline, *wanted, cores=cores)


def plan_of(pipeline: m.Pipeline, *wanted: Wanted, cores: float | None = None) -> SavedPlan:
    """The same for a pipeline that was described."""
    analysis = a.Analysis(run="run", host="host-0", updated_s=1.0)
    analysis.limits.cores = cores or host.usable_cores()[0]
    analysis.limits.memory_bytes = host.usable_memory()[0]
    ids = {one.label: one.id for one in pipeline.operators} | {one.id: one.id for one in pipeline.operators}
    for kind, label, to in wanted:
        change = analysis.plan.changes.add(kind=a.ChangeKind.Value(f"CHANGE_KIND_{kind.upper()}"))
        change.to.CopyFrom(a.Setting(word=to) if isinstance(to, str) else a.Setting(number=to))
        getattr(change, "from").word = "none"
        change.code = f"{kind} {to}"
        if label:
            change.operator = ids[label]
            analysis.operators.add(id=change.operator, materialised_high_bytes=1000)
    return from_json(to_json(saved(analysis, pipeline)))
