"""How files are read: one at a time, small, or packed."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.findings.case import (
    IDLE_CORES,
    LEAST_GAIN,
    Case,
    cheaper,
    cores_used,
    severity,
    waiting,
)
from tensorboard_plugin_plumber.model.network import Settings
from tensorboard_plugin_plumber.model.uncounted import READERS, uncounted_wait
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

#: Inflating gives about so many bytes per core second (`python -m benchmarks.inflate`).
_INFLATED_BYTES_PER_S = 5e8
#: Smaller files than this cost more to open than to read.
_SMALL_BYTES = 256e3
_MANY_FILES = 32
#: What any disk gives, bytes/s: reading that is so much slower than this is no matter of bytes.
_SLOW_BYTES_PER_S = 50e6
#: Readers side by side that any storage serves.
_READERS_WAITING = 8


def sequential_read(case: Case) -> Iterator[a.Finding]:
    """One reader at a time binds, while there are more files and more cores or waiting to be had."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    for i in case.binding_operators():
        written = case.estimate.written[i]
        reader = i
        for j in network.enclosing[i]:
            if network.current.choices[j].parallel:
                reader = -1
                break
            reader = j
        if written.type not in READERS or reader < 0 or network.current.choices[i].parallel:
            continue
        files = case.files_of(network.operators[i].id)
        if files is not None and files.complete and files.count < 2 and not network.enclosing[i]:
            continue
        operator = network.operators[i]
        waits = operator.wait_s > operator.cpu_s
        if not waits and network.limits.cores - cores_used(case) < IDLE_CORES:
            continue
        side_by_side = _READERS_WAITING if waits else max(math.ceil(network.limits.cores), 2)
        if files is not None and files.count >= 2:
            side_by_side = min(side_by_side, int(files.count))
        gain = case.gain(_read_by(case, reader, side_by_side))
        if gain < LEAST_GAIN:
            continue
        of = f" of {files.count:,} files" if files is not None and files.count > 1 else ""
        yield a.Finding(
            code="sequential-read",
            severity=severity(gain),
            operator=operator.id,
            message=(
                f"{operator.label} reads one file{of} at a time, {words.duration(operator.service_s)} for each element"
                + (f", of which it waits {words.duration(operator.wait_s)}" if waits else "")
                + f", while {words.cores(max(network.limits.cores - cores_used(case), 0))} of "
                f"{network.limits.cores:g} idle."
            ),
            fix=(
                f"Read {side_by_side} files side by side: .interleave(tf.data.{written.type}Dataset, "
                f"cycle_length={side_by_side}, num_parallel_calls={side_by_side}) over the names; the order of "
                "elements becomes another."
            ),
            gain=gain,
        )


def _read_by(case: Case, reader: int, side_by_side: int) -> Settings:
    """Today's settings with readers side by side, of the source itself or of the interleave around it."""
    return case.with_choice(reader, parallel=True, parallelism=side_by_side)


def unexplained_waiting(case: Case) -> Iterator[a.Finding]:
    """Nothing that is counted explains the time, hardly a core is in use, and files are opened one at a time."""
    network = case.estimate.network
    wait = uncounted_wait(case.estimate, case.binding.rate)
    if wait is None:
        return
    operator, written = network.operators[wait.reader], case.estimate.written[wait.reader]
    calls = max(operator.cycle_length or 1, 2)
    yield a.Finding(
        code="sequential-read",
        severity=a.SEVERITY_MEDIUM,
        operator=operator.id,
        message=(
            f"Of each {words.duration(wait.period_s)} per step, {words.duration(wait.step_s)} are nobody's work, with "
            f"{words.cores(wait.cores)} of {network.limits.cores:g} in use: the pipeline waits outside of what "
            f"TensorFlow counts. {operator.label} opens and reads one file at a time, so that each waiting for the "
            "storage stops all of it."
        ),
        fix=(
            f".interleave({written.function.name or '…'}, cycle_length={calls}, num_parallel_calls={calls}): the "
            "order of elements stays."
        ),
    )


def compressed_input(case: Case) -> Iterator[a.Finding]:
    """Inflating what is read is what binds."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    for i in case.binding_operators():
        files, operator = case.files_of(network.operators[i].id), network.operators[i]
        if files is None or not files.compression:
            continue
        inflate_s = min(operator.element_bytes / _INFLATED_BYTES_PER_S, operator.cpu_s)
        left = 1 - inflate_s / operator.cpu_s if operator.cpu_s > 0 else 1.0
        gain = case.gain_of(case.changed({i: cheaper(left)}))
        if gain < LEAST_GAIN:
            continue
        yield a.Finding(
            code="compressed-input",
            severity=severity(gain),
            operator=operator.id,
            message=(
                f"{operator.label} inflates {files.compression} at {words.duration(operator.service_s)} for each "
                f"element of {words.size(operator.element_bytes)}, in one thread, and that is what binds."
            ),
            fix=(
                "Store the records uncompressed (or compress the images in them instead), or spread them over more "
                "files and read those side by side."
            ),
            gain=gain,
        )


def small_files(case: Case) -> Iterator[a.Finding]:
    """Many small files: opening them and the way to the storage dominate."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    binding = case.binding_operators()
    for files in case.pipeline.files:
        position = case.estimate.position.get(files.operator)
        if position is None or files.count < _MANY_FILES or files.bytes > _SMALL_BYTES * files.count:
            continue
        reading = [i for i in (position, *network.enclosing[position]) if i in binding]
        if not reading:
            continue
        operator = network.operators[reading[0]]
        mean_bytes = files.bytes / files.count
        if operator.wait_s < 0.5 * operator.service_s or mean_bytes / operator.service_s > _SLOW_BYTES_PER_S:
            continue
        # Packed, they are read at the rate of a slow disk, and only what is computed stays.
        packed_s = mean_bytes / _SLOW_BYTES_PER_S
        gain = case.gain_of(case.changed({reading[0]: waiting(packed_s)}))
        if gain < LEAST_GAIN:
            continue
        yield a.Finding(
            code="small-files",
            severity=severity(gain),
            operator=operator.id,
            message=(
                f"{operator.label} reads {files.count:,} files of {words.size(mean_bytes)} on average and waits "
                f"{words.duration(operator.wait_s)} for each element: opening them takes the time, not their bytes."
            ),
            fix="Pack them into some TFRecord files of 100 MB and more, read side by side.",
            gain=gain,
        )


def large_constant(case: Case) -> Iterator[a.Finding]:
    """Arrays stand in the graph: they are copied into memory, and with each copy of the graph."""
    for operator in case.pipeline.operators:
        position = case.estimate.position.get(operator.id)
        if operator.type not in ("TensorSlice", "Tensor") or position is None or operator.cardinality < 1:
            continue
        held = operator.cardinality * case.estimate.network.operators[position].element_bytes
        if held < _LARGE_BYTES:
            continue
        yield a.Finding(
            code="large-constant",
            severity=a.SEVERITY_LOW,
            operator=operator.id,
            message=(
                f"{case.estimate.network.operators[position].label} holds all of its {words.size(held)} in memory, as "
                "a constant of the graph: a memory-mapped file is read into it whole, and saving the graph copies it."
            ),
            fix="Read from files (TFRecord, or fixed-length records) if this grows; at this size it does no harm.",
        )


#: Below this, an array in the graph hurts nobody.
_LARGE_BYTES = 16e6
