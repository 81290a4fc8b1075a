"""What the commands share: quantities as people write them, the user's pipeline, and the one answer on stdout."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO, TypeVar

import click

from tensorboard_plugin_plumber.schema.quantities import (
    parse_bytes,
    parse_bytes_per_s,
    parse_epochs,
    parse_memory_limit,
    parse_positive,
)

if TYPE_CHECKING:
    import tensorflow as tf

    from tensorboard_plugin_plumber.report import Report
    from tensorboard_plugin_plumber.target import Target

_Value = TypeVar("_Value")


class InputError(Exception):
    """Exit code 2: one line that says what is wrong and how to mend it."""


class Quantity(click.ParamType):  # type: ignore[type-arg]  # generic only in later versions of click
    """A positive number, read by one of schema/quantities.py."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return self._parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


NUMBER = Quantity("number", parse_positive)
MEMORY = Quantity("bytes", parse_memory_limit)
SPEED = Quantity("bytes/s", parse_bytes_per_s)
EPOCHS = Quantity("epochs", parse_epochs)
BYTES = Quantity("bytes", parse_bytes)


def take_over_answer() -> TextIO:
    """The real stdout, on which nothing but the answer goes from now on."""
    from tensorboard_plugin_plumber.target import take_over_stdout

    return take_over_stdout()


def parse_target(text: str) -> Target:
    """TARGET as a user wrote it.

    Raises:
      TargetError: it is none; the message says so in words.
    """
    from tensorboard_plugin_plumber.target import Target

    return Target.parse(text)


def with_pipeline(target: Target, run: Callable[[tf.data.Dataset], _Value]) -> _Value:
    """Runs the user's pipeline, and tells its failures from Plumber's own.

    Raises:
      InputError, TargetError: the pipeline cannot be made, or fails.
    """
    # Plumber's hook is armed since the package was imported: the operators' lines are seen.
    dataset = target.load()
    import tensorflow as tf

    from tensorboard_plugin_plumber.capture.alone import Empty, NoElement

    try:
        return run(dataset)
    except (Empty, NoElement) as error:
        raise InputError(f"{target} cannot be measured: {error}.") from error
    except tf.errors.OpError as error:
        first = (error.message or type(error).__name__).strip().splitlines()[0]
        raise InputError(f"The pipeline of {target} fails while it runs: {_without_nodes(first)}") from error


def _without_nodes(message: str) -> str:
    """Without TensorFlow's references to graph nodes, "{{function_node …}}"."""
    import re

    return re.sub(r"\s*(\[\[)?\{\{.*?\}\}(\]\])?\s*", " ", message).strip()


def print_report(report: Report, as_json: bool, answer: TextIO) -> None:
    """Prints the report, or its JSON, as the command's answer."""
    width, color = terminal(answer)
    text = report.to_json() + "\n" if as_json else report.text(width=width, color=color)
    answer.write(text)
    answer.flush()


def terminal(answer: TextIO) -> tuple[int, bool]:
    """Columns, and whether to colour."""
    import shutil

    from tensorboard_plugin_plumber.report import DEFAULT_WIDTH

    width = max(40, min(shutil.get_terminal_size((DEFAULT_WIDTH, 0)).columns, 160))
    return width, answer.isatty() and "NO_COLOR" not in os.environ
