"""A plan with more threads is taken further, within bounds; any other is left alone."""

from __future__ import annotations

from tensorboard_plugin_plumber.rewrite.further import further
from tensorboard_plugin_plumber.schema import analysis_pb2 as a


def plan(calls: int, pool: int | None, *, memory: float = 1e3, free: float = 1e9) -> a.Analysis:
    analysis = a.Analysis()
    analysis.limits.memory_free_bytes = free
    analysis.plan.memory_bytes = memory
    change = analysis.plan.changes.add(kind=a.CHANGE_KIND_PARALLELISM, operator="op1")
    change.to.number, change.code = calls, f".map(load, num_parallel_calls={calls})"
    if pool is not None:
        change = analysis.plan.changes.add(kind=a.CHANGE_KIND_THREADPOOL)
        change.to.number, change.code = pool, f"options.threading.private_threadpool_size = {pool}"
    return analysis


def test_calls_and_threads_grow_together_and_the_code_says_so() -> None:
    more = further(plan(20, 22))

    assert more is not None
    assert [(one.to.number, one.code) for one in more.plan.changes] == [
        (60, ".map(load, num_parallel_calls=60)"),
        (66, "options.threading.private_threadpool_size = 66"),
    ]
    assert all("(20)" in one.why or "(22)" in one.why for one in more.plan.changes)
    assert more.plan.memory_bytes == 3e3


def test_there_is_an_end_to_it() -> None:
    more = further(plan(60, 100))
    assert more is not None
    assert [one.to.number for one in more.plan.changes] == [128, 128]
    assert further(more) is None
    assert further(plan(200, 200)) is None


def test_plans_without_more_threads_or_without_memory_are_left_alone() -> None:
    assert further(plan(20, None)) is None
    assert further(plan(20, 20, memory=5e8)) is None
