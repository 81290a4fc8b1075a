"""Sizes of a pass against pipelines that are iterated to count them; states of caches."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf
from scipy.stats import binom

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.events import reader
from tensorboard_plugin_plumber.model.sizes import projected_cache_bytes, sizes_of
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support.partial_pass import PartialPass

Data = tf.data.Dataset
SEEDS = range(24)


def scatter(value: tf.Tensor, salt: int) -> tf.Tensor:
    """A number in [0, 1), the same for the same value."""
    seed = tf.stack([tf.cast(value, tf.int64), tf.constant(salt, tf.int64)])
    return tf.random.stateless_uniform([], seed=seed)


class Drawn:
    """A random pipeline, of which every edge can be iterated by itself."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.edges = [Data.range(self._random.randint(200, 1500))]
        self._opened = self._batched = False
        for _ in range(self._random.randint(1, 4)):
            made = self._more(self.edges[-1])
            if made is not None:
                self.edges.append(made)

    def _more(self, below: Data) -> Data | None:
        draw, salt = self._random, self._random.randint(0, 10**6)
        kinds = ["take", "skip", "shard", "repeat", "map", "shuffle"]
        kinds += ["unbatch"] * 2 if self._batched else ["filter", "filter", "batch", "open"]
        kind = draw.choice(kinds)
        if kind == "filter":
            share = draw.uniform(0.05, 0.95)
            return below.filter(lambda one: scatter(one, salt) < share)
        if kind == "open":
            return self._open(below, salt)
        if kind in ("batch", "unbatch"):
            self._batched = kind == "batch"
            size, drop = draw.randint(2, 9), draw.random() < 0.5
            return below.batch(size, drop_remainder=drop) if kind == "batch" else below.unbatch()
        simple: dict[str, Callable[[], Data]] = {
            "take": lambda: below.take(draw.randint(50, 1500)),
            "skip": lambda: below.skip(draw.randint(1, 100)),
            "shard": lambda: below.shard(3, draw.randint(0, 2)),
            "repeat": lambda: below.repeat(draw.randint(2, 3)),
            "map": lambda: below.map(lambda one: one + 1),
            "shuffle": lambda: below.shuffle(20, seed=3),
        }
        return simple[kind]()

    def _open(self, below: Data, salt: int) -> Data | None:
        if self._opened:
            return None
        self._opened = True
        most = self._random.choice([3, 8, 20])

        def some(one: tf.Tensor) -> Data:
            return Data.range(tf.cast(scatter(one, salt) * most, tf.int64)).filter(lambda two: two >= 0)

        def alike(_: tf.Tensor) -> Data:
            return Data.range(most)

        body = alike if self._random.random() < 0.3 else some
        if self._random.random() < 0.5:
            return below.flat_map(body)
        calls = self._random.choice([None, 2])
        return below.interleave(body, cycle_length=self._random.choice([2, 8]), num_parallel_calls=calls)


def chain(pipeline: m.Pipeline) -> list[m.Operator]:
    """The operators from the source to the last, function bodies left out."""
    found: list[m.Operator] = []
    below = [operator for operator in pipeline.operators if not operator.parent and not operator.injected]
    while below:
        found.insert(0, below[0])
        below = [one for one in pipeline.operators if one.parent == below[0].id and not one.in_body]
    return found


def test_intervals_hold_the_truth_and_narrow() -> None:
    held = {0.05: [0, 0], 0.2: [0, 0], 1.0: [0, 0]}
    widths: dict[float, list[float]] = {share: [] for share in held}
    for seed in SEEDS:
        edges = Drawn(seed).edges
        truth = [sum(1 for _ in edge) for edge in edges]
        if truth[-1] < 40:
            continue
        part = PartialPass(edges[-1])
        operators = chain(part.pipeline)
        assert len(operators) == len(truth)
        done = 0
        for share, (hits, draws) in held.items():
            # WHEN so much of a pass was seen; the last time with its end
            until = int(truth[-1] * share) + 2 * (share == 1.0)
            sizes = sizes_of(part.pipeline, part.read(until - done))
            done = until
            for operator, count in zip(operators, truth, strict=True):
                found = sizes[operator.id].elements
                assert found is not None
                if operator.cardinality >= 0:  # what TensorFlow knows is exact
                    assert found.low == found.high == count
                    continue
                hits += found.low <= count <= found.high
                draws += 1
                widths[share].append((found.high - found.low) / count)
            held[share] = [hits, draws]
    # THEN at least nine of ten hold the truth, and the more was seen the narrower they are
    for hits, draws in held.values():
        assert draws > 20
        # So few draws of a chance of nine in ten may fall short of it: in one of a hundred cases below this.
        assert hits >= binom.ppf(0.01, draws, 0.9)
    middle = [sorted(found)[len(found) // 2] for found in widths.values()]
    assert middle[0] > middle[1] > middle[2]


def test_endless_pipelines() -> None:
    dataset = Data.range(50).filter(lambda one: one % 2 == 0).repeat().batch(4)
    part = PartialPass(dataset)
    sizes = sizes_of(part.pipeline, part.read(40))
    batch, repeat, evens, numbers = reversed([sizes[one.id] for one in chain(part.pipeline)])

    assert batch.infinite
    assert repeat.infinite
    assert batch.elements is batch.materialised_bytes is None
    assert not evens.infinite
    assert evens.elements is not None
    assert evens.elements.low <= 25 <= evens.elements.high
    assert numbers.elements is not None
    assert numbers.elements.value == 50


def test_bytes_of_uneven_elements() -> None:
    # GIVEN elements of 100 to 10,000 floats, and a tenth of them seen
    def row(one: tf.Tensor) -> tf.Tensor:
        return tf.zeros([tf.cast(100 + scatter(one, 1) * 9900, tf.int32)])

    dataset = Data.range(2000).map(row).cache()
    truth = sum(4 * int(tf.size(one)) for one in Data.range(2000).map(row))
    part = PartialPass(dataset)

    (cache, rows, _) = (one for one in part.pipeline.operators if not one.injected)
    early = sizes_of(part.pipeline, part.read(200))
    late = sizes_of(part.pipeline, part.read(2000))

    for sizes in (early, late):
        found = projected_cache_bytes(sizes, cache)
        assert found is not None
        assert found.low <= truth + 2000 * 200 <= found.high
        assert sizes[rows.id].materialised_bytes is not None
    before, after = early[cache.id].materialised_bytes, late[cache.id].materialised_bytes
    assert before is not None
    assert after is not None
    assert before.high - before.low > 2 * (after.high - after.low)


def test_a_full_cache_says_its_size() -> None:
    dataset = (
        Data.range(300).filter(lambda one: one % 3 == 0).map(lambda one: tf.zeros([50])).cache().repeat()
    )
    part = PartialPass(dataset.batch(2, drop_remainder=True))
    sizes = sizes_of(part.pipeline, part.read(120))

    (cache,) = (one for one in part.pipeline.operators if one.type == "Cache")
    elements = sizes[cache.id].elements
    assert elements is not None
    assert elements.low == elements.high == 100


# States of caches.


def slow(value: tf.Tensor) -> tf.Tensor:
    """Two milliseconds for each element."""

    def run(one: int) -> int:
        time.sleep(0.002)
        return one

    return tf.ensure_shape(tf.py_function(run, [value], tf.int64), [])


def states(tmp_path: Path, loop: Callable[[], None]) -> list[str | None]:
    """The states that the samples of a loop say, repetitions left out."""
    with plumber.trace(tmp_path):
        loop()
    (recording,) = reader.read(tmp_path)
    found: list[str | None] = []
    for sample in recording.samples:
        for pipeline in sample.pipelines:
            state = next(iter(pipeline.cache_states.values()), None)
            if state not in found[-1:]:
                found.append(state)
    return [state for state in found if state is not None]


@pytest.mark.parametrize("step_s", [0.0, 0.005])
def test_a_cache_that_fills_and_serves(tmp_path: Path, step_s: float) -> None:
    # GIVEN epochs that serve for some milliseconds only, or for longer
    dataset = Data.range(300).map(slow).cache().batch(10)

    def loop() -> None:
        for _ in range(8):
            for _ in dataset:
                time.sleep(step_s)

    assert states(tmp_path, loop) == ["filling", "serving"]


def test_a_cache_that_a_repeat_reads(tmp_path: Path) -> None:
    dataset = Data.range(300).map(slow).cache().repeat(8).batch(10)

    def loop() -> None:
        for _ in dataset:
            time.sleep(0.003)

    assert states(tmp_path, loop) == ["filling", "serving"]


def test_a_cache_whose_epochs_are_all_short(tmp_path: Path) -> None:
    dataset = Data.range(20).map(slow).cache().batch(10)

    def loop() -> None:
        for _ in range(25):
            for _ in dataset:
                pass
            time.sleep(0.05)

    assert states(tmp_path, loop)[-1:] == ["serving"]


@pytest.mark.parametrize("taken", [0, 15])
def test_a_cache_that_is_never_read_to_its_end(tmp_path: Path, taken: int) -> None:
    # GIVEN a take behind the cache, or a loop that breaks
    dataset = Data.range(300).map(slow).cache().batch(10)
    dataset = dataset.take(taken) if taken else dataset

    def loop() -> None:
        for _ in range(4):
            for step, _ in enumerate(dataset):
                if step == 15:
                    break

    assert states(tmp_path, loop)[-1:] == ["never completes"]


def test_files_of_an_earlier_run_serve_at_once(tmp_path: Path) -> None:
    def loop() -> None:
        dataset = Data.range(100).map(slow).cache(str(tmp_path / "cache")).batch(5)
        for _ in range(3):
            for _ in dataset:
                time.sleep(0.01)

    assert states(tmp_path / "first", loop) == ["filling", "serving"]
    assert states(tmp_path / "second", loop) == ["serving"]
