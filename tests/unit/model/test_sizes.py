"""Sizes of a pass, on recordings whose counters are written down."""

from __future__ import annotations

import math
import random

import pytest

from tensorboard_plugin_plumber.model.intervals import WIDTH, Interval, deviation_of_ratio, share
from tensorboard_plugin_plumber.model.sizes import Size, projected_cache_bytes, sizes_of
from tensorboard_plugin_plumber.model.windows import windows_of
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.recordings import Cost, Run, chain

UNKNOWN, INFINITE = -2, -1


def one(type_: str, visits: float, **settings: object) -> Cost:
    """An operator of so many elements per step, 1000 B each."""
    return Cost(type_, visits, 1e-6, written=[m.Operator(type=type_, cardinality=UNKNOWN, **settings)])  # type: ignore[arg-type]


def sizes(*costs: Cost, read: float | None = None, files: m.SourceFiles | None = None) -> list[Size]:
    """Of the operators, the root first; the source has read `read` bytes per element."""

    def change(second: int, record: m.SampleRecord) -> None:
        if read is not None:
            source = record.pipelines[0].operators[-1]
            source.read_bytes = source.elements * read

    recording = chain(costs, Run(rate=10, seconds=20, change=change))
    (pipeline,) = recording.graph.pipelines
    if files is not None:
        files.operator = pipeline.operators[-1].id
        pipeline.files.append(files)
    windows = windows_of(pipeline, 0, recording.samples)
    assert windows is not None
    found = sizes_of(pipeline, windows)
    return [found[operator.id] for operator in pipeline.operators]


def test_records_follow_from_the_bytes_of_files() -> None:
    # GIVEN 4,000 of 100,000 records read, 500 B each in their files
    found = sizes(
        one("Batch", 1, batch_size=20),
        one("TFRecord", 20),
        read=500,
        files=m.SourceFiles(count=1, bytes=50_000_000, complete=True),
    )
    batches, records = (size.elements for size in found)
    assert records is not None
    assert batches is not None
    assert records.value == pytest.approx(100_000)
    assert records.low <= 100_000 <= records.high
    assert batches.value == pytest.approx(5000)


def test_without_a_complete_list_of_files_nothing_is_claimed() -> None:
    (found,) = sizes(one("TFRecord", 1), read=500, files=m.SourceFiles(count=1, bytes=10**6, complete=False))
    assert found == Size(element_bytes=found.element_bytes)


def test_a_take_ends_what_never_does() -> None:
    endless = Cost("Counter", 1, 1e-6, written=[m.Operator(type="Counter", cardinality=INFINITE)])
    repeat, take, counter = sizes(one("Repeat", 1, count=3), one("Take", 1, count=500), endless)
    assert counter.infinite
    assert counter.materialised_bytes is None
    assert take.elements == Interval.exactly(500)
    assert repeat.elements == Interval.exactly(1500)


def test_bytes_hold_what_each_tensor_costs() -> None:
    source = Cost("Range", 1, 1e-6, written=[m.Operator(type="Range", cardinality=1000, components=3)])
    (found,) = sizes(source)
    assert found.materialised_bytes is not None
    assert found.materialised_bytes.value == pytest.approx(1000 * (1000 + 3 * 200))


def test_an_endless_cache_grows_for_ever() -> None:
    found = projected_cache_bytes({"op0": Size(infinite=True)}, m.Operator(id="op0", type="Cache"))
    assert found is not None
    assert math.isinf(found.low)


@pytest.mark.parametrize("seen", [50, 200, 999, 1000, 2500])
def test_a_share_holds_the_truth(seen: int) -> None:
    # GIVEN filters of all kinds of strictness over 1,000 elements
    draw, hits, widths = random.Random(seen), 0, []
    for _ in range(400):
        p = draw.uniform(0.02, 0.98)
        kept = [draw.random() < p for _ in range(1000)]
        found = share(sum(kept[i % 1000] for i in range(seen)), seen, 1000)
        hits += found.low <= sum(kept) <= found.high
        widths.append(found.high - found.low)
    assert hits >= 0.9 * 400
    assert sum(widths) / 400 < {50: 300, 200: 130, 999: 5, 1000: 1e-6, 2500: 40}[seen]


@pytest.mark.parametrize(("most", "step", "looks"), [(20, 3, 5), (20, 40, 20), (8, 1, 30), (200, 100, 8)])
def test_a_ratio_over_few_windows_holds_the_truth(most: int, step: int, looks: int) -> None:
    # GIVEN datasets of one to `most` elements, opened one after the other, and looks at every few elements of them
    draw, hits = random.Random(most + looks), 0
    for _ in range(400):
        sizes_ = [draw.randint(1, most) for _ in range(step * looks + 2000)]
        begun = [place for place, size in enumerate(sizes_) for _ in range(size)]
        seen = [begun[step * (look + 1) - 1] + 1 for look in range(looks)]
        opened = [b - a for a, b in zip([0, *seen], seen, strict=False)]
        spread = deviation_of_ratio([step] * looks, opened, seen=seen[-1], whole=len(sizes_), usual=1.0)
        # WHEN the elements of one are told by those that ended, or by those that began
        low, high = step * looks / seen[-1], step * looks / max(seen[-1] - 1, 1)
        truth = sum(sizes_) / len(sizes_)
        hits += low - WIDTH * spread <= truth <= high + WIDTH * spread
    # THEN nine of ten hold the truth
    assert hits >= 0.9 * 400


def test_what_was_made_up_tells_nothing_of_a_filter() -> None:
    # GIVEN half of 1,000 elements passed through a filter, all of them looked at, or half
    def filtered(seen: float) -> Interval:
        def change(second: int, record: m.SampleRecord) -> None:
            for counters in record.pipelines[0].operators:
                counters.elements_seen = counters.elements * seen

        source = Cost("Range", 2, 1e-6, written=[m.Operator(type="Range", cardinality=1000)])
        filter_ = Cost("Filter", 1, 1e-6, written=[m.Operator(type="Filter", cardinality=UNKNOWN)])
        recording = chain((filter_, source), Run(rate=12.5, seconds=20, change=change))
        (pipeline,) = recording.graph.pipelines
        windows = windows_of(pipeline, 0, recording.samples)
        assert windows is not None
        length = sizes_of(pipeline, windows)[pipeline.operators[0].id].elements
        assert length is not None
        return length

    all_seen, half_seen = filtered(1.0), filtered(0.5)

    # THEN what nobody saw is as uncertain as what is yet to come
    assert half_seen.value == pytest.approx(all_seen.value)
    assert half_seen.high - half_seen.low == pytest.approx(
        math.sqrt(3) * (all_seen.high - all_seen.low - 2) + 2, rel=0.02
    )
