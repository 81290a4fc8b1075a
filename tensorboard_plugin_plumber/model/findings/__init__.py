"""Findings: named mistakes, each argued from the numbers of the run (docs/model.md, "Findings").

A rule is a function of a `Case` that yields findings. The gain of a finding is the difference of two
evaluations of the model: the network as it is, and with the fix applied.
"""

from __future__ import annotations

from tensorboard_plugin_plumber.model.findings.buffers import large_buffers, shuffle_fill
from tensorboard_plugin_plumber.model.findings.caches import (
    cache_after_random,
    cache_never_completes,
    cache_too_large,
    missing_cache,
)
from tensorboard_plugin_plumber.model.findings.case import Case, Rule, by_severity
from tensorboard_plugin_plumber.model.findings.elements import (
    decode_whole_image,
    large_element_copies,
    late_cast,
    padding,
)
from tensorboard_plugin_plumber.model.findings.intentions import randomness_repeats, result_unused
from tensorboard_plugin_plumber.model.findings.overlap import no_prefetch, not_input_bound
from tensorboard_plugin_plumber.model.findings.parallelism import (
    ordered_stragglers,
    pool_limited,
    python_function,
    sequential_map,
)
from tensorboard_plugin_plumber.model.findings.reading import (
    compressed_input,
    large_constant,
    sequential_read,
    small_files,
    unexplained_waiting,
)
from tensorboard_plugin_plumber.model.findings.repeated import repeated_branches, repeated_work
from tensorboard_plugin_plumber.model.findings.tuning import (
    autotune_hidden,
    autotune_off,
    autotune_off_finding,
    oversubscribed,
    side_effects,
)
from tensorboard_plugin_plumber.model.findings.waste import (
    nested_datasets,
    per_element_overhead,
    shard_behind_cache,
    unbatch_rebatch,
    wasted_work,
)
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

__all__ = ["RULES", "Case", "Rule", "autotune_off_finding", "findings"]

RULES: tuple[Rule, ...] = (
    sequential_map,
    no_prefetch,
    pool_limited,
    python_function,
    per_element_overhead,
    wasted_work,
    padding,
    repeated_work,
    repeated_branches,
    shard_behind_cache,
    unbatch_rebatch,
    nested_datasets,
    decode_whole_image,
    late_cast,
    large_element_copies,
    sequential_read,
    unexplained_waiting,
    compressed_input,
    small_files,
    large_constant,
    missing_cache,
    cache_after_random,
    cache_never_completes,
    cache_too_large,
    shuffle_fill,
    large_buffers,
    ordered_stragglers,
    oversubscribed,
    side_effects,
    randomness_repeats,
    result_unused,
    autotune_hidden,
    autotune_off,
    not_input_bound,
)


def findings(case: Case) -> list[a.Finding]:
    """What every rule has to say, the most severe first."""
    return by_severity(finding for rule in RULES for finding in rule(case))
