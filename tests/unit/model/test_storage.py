"""Where a pipeline's sources read, and what that bounds: recordings with written-down counters."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tensorboard_plugin_plumber.model.analyse import NotAnswerable, WhatIf, analyse
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording
from tests.support.recordings import Cost, Run, chain

DEVICE = "8:1 ext4 6a12f"
RATE = 10.0  # steps/s
STEP_BYTES = 8e6


def reading(
    *,
    from_storage: float = 1.0,
    curve: Sequence[tuple[float, float]] = ((1, 60e6), (2, 84e6)),
    past_page_cache: bool = True,
    device: str = DEVICE,
    counted: bool = True,
) -> Recording:
    """A pipeline that reads 80 MB/s for 10 steps/s with two readers, so much of it from storage."""

    def change(second: int, record: m.SampleRecord) -> None:
        read = STEP_BYTES * RATE * second
        record.host.read_bytes = round(read)
        record.host.storage_read_bytes = round(from_storage * read)
        if counted:
            record.pipelines[0].operators[1].read_bytes = read

    written = m.Operator(type="ParallelInterleave", cycle_length=2, cardinality=-2)
    recording = chain(
        [
            Cost("Batch", 1, 1e-3, STEP_BYTES),
            Cost("ParallelInterleave", 32, 5e-3, 250e3, 2, written=[written]),
        ],
        Run(rate=RATE, change=change, consumer=m.CONSUMER_NONE, process_cores=0.4),
    )
    host, pipeline = recording.graph.host, recording.graph.pipelines[0]
    pipeline.files.add(operator="op1", device=device, paths=["/data/shard-0"], count=1, bytes=1 << 30)
    if curve:
        host.storage.add(
            device=DEVICE,
            readers=[readers for readers, _ in curve],
            bytes_per_s=[rate for _, rate in curve],
            past_page_cache=past_page_cache,
            sentence="Measured last week.",
        )
    return recording


def storage_rate(found: a.Analysis) -> float | None:
    """The storage bound, steps/s; None if there is none."""
    return next((bound.rate for bound in found.bounds if bound.constraint == a.CONSTRAINT_STORAGE), None)


def test_storage_that_is_used_up_is_the_bottleneck_and_hardware() -> None:
    found = analyse(reading())
    assert storage_rate(found) == pytest.approx(84e6 / STEP_BYTES, rel=0.01)
    assert found.bottleneck.constraint == a.CONSTRAINT_STORAGE
    assert found.bottleneck.operator == "op1"
    assert found.verdict.cause == a.CAUSE_HARDWARE
    assert [(point.readers, point.bytes_per_s) for point in found.limits.storage] == [(1, 60e6), (2, 84e6)]
    assert any("Measured last week." in note for note in found.notes)


def test_storage_with_room_is_not_the_cause() -> None:
    found = analyse(reading(curve=((1, 500e6), (2, 900e6))))
    assert storage_rate(found) == pytest.approx(900e6 / STEP_BYTES, rel=0.01)
    assert found.verdict.cause != a.CAUSE_HARDWARE


def test_only_what_comes_from_storage_loads_it() -> None:
    assert storage_rate(analyse(reading(from_storage=0.8))) == pytest.approx(105e6 / STEP_BYTES, rel=0.01)


def test_reads_from_the_page_cache_are_not_bounded_by_storage() -> None:
    found = analyse(reading(from_storage=0.1))
    assert storage_rate(found) is None
    assert any(
        "10 % of the bytes read came from storage, the rest from the page cache" in n for n in found.notes
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"curve": ()}, "was never measured"),
        ({"past_page_cache": False}, "Measured last week."),
        ({"device": "8:2 xfs 1"}, "was never measured"),
    ],
)
def test_without_a_curve_that_can_be_trusted_there_is_no_bound(
    options: dict[str, object], words: str
) -> None:
    found = analyse(reading(**options))  # type: ignore[arg-type]
    assert storage_rate(found) is None
    assert any(words in note for note in found.notes)


def test_what_lies_behind_a_network_was_not_measured_and_that_is_said() -> None:
    recording = reading(device="")
    recording.graph.pipelines[0].files[0].paths[:] = ["gs://bucket/shard-0"]
    found = analyse(recording)
    assert storage_rate(found) is None
    assert any("What gs:// delivers was not measured" in note for note in found.notes)


def test_supposed_storage_bounds_all_that_is_read() -> None:
    # GIVEN reads that came from the page cache, and no curve
    recording = reading(from_storage=0.0, curve=())
    # WHEN storage of another speed is supposed
    slower = analyse(recording, what_if=WhatIf(storage_bytes_per_s=20e6))
    # THEN all bytes come from there
    assert storage_rate(slower) == pytest.approx(20e6 / STEP_BYTES, rel=0.01)
    assert slower.plan.predicted_rate <= 20e6 / STEP_BYTES * 1.01
    assert slower.verdict.observed_rate == pytest.approx(RATE)
    faster = analyse(recording, what_if=WhatIf(storage_bytes_per_s=1e12))
    assert faster.plan.predicted_rate == pytest.approx(analyse(recording).plan.predicted_rate)


def test_storage_cannot_be_supposed_where_nobody_knows_what_is_read() -> None:
    with pytest.raises(NotAnswerable, match="nobody can tell from this recording how many bytes"):
        analyse(reading(counted=False), what_if=WhatIf(storage_bytes_per_s=20e6))
