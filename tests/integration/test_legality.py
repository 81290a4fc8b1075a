"""What holds of each edge, and why: one pipeline per construct, with the facts that must and must not hold.

Whether randomness gives another outcome in each epoch is compared with what the pipeline really delivers.
"""

from __future__ import annotations

import functools
import inspect
import random
import tempfile
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction, graphs, settings
from tensorboard_plugin_plumber.capture.describe import describe
from tensorboard_plugin_plumber.capture.facts import PipelineFacts
from tensorboard_plugin_plumber.capture.written import operators_of
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tests.support import python_functions

construction.install()
Dataset = tf.data.Dataset
COUNT = 32
SEEN = []


@dataclass(frozen=True)
class Expected:
    """A fact of the root's output: its kind, its operator's type, a part of its words, the comment at its line."""

    kind: str
    operator: str
    words: str
    seeded: bool = False
    changes: bool = False
    line: str = "# reason"


@dataclass(frozen=True)
class Case:
    make: Callable[[], tf.data.Dataset]
    facts: tuple[Expected, ...]
    cache: bool
    parallel: bool | None

    def __repr__(self):
        return self.make.__name__


CASES: list[Case] = []


def case(*facts, cache=False, parallel=None):
    """Adds a case. `cache`: the root's output may be cached; `parallel`: of the first map, None if there is none."""

    def add(make):
        CASES.append(Case(make, facts, cache, parallel))
        return make

    return add


def draws(operator, words, **more):
    return Expected("RANDOM", operator, words, **more)


def source():
    return Dataset.range(COUNT)


# Nothing holds.


@case(cache=True)
def plain_source():
    return source()


@case(cache=True, parallel=True)
def plain_map():
    return source().map(lambda x: x * 2)


@case(cache=True, parallel=True)
def static_table():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [5, 6]), -1)
    return Dataset.from_tensor_slices([0, 1]).map(table.lookup)


@case(cache=True, parallel=True)
def string_lookup_layer():
    layer = keras.layers.StringLookup(vocabulary=["a", "b"])
    return Dataset.from_tensor_slices(["a", "b"]).map(layer)


@case(cache=True, parallel=True)
def ragged_and_sparse():
    return source().map(tf.ragged.range).map(lambda x: x.to_sparse())


@case(cache=True, parallel=True)
def loops_and_branches():
    def body(x):
        total = tf.zeros([], tf.int64)
        while total < x:
            total += 1
        return tf.cond(x > 3, lambda: total, lambda: -total)

    return source().map(body)


@case(cache=True, parallel=True)
def assertions():
    def checked(x):
        tf.debugging.assert_greater_equal(x, tf.zeros([], tf.int64))
        return tf.ensure_shape(x, [])

    return source().map(checked)


@case(cache=True, parallel=True)
def names_that_sound_random():
    def random_uniform(x):
        shuffle, sample = x, x + 1
        return shuffle + sample

    return source().map(random_uniform, name="random")


@case(cache=True, parallel=True)
def stateful_only_while_tracing():
    def traced(x):
        SEEN.append(1)  # Python of a map runs when it is traced, never for an element
        print("tracing", end="")
        return x + random.randint(0, 0)

    return source().map(traced)


@case(cache=True, parallel=True)
def reads_files():
    return Dataset.from_tensor_slices([__file__]).map(tf.io.read_file)


@case(cache=True)
def nested_without_randomness():
    return source().window(4).flat_map(lambda window: window.batch(4))


# Randomness of ops.


@case(draws("Map", "(RandomUniform)", changes=True), parallel=True)
def unseeded_op():
    def augment(x):  # reason
        return tf.random.uniform([])

    return source().map(augment)


@case(draws("ParallelMap", "(RandomStandardNormal)", changes=True), parallel=True)
def unseeded_op_in_a_lambda():
    return source().map(lambda x: tf.random.normal([]), num_parallel_calls=2)  # reason


@case(draws("Map", "with a seed (RandomUniform)", seeded=True), parallel=False)
def op_seed():
    return source().map(lambda x: tf.random.uniform([], seed=3))  # reason


@case(draws("Map", "with a seed (RandomUniform)", seeded=True), parallel=False)
def global_seed():
    tf.random.set_seed(7)
    try:
        return source().map(lambda x: tf.random.uniform([]))  # reason
    finally:
        _forget_the_global_seed()


@case(draws("Map", "(RandomUniform)", changes=True), parallel=True)
def in_a_loop_of_a_called_function():
    @tf.function
    def inner(x):
        for _ in tf.range(3):
            x += tf.random.uniform([])
        return x

    def augment(x):  # reason
        return tf.cond(x > 3, lambda: inner(tf.cast(x, tf.float32)), lambda: 0.0)

    return source().map(augment)


@case(draws("Filter", "(RandomUniform)", changes=True))
def random_filter():
    return source().filter(lambda x: tf.random.uniform([]) < 0.5)  # reason


@case(draws("Map", "(RandomUniform)", changes=True), parallel=True)
def random_image_flip():
    flip = functools.partial(tf.image.random_flip_left_right)
    return source().map(lambda x: tf.reshape(tf.range(8), [1, 8, 1]) * tf.cast(x, tf.int32)).map(
        lambda x: flip(x)  # reason
    )  # fmt: skip


# Stateless draws are as random as their seeds.


@case(draws("Map", "from a fixed seed", seeded=True), cache=True, parallel=True)
def stateless_with_a_constant_seed():
    return source().map(lambda x: tf.random.stateless_uniform([], [1, 2]))  # reason


@case(draws("Map", "from seeds in the elements", seeded=True), cache=True, parallel=True)
def stateless_by_a_counter():
    return source().enumerate().map(
        lambda i, x: tf.random.stateless_uniform([], tf.stack([i, i]))  # reason
    )  # fmt: skip


@case(
    draws("Map", "from seeds in the elements", seeded=True, changes=True),
    draws("Random", "(RandomDataset", changes=True, line="# drawn"),
    parallel=True,
)
def stateless_by_a_random_dataset():
    seeds = Dataset.random(rerandomize_each_iteration=True)  # drawn
    return Dataset.zip((source(), seeds)).map(
        lambda x, s: tf.random.stateless_uniform([], tf.stack([s, s]))  # reason
    )  # fmt: skip


@case(
    draws("Map", "from seeds in the elements", seeded=True),
    draws("Random", "(RandomDataset", seeded=True, line="# drawn"),
    cache=True,
    parallel=True,
)
def stateless_by_a_seeded_random_dataset():
    seeds = Dataset.random(seed=5)  # drawn
    return Dataset.zip((source(), seeds)).map(
        lambda x, s: tf.random.stateless_uniform([], tf.stack([s, s]))  # reason
    )  # fmt: skip


@case(draws("Map", "generator's state (RngReadAndSkip)", seeded=True, changes=True), parallel=False)
def generator():
    numbers = tf.random.Generator.from_seed(1)
    return source().map(lambda x: numbers.uniform([]))  # reason


@case(draws("Map", "generator's state (RngReadAndSkip)", seeded=True, changes=True), parallel=False)
def seeds_of_a_generator():
    numbers = tf.random.Generator.from_seed(1)
    return source().map(lambda x: tf.random.stateless_uniform([], numbers.make_seeds(1)[:, 0]))  # reason


@case(
    draws("Map", "(StatelessRandomUniform", seeded=True, changes=True),
    Expected("SIDE_EFFECT", "Map", "writes a variable"),
    Expected(
        "STATE", "Map", "reads variables that the pipeline writes (seed_generator/seed_generator_state)"
    ),
    parallel=False,
)
def random_layer_of_keras():
    brighten = keras.layers.RandomBrightness(0.5, seed=3)

    def augment(x):  # reason
        return brighten(tf.ones([2, 2, 3]), training=True)

    return source().map(augment)


# Random datasets.


@case(draws("Shuffle", "a new order each epoch", changes=True))
def shuffle():
    return source().shuffle(COUNT)  # reason


@case(draws("Shuffle", "a new order each epoch", seeded=True, changes=True))
def seeded_shuffle():
    return source().shuffle(COUNT, seed=3)  # reason


@case(draws("Shuffle", "one order for all epochs", seeded=True), cache=True)
def seeded_shuffle_that_keeps_its_order():
    return source().shuffle(COUNT, seed=3, reshuffle_each_iteration=False)  # reason


@case(draws("Shuffle", "one order for all epochs"), cache=True)
def shuffle_that_keeps_its_order():
    return source().shuffle(COUNT, reshuffle_each_iteration=False)  # reason


@case(draws("Shuffle", "a new order each epoch", changes=True))
def shuffle_in_a_body():
    return Dataset.range(2).flat_map(lambda x: source().shuffle(COUNT))  # reason


@case(draws("Shuffle", "one order for all epochs", seeded=True), cache=True)
def seeded_shuffle_in_a_body():
    return Dataset.range(2).flat_map(lambda x: source().shuffle(COUNT, seed=3))  # reason


@case(draws("Shuffle", "a new order each epoch", changes=True))
def shuffle_that_keeps_its_order_in_a_body():
    body = lambda x: source().shuffle(COUNT, reshuffle_each_iteration=False)  # noqa: E731 # reason
    return Dataset.range(2).flat_map(body)


@case(draws("Shuffle", "a new order each epoch", changes=True))
def shuffle_deep_in_a_body():
    return Dataset.range(2).interleave(lambda x: source().shuffle(COUNT).batch(4).prefetch(1))  # reason


@case(draws("Map", "in its function (ShuffleDatasetV3)", changes=True), parallel=True)
def shuffle_in_the_elements():
    shuffled = source().map(lambda x: Dataset.range(COUNT).shuffle(COUNT))  # reason
    return shuffled.flat_map(lambda one: one)


@case(draws("Map", "(RandomUniform)", changes=True), parallel=True)
def random_map_in_a_body():
    body = lambda x: source().map(lambda y: tf.random.uniform([]))  # noqa: E731 # reason
    return Dataset.range(2).flat_map(body)


@case(draws("Random", "(RandomDataset"), cache=True)
def random_dataset():
    return Dataset.random().take(COUNT)  # reason


@case(draws("Random", "(RandomDataset", seeded=True), cache=True)
def seeded_random_dataset():
    return Dataset.random(seed=3).take(COUNT)  # reason


@case(draws("Random", "(RandomDataset", changes=True))
def random_dataset_in_a_body():
    return Dataset.range(2).flat_map(lambda x: Dataset.random().take(COUNT))  # reason


@case(draws("Random", "(RandomDataset", seeded=True, changes=True))
def seeded_random_dataset_that_draws_again():
    return Dataset.random(seed=3, rerandomize_each_iteration=True).take(COUNT)  # reason


@case(draws("SampleFromDatasets", "(RandomDataset"), cache=True)
def sample():
    return Dataset.sample_from_datasets([source(), Dataset.range(100, 140)], [0.5, 0.5])  # reason


@case(draws("SampleFromDatasets", "(RandomDataset", seeded=True), cache=True)
def seeded_sample():
    return Dataset.sample_from_datasets([source(), Dataset.range(100, 140)], [0.5, 0.5], seed=3)  # reason


@case(cache=True)
def choose():
    choice = Dataset.range(2).repeat(COUNT)
    return Dataset.choose_from_datasets([source(), Dataset.range(100, 132)], choice)


@case(
    draws("RejectionResample", "(RandomUniform)", changes=True),
    draws("RejectionResample", "(RandomDataset"),
    Expected("SIDE_EFFECT", "RejectionResample", "writes the console"),  # it warns of what it rejects
    parallel=True,
)
def resample():
    labels = source().repeat(8).map(lambda x: tf.cast(x % 4 == 0, tf.int32))
    return labels.rejection_resample(lambda label: label, [0.5, 0.5], [0.75, 0.25])  # reason


@case(draws("ListFiles", "a new order each epoch", changes=True))
def list_files():
    return Dataset.list_files(str(Path(__file__).parent / "*.py"))  # reason


@case(cache=True)
def list_files_in_order():
    return Dataset.list_files(str(Path(__file__).parent / "*.py"), shuffle=False)


# What freezes randomness.


@case(draws("Map", "Cache (test_legality.py:", line="# reason"), cache=True, parallel=True)
def random_map_below_a_cache():
    return source().map(lambda x: tf.random.uniform([])).cache()  # reason


@case(draws("Map", "keeps the first epoch's"), cache=True, parallel=True)
def random_map_below_a_cache_in_a_file():
    return source().map(lambda x: tf.random.uniform([])).cache(tempfile.mkdtemp() + "/cache")  # reason


@case(draws("Shuffle", "keeps the first epoch's", seeded=True), cache=True)
def shuffle_below_a_cache():
    return source().shuffle(COUNT, seed=2).cache().batch(4)  # reason


@case(draws("Map", "Snapshot (test_legality.py:"), cache=True, parallel=True)
def random_map_below_a_snapshot():
    return source().map(lambda x: tf.random.uniform([])).snapshot(tempfile.mkdtemp())  # reason


@case(draws("Map", "(RandomUniform)", changes=True), parallel=True)
def random_map_above_a_cache():
    return source().cache().map(lambda x: tf.random.uniform([]))  # reason


@case(draws("Map", "(RandomUniform)", changes=True), parallel=True)
def random_map_below_a_memory_cache_in_a_body():
    body = lambda x: source().map(lambda y: tf.random.uniform([])).cache()  # noqa: E731 # reason
    return Dataset.range(2).flat_map(body)


@case(cache=True)
def loaded_from_a_file():
    path = tempfile.mkdtemp()
    source().map(lambda x: tf.random.uniform([])).save(path)
    return Dataset.load(path)


# State.


@case(Expected("STATE", "Map", "reads the clock (Timestamp)"), parallel=True)
def clock():
    return source().map(lambda x: tf.timestamp())  # reason


@case(Expected("STATE", "Map", "reads variables that training changes (weight)"), parallel=True)
def trainable_variable():
    weight = tf.Variable(2.0, name="weight")
    return _kept(source().map(lambda x: tf.cast(x, tf.float32) * weight), weight)  # reason


@case(Expected("STATE", "Map", "reads variables (mean)"), cache=True, parallel=True)
def fixed_variable():
    mean = tf.Variable(2.0, name="mean", trainable=False)
    return _kept(source().map(lambda x: tf.cast(x, tf.float32) - mean), mean)  # reason


@case(
    Expected("STATE", "Map", "reads variables that the pipeline writes (count)", line="# reads"),
    Expected("SIDE_EFFECT", "Map", "writes a variable", line="# writes"),
    parallel=True,
)
def variable_that_another_map_writes():
    count = tf.Variable(0, dtype=tf.int64, name="count", trainable=False)

    def counts(x):  # writes
        count.assign_add(1)
        return x

    def reads(x):  # reads
        return x + tf.cast(count, tf.int64)

    return _kept(source().map(counts).map(reads), count)


@case(Expected("STATE", "Map", "reads a table that may change"), cache=True, parallel=True)
def mutable_table():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    return _kept(source().map(lambda x: table.lookup(x)), table)  # reason


@case(Expected("STATE", "Map", "reads a table that may change"), cache=True, parallel=True)
def dense_table():
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, -1, empty_key=-1, deleted_key=-2)
    return _kept(source().map(lambda x: table.lookup(x)), table)  # reason


# Side effects.


@case(
    Expected("SIDE_EFFECT", "Map", "writes a variable"),
    Expected("STATE", "Map", "reads variables that the pipeline writes (count)"),
    parallel=False,
)
def assigns():
    count = tf.Variable(0, dtype=tf.int64, name="count", trainable=False)
    return _kept(source().map(lambda x: count.assign_add(x)), count)  # reason


@case(Expected("SIDE_EFFECT", "Map", "writes a table"), parallel=False)
def inserts():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)

    def insert(x):  # reason
        table.insert(x, x)
        return x

    return _kept(source().map(insert), table)


@case(Expected("SIDE_EFFECT", "Map", "writes the console"), parallel=False)
def prints():
    def tell(x):  # reason
        tf.print("element", x, output_stream="file:///dev/null")
        return x

    return source().map(tell)


@case(Expected("SIDE_EFFECT", "Map", "writes a summary"), parallel=False)
def writes_summaries():
    writer = tf.summary.create_file_writer(tempfile.mkdtemp())

    def summarise(x):  # reason
        with writer.as_default():
            tf.summary.scalar("x", x, step=x)
        return x

    return _kept(source().map(summarise), writer)


@case(Expected("SIDE_EFFECT", "Map", "writes a file"), parallel=False)
def writes_files():
    def save(x):  # reason
        tf.io.write_file(tempfile.gettempdir() + "/plumber-legality", tf.strings.as_string(x))
        return x

    return source().map(save)


@case(Expected("SIDE_EFFECT", "Map", "writes a queue"), parallel=False)
def queues():
    queue = tf.queue.FIFOQueue(99, [tf.int64], shapes=[[]])

    def passes_on(x):  # reason
        queue.enqueue(x)
        return queue.dequeue()

    return _kept(source().map(passes_on), queue)


@case(cache=True, parallel=True)
def writes_below_a_cache():
    count = tf.Variable(0, dtype=tf.int64, trainable=False)
    return _kept(source().map(lambda x: count.assign_add(x)).cache().map(lambda x: x + 1), count)


# Python.


@case(Expected("PYTHON", "Map", "runs Python code (keeps_to_its_locals)", line=""), parallel=True)
def clean_python():
    function = python_functions.keeps_to_its_locals
    return source().map(lambda x: tf.py_function(function, [x], tf.int64))


@case(
    Expected("PYTHON", "Map", "runs Python code (collect)"),
    Expected("SIDE_EFFECT", "Map", "writes SEEN by .append() in Python (collect)"),
    parallel=False,
)
def python_that_appends():
    def collect(x):  # reason
        SEEN.append(x)
        return x

    return source().map(lambda x: tf.numpy_function(collect, [x], tf.int64))


@case(
    Expected("PYTHON", "Map", "runs Python code (tell)"),
    Expected("SIDE_EFFECT", "Map", "writes the console in Python (tell)"),
    parallel=False,
)
def python_that_prints():
    def tell(x):  # reason
        print(x)
        return x

    return source().map(lambda x: tf.py_function(tell, [x], tf.int64))


@case(
    Expected("PYTHON", "Map", "runs Python code (jitter)"),
    draws("Map", "draws random numbers in Python (jitter)", changes=True),
    parallel=True,
)
def python_that_draws():
    def jitter(x):  # reason
        return x + np.random.randint(1_000_000)

    return source().map(lambda x: tf.numpy_function(jitter, [x], tf.int64, stateful=False))


@case(
    Expected("PYTHON", "Map", "runs Python code (stamp)"),
    Expected("STATE", "Map", "reads the clock in Python (stamp)"),
    parallel=True,
)
def python_that_tells_the_time():
    def stamp(x):  # reason
        return np.int64(time.time())

    return source().map(lambda x: tf.numpy_function(stamp, [x], tf.int64))


@case(
    Expected("PYTHON", "Map", "runs Python code (Counter)"),
    Expected("SIDE_EFFECT", "Map", "writes the attribute self.count in Python (Counter)"),
    parallel=False,
)
def python_object_that_counts():
    class Counter:
        count = 0

        def __call__(self, x):  # reason
            self.count += 1
            return x

    counter = Counter()
    return source().map(lambda x: tf.numpy_function(counter, [x], tf.int64))


@case(
    Expected("PYTHON", "Map", "runs Python code (store)"),
    Expected("SIDE_EFFECT", "Map", "writes the container cache in Python (store)"),
    parallel=False,
)
def python_partial_that_stores():
    def store(cache, x):  # reason
        cache[int(x)] = x
        return x

    function = functools.partial(store, {})
    return source().map(lambda x: tf.numpy_function(function, [x], tf.int64))


@case(
    Expected("PYTHON", "Map", "runs Python code (append)"),
    Expected("SIDE_EFFECT", "Map", "writes a list by .append() in Python (append)"),
    parallel=False,
)
def c_method_that_appends():
    seen = []

    def keep(x):  # reason
        tf.numpy_function(seen.append, [x], [])
        return x

    return source().map(keep)


@case(
    Expected("PYTHON", "Map", "runs Python code (sqrt)", line=""),
    parallel=True,
)
def c_function():
    return source().map(lambda x: tf.numpy_function(np.sqrt, [x], tf.float64))


@case(Expected("PYTHON", "Generator", "runs Python code (count)"))
def clean_generator():
    def count():  # reason
        yield from range(COUNT)

    return Dataset.from_generator(count, output_signature=tf.TensorSpec([], tf.int64))


@case(
    Expected("PYTHON", "Generator", "runs Python code (stream)"),
    Expected("SIDE_EFFECT", "Generator", "writes the attribute self.position in Python (stream)"),
)
def generator_method_that_writes():
    class Reader:
        position = 0

        def stream(self):  # reason
            for one in range(COUNT):
                self.position = one
                yield one

    reader = Reader()
    return Dataset.from_generator(reader.stream, output_signature=tf.TensorSpec([], tf.int64))


@case(
    Expected("PYTHON", "Generator", "runs Python code (draw)"),
    draws("Generator", "in Python (draw)", changes=True),
)
def generator_that_draws():
    def draw():  # reason
        for _ in range(COUNT):
            yield random.random()

    return Dataset.from_generator(draw, output_signature=tf.TensorSpec([], tf.float64))


# Endlessness.


@case(Expected("INFINITE", "Repeat", "never ends"), parallel=True)
def endless_repeat():
    return source().repeat().map(lambda x: x + 1)  # reason


@case(cache=True)
def repeat_a_few_times():
    return source().repeat(3)


@case(cache=True)
def take_of_what_never_ends():
    return source().repeat().take(5)


@case(Expected("INFINITE", "Counter", "never ends"))
def counter():
    return Dataset.counter()  # reason


@case(Expected("INFINITE", "Repeat", "never ends"))
def filter_of_what_never_ends():
    return source().repeat().filter(lambda x: x > 3)  # reason


@case(cache=True)
def zip_with_what_ends():
    return Dataset.zip((source(), Dataset.counter()))


@case(
    Expected("INFINITE", "Counter", "never ends"),
    Expected("INFINITE", "Repeat", "never ends", line="# too"),
    parallel=True,
)
def zip_of_what_never_ends():
    numbers = Dataset.counter()  # reason
    again = source().repeat()  # too
    return Dataset.zip((numbers, again)).map(lambda x, y: x)


@case(cache=True)
def take_while_of_what_never_ends():
    return source().repeat().take_while(lambda x: x < 3)


@case(Expected("INFINITE", "Repeat", "never ends"))
def endless_body():
    return Dataset.range(2).interleave(lambda x: source().repeat())  # reason


def _forget_the_global_seed():
    from tensorflow.python.eager import context

    context.context()._seed = None


def _kept(dataset, *values):
    """The dataset, with what it only holds weakly."""
    dataset.__dict__["_kept_by_the_test"] = values
    return dataset


def described(make):
    return describe(make(), role="trace").pipeline


def root_of(pipeline):
    return pipeline.operators[0]


def line_in(make, comment):
    lines, first = inspect.getsourcelines(make)
    (found,) = [first + i for i, line in enumerate(lines) if line.rstrip().endswith(comment)]
    return found


@pytest.mark.parametrize("one", CASES, ids=repr)
def test_the_facts_of_a_construct(one):
    pipeline = described(one.make)

    operators = {operator.id: operator for operator in pipeline.operators}
    left = list(root_of(pipeline).facts)
    for expected in one.facts:
        found = next(
            fact
            for fact in left
            if m.FactKind.Name(fact.kind) == f"FACT_{expected.kind}"
            and operators[fact.operator].type == expected.operator
            and expected.words in fact.reason
            and (fact.seeded, fact.changes_each_epoch) == (expected.seeded, expected.changes)
            and (not expected.line or fact.source.line == line_in(one.make, expected.line))
        )
        left.remove(found)
    assert [(fact.reason, fact.operator) for fact in left] == []


@pytest.mark.parametrize("one", CASES, ids=repr)
def test_the_verdicts_agree_with_the_facts(one):
    pipeline = described(one.make)

    root = root_of(pipeline)
    assert root.cache.allowed == one.cache
    if one.parallel is not None:
        maps = [operator for operator in pipeline.operators if operator.type.endswith("Map")]
        named = next(operator for operator in maps if operator.HasField("parallel"))
        assert named.parallel.allowed == one.parallel
    for operator in pipeline.operators:
        if operator.injected:
            continue
        kinds = {fact.kind for fact in operator.facts}
        forbidden = kinds & {m.FACT_SIDE_EFFECT, m.FACT_PYTHON, m.FACT_INFINITE}
        changing = any(fact.changes_each_epoch for fact in operator.facts)
        if forbidden or changing:
            assert not operator.cache.allowed
        if not operator.cache.allowed:
            culprits = [fact for fact in operator.facts if fact.operator == operator.cache.operator]
            assert culprits
            assert operator.cache.reason


EPOCHS = [one for one in CASES if any(fact.kind == "RANDOM" for fact in one.facts)]


@pytest.mark.parametrize("one", EPOCHS, ids=repr)
def test_epochs_differ_where_the_facts_say_so(one):
    """Of iterators made one after the other, and of the passes of a repeat."""
    if one.make in (random_layer_of_keras, resample):
        pytest.skip("slow, and the same as others")
    # GIVEN each epoch as an iterator of its own
    dataset = one.make()
    passes = [delivered(dataset) for _ in range(3)]
    claimed = any(fact.changes_each_epoch for fact in root_of(described(lambda: dataset)).facts)

    assert claimed == (not all(each == passes[0] for each in passes))

    # GIVEN epochs by a repeat
    dataset = one.make()
    repeated = delivered(dataset.repeat(3))
    length = len(repeated) // 3
    parts = [repeated[i * length : (i + 1) * length] for i in range(3)]
    pipeline = described(lambda: dataset.repeat(3))
    below = next(operator for operator in pipeline.operators if operator.parent == root_of(pipeline).id)
    claimed = any(fact.changes_each_epoch for fact in below.facts)

    assert claimed == (not all(each == parts[0] for each in parts))


def delivered(dataset):
    return [np.asarray(one).tolist() for x in dataset for one in tf.nest.flatten(x)]


def test_a_fact_stands_on_every_edge_above_its_reason_and_on_none_below():
    def augment(x):
        return tf.cast(x, tf.float32) + tf.random.uniform([])

    dataset = source().map(lambda x: x + 1).map(augment).batch(4).cache().prefetch(1)
    operators = {one.type: one for one in described(lambda: dataset).operators if not one.injected}
    order = [one for one in described(lambda: dataset).operators if not one.injected]

    assert [one.type for one in order] == ["Prefetch", "Cache", "Batch", "Map", "Map", "Range"]
    assert [len(one.facts) for one in order] == [1, 1, 1, 1, 0, 0]
    assert [any(fact.changes_each_epoch for fact in one.facts) for one in order] == [
        False, False, True, True, False, False,
    ]  # fmt: skip
    assert {fact.operator for one in order for fact in one.facts} == {order[3].id}
    assert operators["Batch"].facts[0].source.scope == "augment"


def test_facts_cost_little_beside_the_description():
    """By the fastest of many tries: others run on this machine."""

    def augment(x):
        image = tf.zeros([32, 32, 3]) + x
        image = tf.image.random_flip_left_right(image)
        image = tf.image.random_contrast(tf.image.random_brightness(image, 0.2), 0.1, 0.2)
        return tf.reduce_sum(tf.image.resize(image, [16, 16]))

    dataset = source().map(lambda x: tf.cast(x, tf.float32))
    for _ in range(9):
        dataset = dataset.map(augment)
    found = graphs.read(dataset)
    root = operators_of(found.written, dataset)
    cardinalities = {one.id: settings.cardinality_of(one) for one in root.walk()}

    def judge():
        return PipelineFacts(root, found.library, cardinalities)

    facts_s = min(timeit.repeat(judge, number=1, repeat=30))
    read_s = min(timeit.repeat(lambda: graphs.read(dataset), number=1, repeat=5))
    assert len(judge().edges) == 11
    print(f"facts {facts_s * 1e3:.2f} ms, graph {read_s * 1e3:.2f} ms")
    assert facts_s < 0.2 * read_s
