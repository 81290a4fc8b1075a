"""The shape of the table, and how one of its pipelines is recorded and analysed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import tensorflow as tf

from tensorboard_plugin_plumber.capture.alone import run_alone
from tensorboard_plugin_plumber.capture.sink import MemorySink
from tensorboard_plugin_plumber.model.analyse import WhatIf, analyse
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

Make = Callable[[], tf.data.Dataset]

#: Samples of the warm-up: first calls, buffers that fill.
_WARM_UP = 1


@dataclass(frozen=True)
class Why:
    """In the place of a pipeline: why this spelling cannot occur."""

    reason: str


@dataclass(frozen=True)
class Run:
    """How the pipelines of a row are run, and what is supposed of their host.

    Attributes:
      seconds: how long.
      options: changes the options of the whole pipeline, whatever its spelling.
      consumer_rate: what takes the elements, steps/s; None for nobody.
      cores: what-if; many of them make what is said of idle cores independent of the test machine's load.
      memory_bytes: what-if.
      room_bytes: what-if: memory in use now and so much more.
      warm_up: leaves out the first sample.
    """

    seconds: float = 1.2
    options: Callable[[tf.data.Options], None] | None = None
    consumer_rate: float | None = None
    cores: float | None = None
    memory_bytes: float | None = None
    room_bytes: float | None = None
    warm_up: bool = True


@dataclass(frozen=True)
class Row:
    """One finding.

    Attributes:
      code: the finding's.
      plain: a pipeline of which it is true.
      near_miss: much the same, but it must say nothing.
      nested: the same inside of an interleave's function.
      behind_zip: the same as one branch of a zip.
      run: how the four are run.
      run_near_miss: how the near miss is run, if otherwise.
      quiet: spellings, or "near_miss", that hold only while other processes leave the cores alone.
      gain: spellings for which a gain is promised.
      whole: the finding speaks of the whole pipeline, not of one operator.
    """

    code: str
    plain: Make
    near_miss: Make
    nested: Make | Why
    behind_zip: Make | Why
    run: Run = field(default_factory=Run)
    run_near_miss: Run | None = None
    quiet: tuple[str, ...] = ()
    gain: tuple[str, ...] = ("plain", "nested", "behind_zip")
    whole: bool = False
    name: str = ""

    @property
    def id(self) -> str:
        """Tells rows of one code apart."""
        return f"{self.code}-{self.name}" if self.name else self.code


SPELLINGS = ("plain", "nested", "behind_zip")


def row(code: str, plain: Make, near_miss: Make, **others: object) -> Row:
    """A row whose other spellings follow from the plain one, where nothing else is given."""
    others.setdefault("nested", inside_interleave(plain))
    others.setdefault("behind_zip", branch_of_zip(plain))
    return Row(code, plain, near_miss, **others)  # type: ignore[arg-type]


def inside_interleave(make: Make) -> Make:
    """Two of four such pipelines at a time, in the function of an interleave, over and over."""

    def nested() -> tf.data.Dataset:
        make()  # writes the files, which a function cannot do while it is traced
        return tf.data.Dataset.range(4).repeat().interleave(lambda _: make(), cycle_length=2)

    return nested


def branch_of_zip(make: Make) -> Make:
    """Beside numbers that cost nothing."""
    return lambda: tf.data.Dataset.zip((make(), tf.data.Dataset.range(1_000_000_000)))


def recorded(make: Make, run: Run) -> a.Analysis:
    """Runs a pipeline with the hook, and analyses what was counted."""
    dataset = make()
    if run.options is not None:
        options = tf.data.Options()
        run.options(options)
        dataset = dataset.with_options(options)
    sink = MemorySink()
    run_alone(dataset, sink, kind="diagnose", seconds=run.seconds, consumer_rate=run.consumer_rate)
    recording = sink.recording()
    if run.warm_up:
        recording = dataclasses.replace(recording, samples=recording.samples[_WARM_UP:])
    memory = run.memory_bytes
    if run.room_bytes is not None:
        memory = _in_use(recording.samples[-1]) + run.room_bytes
    return analyse(recording, what_if=WhatIf(cores=run.cores, memory_bytes=memory))


def _in_use(sample: m.SampleRecord) -> float:
    return float(sample.host.memory_used_bytes)
