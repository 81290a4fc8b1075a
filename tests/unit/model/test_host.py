"""What the process may use of its host, and what it used."""

from __future__ import annotations

import pytest

from tensorboard_plugin_plumber.model import host
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


def samples(seconds: int, idle: int = 0) -> list[m.SampleRecord]:
    """A sample per second of a process that uses 1.5 cores, and none while the pipeline rests at the end."""
    made = []
    for second in range(1, seconds + idle + 1):
        busy = min(second, seconds)
        record = m.SampleRecord(elapsed_s=second, host=m.HostSample(rss_bytes=1000 + second))
        record.host.process_cpu_s = 1.5 * busy
        record.host.host_cpu_s = 1.9 * busy
        record.host.poller_cpu_s = 0.002 * busy
        record.host.run_queue_s = 0.5 * busy
        record.host.cpu_pressure_s = 0.25 * busy
        record.host.throttled_s = 0.2 * busy
        record.host.read_bytes = 4000 * busy
        record.host.storage_read_bytes = 1000 * busy
        record.pipelines.add(pipeline=0, steps=10 * busy)
        made.append(record)
    return made


LIMITS = m.Host(
    cores=1.5,
    cores_from="cgroup",
    machine_cores=8,
    affinity_cores=8,
    quota_cores=1.5,
    memory_bytes=1 << 30,
    memory_from="cgroup",
    in_container=True,
    cgroup_version=2,
    accelerators=["GPU:0"],
    accelerator_models=["NVIDIA H200"],
)


@pytest.mark.parametrize("idle", [0, 30])
def test_rates_are_of_the_time_in_which_the_pipeline_moved(idle: int) -> None:
    use = host.host_use(LIMITS, samples(10, idle), 0)

    assert use.process_cores == pytest.approx(1.5)
    assert use.other_cores == pytest.approx(0.4)
    assert use.plumber_cores == pytest.approx(0.002)
    assert use.waiting_threads == pytest.approx(0.5)
    assert use.cpu_pressure == pytest.approx(0.25)
    assert use.throttled == pytest.approx(0.2)
    assert use.read_bytes_per_s == pytest.approx(4000)
    assert use.storage_read_bytes_per_s == pytest.approx(1000)
    assert use.rss_bytes == 1010
    assert (use.cores, use.quota_cores, use.accelerators) == (1.5, 1.5, ["GPU:0 (NVIDIA H200)"])


def test_what_was_not_measured_is_unset() -> None:
    bare = [m.SampleRecord(elapsed_s=i, pipelines=[m.PipelineSample(steps=i)]) for i in (1, 2)]

    use = host.host_use(m.Host(cores=2), bare, 0)

    for name in ("other_cores", "waiting_threads", "cpu_pressure", "throttled", "read_bytes_per_s"):
        assert not use.HasField(name)


def test_without_a_sample_of_the_pipeline_only_limits_are_known() -> None:
    use = host.host_use(LIMITS, samples(3), 7)

    assert use.cores == 1.5
    assert not use.HasField("process_cores")
    assert host.sentence(use) == ""


def test_the_sentence_says_what_limits_and_what_it_costs() -> None:
    said = host.sentence(host.host_use(LIMITS, samples(10), 0))

    assert "1.50 of 1.5 cores (its CPU quota in a container)" in said
    assert "held it back for 20 % of the time" in said
    assert "NVIDIA H200" in said
    quiet = host.sentence(
        host.host_use(m.Host(cores=2, cores_from="affinity", machine_cores=2), samples(10), 0)
    )
    assert "quota in" not in quiet
    assert "affinity" not in quiet
