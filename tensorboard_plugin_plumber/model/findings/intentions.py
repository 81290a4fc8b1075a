"""What the code says and the pipeline does not do: results thrown away, randomness that repeats itself."""

from __future__ import annotations

from collections.abc import Iterator

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.estimate import CACHE_TYPES, label_of, source_of
from tensorboard_plugin_plumber.model.findings.case import LEAST_GAIN, Case, is_below, severity
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


def result_unused(case: Case) -> Iterator[a.Finding]:
    """A transformation is called, and the dataset that it returns is thrown away."""
    operators = {operator.id: operator for operator in case.pipeline.operators}
    for unused in case.pipeline.unused_results:
        below = operators.get(unused.operator)
        if below is None:
            continue
        gain = _gain_of_using(case, unused)
        finding = a.Finding(
            code="result-unused",
            severity=severity(gain),
            operator=unused.operator,
            message=(
                f"What .{unused.method}(…) returns at {source_of(unused.source)} is thrown away: a dataset is never "
                f"changed in place, so that none of the {words.digits(case.last.steps)} steps so far went through it."
            ),
            fix=f"dataset = dataset.{unused.method}(…)",
        )
        if gain >= LEAST_GAIN and not case.consumer_binds:
            finding.gain = gain
        yield finding


def _gain_of_using(case: Case, unused: m.UnusedResult) -> float:
    """What the transformation would have brought; 0 for those that are not there for speed."""
    position = case.estimate.position.get(unused.operator)
    if position is None:
        return 0.0
    if unused.method == "prefetch":
        return case.gain(case.with_choice(position, prefetch=True, prefetch_size=2))
    if unused.method == "cache" and case.estimate.network.operators[position].may_cache:
        return case.gain(case.with_choice(position, cache=True))
    return 0.0


def randomness_repeats(case: Case) -> Iterator[a.Finding]:
    """What looks random draws the same numbers in each epoch, or even for each element."""
    if case.pipeline.role in ("validation", "predict"):
        return  # there it is meant to
    operators = {operator.id: operator for operator in case.pipeline.operators}
    for operator in case.pipeline.operators:
        fact = _own_draws(operator)
        if fact is None or fact.changes_each_epoch or not operator.HasField("function"):
            continue
        if any(
            cache.type in CACHE_TYPES and is_below(operators, operator, cache.id)
            for cache in case.pipeline.operators
        ):
            continue  # the cache keeps what was drawn, whatever the seed: cache-after-random
        epochs = max(case.last.iterators, 1)
        again = f"all {epochs} epochs so far" if epochs > 1 else "each epoch to come"
        each = "for each element, and " if fact.reason.endswith("from a fixed seed") else ""
        yield a.Finding(
            code="randomness-repeats",
            severity=a.SEVERITY_MEDIUM,
            operator=operator.id,
            message=(
                f"{label_of(operator)} {fact.reason}: its numbers are the same {each}in {again}, "
                f"{words.digits(_draws_per_step(case, operator))} times per step."
            ),
            fix=(
                "Draw the seeds from a source that goes on: "
                "tf.data.Dataset.random(rerandomize_each_iteration=True).batch(2), zipped to the elements, as seed= of "
                "the tf.random.stateless_… functions; or leave the seed out."
            ),
        )


def _own_draws(operator: m.Operator) -> m.Fact | None:
    own = (fact for fact in operator.facts if fact.operator == operator.id and fact.kind == m.FACT_RANDOM)
    return next(own, None)


def _draws_per_step(case: Case, operator: m.Operator) -> float:
    position = case.estimate.position.get(operator.id)
    return 0.0 if position is None else case.estimate.network.operators[position].visits
