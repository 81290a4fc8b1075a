"""A rule for Plumber: batches of one element, which copy it for nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tensorboard_plugin_plumber.extending import Case, Finding, cheaper


def batch_of_one(case: Case) -> Iterator[Finding]:
    """Finds `.batch(1)`, and what it costs."""
    for position, written in enumerate(case.estimate.written):
        if written.type != "Batch" or written.batch_size != 1:
            continue
        operator = case.estimate.network.operators[position]
        # The rate without the batch's work, over the rate of today.
        gain = case.gain_of(case.changed({position: cheaper(0.0)}))
        yield Finding(
            code="batch-of-one",
            message=f"{operator.label} copies each element by itself: {operator.cpu_s * 1e6:.0f} µs of a core each.",
            fix=".map(lambda x: tf.expand_dims(x, 0)), or a larger batch",
            operator=operator.id,
            gain=gain if gain >= 0.05 else None,
            severity="medium" if gain >= 0.05 else "low",
        )
