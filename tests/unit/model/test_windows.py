"""Windows never average warm-up or another state in."""

from __future__ import annotations

import pytest

from tensorboard_plugin_plumber.model.windows import MOST_WINDOWS, windows_of
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.recordings import Cost, Run, chain


def windows(recording):
    return windows_of(recording.graph.pipelines[0], 0, recording.samples)


def test_the_time_before_the_first_sample_never_counts():
    # GIVEN a first call that cost 5 s
    def slow_start(second, record):
        record.pipelines[0].operators[0].processing_time_ns += 5_000_000_000

    found = windows(chain([Cost("Map", 1, 1e-3)], Run(rate=10, change=slow_start))).total()
    assert found.time_s[0] / found.seen[0] == pytest.approx(1e-3)


def test_a_pipeline_that_one_sample_saw_whole_has_one_window():
    # GIVEN a validation that was over before the first of three samples
    def over(second, record):
        record.pipelines[0].CopyFrom(first.pipelines[0])

    first = chain([Cost("Map", 1, 1e-3)], Run(rate=10, seconds=1)).samples[0]
    for seconds in (1, 3):
        found = windows(chain([Cost("Map", 1, 1e-3)], Run(rate=10, seconds=seconds, change=over)))
        assert len(found) == 1
        assert found.total()["steps"] == pytest.approx(10)
        assert found.total()["active_s"] == pytest.approx(1)


def test_no_step_is_no_window():
    recording = chain([Cost("Map", 1, 1e-3)], Run(rate=10, seconds=3))
    for record in recording.samples:
        record.pipelines[0].steps = 0
    assert windows(recording) is None


def test_many_samples_become_few_windows():
    found = windows(chain([Cost("Map", 1, 1e-3)], Run(rate=10, seconds=500)))
    assert len(found) <= MOST_WINDOWS
    assert found.total()["steps"] == pytest.approx(4990, rel=0.05)


def test_only_the_last_parallelism_is_averaged():
    # GIVEN AUTOTUNE raised the parallelism after 10 s, and calls became slower
    def raised(second, record):
        counters = record.pipelines[0].operators[0]
        counters.parallelism = 1 if second <= 10 else 4
        counters.processing_time_ns += max(second - 10, 0) * 10_000_000

    found = windows(chain([Cost("ParallelMap", 1, 1e-3, parallelism=1)], Run(rate=10, change=raised)))
    total = found.total()
    assert total["steps"] == pytest.approx(90)
    assert total.time_s[0] / total.seen[0] == pytest.approx(2e-3)
    assert found.parallelism[0] == 4


def test_filling_and_serving_are_never_averaged():
    def cached(second, record):
        part = record.pipelines[0]
        part.cache_states[0] = "filling" if second <= 12 else "serving"

    assert windows(chain([Cost("Cache", 1, 1e-6)], Run(rate=10, change=cached))).total()[
        "steps"
    ] == pytest.approx(70)


def test_a_revised_estimate_never_counts_backwards():
    def revised(second, record):
        record.pipelines[0].operators[0].elements -= 50 if second == 7 else 0

    found = windows(chain([Cost("Map", 10, 1e-3)], Run(rate=10, change=revised)))
    assert (found.elements >= 0).all()


def test_the_halves_share_no_window():
    even, odd = windows(chain([Cost("Map", 1, 1e-3)], Run(rate=10))).alternate
    assert (even + odd == 1).all()
    assert even.sum() > 0
    assert odd.sum() > 0


@pytest.mark.parametrize(
    ("interleave", "inside", "longest"),
    [
        (None, "FlatMap", 1.0),
        (2.0, "FlatMap", 1.5),  # its workers read side by side
        (None, "Prefetch", 1.5),  # each iterator has a thread of its own
    ],
)
def test_readers_that_share_a_thread_take_no_longer_than_it(interleave, inside, longest):
    # GIVEN readers in a body whose time, estimated from those that were seen, is 1.5 s per second
    recording = chain(
        [
            Cost("Interleave", 1, 0.0, parallelism=interleave),
            Cost(inside, 1, 0.0),
            Cost("TFRecord", 1, 15e-3),
        ],
        Run(rate=100),
    )
    recording.graph.pipelines[0].running[1].in_body = True
    totals = windows(recording).total()
    assert totals.time_s[2] / totals["elapsed_s"] == pytest.approx(longest)


def test_kernels_of_a_function_may_run_side_by_side_in_a_body():
    # GIVEN one call at a time inside an interleave, two kernels beside each other in it
    function = m.UserFunction(name="decode")
    recording = chain([Cost("Interleave", 1, 0.0), Cost("Map", 1, 15e-3, function=function)], Run(rate=100))
    recording.graph.pipelines[0].running[1].in_body = True
    totals = windows(recording).total()
    assert totals.time_s[1] / totals["elapsed_s"] == pytest.approx(1.5)
    assert totals.held_s[1] / totals["elapsed_s"] == pytest.approx(1.0)
