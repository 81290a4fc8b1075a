"""Construction records: what they hold, what they cost the user's objects, and what they must not break."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import weakref

import numpy as np
import tensorflow as tf

from tensorboard_plugin_plumber.capture import construction

construction.install()
Dataset = tf.data.Dataset


def test_installing_again_changes_nothing():
    before = (tf.data.Dataset.__new__, tf.data.Dataset.__init__)
    construction.install()

    assert (tf.data.Dataset.__new__, tf.data.Dataset.__init__) == before


def test_arguments_are_kept_but_for_large_data():
    array = np.zeros(10_000)
    source = Dataset.from_tensor_slices(array)
    batch = source.batch(7, drop_remainder=True)

    kept = construction.construction_of(batch)
    assert kept.method == "batch"
    assert kept.arguments[0] is source
    assert kept.arguments[1] == 7
    assert construction.DROPPED in construction.construction_of(source).arguments


def test_nothing_lives_longer_than_the_dataset():
    class Function:
        def __call__(self, x):
            return x + 1

    function = Function()
    dataset = Dataset.range(3).map(function)
    # A cycle through the user's own closure must be collected, too.
    closed_over = Function()
    closed_over.dataset = dataset.map(lambda x, own=closed_over: own(x))
    seen = weakref.ref(function), weakref.ref(dataset), weakref.ref(closed_over)
    del function, dataset, closed_over
    gc.collect()

    assert [reference() for reference in seen] == [None, None, None]


def test_the_users_array_is_not_kept():
    array = np.zeros([1000, 100])
    seen = weakref.ref(array)
    dataset = Dataset.from_generator(lambda: iter([1.0]), output_signature=tf.TensorSpec([])).batch(2)
    sliced = Dataset.from_tensor_slices(array).map(lambda x: x)
    record = construction.construction_of(sliced._input_dataset)
    del array
    gc.collect()

    # TensorFlow may itself hold the memory of an array it aliases; the record does not.
    assert all(
        value is not seen() or value is None for value in (*record.arguments, *record.keywords.values())
    )
    assert construction.construction_of(dataset) is not None


def test_copies_still_work():
    dataset = Dataset.range(3).map(lambda x: x + 1)
    copied = copy.copy(dataset)

    assert list(copied.as_numpy_iterator()) == [1, 2, 3]
    assert construction.construction_of(copied) == construction.construction_of(dataset)


def test_subclasses_of_the_users_are_recorded():
    class Twice(tf.data.Dataset):
        def __init__(self, inner, note):
            self._inner = inner
            self._note = note
            super().__init__(inner._variant_tensor)

        def _inputs(self):
            return [self._inner]

        @property
        def element_spec(self):
            return self._inner.element_spec

    dataset = Twice(Dataset.range(3), note="mine")

    assert list(dataset.as_numpy_iterator()) == [0, 1, 2]
    assert construction.construction_of(dataset).keywords == {"note": "mine"}


def test_pipelines_built_before_the_import_are_described_from_what_is_left():
    program = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

def double(x):
    return x * 2

dataset = tf.data.Dataset.from_tensor_slices(np.zeros([1 << 18, 4])).map(double).batch(2)

from tensorboard_plugin_plumber.capture import construction
construction.install()
from tensorboard_plugin_plumber.capture.describe import describe

pipeline = describe(dataset, role="trace").pipeline
print([one.type for one in pipeline.operators if not one.injected])
print([one.function.name for one in pipeline.operators if one.HasField("function")])
print([one.HasField("source") for one in pipeline.operators])
print(list(pipeline.notes))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    types, functions, sources, notes = done.stdout.splitlines()

    assert types.startswith("['Batch', 'Map', ")
    assert functions == "['double']"
    assert "True" not in sources
    assert "before" in notes
