"""Analyses of recordings with written-down costs: verdict, bottleneck, plan, findings, self-check."""

from __future__ import annotations

import pytest

from tensorboard_plugin_plumber.model import estimates
from tensorboard_plugin_plumber.model.analyse import NotAnswerable, WhatIf, analyse
from tensorboard_plugin_plumber.model.intervals import Interval
from tensorboard_plugin_plumber.model.sizes import Size
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.recordings import Cost, Run, chain

ALLOWED = m.Legality(allowed=True)
RANDOM = m.Legality(allowed=False, reason="decode_and_augment draws random numbers", operator="op1")


def at(line):
    return m.SourceLine(path="/project/train.py", line=line)


def jpeg_chain(run, *, augment_parallel=ALLOWED, augment=True, **options):
    """decode and augment in one sequential map, fused with its batch of 32, at 1.1 ms a call."""
    cache = RANDOM if augment else ALLOWED
    function = m.UserFunction(name="decode_and_augment", random=augment, stateful=augment)
    written = [
        m.Operator(type="Batch", batch_size=32, source=at(60), cache=cache, cardinality=16),
        m.Operator(
            type="Map",
            label="decode_and_augment",
            source=at(57),
            cache=cache,
            parallel=augment_parallel,
            cardinality=512,
        ),
    ]
    source = m.Operator(type="TFRecord", source=at(53), cache=ALLOWED, cardinality=512)
    return chain(
        [
            Cost("MapAndBatch", 1, 32 * 1.0e-3, 19e6, 1, function=function, written=written, overhead_s=1e-4),
            Cost("TFRecord", 32, 10e-6, 90e3, written=[source]),
        ],
        run,
        **options,
    )


BOUND = Run(rate=28, gap_s=4e-3, gap_low_s=4e-3, pool_cores=0.95, process_cores=1.1)


def codes(found):
    return {finding.code: finding for finding in found.findings}


def test_the_sequential_map_is_named_at_its_line():
    found = analyse(jpeg_chain(BOUND))
    assert found.verdict.input_bound
    assert found.bottleneck.operator == "op1"
    assert found.bottleneck.constraint == a.CONSTRAINT_OPERATOR
    assert "train.py:57" in found.verdict.sentence
    assert found.verdict.cause == a.CAUSE_SOFTWARE
    assert codes(found)["sequential-map"].severity == a.SEVERITY_HIGH


def test_the_joint_cost_of_a_fused_operator_stands_on_the_map():
    rows = {row.id: row for row in analyse(jpeg_chain(BOUND)).operators}
    assert rows["op1"].cpu_s == pytest.approx(1.1e-3)
    assert rows["op1"].visit_ratio == pytest.approx(32)
    assert rows["op1"].max_rate == pytest.approx(1 / (32 * 1.1e-3))
    assert rows["op0"].fused_with == "op1"
    assert rows["op0"].cpu_s == 0
    assert rows["op0"].visit_ratio == pytest.approx(1)


def test_the_plan_raises_the_parallelism_and_stays_within_the_cores():
    plan = analyse(jpeg_chain(BOUND)).plan
    changes = {change.kind: change for change in plan.changes}
    parallel = changes[a.CHANGE_KIND_PARALLELISM]
    assert (parallel.operator, getattr(parallel, "from").number, parallel.to.number) == ("op1", 1, 2)
    assert plan.low < plan.predicted_rate < plan.high
    # 2 cores over the pipeline's and the consumer's core time per step
    assert plan.predicted_rate <= 2 / (32 * 1.1e-3) * 1.001


def test_a_deterministic_part_is_cached_and_a_random_one_never():
    assert "missing-cache" not in codes(analyse(jpeg_chain(BOUND)))
    found = analyse(jpeg_chain(BOUND, augment=False))
    assert codes(found)["missing-cache"].operator in ("op0", "op1")
    cached = [change for change in found.plan.changes if change.kind == a.CHANGE_KIND_CACHE]
    assert [change.operator for change in cached] in (["op0"], ["op1"])


def test_a_cache_that_does_not_fit_is_not_planned():
    found = analyse(jpeg_chain(BOUND, augment=False), what_if=WhatIf(memory_bytes=1.1e9))
    costly = [change for change in found.plan.changes if change.kind == a.CHANGE_KIND_CACHE]
    assert all(change.operator == "op2" for change in costly)
    assert found.plan.memory_bytes <= found.limits.memory_free_bytes


def test_illegal_parallelism_is_refused_with_its_reason():
    refused = m.Legality(allowed=False, reason="its draws are seeded, and the order of calls decides them")
    found = analyse(jpeg_chain(BOUND, augment_parallel=refused))
    assert all(change.operator != "op1" for change in found.plan.changes)
    assert "seeded" in codes(found)["sequential-map"].message


def test_where_the_consumer_would_be_slower_a_tentative_bottleneck_is_not_marked():
    # GIVEN a consumer of 22 steps/s that waits all the same, of data that could come at 28
    found = analyse(jpeg_chain(Run(rate=10, gap_s=45e-3, gap_low_s=45e-3, pool_cores=0.4, process_cores=0.5)))

    assert found.verdict.tentative
    assert found.verdict.input_bound
    assert found.bounds[0].constraint == a.CONSTRAINT_CONSUMER
    assert not any(row.binds for row in found.operators)
    assert not any(bound.binds for bound in found.bounds)


def test_more_cores_in_a_what_if_reach_more():
    here, there = (analyse(jpeg_chain(BOUND), what_if=WhatIf(cores=n)).plan.predicted_rate for n in (2, 8))
    assert there > 1.5 * here


def test_training_that_does_not_wait_is_not_input_bound():
    found = analyse(jpeg_chain(Run(rate=20, gap_s=49.5e-3, pool_cores=0.7)))
    assert found.verdict.input_bound is False
    assert found.bottleneck.constraint == a.CONSTRAINT_CONSUMER
    assert not found.bottleneck.HasField("operator")
    assert found.verdict.cause == a.CAUSE_CONSUMER
    assert codes(found)["not-input-bound"].severity == a.SEVERITY_LOW


def test_the_self_check_compares_with_the_observed_rate_and_is_not_fitted_to_it():
    # GIVEN the same costs, observed at the modelled rate and at half of it
    right = analyse(jpeg_chain(Run(rate=28, gap_s=1e-3, pool_cores=0.95)))
    wrong = analyse(jpeg_chain(Run(rate=14, gap_s=1e-3, pool_cores=0.5)))
    assert right.verdict.self_check == pytest.approx(1.01, abs=0.05)
    assert not right.verdict.tentative
    assert wrong.verdict.self_check == pytest.approx(2 * right.verdict.self_check, rel=0.02)
    assert wrong.verdict.tentative
    assert wrong.verdict.cause == a.CAUSE_UNKNOWN
    assert wrong.verdict.sentence.startswith("Tentative")


def test_too_little_data_is_tentative():
    found = analyse(jpeg_chain(Run(rate=28, seconds=3, gap_s=1e-3, pool_cores=0.95)))
    assert found.verdict.tentative
    assert not found.verdict.HasField("self_check")


def test_without_counters_only_the_graph_speaks():
    recording = jpeg_chain(BOUND, autotune_enabled=False, has_counters=False)
    found = analyse(recording)
    assert "autotune-off" in codes(found)
    assert len(found.operators) == 3
    assert not found.plan.HasField("predicted_rate")
    assert found.verdict.tentative


def test_an_unknown_pipeline_is_refused_with_what_there_is():
    with pytest.raises(NotAnswerable, match="it has train"):
        analyse(jpeg_chain(BOUND), pipeline="validation")


def test_a_run_without_steps_is_refused():
    recording = jpeg_chain(Run(rate=0.001, seconds=1))
    recording.samples[0].pipelines[0].steps = 0
    with pytest.raises(NotAnswerable, match="no element yet"):
        analyse(recording)


def test_a_cache_behind_randomness_is_reported():
    recording = jpeg_chain(BOUND)
    pipeline = recording.graph.pipelines[0]
    cache = m.Operator(
        id="op9", type="Cache", label="Cache", cache=RANDOM, running=len(pipeline.running), cardinality=-2
    )
    pipeline.running.add(type="MemoryCacheImpl", operators=["op9"])
    pipeline.operators.insert(0, cache)
    pipeline.operators[1].parent = pipeline.operators[1].flows_to = "op9"
    for record in recording.samples:
        part = record.pipelines[0]
        part.operators.add(elements=part.steps, elements_seen=part.steps)
    found = codes(analyse(recording))
    assert found["cache-after-random"].severity == a.SEVERITY_HIGH
    assert "decode_and_augment" in found["cache-after-random"].message
    assert "missing-cache" not in found


def test_functions_that_wait_on_the_pool_are_pool_limited():
    fetch = m.UserFunction(name="fetch", may_wait=True, python=True)
    written = [m.Operator(type="ParallelMap", label="fetch", source=at(12), parallel=ALLOWED, cardinality=-1)]
    costs = [
        Cost("Prefetch", 1, 0, written=[m.Operator(type="Prefetch", injected=True, cardinality=-1)]),
        Cost("ParallelMapV2", 1, 20e-3, parallelism=2, tunable=True, function=fetch, written=written),
        Cost("Range", 1, 1e-6, written=[m.Operator(type="Range", cardinality=-1)]),
    ]
    found = analyse(chain(costs, Run(rate=99, gap_s=1e-3, pool_cores=0.05, process_cores=0.2)))
    assert found.bottleneck.constraint == a.CONSTRAINT_THREADPOOL
    assert codes(found)["pool-limited"].gain > 1
    pool = [change for change in found.plan.changes if change.kind == a.CHANGE_KIND_THREADPOOL]
    assert pool[0].to.number > 2


def sleeping_map(*, unbounded):
    """A map that sleeps 20 ms a call, AUTOTUNEd, of which two run at a time on 2 cores."""
    fetch = m.UserFunction(name="fetch", may_wait=True)
    written = [m.Operator(type="ParallelMap", label="fetch", source=at(12), parallel=ALLOWED, cardinality=-1)]
    costs = [
        Cost("Prefetch", 1, 0, written=[m.Operator(type="Prefetch", injected=True, cardinality=-1)]),
        Cost("ParallelMapV2", 1, 20e-3, parallelism=2, tunable=True, function=fetch, written=written),
        Cost("Range", 1, 1e-6, written=[m.Operator(type="Range", cardinality=-1)]),
    ]
    recording = chain(costs, Run(rate=99, gap_s=1e-3, gap_low_s=1e-3, pool_cores=0.05, process_cores=0.2))
    recording.graph.pipelines[0].running[1].use_unbounded_threadpool = unbounded
    return recording


def test_a_sleeping_map_under_autotune_needs_the_pool_alone():
    plan = analyse(sleeping_map(unbounded=False)).plan
    (change,) = plan.changes
    assert change.kind == a.CHANGE_KIND_THREADPOOL
    assert (getattr(change, "from").number, change.to.number >= 20) == (2, True)
    assert "AUTOTUNE" in change.why
    assert plan.predicted_rate == pytest.approx(1000, rel=0.02)


def test_calls_that_autotune_chose_are_changed_from_autotune():
    plan = analyse(sleeping_map(unbounded=True)).plan
    (change,) = plan.changes
    assert (change.kind, change.operator) == (a.CHANGE_KIND_PARALLELISM, "op1")
    assert (getattr(change, "from").word, change.to.number >= 20) == ("autotune", True)
    assert "AUTOTUNE runs at most 2 at a time" in change.why
    assert change.code == f".map(fetch, num_parallel_calls={change.to.number})"


def python_map(seconds=1e-2, *, calls=1, waits=False, **run):
    """A map in Python, one call at a time, that computes (or waits) and may be called in parallel."""
    function = m.UserFunction(name="augment", may_wait=True, python=True)
    written = [m.Operator(type="Map", label="augment", source=at(12), parallel=ALLOWED, cardinality=-1)]
    costs = [
        Cost("Prefetch", 1, 0, written=[m.Operator(type="Prefetch", injected=True, cardinality=-1)]),
        Cost("Map", 1, seconds, parallelism=calls, function=function, written=written),
        Cost("Range", 1, 1e-6, written=[m.Operator(type="Range", cardinality=-1)]),
    ]
    return chain(costs, Run(pool_cores=0.05 if waits else 0.97, process_cores=1.0, **run))


def test_nobody_promises_more_of_python_whose_lock_is_unknown():
    found = analyse(python_map(rate=98, gap_s=1e-4), what_if=WhatIf(cores=4))
    finding = codes(found)["sequential-map"]
    assert not finding.HasField("gain")
    assert "interpreter's lock" in finding.message
    assert found.plan.predicted_rate > 150
    assert found.plan.low < 100
    assert any("interpreter's lock" in said for said in found.plan.assumptions)


def test_python_that_waits_is_promised_more():
    found = analyse(python_map(rate=98, gap_s=1e-4, waits=True))
    assert codes(found)["sequential-map"].gain > 0.5
    assert found.plan.low > 100


def test_each_operator_is_blamed_once():
    # GIVEN a map whose own bound and the pool's are the same
    found = analyse(python_map(20e-3, calls=2, rate=99, gap_s=1e-4, waits=True))
    blamed = [(finding.code, finding.operator) for finding in found.findings]
    assert len(blamed) == len(set(blamed))


def test_python_that_nothing_waits_for_is_not_blamed():
    found = analyse(python_map(rate=50, gap_s=19.9e-3, waits=True))
    assert found.verdict.input_bound is False
    assert set(codes(found)) == {"not-input-bound"}


def test_a_plan_of_a_model_that_fails_its_check_is_tentative_and_covers_today():
    found = analyse(python_map(rate=25, gap_s=1e-4, waits=True))
    assert found.verdict.tentative
    assert found.plan.sentence.startswith("Tentative")
    assert found.plan.low < 25 * 2


def test_no_loop_asks_for_a_million_elements_per_second():
    found = analyse(jpeg_chain(BOUND, augment=False, inject_prefetch=False), what_if=WhatIf(cores=64))
    assert found.plan.predicted_rate <= 50_000


def test_a_faster_consumer_in_a_what_if_is_answered_by_the_model():
    # GIVEN training at 20 steps/s that waits for nothing: the pipeline could give 28
    recording = jpeg_chain(Run(rate=20, gap_s=49.5e-3, pool_cores=0.7))
    wait = {rate: analyse(recording, what_if=WhatIf(consumer_rate=rate)) for rate in (25.0, 56.0)}

    # THEN a little faster it would still not wait, and twice as fast as the pipeline half of the time
    assert wait[25.0].verdict.input_bound is False
    assert wait[56.0].verdict.wait_fraction == pytest.approx(0.5, abs=0.03)


def test_a_what_if_has_no_part_in_the_self_check():
    found = [
        analyse(jpeg_chain(BOUND), what_if=WhatIf(cores=n, consumer_rate=r)) for n, r in ((2, 500), (64, 9))
    ]
    assert {round(each.verdict.self_check, 6) for each in found} == {
        round(analyse(jpeg_chain(BOUND)).verdict.self_check, 6)
    }


def test_a_consumer_that_was_not_there_takes_turns_with_a_pipeline_without_prefetch():
    # GIVEN a pipeline of 20 ms a step that ran alone, and a step of 25 ms
    function = m.UserFunction(name="decode")
    written = [m.Operator(type="Map", label="decode", source=at(12), cardinality=-1)]
    costs = [
        Cost("Map", 1, 20e-3, function=function, written=written),
        Cost("Range", 1, 1e-6, written=[m.Operator(type="Range", cardinality=-1)]),
    ]
    run = Run(rate=50, gap_s=1e-4, pool_cores=1.0, consumer=m.CONSUMER_NONE)
    alone = chain(costs, run, default_optimizations=False, inject_prefetch=False)
    found = analyse(alone, what_if=WhatIf(consumer_rate=40))

    # THEN each waits while the other works
    assert found.verdict.wait_fraction == pytest.approx(20 / 45, abs=0.01)
    assert found.verdict.self_check == pytest.approx(1, abs=0.05)
    assert codes(found)["no-prefetch"].gain == pytest.approx(45 / 25 - 1, abs=0.05)


def served_from_a_cache(state, read_s=0.0):
    """A cache of batches that a cheap map reads, in the given state."""
    written = [
        m.Operator(type="Map", label="cast", source=at(20), parallel=ALLOWED, cache=ALLOWED, cardinality=100),
        m.Operator(type="Cache", source=at(19), cache=ALLOWED, cardinality=100),
        m.Operator(
            type="Map", label="decode", source=at(18), parallel=ALLOWED, cache=ALLOWED, cardinality=100
        ),
    ]
    decode = 0.0 if state == "serving" else 8e-3
    costs = [
        Cost("Map", 1, 1e-3, parallelism=1, function=m.UserFunction(name="cast"), written=written[:1]),
        Cost("FileCache", 1, read_s, written=written[1:2]),
        Cost("Map", 1 if decode else 0, decode, function=m.UserFunction(name="decode"), written=written[2:]),
    ]

    def mark(second, record):
        record.pipelines[0].cache_states[1] = state

    rate = 0.99 / (1e-3 + read_s + decode)
    return chain(costs, Run(rate=rate, gap_s=1e-5, pool_cores=0.9, change=mark))


def test_reading_a_cache_costs_what_was_measured():
    found = analyse(served_from_a_cache("serving", read_s=9e-3))
    rows = {row.id: row for row in found.operators}
    assert found.bottleneck.operator == "op1"
    assert rows["op1"].cpu_s == pytest.approx(9e-3)


def test_a_pipeline_with_a_cache_is_given_no_other_and_told_when_its_own_fills():
    found = analyse(served_from_a_cache("filling"))
    assert all(change.kind != a.CHANGE_KIND_CACHE for change in found.plan.changes)
    assert any("fills" in said for said in found.plan.assumptions)


def test_a_cache_of_a_fixed_order_is_no_mistake():
    recording = served_from_a_cache("serving", read_s=1e-4)
    shuffle = recording.graph.pipelines[0].operators[2]
    shuffle.type, shuffle.random = "Shuffle", True
    assert "cache-after-random" not in codes(analyse(recording))
    shuffle.cache.CopyFrom(RANDOM)
    assert "cache-after-random" in codes(analyse(recording))


def test_what_a_supposed_consumer_sees_is_said_so():
    recording = jpeg_chain(Run(rate=20, gap_s=49.5e-3, pool_cores=0.7))
    supposed = analyse(recording, what_if=WhatIf(consumer_rate=56))
    assert supposed.verdict.sentence.startswith("Input-bound with a consumer of 56.0 steps/s: ")
    # ... and the plan's gain is over what it would see, not over the 20 steps/s of the run
    times = supposed.plan.predicted_rate / (56 * (1 - supposed.verdict.wait_fraction))
    assert f"{times:.2f} times today's" in supposed.plan.sentence


def test_a_filter_is_told_by_its_calls():
    # GIVEN calls of 2 ms, of which one in four lets its element through
    function = m.UserFunction(name="keep", may_wait=True, python=True)
    written = [m.Operator(type="Filter", label="keep", source=at(12), cardinality=-2)]
    costs = [
        Cost("Prefetch", 1, 0, written=[m.Operator(type="Prefetch", injected=True, cardinality=-1)]),
        Cost("Filter", 1, 8e-3, function=function, written=written),
        Cost("Range", 4, 1e-6, written=[m.Operator(type="Range", cardinality=-1)]),
    ]
    found = analyse(chain(costs, Run(rate=123, gap_s=1e-4, pool_cores=0.99)))
    assert "per element that it lets through" in found.bottleneck.sentence
    assert "on a core for 1.9" in codes(found)["python-function"].message or (
        "on a core for 2.0" in codes(found)["python-function"].message
    )


def test_computing_python_on_all_slots_is_not_put_down_to_the_pool():
    # GIVEN two calls in flight that compute for over half of their time: the rest may be the lock's
    found = analyse(python_map(20e-3, calls=2, rate=99, gap_s=1e-4))
    assert found.bottleneck.constraint in (a.CONSTRAINT_THREADPOOL, a.CONSTRAINT_GIL)
    assert "pool-limited" not in codes(found)
    crowded = python_map(20e-3, calls=2, rate=99, gap_s=1e-4)
    for record in crowded.samples:
        record.pipelines[0].pool_cpu_s *= 1.3
    assert "pool-limited" not in codes(analyse(crowded))


def test_a_lambda_has_no_name_in_code():
    recording = python_map(rate=98, gap_s=1e-4, waits=True)
    recording.graph.pipelines[0].operators[1].function.name = "<lambda>"
    found = analyse(recording)
    assert found.plan.changes[0].code.startswith(".map(…, ")
    assert codes(found)["sequential-map"].fix.startswith(".map(…, ")


def test_a_pool_smaller_than_the_cores_is_not_called_the_cores():
    # GIVEN two calls at a time in a pool of two
    found = analyse(jpeg_chain(BOUND), what_if=WhatIf(cores=8))
    labels = {bound.label: bound.constraint for bound in found.bounds}
    assert labels["thread pool of 2"] == a.CONSTRAINT_THREADPOOL
    assert labels.get("all 8 cores", a.CONSTRAINT_CPU) == a.CONSTRAINT_CPU


def test_a_fix_names_the_numbers_of_the_plan():
    found = analyse(jpeg_chain(BOUND), what_if=WhatIf(cores=8))
    (parallel,) = (c for c in found.plan.changes if c.kind == a.CHANGE_KIND_PARALLELISM)
    assert f"num_parallel_calls={parallel.to.number})" in codes(found)["sequential-map"].fix


def test_a_plan_without_changes_says_why_the_binding_map_stays_sequential():
    refused = m.Legality(allowed=False, reason="its draws are seeded, and the order of calls decides them")
    plan = analyse(jpeg_chain(BOUND, augment_parallel=refused)).plan
    assert not plan.changes
    assert "It stays sequential: its draws are seeded" in plan.sentence


def test_a_sequential_map_is_reported_wherever_its_fix_gains():
    # GIVEN other work in the process that leaves a fifth of a core
    busy = Run(rate=28, gap_s=4e-3, gap_low_s=4e-3, pool_cores=0.95, process_cores=1.8)
    found = codes(analyse(jpeg_chain(busy)))["sequential-map"]
    assert found.gain >= 0.05
    assert "idle" not in found.message


def test_the_pool_is_not_blamed_while_all_cores_are_busy():
    # GIVEN functions that seem to wait, while kernels work for them on TensorFlow's other threads
    fetch = m.UserFunction(name="resize", may_wait=True)
    written = [
        m.Operator(type="ParallelMap", label="resize", source=at(12), parallel=ALLOWED, cardinality=-1)
    ]
    costs = [Cost("ParallelMapV2", 1, 20e-3, parallelism=2, tunable=True, function=fetch, written=written)]
    quiet, busy = (
        codes(analyse(chain(costs, Run(rate=99, gap_s=1e-3, pool_cores=1.2, process_cores=cores))))
        for cores in (1.3, 1.9)
    )
    assert "pool-limited" in quiet
    assert "pool-limited" not in busy


@pytest.mark.parametrize(("high", "cached"), [(1.5e9, True), (6e9, False)])
def test_a_cache_is_judged_by_the_most_it_may_take(high, cached, monkeypatch):
    # GIVEN a cache of likely 1.2 GB, where a plan may use some 3.5 GB
    def sizes(pipeline, windows):
        size = Size(materialised_bytes=Interval(1.2e9, 1.0e9, high))
        return {operator.id: size for operator in pipeline.operators}

    monkeypatch.setattr(estimates, "sizes_of", sizes)
    found = analyse(jpeg_chain(BOUND, augment=False))
    # THEN it is proposed only if the upper end fits, and then both are said
    caches = [change for change in found.plan.changes if change.kind == a.CHANGE_KIND_CACHE]
    assert bool(caches) == cached
    assert all("it takes 1.20 GB, at most 1.50 GB, of the" in change.why for change in caches)
