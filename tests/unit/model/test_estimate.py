"""What the consumer computes, from clocks of the process and of its threads."""

from __future__ import annotations

import pytest

from tensorboard_plugin_plumber.model.estimate import estimate
from tensorboard_plugin_plumber.model.network import Limits
from tensorboard_plugin_plumber.model.windows import windows_of
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.recordings import Cost, Run, chain

RATE = 100
MAP = Cost("ParallelMap", 1, 3e-3, function=m.UserFunction(name="decode"), parallelism=2)


def consumer_cpu_s(run, *others):
    recording = chain([MAP, *others], run)
    pipeline = recording.graph.pipelines[0]
    windows = windows_of(pipeline, 0, recording.samples)
    assert windows is not None
    return estimate(pipeline, windows, Limits(2.0, 8e9, 4e9)).network.consumer.cpu_s


def asking(cores):
    def change(second, record):
        record.pipelines[0].consumer_thread_cpu_s = cores * second

    return change


def test_the_consumer_computes_what_the_pipeline_does_not():
    run = Run(rate=RATE, pool_cores=RATE * 3e-3, process_cores=RATE * 6e-3)
    assert consumer_cpu_s(run, Cost("TFRecord", 1, 1e-3)) == pytest.approx(2e-3)


def test_threads_of_the_pool_that_look_for_work_are_not_the_consumer():
    # GIVEN a pool that used 1.5 ms per step beyond its calls
    run = Run(rate=RATE, pool_cores=RATE * 4.5e-3, process_cores=RATE * 6e-3)
    assert consumer_cpu_s(run) == pytest.approx(1.5e-3)


def test_with_nobody_behind_the_pipeline_only_the_loop_is_left():
    # GIVEN 2 ms per step that neither the pipeline nor the loop accounts for
    run = Run(
        rate=RATE,
        pool_cores=RATE * 3e-3,
        process_cores=RATE * 5.2e-3,
        consumer=m.CONSUMER_NONE,
        change=asking(RATE * 2e-4),
    )
    assert consumer_cpu_s(run) == pytest.approx(2e-4)


@pytest.mark.parametrize(("foreign_cores", "stretch"), [(0.0, 1.0), (0.5, 2.0)])
def test_a_pipeline_alone_is_stretched_by_others_only(foreign_cores, stretch):
    # GIVEN calls of 10 ms of core time that the run queue stretches to 20 ms
    def host(second, record):
        record.host.host_cpu_s = (2.0 + foreign_cores) * second

    cost = Cost("ParallelMap", 1, 20e-3, function=m.UserFunction(name="decode"), parallelism=4)
    run = Run(
        rate=150, pool_cores=1.5, pool_queue=1.5, process_cores=2.0, consumer=m.CONSUMER_NONE, change=host
    )
    recording = chain([cost], run)
    pipeline = recording.graph.pipelines[0]
    windows = windows_of(pipeline, 0, recording.samples)
    assert windows is not None
    (operator,) = estimate(pipeline, windows, Limits(2.0, 8e9, 4e9)).network.operators
    assert operator.cpu_s == pytest.approx(10e-3)
    assert operator.stretch == pytest.approx(stretch)


def test_only_a_crowd_of_its_own_is_carried_over_to_other_settings():
    # GIVEN calls of 60 microseconds that wait for 40 before they begin
    def quiet(second, record):
        record.host.host_cpu_s = 1.0 * second

    for consumer, queued in ((m.CONSUMER_NONE, 40e-6), (m.CONSUMER_SYNCHRONOUS, 0.0)):
        cost = Cost("ParallelMap", 1, 60e-6, function=m.UserFunction(name="decode"), parallelism=2)
        run = Run(rate=10_000, pool_cores=0.6, pool_queue=0.4, consumer=consumer, change=quiet)
        recording = chain([cost], run)
        pipeline = recording.graph.pipelines[0]
        windows = windows_of(pipeline, 0, recording.samples)
        assert windows is not None
        (operator,) = estimate(pipeline, windows, Limits(2.0, 8e9, 4e9)).network.operators
        assert operator.queued_s == pytest.approx(queued)
