"""What findings promise against what their fixes bring.

For each mistake that can be mended in code: the pipeline is diagnosed as it is, then it and the mended one, built by
hand as the finding says, are measured by turns.

python -m benchmarks.findings [--only CODE,CODE] [--rounds 5] [--seconds 0.4]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from benchmarks.report import table
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tests.support.findings import costs
from tests.support.findings.table import Make, Run, recorded

#: A gain is promised well if the rates differ by less than this factor.
GOOD = 1.5
DIAGNOSED_S = 2.0
WARM_UP_S = 0.25

_zip = tf.data.Dataset.zip


@dataclass(frozen=True)
class Pair:
    """A mistake, and how a person who reads the finding mends it."""

    name: str
    code: str
    wrong: Make
    mended: Callable[[a.Finding], tf.data.Dataset]
    options: Callable[[tf.data.Options], None] | None = None
    #: Pauses between elements, seconds: a consumer.
    consumer_s: float = 0.0


def _number(finding: a.Finding, name: str) -> int:
    """The number that the fix gives to an argument."""
    found = re.search(rf"{name} ?= ?(\d+)", finding.fix)
    assert found is not None, finding.fix
    return int(found.group(1))


def _pool(dataset: tf.data.Dataset, size: int) -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = size
    return dataset.with_options(options)


def _two_threads(options: tf.data.Options) -> None:
    options.threading.private_threadpool_size = 2


def _pool_of_16(options: tf.data.Options) -> None:
    options.threading.private_threadpool_size = 16


def _no_injection(options: tf.data.Options) -> None:
    options.experimental_optimization.inject_prefetch = False


def _drawn(record: tf.Tensor) -> tf.Tensor:
    return costs.drawing(tf.cast(tf.strings.length(record), tf.int64))


def _slow_read(path: tf.Tensor) -> tf.Tensor:
    return _drawn(tf.io.read_file(costs.waits(0.002)(path)))


def _thrice(x: tf.Tensor) -> tf.Tensor:
    return costs.work(costs.work(costs.work(x) + 1) + 1)


def _cached() -> tf.data.Dataset:
    dataset = costs.numbers(1000).map(_thrice).cache()
    for _ in dataset:
        pass  # what is compared is the steady state
    return dataset.map(costs.drawing)


def _class(label: tf.Tensor) -> tf.data.Dataset:
    return _labels().filter(lambda x: x == label)


def _labels() -> tf.data.Dataset:
    return tf.data.TFRecordDataset(costs.number_file()).map(
        lambda record: costs.work(tf.strings.to_number(record, tf.int64))
    )


def _branches() -> tf.data.Dataset:
    common = costs.numbers().map(costs.work)
    return _zip((common.map(costs.tiny), common.map(lambda x: x * 3)))


def _jpegs() -> tf.data.Dataset:
    return tf.data.TFRecordDataset(costs.jpeg_file()).repeat()


def _block() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(tf.zeros([64, 10_000])).repeat()


def _images() -> tf.data.Dataset:
    return costs.numbers().map(lambda x: tf.reshape(costs.large(x), [costs.LARGE_BYTES // 100, 100]))


def _float(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32)


def _padded() -> tf.data.Dataset:
    return costs.numbers().map(lambda x: tf.ones([tf.where(x % 64 == 0, 100_000, 20)]))


numbers = costs.numbers
PAIRS = (
    Pair(
        "waits",
        "sequential-map",
        lambda: numbers().map(costs.waits(0.004)),
        lambda f: numbers().map(costs.waits(0.004), num_parallel_calls=_number(f, "num_parallel_calls")),
    ),
    Pair(
        "computes",
        "sequential-map",
        lambda: numbers().map(costs.drawing).batch(8),
        lambda f: numbers().map(costs.drawing, num_parallel_calls=_number(f, "num_parallel_calls")).batch(8),
    ),
    Pair(
        "",
        "no-prefetch",
        lambda: numbers().map(costs.waits(0.004)),
        lambda f: numbers().map(costs.waits(0.004)).prefetch(tf.data.AUTOTUNE),
        _no_injection,
        0.005,
    ),
    Pair(
        "",
        "per-element-overhead",
        lambda: numbers().map(costs.tiny).batch(64),
        lambda f: numbers().batch(64).map(costs.tiny),
    ),
    Pair(
        "waits",
        "python-function",
        lambda: numbers().map(costs.waits(0.01), num_parallel_calls=2),
        lambda f: _pool(
            numbers().map(costs.waits(0.01), num_parallel_calls=_number(f, "num_parallel_calls")),
            _number(f, "private_threadpool_size"),
        ),
    ),
    Pair(
        "",
        "pool-limited",
        lambda: numbers().map(costs.waits(0.02), num_parallel_calls=16),
        lambda f: _pool(
            numbers().map(costs.waits(0.02), num_parallel_calls=16), _number(f, "private_threadpool_size")
        ),
        _two_threads,
    ),
    Pair(
        "",
        "ordered-stragglers",
        lambda: numbers().map(costs.straggles(), num_parallel_calls=8),
        lambda f: numbers().map(costs.straggles(), num_parallel_calls=8, deterministic=False),
        _pool_of_16,
    ),
    Pair(
        "",
        "sequential-read",
        lambda: tf.data.TFRecordDataset(costs.record_files("", 8)),
        lambda f: tf.data.Dataset.from_tensor_slices(costs.record_files("", 8)).interleave(
            tf.data.TFRecordDataset,
            cycle_length=_number(f, "cycle_length"),
            num_parallel_calls=_number(f, "num_parallel_calls"),
        ),
    ),
    Pair(
        "",
        "small-files",
        lambda: tf.data.Dataset.from_tensor_slices(costs.small_files(64)).repeat().map(_slow_read),
        lambda f: tf.data.TFRecordDataset(costs.packed_file(64)).repeat().map(_drawn),
    ),
    Pair(
        "",
        "compressed-input",
        lambda: tf.data.TFRecordDataset(costs.record_files("GZIP"), compression_type="GZIP"),
        lambda f: tf.data.TFRecordDataset(costs.record_files()),
    ),
    Pair("", "missing-cache", lambda: numbers(1000).map(_thrice).map(costs.drawing), lambda f: _cached()),
    Pair(
        "filter",
        "wasted-work",
        lambda: numbers().map(costs.work).filter(lambda x: x % 4 == 0).batch(8),
        lambda f: numbers().filter(lambda x: x % 4 == 0).map(costs.work).batch(8),
    ),
    Pair(
        "padding",
        "wasted-work",
        lambda: _padded().padded_batch(64),
        lambda f: _padded().bucket_by_sequence_length(tf.size, [1000], [64, 64]),
    ),
    Pair(
        "classes",
        "repeated-work",
        lambda: numbers(12).interleave(_class, cycle_length=12).batch(8),
        lambda f: _labels().batch(8),
    ),
    Pair(
        "branches",
        "repeated-work",
        _branches,
        lambda f: numbers().map(costs.work).map(lambda x: (costs.tiny(x), x * 3)),
    ),
    Pair(
        "",
        "decode-whole-image",
        lambda: _jpegs().map(lambda record: tf.io.decode_jpeg(record)[200:320, 200:360]).batch(4),
        lambda f: (
            _jpegs().map(lambda record: tf.io.decode_and_crop_jpeg(record, [200, 200, 120, 160])).batch(4)
        ),
    ),
    Pair(
        "",
        "unbatch-rebatch",
        lambda: _block().unbatch().batch(32),
        lambda f: _block().rebatch(32),
    ),
    Pair(
        "",
        "nested-datasets",
        lambda: (
            numbers().window(64, shift=1, drop_remainder=True).flat_map(lambda one: one.batch(64)).batch(32)
        ),
        lambda f: numbers().batch(1024).map(lambda x: tf.signal.frame(x, 64, 1)).unbatch().batch(32),
    ),
    Pair(
        "",
        "late-cast",
        lambda: _images().map(_float).shuffle(8).batch(4).batch(8),
        lambda f: _images().shuffle(8).batch(4).batch(8).map(_float),
    ),
    Pair(
        "",
        "large-element-copies",
        lambda: (
            tf.data.TFRecordDataset(costs.large_record_file())
            .repeat()
            .map(lambda record: tf.io.decode_raw(record, tf.uint8)[:1000])
        ),
        lambda f: (
            tf.data.TFRecordDataset(costs.large_record_file(1000))
            .repeat()
            .map(lambda record: tf.io.decode_raw(record, tf.uint8)[:1000])
        ),
    ),
    Pair(
        "",
        "shard-late",
        lambda: numbers().map(costs.work).shard(4, 0).batch(8),
        lambda f: numbers().shard(4, 0).map(costs.work).batch(8),
    ),
)


class Measured:
    """A dataset that runs on, so that it can be measured by turns with another."""

    def __init__(self, pair: Pair, dataset: tf.data.Dataset) -> None:
        if pair.options is not None and not dataset.options().threading.private_threadpool_size:
            options = tf.data.Options()
            pair.options(options)
            dataset = dataset.with_options(options)
        self._dataset, self._pause_s = dataset, pair.consumer_s

    def rate(self, seconds: float) -> float:
        """Elements per second over so long; epoch after epoch, after a warm-up."""
        count, began = 0, None
        start = time.perf_counter()
        while True:
            for _ in self._dataset:
                if self._pause_s:
                    time.sleep(self._pause_s)
                now = time.perf_counter()
                if began is None and now - start >= WARM_UP_S:
                    began, count = now, 0
                elif began is not None:
                    count += 1
                    if now - began >= seconds:
                        return count / (now - began)


def compare(pair: Pair, rounds: int, seconds: float) -> list[str]:
    """A row of the table: promised and measured gain, and how far they are apart."""
    name = f"{pair.code} {pair.name}".strip()
    consumer_rate = 1 / pair.consumer_s if pair.consumer_s else None
    run = Run(seconds=DIAGNOSED_S, options=pair.options, consumer_rate=consumer_rate)
    said = [one for one in recorded(pair.wrong, run).findings if one.code == pair.code]
    said.sort(key=lambda one: -one.gain)
    if not said or not said[0].HasField("gain"):
        return [name, "not said" if not said else "no gain", "", "", ""]
    wrong, mended = Measured(pair, pair.wrong()), Measured(pair, pair.mended(said[0]))
    gains = []
    for _ in range(rounds):
        before, after = wrong.rate(seconds), mended.rate(seconds)
        gains.append(after / before - 1)
    measured = statistics.median(gains)
    apart = (1 + said[0].gain) / (1 + measured)
    return [
        name,
        f"{said[0].gain:+.2f}",
        f"{measured:+.2f} ({min(gains):+.2f} to {max(gains):+.2f})",
        f"{apart:.2f}",
        "" if 1 / GOOD <= apart <= GOOD else "off",
    ]


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; 1 where a promise is off by more than GOOD."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="codes, joined by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4, help="of each measurement")
    given = parser.parse_args(arguments)
    wanted = set(filter(None, given.only.split(",")))
    rows = []
    for pair in PAIRS:
        if not wanted or pair.code in wanted:
            rows.append(compare(pair, given.rounds, given.seconds))
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    print(table(["finding", "promised", "measured (lowest to highest)", "promised / measured", ""], rows))
    return 1 if any(row[-1] for row in rows) else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # TensorFlow may hang at the end over Python functions that still run
