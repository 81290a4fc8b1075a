"""One row of the table of operators: a small pipeline, and the tree that must be seen of it."""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

_ROW = re.compile(r"(?P<indent> *)(?P<body>\* )?(?P<name>[\w:]+) (?P<elements>\S+)( @(?P<runs_as>\w+))?$")


class Bench:
    """What a pipeline of the table may use: files, and functions that count their own calls.

    Args:
      directory: for files that it makes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._paths = iter(range(1 << 30))

    def counted(self, name: str) -> Callable[[tf.Tensor], tf.Tensor]:
        """A function for `map` that hands its element on and counts its calls under `name`."""

        def count(value: Any) -> Any:
            with self._lock:
                self.calls[name] += 1
            return value

        def function(value: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(tf.numpy_function(count, [value], value.dtype), value.shape)

        function.__name__ = name
        return function

    def path(self) -> str:
        """A path at which nothing is yet."""
        return str(self.directory / f"new-{next(self._paths)}")

    @functools.cached_property
    def records(self) -> list[str]:
        """Three TFRecord files of twenty records each; a record is an Example of one int64 `x`."""
        paths = [str(self.directory / f"part-{index}.tfrecord") for index in range(3)]
        for path in paths:
            with tf.io.TFRecordWriter(path) as writer:
                for index in range(20):
                    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[index]))
                    example = tf.train.Example(features=tf.train.Features(feature={"x": feature}))
                    writer.write(example.SerializeToString())
        return paths

    @functools.cached_property
    def texts(self) -> list[str]:
        """Three text files of twenty lines each."""
        return self._written("lines-{}.txt", "".join(f"line {index}\n" for index in range(20)))

    @functools.cached_property
    def tables(self) -> list[str]:
        """Three CSV files of twenty rows of two columns, with a header each."""
        return self._written("table-{}.csv", "a,b\n" + "".join(f"{index},2\n" for index in range(20)))

    @functools.cached_property
    def fixed(self) -> list[str]:
        """Three files of twenty records of four bytes each."""
        return self._written("fixed-{}.bin", "abcd" * 20)

    @functools.cached_property
    def service(self) -> str:
        """Address of a tf.data service of one worker, in this process."""
        service = tf.data.experimental.service
        self._dispatcher = service.DispatchServer()
        address = self._dispatcher.target.split("://")[1]
        self._worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
        target: str = self._dispatcher.target
        return target

    def _written(self, name: str, content: str) -> list[str]:
        paths = [self.directory / name.format(index) for index in range(3)]
        for path in paths:
            path.write_text(content)
        return [str(path) for path in paths]


@dataclass(frozen=True)
class Row:
    """One operator that must be seen.

    Attributes:
      marker: the comment that stands at its line, e.g. "Map" or, where a type stands twice, "Map:2".
      parent: position of its consumer among the rows; None at the root.
      in_body: it lives in its consumer's function body.
      elements: what it must have delivered: a number, or the calls of a function of the bench.
        None: no counter of this process tells.
      runs: False where TensorFlow dropped it, or runs it in another process.
      runs_as: the operator that must execute it, where the table names one.
    """

    marker: str
    parent: int | None
    in_body: bool
    elements: int | str | None
    runs: bool = True
    runs_as: str | None = None

    @property
    def type(self) -> str:
        """What the user would call it."""
        return self.marker.split(":")[0]


@dataclass(frozen=True)
class Case:
    """A pipeline of a few operators around one of them.

    Attributes:
      name: of this way of using it, unique.
      entries: the public names of tf.data that it stands for, e.g. "Dataset.map", "experimental.unique".
      rows: the tree that must be seen, in pre-order.
      make: builds it; comments at its lines name the rows that are written there.
      steps: elements to draw; None: to its end.
      not_in: contexts (contexts.py) in which it cannot stand, or is another pipeline.
      unseen: what cannot be seen of it, and why, for the docs; "" if all is.
      unmapped: names of live nodes that belong to no operator.
    """

    name: str
    entries: tuple[str, ...]
    rows: tuple[Row, ...]
    make: Callable[[Bench], Any]
    steps: int | None = None
    not_in: frozenset[str] = frozenset()
    unseen: str = ""
    unmapped: frozenset[str] = frozenset()

    @property
    def available(self) -> bool:
        """Whether this TensorFlow has it."""
        return all(_exists(entry) for entry in self.entries)


def comment_lines(function: Callable[..., Any]) -> dict[str, int]:
    """Line by marker, from the comments in a function's own source."""
    source, first = inspect.getsourcelines(function)
    found = {}
    for number, line in enumerate(source, first):
        for marker in line.partition("  # ")[2].strip().split(", "):
            if marker:
                found[marker] = number
    return found


def _exists(entry: str) -> bool:
    value: Any = tf.data
    for name in entry.split("."):
        value = getattr(value, name, None)
    return value is not None


def table() -> tuple[list[Case], Callable[..., Callable[[Callable[[Bench], Any]], Callable[[Bench], Any]]]]:
    """A list of cases, and the decorator that adds a function's pipeline to it.

    The decorator takes the public names, space-separated, and the tree: a row per line, indented below
    its consumer: `* ` if it lives in the consumer's function body; the marker; the elements it must have
    delivered (a number, `=name` for the calls of `bench.counted(name)`, `?` if no counter tells, `dropped`,
    `remote`);
    and optionally `@Type`, the running operator that must execute it.
    """
    cases: list[Case] = []

    def operator(entries: str, tree: str, **more: Any) -> Callable[..., Callable[[Bench], Any]]:
        def add(make: Callable[[Bench], Any]) -> Callable[[Bench], Any]:
            kind = make.__module__.rsplit(".", 1)[-1]
            name = f"{kind}_{make.__name__}".strip("_") if kind == "legacy" else make.__name__.strip("_")
            cases.append(Case(name, tuple(entries.split()), tuple(_rows(tree)), make, **more))
            return make

        return add

    return cases, operator


def _rows(tree: str) -> Iterator[Row]:
    path: list[tuple[int, int]] = []  # (indent, position)
    lines = [line for line in tree.splitlines() if line.strip()]
    for position, line in enumerate(lines):
        found = _ROW.match(line)
        if found is None:
            raise ValueError(f"not a row: {line!r}")
        indent = len(found["indent"])
        while path and path[-1][0] >= indent:
            path.pop()
        count = found["elements"]
        elements: int | str | None = None
        if count.isdigit():
            elements = int(count)
        elif count.startswith("="):
            elements = count[1:]
        yield Row(
            found["name"],
            path[-1][1] if path else None,
            found["body"] is not None,
            elements,
            count not in ("dropped", "remote"),
            found["runs_as"],
        )
        path.append((indent, position))
