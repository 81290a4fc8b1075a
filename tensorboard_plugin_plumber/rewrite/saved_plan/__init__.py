"""A plan that outlives its process.

One host traces, others apply. A saved plan holds its changes and the whole pipeline as it was written: each operator
with its place in the tree, its line, its settings and the digests of its function. By these a pipeline of another
process, of another day or on another host is known to be the same, or refused with a sentence that says what changed.

=============  ============================================================
`values`       what is saved, and how it is made of an analysis
`text`         as JSON, and back
`sources`      from wherever users keep plans: a file, a log directory
`matching`     onto a pipeline as it stands now
`making`       made in a dataset
=============  ============================================================
"""

from tensorboard_plugin_plumber.rewrite.saved_plan.making import Made, made_in
from tensorboard_plugin_plumber.rewrite.saved_plan.matching import (
    Match,
    Mismatch,
    match,
    match_dataset,
    matched,
)
from tensorboard_plugin_plumber.rewrite.saved_plan.sources import from_log_dir, load, save
from tensorboard_plugin_plumber.rewrite.saved_plan.text import Damaged, from_json, to_json
from tensorboard_plugin_plumber.rewrite.saved_plan.values import (
    NotSavable,
    Origin,
    SavedChange,
    SavedOperator,
    SavedPlan,
    saved,
)

__all__ = [
    "Damaged",
    "Made",
    "Match",
    "Mismatch",
    "NotSavable",
    "Origin",
    "SavedChange",
    "SavedOperator",
    "SavedPlan",
    "from_json",
    "from_log_dir",
    "load",
    "made_in",
    "match",
    "match_dataset",
    "matched",
    "save",
    "saved",
    "to_json",
]
