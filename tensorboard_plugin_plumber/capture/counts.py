"""What a session adds up of each running operator, and what a sample says of it."""

from __future__ import annotations

from dataclasses import dataclass

from tensorboard_plugin_plumber.schema import measurement_pb2 as m


@dataclass(frozen=True)
class Spread:
    """Sums over pairs of looks at one node, between which it finished n elements in p nanoseconds.

    With s = Σp / Σn, (Σp²/n - s Σp) / (looks - 1) is the variance of a single element's time.

    Attributes:
      looks: number of pairs.
      elements: Σ n.
      time_ns: Σ p.
      squares_ns2: Σ p²/n.
    """

    looks: int = 0
    elements: int = 0
    time_ns: int = 0
    squares_ns2: float = 0.0

    def __add__(self, other: Spread) -> Spread:
        return Spread(
            self.looks + other.looks,
            self.elements + other.elements,
            self.time_ns + other.time_ns,
            self.squares_ns2 + other.squares_ns2,
        )


@dataclass(frozen=True)
class Count:
    """What one running operator has done: totals over all of its nodes, seen or made up.

    Attributes:
      elements: produced, with what came and went unseen.
      seen: those of `elements` that the two below belong to, weighted like these.
      processing_ns: TensorFlow's processing time.
      bytes_produced: allocated bytes of the output.
      spread: of the processing time of single elements.
    """

    elements: float = 0.0
    seen: float = 0.0
    processing_ns: int = 0
    bytes_produced: int = 0
    spread: Spread = Spread()

    def __add__(self, other: Count) -> Count:
        return Count(
            self.elements + other.elements,
            self.seen + other.seen,
            self.processing_ns + other.processing_ns,
            self.bytes_produced + other.bytes_produced,
            self.spread + other.spread,
        )


@dataclass(frozen=True)
class Parameter:
    """One of AUTOTUNE's parameters.

    Attributes:
      name: "parallelism", "buffer_size", "cycle_length" ….
      value: in force.
      lowest: that it may become.
      highest: that it may become.
      tunable: AUTOTUNE rules it.
    """

    name: str
    value: float
    lowest: float
    highest: float
    tunable: bool

    def message(self) -> m.Parameter:
        """As it is written."""
        return m.Parameter(
            name=self.name, value=self.value, min=self.lowest, max=self.highest, tunable=self.tunable
        )


@dataclass
class Now:
    """What one running operator holds at the last snapshot that had it."""

    buffered_bytes: int = 0
    buffered_elements: int = 0
    parameters: tuple[Parameter, ...] = ()

    def parameter(self, name: str) -> Parameter | None:
        """The parameter of a name; None if the operator has no such parameter."""
        return next((one for one in self.parameters if one.name == name), None)


def as_message(count: Count, elements: float, now: Now) -> m.OperatorCounters:
    """What a sample says of one running operator.

    Args:
      count: its totals.
      elements: written instead of `count.elements`.
      now: what it holds.
    """
    message = m.OperatorCounters(
        elements=elements,
        elements_seen=count.seen,
        processing_time_ns=count.processing_ns,
        bytes_produced=count.bytes_produced,
        buffered_bytes=now.buffered_bytes,
        buffered_elements=now.buffered_elements,
        parameters=[one.message() for one in now.parameters],
        spread_looks=count.spread.looks,
        spread_elements=count.spread.elements,
        spread_time_ns=count.spread.time_ns,
        spread_squares_ns2=count.spread.squares_ns2,
    )
    parallelism, buffer_size = now.parameter("parallelism"), now.parameter("buffer_size")
    if parallelism is not None:
        message.parallelism, message.parallelism_tunable = parallelism.value, parallelism.tunable
    if buffer_size is not None:
        message.buffer_size, message.buffer_size_tunable = buffer_size.value, buffer_size.tunable
    return message
