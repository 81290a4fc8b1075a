"""Each finding on a recording whose costs make it true, and on a near miss."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tensorboard_plugin_plumber.model.analyse import analyse
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.recording import Recording
from tests.support.recordings import Cost, Run, chain

ALLOWED = m.Legality(allowed=True)
NATIVE = m.UserFunction(name="decode")
KEEPS = m.UserFunction(name="is_long")
ALONE = m.CONSUMER_NONE


def op(type_: str, line: int, **fields: object) -> m.Operator:
    """An operator as written, at a line of train.py."""
    fields.setdefault("cardinality", -2)
    return m.Operator(
        type=type_, source=m.SourceLine(path="/project/train.py", line=line), parallel=ALLOWED, **fields
    )


def alone(costs: Sequence[Cost], rate: float, *, cores: float = 2.0, **run: object) -> Recording:
    """A chain that ran with nobody behind it."""
    run.setdefault("process_cores", 1.0)
    run.setdefault("pool_cores", 0.9)
    return chain(costs, Run(rate=rate, consumer=ALONE, **run), cores=cores)


def found(recording: Recording) -> dict[str, a.Finding]:
    """Findings by their code."""
    return {finding.code: finding for finding in analyse(recording).findings}


def batch(line: int = 30, size: int = 32) -> Cost:
    return Cost("BatchV2", 1, 20e-6, 32e3, written=[op("Batch", line, batch_size=size)])


def thrown(type_: str, kept: float, *, decode_s: float = 300e-6) -> Recording:
    """A costly map whose elements are thrown away by what follows, but for `kept` of them."""
    function = KEEPS if type_ == "Filter" else None
    costs = [
        batch(),
        Cost(type_, 32, 1e-6, 1e3, function=function, written=[op(type_, 20)]),
        Cost("Map", 32 / kept, decode_s, 1e3, function=NATIVE, written=[op("Map", 10, label="decode")]),
        Cost("TFRecord", 32 / kept, 1e-6, 1e3, written=[op("TFRecord", 5)]),
    ]
    return alone(costs, 1 / (32 / kept * (decode_s + 2e-6) + 60e-6))


@pytest.mark.parametrize(
    ("type_", "code"), [("Filter", "wasted-work"), ("Skip", "wasted-work"), ("Shard", "shard-late")]
)
def test_costly_elements_that_are_thrown_away_are_wasted_work(type_, code):
    finding = found(thrown(type_, 0.25))[code]
    assert finding.operator == "op1"
    assert "25 %" in finding.message
    assert "decode (train.py:10)" in finding.message
    # THEN the gain is that of making a quarter of them
    assert finding.gain == pytest.approx(3, rel=0.1)


@pytest.mark.parametrize("type_", ["Filter", "Skip", "Shard"])
def test_little_that_is_thrown_away_or_costs_nothing_is_no_waste(type_):
    assert not found(thrown(type_, 0.97)).keys() & {"wasted-work", "shard-late"}
    # GIVEN a batch that binds, and a map before it that costs next to nothing
    costs = [
        Cost("BatchV2", 1, 20e-3, 32e3, written=[op("Batch", 30, batch_size=32)]),
        Cost(type_, 32, 1e-6, 1e3, function=None, written=[op(type_, 20)]),
        Cost("Map", 64, 1e-6, 1e6, function=NATIVE, written=[op("Map", 10, label="decode")]),
        Cost("TFRecord", 64, 1e-6, 1e3, written=[op("TFRecord", 5)]),
    ]
    assert not found(alone(costs, 49)).keys() & {"wasted-work", "shard-late"}


def filtered(kept: float) -> Recording:
    """A filter right behind its source."""
    costs = [
        batch(),
        Cost("Filter", 32, 30e-6 / kept, 400, function=KEEPS, written=[op("Filter", 20)]),
        Cost("TFRecord", 32 / kept, 1e-6, 400, written=[op("TFRecord", 5)]),
    ]
    return alone(costs, 1 / (32 / kept * 31e-6 + 20e-6))


def test_a_filter_that_reads_twenty_for_one_is_wasted_work():
    finding = found(filtered(0.05))["wasted-work"]
    assert "20.0 elements" in finding.message
    assert finding.gain > 1
    assert "wasted-work" not in found(filtered(0.8))


def tiny_elements(*, bytes_: float = 500, call_s: float = 30e-6, batched: int = 32) -> Recording:
    parse = m.UserFunction(name="parse")
    costs = [
        batch(size=batched),
        Cost("Map", 32, call_s, bytes_, function=parse, overhead_s=20e-6, written=[op("Map", 10)]),
        Cost("TFRecord", 32, 1e-6, bytes_, written=[op("TFRecord", 5)]),
    ]
    return alone(costs, 1 / (32 * (call_s + 21e-6) + 20e-6))


def test_a_call_for_each_tiny_element_is_overhead():
    finding = found(tiny_elements())["per-element-overhead"]
    assert finding.operator == "op1"
    assert "called 32.0 times per step" in finding.message
    assert ".batch(32)" in finding.fix
    # THEN the calls are saved, not the work: 31 of 32 overheads of 20 µs in (30 + 20) µs
    assert finding.gain == pytest.approx(1 / (1 - 0.4 * 31 / 32) - 1, rel=0.15)


@pytest.mark.parametrize(
    "near_miss", [{"bytes_": 200e3}, {"call_s": 1e-3}, {"batched": 2}], ids=["large", "long", "no batch"]
)
def test_calls_that_work_or_have_no_batch_are_no_overhead(near_miss):
    assert "per-element-overhead" not in found(tiny_elements(**near_miss))


def classes(*, constant: bool = True, count: int = 12) -> Recording:
    """An interleave that opens one file for each class, and filters it."""
    costs = [
        batch(),
        Cost("Interleave", 32, 1e-6, 264, written=[op("Interleave", 20, cycle_length=count)]),
        Cost("Filter", 32, 20e-6, 264, function=KEEPS, written=[op("Filter", 16)]),
        Cost("Map", 32 * count, 30e-6, 264, function=NATIVE, written=[op("Map", 15)]),
        Cost("TFRecord", 32 * count, 1e-6, 310, written=[op("TFRecord", 14)]),
        Cost("Range", 0.01, 0, 8, written=[op("Range", 13, cardinality=count)]),
    ]
    recording = alone(costs, 1 / (32 * count * 31e-6 + 32 * 21e-6 + 20e-6))
    (pipeline,) = recording.graph.pipelines
    for position in (2, 3, 4):
        pipeline.operators[position].in_body = pipeline.running[position].in_body = position == 2
    pipeline.operators[5].parent = pipeline.operators[5].flows_to = "op1"
    pipeline.running[5].parent = 1
    pipeline.files.add(
        operator="op4", count=1, bytes=10**6, complete=True, found_by="constant" if constant else "list_files"
    )
    return recording


def test_one_file_read_for_each_class_is_repeated_work():
    finding = found(classes())["repeated-work"]
    assert finding.operator == "op4"
    assert "each of the 12 iterators" in finding.message
    assert finding.gain > 1


def test_files_that_the_interleave_hands_out_are_read_once():
    assert "repeated-work" not in found(classes(constant=False))
    assert "repeated-work" not in found(classes(count=1))


def test_unbatch_straight_into_batch_is_for_nothing():
    def chain_of(between: Sequence[Cost]) -> Recording:
        costs = [
            Cost("BatchV2", 1, 2e-3, 32e3, written=[op("Batch", 30, batch_size=32)]),
            *between,
            Cost("Unbatch", 32, 50e-6, 1e3, written=[op("Unbatch", 20)]),
            Cost("BatchV2", 0.5, 1e-3, 64e3, written=[op("Batch", 10, batch_size=64)]),
            Cost("TFRecord", 32, 20e-6, 1e3, written=[op("TFRecord", 5)]),
        ]
        return alone(costs, 200)

    finding = found(chain_of([]))["unbatch-rebatch"]
    assert ".rebatch" in finding.fix
    assert finding.gain > 0.25
    shuffle = Cost("Shuffle", 32, 1e-6, 1e3, written=[op("Shuffle", 25, buffer_size=100, random=True)])
    assert "unbatch-rebatch" not in found(chain_of([shuffle]))


def windows(*, map_s: float) -> Recording:
    costs = [
        Cost("BatchV2", 1, 5e-3 if map_s < 1e-4 else 20e-6, written=[op("Batch", 30, batch_size=32)]),
        Cost("Map", 32, map_s, 1e3, function=NATIVE, written=[op("Map", 20)]),
        Cost("Window", 32, 20e-6, 100, written=[op("Window", 10)]),
        Cost("TensorSlice", 32, 1e-6, 100, written=[op("TensorSlice", 5)]),
    ]
    return alone(costs, 1 / (32 * (map_s + 21e-6) + (5e-3 if map_s < 1e-4 else 20e-6)))


def test_windows_that_bind_are_nested_datasets():
    assert found(windows(map_s=1e-3))["nested-datasets"].operator == "op2"
    assert "nested-datasets" not in found(windows(map_s=1e-6))


def reading(
    *, files: int = 8, compression: str = "", calls: float | None = None, cpu: float = 1.0
) -> Recording:
    source = op("TFRecord", 5)
    costs = [
        batch(),
        Cost("TFRecord", 32, 1e-3, 200e3, parallelism=calls, written=[source]),
    ]
    recording = alone(costs, 1 / (32e-3 + 20e-6), process_cores=cpu)
    recording.graph.pipelines[0].files.add(
        operator="op1", count=files, bytes=files * 10**8, compression=compression, complete=True
    )
    return recording


def test_one_reader_of_many_files_while_cores_idle_is_a_sequential_read():
    finding = found(reading())["sequential-read"]
    assert "of 8 files" in finding.message
    assert "cycle_length=2" in finding.fix
    assert finding.gain == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("near_miss", [{"files": 1}, {"cpu": 1.9}], ids=["one file", "no core idle"])
def test_one_file_or_busy_cores_leave_nothing_to_read_beside(near_miss):
    assert "sequential-read" not in found(reading(**near_miss))


def test_inflating_that_binds_is_compressed_input():
    finding = found(reading(compression="GZIP"))["compressed-input"]
    assert "GZIP" in finding.message
    # THEN 200 kB at 500 MB/s are 0.4 ms of each ms
    assert finding.gain == pytest.approx(1 / 0.6 - 1, rel=0.1)
    assert "compressed-input" not in found(reading())


def waiting_interleave(*, rate: float, parallel: bool = False) -> Recording:
    """Readers that wait where TensorFlow does not count."""
    calls = {"parallelism": 8.0} if parallel else {}
    costs = [
        batch(),
        Cost(
            "ParallelInterleaveV4" if parallel else "Interleave",
            32,
            1e-6,
            1e3,
            written=[op("Interleave", 20, cycle_length=8, label="_open")],
            **calls,
        ),
        Cost("TFRecord", 32, 20e-6, 1e3, written=[op("TFRecord", 14)]),
        Cost("TensorSlice", 0.1, 0, 54, written=[op("TensorSlice", 13)]),
    ]
    recording = alone(costs, rate, process_cores=0.1, pool_cores=0.01)
    (pipeline,) = recording.graph.pipelines
    pipeline.operators[2].in_body = pipeline.running[2].in_body = True
    pipeline.operators[3].parent = pipeline.operators[3].flows_to = "op1"
    pipeline.running[3].parent = 1
    return recording


def test_time_that_nothing_explains_points_at_the_reader_that_opens_one_file_at_a_time():
    finding = found(waiting_interleave(rate=8))["sequential-read"]
    assert finding.operator == "op1"
    assert "outside of what TensorFlow counts" in finding.message
    assert not finding.HasField("gain")
    # THEN the bottleneck says the same, and is no more than tentative
    analysis = analyse(waiting_interleave(rate=8))
    assert analysis.bottleneck.operator == "op1"
    assert "most likely" in analysis.bottleneck.sentence
    assert analysis.verdict.tentative
    # THEN it says nothing where the counters explain the rate, or the reads are side by side
    assert "outside" not in found(waiting_interleave(rate=1400))["sequential-read"].message
    assert "sequential-read" not in found(waiting_interleave(rate=8, parallel=True))


def small(*, mean_bytes: float, count: int = 400) -> Recording:
    load = m.UserFunction(name="load", may_wait=True)
    costs = [
        batch(),
        Cost("Map", 32, 10e-3, 40e3, function=load, written=[op("Map", 10)]),
        Cost("TensorSlice", 32, 0, 50, written=[op("TensorSlice", 5)]),
    ]
    recording = alone(costs, 1 / 0.32, process_cores=0.1, pool_cores=0.02)
    recording.graph.pipelines[0].files.add(
        operator="op1", count=count, bytes=int(count * mean_bytes), complete=True
    )
    return recording


def test_many_small_files_that_are_waited_for_are_small_files():
    assert "400 files" in found(small(mean_bytes=40e3))["small-files"].message
    assert "small-files" not in found(small(mean_bytes=5e6))
    assert "small-files" not in found(small(mean_bytes=40e3, count=4))


def test_arrays_in_the_graph_are_told():
    def holding(rows: int) -> Recording:
        source = op("TensorSlice", 5, cardinality=rows)
        return alone([batch(), Cost("TensorSlice", 32, 1e-6, 1e3, written=[source])], 1000)

    finding = found(holding(10**6))["large-constant"]
    assert finding.severity == a.SEVERITY_LOW
    assert "1.00 GB" in finding.message
    assert "large-constant" not in found(holding(1000))


def shuffling(*, delay_s: float, buffer: int = 1000) -> Recording:
    def change(second: int, record: m.SampleRecord) -> None:
        record.pipelines[0].epochs_started = 1
        record.pipelines[0].epoch_start_delay_s = delay_s

    costs = [
        batch(),
        Cost("Shuffle", 32, 1e-6, 1e3, written=[op("Shuffle", 20, buffer_size=buffer, random=True)]),
        Cost("Map", 32, 1e-3, 1e3, function=NATIVE, written=[op("Map", 10)]),
        Cost("TFRecord", 32, 1e-6, 1e3, written=[op("TFRecord", 5)]),
    ]
    return alone(costs, 31, change=change)


def test_a_shuffle_that_keeps_the_first_step_waiting_is_told():
    finding = found(shuffling(delay_s=4))["shuffle-fill"]
    assert finding.operator == "op1"
    assert "4.00 s" in finding.message
    assert "1,000 elements" in finding.message
    assert "shuffle-fill" not in found(shuffling(delay_s=0.1))


def holding(type_: str, bytes_: int, *, size: int = 100) -> Recording:
    def change(second: int, record: m.SampleRecord) -> None:
        record.pipelines[0].operators[1].buffered_bytes = bytes_

    costs = [
        batch(),
        Cost(type_, 32, 1e-6, 1e6, written=[op(type_, 20, buffer_size=size)]),
        Cost("TFRecord", 32, 1e-3, 1e6, written=[op("TFRecord", 5)]),
    ]
    return alone(costs, 31, change=change)


@pytest.mark.parametrize(("type_", "code"), [("Shuffle", "shuffle-memory"), ("Prefetch", "buffer-memory")])
def test_buffers_that_hold_much_of_the_memory_are_told(type_, code):
    assert found(holding(type_, 6 << 30))[code].severity == a.SEVERITY_HIGH
    assert found(holding(type_, 2 << 30))[code].severity == a.SEVERITY_MEDIUM
    assert code not in found(holding(type_, 1 << 20))


def test_a_prefetch_is_judged_by_what_it_may_hold():
    """It is empty where the consumer is the faster one, and full as soon as that pauses."""
    message = found(holding("Prefetch", 1 << 20, size=6000))["buffer-memory"].message
    assert "is given room for 6.00 GB" in message
    assert "(1.05 MB now)" in message
    assert "shuffle-memory" not in found(holding("Shuffle", 1 << 20, size=6000))


def cached(state: str, *, rows: int = 10**6, bytes_: float = 1e3) -> Recording:
    def change(second: int, record: m.SampleRecord) -> None:
        record.pipelines[0].cache_states[2] = state
        record.pipelines[0].iterators = 4

    costs = [
        batch(),
        Cost("FiniteTake", 32, 1e-6, bytes_, written=[op("Take", 25, count=200)]),
        Cost("MemoryCache", 32, 1e-6, bytes_, written=[op("Cache", 20, cache=ALLOWED, cardinality=rows)]),
        Cost(
            "Map", 32, 1e-3, bytes_, function=NATIVE, written=[op("Map", 10, cache=ALLOWED, cardinality=rows)]
        ),
        Cost("TFRecord", 32, 1e-6, bytes_, written=[op("TFRecord", 5, cache=ALLOWED, cardinality=rows)]),
    ]
    return alone(costs, 31, change=change)


def test_a_cache_that_fills_for_ever_is_told_with_what_serving_would_give():
    finding = found(cached("never completes"))["cache-never-completes"]
    assert finding.operator == "op2"
    assert ".take(200).cache()" in finding.fix
    assert finding.gain > 5
    assert "cache-never-completes" not in found(cached("filling"))
    assert "cache-never-completes" not in found(cached("serving"))


def test_a_shard_behind_the_cache_is_late():
    recording = cached("serving")
    (pipeline,) = recording.graph.pipelines
    pipeline.operators[1].type = "Shard"
    pipeline.running[1].type = "Shard"
    for record in recording.samples:
        for position in (2, 3, 4):
            record.pipelines[0].operators[position].elements *= 4
            record.pipelines[0].operators[position].elements_seen *= 4
    finding = found(recording)["shard-late"]
    assert finding.operator == "op1"
    assert "25 %" in finding.message
    assert "shard-late" not in found(cached("serving"))


def tuned(calls: int, *, budget: int | None = None) -> Recording:
    costs = [
        Cost("Prefetch", 1, 0, written=[op("Prefetch", 30)]),
        Cost("ParallelMapV2", 1, 20e-3, 1e3, float(calls), True, NATIVE, [op("ParallelMap", 10)]),
        Cost("Range", 1, 1e-6, written=[op("Range", 5)]),
    ]
    recording = alone(costs, 49.0 * calls)
    if budget is not None:
        recording.graph.pipelines[0].autotune_cpu_budget = budget
    return recording


def test_what_autotune_chose_is_told_where_it_is_no_cap_or_does_nothing():
    assert "autotune-hidden" not in found(tuned(2))
    assert "budget is 1 core" in found(tuned(2, budget=1))["autotune-hidden"].message
    assert "stays at 1" in found(tuned(1))["autotune-hidden"].message


def crowded(queue: float, *, pool: int) -> Recording:
    costs = [
        batch(),
        Cost("ParallelMapV2", 32, 1e-3, 1e3, 8.0, False, NATIVE, [op("ParallelMap", 10)]),
        Cost("Range", 32, 1e-6, written=[op("Range", 5)]),
    ]
    recording = alone(costs, 60, pool_cores=1.0, pool_queue=queue, process_cores=1.9)
    recording.graph.pipelines[0].threadpool_size = pool
    return recording


def test_a_pool_larger_than_the_cores_that_waits_for_them_is_oversubscribed():
    finding = found(crowded(3.0, pool=16))["oversubscribed"]
    assert "16 threads" in finding.message
    assert "wait for a core 75 % of that time" in finding.message
    assert finding.severity == a.SEVERITY_LOW
    assert "oversubscribed" not in found(crowded(0.01, pool=16))
    assert "oversubscribed" not in found(crowded(3.0, pool=2))


def writing(writes: Sequence[str]) -> Recording:
    function = m.UserFunction(name="log", writes=writes)
    costs = [
        batch(),
        Cost("Map", 32, 1e-3, 1e3, function=function, written=[op("Map", 10, label="log")]),
        Cost("Range", 32, 1e-6, written=[op("Range", 5)]),
    ]
    return alone(costs, 31)


def test_a_function_that_writes_is_told():
    assert "a variable" in found(writing(["a variable"]))["side-effects"].message
    assert "side-effects" not in found(writing([]))
    assert "side-effects" not in found(writing(["a random generator's state"]))


def cropping(*, out_bytes: float, operations: Sequence[str]) -> Recording:
    crop = m.UserFunction(name="crop", operations=operations)
    costs = [
        batch(),
        Cost("Map", 32, 5e-3, out_bytes, function=crop, written=[op("Map", 10, label="crop")]),
        Cost("TFRecord", 32, 1e-6, 100e3, written=[op("TFRecord", 5)]),
    ]
    return alone(costs, 6.2)


@pytest.mark.parametrize(
    ("operation", "fix"), [("StridedSlice", "decode_and_crop_jpeg"), ("ResizeBilinear", "ratio=")]
)
def test_whole_images_decoded_for_little_of_them_are_told(operation, fix):
    finding = found(cropping(out_bytes=7e3, operations=["DecodeJpeg", operation]))["decode-whole-image"]
    assert finding.operator == "op1"
    assert fix in finding.fix
    # THEN an image that is used whole, or bytes that are no image, are not
    assert "decode-whole-image" not in found(cropping(out_bytes=600e3, operations=["DecodeJpeg", operation]))
    assert "decode-whole-image" not in found(cropping(out_bytes=7e3, operations=["DecodeRaw", operation]))
    assert "decode-whole-image" not in found(cropping(out_bytes=7e3, operations=["DecodeJpeg"]))


def casting(*, grows: float, operations: Sequence[str] = ("CastToFloat",)) -> Recording:
    cast = m.UserFunction(name="cast", operations=operations)
    costs = [
        Cost("BatchV2", 1, 8e-3, 19e6 * grows / 4, written=[op("Batch", 30, batch_size=32)]),
        Cost("Map", 32, 50e-6, 150e3 * grows, function=cast, written=[op("Map", 10, label="cast")]),
        Cost("TFRecord", 32, 1e-6, 150e3, written=[op("TFRecord", 5)]),
    ]
    return alone(costs, 1 / (8e-3 + 32 * 51e-6))


def test_floats_that_are_copied_where_bytes_would_do_are_a_late_cast():
    finding = found(casting(grows=4))["late-cast"]
    assert finding.operator == "op1"
    assert finding.gain > 1
    assert "late-cast" not in found(casting(grows=1))
    assert "late-cast" not in found(casting(grows=4, operations=["DecodeJpeg", "CastToFloat"]))
