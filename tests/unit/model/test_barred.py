"""What may not be done is not planned, and what a plan may add is what it is allowed to add."""

from __future__ import annotations

import pytest

from tensorboard_plugin_plumber.model.analyse import Analyst, WhatIf
from tensorboard_plugin_plumber.model.questions import Barred
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording
from tests.support.recordings import Cost, Run, chain

FUNCTION = m.UserFunction(name="decode", may_wait=True)
ELEMENTS = 1000
BYTES = 2000.0
CACHE_BYTES = ELEMENTS * (BYTES + 200)


def waiting_map() -> Recording:
    """A map that waits 20 ms: its calls, the pool and a cache are all worth changing."""
    decode = m.Operator(
        type="Map",
        label="decode",
        cardinality=ELEMENTS,
        cache=m.Legality(allowed=True),
        parallel=m.Legality(allowed=True),
    )
    source = m.Operator(type="Range", cardinality=ELEMENTS)
    costs = [
        Cost("Map", 1, 0.020, BYTES, parallelism=1, function=FUNCTION, written=[decode]),
        Cost("Range", 1, 1e-6, 8, written=[source]),
    ]
    return chain(costs, Run(rate=50.0, pool_cores=0.01, process_cores=0.1, consumer=m.CONSUMER_NONE))


def kinds(what_if: WhatIf) -> set[int]:
    return {change.kind for change in Analyst(waiting_map()).analyse(what_if).plan.changes}


def test_without_bars_it_is_cached() -> None:
    assert kinds(WhatIf()) == {a.CHANGE_KIND_CACHE}


@pytest.mark.parametrize(
    "barred",
    [Barred(memory_caches=True), Barred(cached=frozenset({"op0", "op1"}))],
    ids=["memory caches", "each output"],
)
def test_a_cache_that_is_barred_leaves_calls_and_pool(barred: Barred) -> None:
    assert kinds(WhatIf(barred=barred)) == {a.CHANGE_KIND_PARALLELISM, a.CHANGE_KIND_THREADPOOL}


def test_a_pool_that_is_barred_is_not_resized() -> None:
    barred = Barred(memory_caches=True, threadpool=True)
    analysis = Analyst(waiting_map()).analyse(WhatIf(barred=barred))
    # THEN two slots on two cores are all there is: prefetch and calls gain at most twice
    assert a.CHANGE_KIND_THREADPOOL not in {change.kind for change in analysis.plan.changes}
    assert analysis.plan.predicted_rate <= 100.0 * 1.01


def test_calls_that_are_barred_stay_as_they_are() -> None:
    barred = Barred(memory_caches=True, calls=frozenset({"op0"}), prefetch=True)
    assert kinds(WhatIf(barred=barred)) == set()


def test_a_plan_adds_no_more_than_it_may() -> None:
    assert a.CHANGE_KIND_CACHE not in kinds(WhatIf(added_bytes=0.5 * CACHE_BYTES))
    assert a.CHANGE_KIND_CACHE in kinds(WhatIf(added_bytes=2 * CACHE_BYTES))


def test_a_share_of_the_memory_is_what_is_said() -> None:
    tiny = CACHE_BYTES / (7 << 30) / 2
    assert a.CHANGE_KIND_CACHE not in kinds(WhatIf(memory_share=tiny))
    assert a.CHANGE_KIND_CACHE in kinds(WhatIf(memory_share=4 * tiny))
    shown = Analyst(waiting_map()).analyse(WhatIf(memory_share=0.25)).limits
    assert shown.memory_share == 0.25
