"""What is made up of operators that were gone before a look found all they did."""

from __future__ import annotations

import pytest

from tensorboard_plugin_plumber.capture.edges import places
from tensorboard_plugin_plumber.capture.unseen import Held, Sums, totals
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

BATCHED = [
    m.RunningOperator(type="FiniteTake"),
    m.RunningOperator(type="Batch", parent=0, batch_size=4),
    m.RunningOperator(type="Range", parent=1),
]


def test_what_a_take_hands_on_after_its_input_is_gone_was_in_batches() -> None:
    # GIVEN 70 batches at the last look at them, and 78 that the take has handed on since
    where = places(BATCHED, [])
    sums = [
        Sums(elements=78, found=78, bytes_produced=78 * 32),
        Sums(elements=70, found=70, bytes_produced=70 * 32),
        Sums(
            elements=280, found=280, bytes_produced=280 * 8, found_paired=280, found_consumer=70, paired=280,
            paired_consumer=70,
        ),
    ]  # fmt: skip

    found = totals(where, sums, [Held() for _ in where], {}, {}, {}, {})

    # THEN the elements of those eight are made up
    assert found == pytest.approx([78, 78, 312])
