"""What elements are made of: more than is used, or wider than they need to be."""

from __future__ import annotations

from collections.abc import Iterator

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.findings.case import LEAST_GAIN, Case, cheaper, severity
from tensorboard_plugin_plumber.model.network import Operator
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

_DECODES = ("DecodeBmp", "DecodeGif", "DecodeImage", "DecodeJpeg", "DecodePng", "DecodeWebP")
_CROPS = frozenset({"Slice", "StridedSlice", "CropAndResize", "ExtractGlimpse"})
_SHRINKS = ("Resize", "ScaleAndTranslate")
#: An image that comes out at less than this share of its *compressed* bytes was mostly decoded for nothing.
_SMALL_SHARE = 0.5
#: Of a JPEG's decoding stays so much where the window alone is decoded, or the image at a reduced scale
#: (`python -m benchmarks.decoding`): the packed bits before it must be read in any case.
_LEFT_OF_CROPPED = 0.5
_LEFT_OF_SCALED = 0.8
#: A cast from bytes to floats makes elements four times as large.
_WIDENED = 3.0
#: Smaller elements cost more to hand on than to copy.
_LARGE_BYTES = 16e3
#: What pads in a function.
_PADS = frozenset({"Pad", "PadV2", "MirrorPad", "RaggedTensorToTensor"})
#: Bytes that are used less than this are mostly copied for nothing.
_LITTLE_USED = 0.5
#: Their time goes with the bytes that they copy.
_COPYING_SOURCES = frozenset({"TensorSlice", "FixedLengthRecord", "TFRecord"})


def decode_whole_image(case: Case) -> Iterator[a.Finding]:
    """Whole images are decoded for a small window, or to be made much smaller."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    for i in case.binding_operators():
        operations, operator = set(case.estimate.written[i].function.operations), network.operators[i]
        shrinks = any(one.startswith(_SHRINKS) for one in operations)
        if operations.isdisjoint(_DECODES) or not (shrinks or operations & _CROPS):
            continue
        packed = _packed_bytes(case, i)
        if packed is None or operator.element_bytes > _SMALL_SHARE * packed:
            continue
        how = "a smaller image" if shrinks else "a window"
        fix = (
            "tf.io.decode_jpeg(…, ratio=2, 4 or 8) decodes at a reduced scale, or store the images smaller."
            if shrinks
            else "tf.io.decode_and_crop_jpeg decodes the window alone; or store pre-cut patches."
        )
        finding = a.Finding(
            code="decode-whole-image",
            severity=a.SEVERITY_MEDIUM,
            operator=operator.id,
            message=(
                f"{operator.label} decodes whole images ({words.size(packed)} as stored) and keeps {how} of "
                f"{words.size(operator.element_bytes)}: less than the file itself holds. It takes "
                f"{words.duration(operator.cpu_s)} of a core for each, and more parallel calls do not make that less."
            ),
            fix=fix,
        )
        left = _LEFT_OF_SCALED if shrinks else _LEFT_OF_CROPPED
        gain = case.gain_of(case.changed({i: cheaper(left)}))
        if gain >= LEAST_GAIN and "DecodeJpeg" in operations:
            finding.gain = gain
        yield finding


def _packed_bytes(case: Case, position: int) -> float | None:
    """Bytes of the stored image behind one element: a file's, or a record's; None if unknown."""
    network = case.estimate.network
    files = case.files_of(network.operators[position].id)
    if files is not None and files.count:
        return float(files.bytes / files.count)
    below = [network.operators[i].element_bytes for i in network.inputs[position]]
    return below[0] if below and below[0] > 0 else None


def late_cast(case: Case) -> Iterator[a.Finding]:
    """Bytes become floats long before the end: all that follows copies four times as much."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    for i, operator in enumerate(network.operators):
        inputs = [network.operators[j] for j in network.inputs[i]]
        if not _widens(case.estimate.written[i], operator, inputs):
            continue
        copiers = [j for j in network.path(i)[1:] if not network.operators[j].pooled]
        ratio = inputs[0].element_bytes / operator.element_bytes
        gain = case.gain_of(case.changed(dict.fromkeys(copiers, cheaper(ratio))))
        if gain < LEAST_GAIN:
            continue
        yield a.Finding(
            code="late-cast",
            severity=severity(gain),
            operator=operator.id,
            message=(
                f"{operator.label} casts to floats: its elements grow from {words.size(inputs[0].element_bytes)} to "
                f"{words.size(operator.element_bytes)}, and what follows takes "
                f"{words.duration(network.core_s(copiers))} of core time per step to copy them."
            ),
            fix="Hand the integers on, and cast in the last map, or in the model's first layer.",
            gain=gain,
        )


def _widens(written: m.Operator, operator: Operator, inputs: list[Operator]) -> bool:
    """Whether its function turns large elements of bytes into floats, and does little else to their size."""
    operations = set(written.function.operations)
    if "CastToFloat" not in operations or len(inputs) != 1 or not operations.isdisjoint(_DECODES):
        return False
    before = inputs[0].element_bytes
    return before >= _LARGE_BYTES and operator.element_bytes >= _WIDENED * before


def padding(case: Case) -> Iterator[a.Finding]:
    """Most of what is copied and handed on is padding."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    for i, operator in enumerate(network.operators):
        written, inputs = case.estimate.written[i], network.inputs[i]
        pads = not _PADS.isdisjoint(written.function.operations)
        batches = written.type == "PaddedBatch"
        if not (pads or batches) or len(inputs) != 1 or operator.visits <= 0 or operator.element_bytes <= 0:
            continue
        below = network.operators[inputs[0]]
        given = below.element_bytes * below.visits / operator.visits
        useful = given / operator.element_bytes
        if useful > _LITTLE_USED or operator.element_bytes < _LARGE_BYTES / (1 if batches else 16):
            continue
        # What a batch copies, itself included, goes with its bytes.
        copiers = [j for j in network.path(i)[0 if batches else 1 :] if not network.operators[j].pooled]
        gain = case.gain_of(case.changed(dict.fromkeys(copiers, cheaper(useful))))
        if gain < LEAST_GAIN:
            continue
        yield a.Finding(
            code="wasted-work",
            severity=severity(gain),
            operator=operator.id,
            message=(
                f"{operator.label} hands on {words.size(operator.element_bytes)} for {words.size(given)} that it is "
                f"given: {words.percent(1 - useful)} is padding, and copying takes "
                f"{words.duration(network.core_s(copiers))} of core time per step."
            ),
            fix=(
                "Bring elements of like length together, so that batches are padded to their own longest alone: "
                ".bucket_by_sequence_length(…) (it changes the order of elements)."
                if batches
                else "Batch the short elements and pad the whole batch, after any shuffle: .padded_batch(…)."
            ),
            gain=gain,
        )


def large_element_copies(case: Case) -> Iterator[a.Finding]:
    """A source copies large elements of which a map then takes a small part."""
    if case.consumer_binds:
        return
    network = case.estimate.network
    for i, operator in enumerate(network.operators):
        written, inputs = case.estimate.written[i], network.inputs[i]
        if not written.function.takes_parts or len(inputs) != 1 or operator.visits <= 0:
            continue
        below = network.operators[inputs[0]]
        used = operator.element_bytes * operator.visits / max(below.visits * below.element_bytes, 1e-12)
        copiers = _copiers_below(case, i)
        if below.element_bytes < _LARGE_BYTES or used > _LITTLE_USED or not copiers:
            continue
        fewer_bytes = dict.fromkeys(copiers, cheaper(used))
        if "DecodeRaw" in written.function.operations and operator.cpu_s > 0:
            # It copies all of them, too; what the call itself costs stays.
            fewer_bytes[i] = cheaper(min(max(used, case.overhead_s(i) / operator.cpu_s), 1.0))
        gain = case.gain_of(case.changed(fewer_bytes))
        if gain < LEAST_GAIN:
            continue
        source = network.operators[copiers[-1]]
        yield a.Finding(
            code="large-element-copies",
            severity=severity(gain),
            operator=source.id,
            message=(
                f"{source.label} copies {words.size(below.element_bytes * below.visits)} per step, of which "
                f"{operator.label} takes {words.percent(used)}: {words.duration(network.core_s(copiers))} of core time "
                "per step, most of it for bytes that nobody looks at."
            ),
            fix=(
                f"Hand the source what is used alone (slice the array, or store those columns), or draw indices and "
                f"gather in {operator.label}."
            ),
            gain=gain,
        )


def _copiers_below(case: Case, position: int) -> list[int]:
    """From an operator down to its source, as long as each only hands on what it is given; empty if one does not."""
    network = case.estimate.network
    found = []
    while network.inputs[position]:
        position = network.inputs[position][0]
        found.append(position)
        if network.operators[position].pooled or len(network.inputs[position]) > 1:
            return []
    return found if case.estimate.written[position].type in _COPYING_SOURCES else []
