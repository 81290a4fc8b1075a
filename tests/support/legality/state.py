"""Constructs that hold or write state in TensorFlow's own operations."""

from __future__ import annotations

import tempfile

import tensorflow as tf

from tests.support.legality.case import Expected, case, kept, source

# State.


@case(Expected("STATE", "Map", "reads the clock (Timestamp)"), parallel=True)
def clock():
    return source().map(lambda x: tf.timestamp())  # reason


@case(Expected("STATE", "Map", "reads variables that training changes (weight)"), parallel=True)
def trainable_variable():
    weight = tf.Variable(2.0, name="weight")
    return kept(source().map(lambda x: tf.cast(x, tf.float32) * weight), weight)  # reason


@case(Expected("STATE", "Map", "reads variables (mean)"), cache=True, parallel=True)
def fixed_variable():
    mean = tf.Variable(2.0, name="mean", trainable=False)
    return kept(source().map(lambda x: tf.cast(x, tf.float32) - mean), mean)  # reason


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

    return kept(source().map(counts).map(reads), count)


@case(Expected("STATE", "Map", "reads a table that may change"), cache=True, parallel=True)
def mutable_table():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    return kept(source().map(lambda x: table.lookup(x)), table)  # reason


@case(Expected("STATE", "Map", "reads a table that may change"), cache=True, parallel=True)
def dense_table():
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, -1, empty_key=-1, deleted_key=-2)
    return kept(source().map(lambda x: table.lookup(x)), table)  # reason


# Side effects.


@case(
    Expected("SIDE_EFFECT", "Map", "writes a variable"),
    Expected("STATE", "Map", "reads variables that the pipeline writes (count)"),
    parallel=False,
)
def assigns():
    count = tf.Variable(0, dtype=tf.int64, name="count", trainable=False)
    return kept(source().map(lambda x: count.assign_add(x)), count)  # reason


@case(Expected("SIDE_EFFECT", "Map", "writes a table"), parallel=False)
def inserts():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)

    def insert(x):  # reason
        table.insert(x, x)
        return x

    return kept(source().map(insert), table)


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

    return kept(source().map(summarise), writer)


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

    return kept(source().map(passes_on), queue)


@case(cache=True, parallel=True)
def writes_below_a_cache():
    count = tf.Variable(0, dtype=tf.int64, trainable=False)
    return kept(source().map(lambda x: count.assign_add(x)).cache().map(lambda x: x + 1), count)
