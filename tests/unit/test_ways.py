"""Which maps are worth cutting in two."""

from __future__ import annotations

import pytest

from tensorboard_plugin_plumber.rewrite.ways import worth_splitting
from tensorboard_plugin_plumber.schema import analysis_pb2 as a


@pytest.mark.parametrize(
    ("cached", "worth"),
    [
        ([], {"map"}),
        (["records"], {"map"}),  # decoding them is done anew in each epoch
        (["map"], set()),
        (["batch"], set()),
    ],
)
def test_a_map_is_worth_two_unless_a_planned_cache_saves_its_work(cached: list[str], worth: set[str]) -> None:
    analysis = a.Analysis()
    analysis.operators.add(id="batch", type="Batch", visit_ratio=1.0, cpu_s=0.0, wait_s=0.0)
    analysis.operators.add(id="map", type="Map", parent="batch", visit_ratio=8.0, cpu_s=5e-3, wait_s=0.0)
    analysis.operators.add(
        id="records", type="TFRecord", parent="map", visit_ratio=8.0, cpu_s=1e-5, wait_s=0.0
    )
    for operator in cached:
        analysis.plan.changes.add(operator=operator, kind=a.CHANGE_KIND_CACHE)
    assert worth_splitting(analysis) == worth
