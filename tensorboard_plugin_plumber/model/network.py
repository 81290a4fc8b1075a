"""The network: a pipeline as the mathematics sees it, and the settings that rule it.

Everything here is immutable and free of TensorFlow. The symbols are those of docs/model.md:

=========  ==========================================================================  ===============
``V_i``    ``Operator.visits``: elements of operator i per root element                elements/step
``c_i``    ``Operator.cpu_s``: core time of one element, own work only                 s/element
``w_i``    ``Operator.wait_s``: exogenous waiting of one element                       s/element
``s_i``    ``Operator.service_s`` = c_i + w_i                                          s/element
``k_i``    ``Choice.parallelism``                                                      calls
``L_j``    ``Operator.cycle_length`` of an interleave                                  iterators
``a_i``    ``Choice.parallel``: i does its work in threads of its own                  0/1
``p_i``    ``Choice.prefetch``: a prefetch stands on the output of i                   0/1
``y_i``    ``Choice.cache``: a memory cache stands on the output of i                  0/1
``f_i``    ``Choice.file_cache``: a file cache stands on the output of i               0/1
``u_i``    ``Choice.unbounded``: its function leaves the pool for an unbounded one     0/1
``T``      ``Settings.threadpool_size``                                                threads
``B(k)``   ``Limits.storage``: what storage delivers to k readers                      bytes/s
``b_i``    ``Operator.read_bytes``                                                     bytes/element
``E``      ``Network.epochs``: passes that training makes over its data
``N, M``   ``Limits.cores``, ``Limits.memory_bytes``                                   cores, bytes
``g``      ``Consumer.step_s``: the consumer's own time per step                       s/step
=========  ==========================================================================  ===============
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

#: Reading one element from a memory cache, or keeping it there, costs about this much core time (docs/model.md,
#: "Caches").
CACHE_READ_S = 1e-6
#: Core time per byte that reading from a file cache, and writing to it, costs on top, s/byte.
FILE_READ_S_PER_BYTE = 0.6e-9
FILE_WRITE_S_PER_BYTE = 1 / 280e6


@dataclass(frozen=True)
class Operator:
    """One operator of the user's pipeline, with what was measured and what may be changed.

    Prefetches are not operators of the network: they are the choice ``p_i`` of the operator below.
    """

    id: str
    #: Position of its consumer in ``Network.operators``; None at the root.
    parent: int | None
    #: It lives in the function body of its parent (interleave, flat_map).
    in_body: bool = False
    #: For people: "Map decode (train.py:57)".
    label: str = ""
    visits: float = 0.0
    cpu_s: float = 0.0
    wait_s: float = 0.0
    #: Time on the clock per second of its core time: above 1 where threads wait for a core on a crowded host,
    #: below 1 where kernels of one call run side by side.
    stretch: float = 1.0
    #: For which a call that is due waits for a core, as today's calls crowd each other, s/element.
    queued_s: float = 0.0
    #: Coefficient of variation of the service time; None if unknown.
    variation: float | None = None
    #: It calls a user function, which runs in the iterator's thread pool.
    pooled: bool = False
    #: ... but in the unbounded pool, which T does not limit.
    unbounded: bool = False
    #: The function runs Python while training.
    python: bool = False
    #: Python time that holds the GIL, s/element; None if unknown.
    gil_s: float | None = None
    #: Parallel results are delivered in the order of the input.
    ordered: bool = True
    #: Elements per batch where a parallel map is fused with its batch: order binds whole batches only.
    batch_size: int = 1
    #: L_j of an interleave, else None. A flat_map is an interleave with L = 1.
    cycle_length: int | None = None
    #: Elements that an interleave takes from one iterator before it turns to the next.
    block_length: int = 1
    #: It is an interleave (or flat_map): its body's operators are its children with `in_body`.
    interleave: bool = False
    #: Bytes of one element of its output, e_i.
    element_bytes: float = 0.0
    #: Bytes that a memory cache of its output would take, upper end of the interval; None if unknown or infinite.
    cache_bytes: float | None = None
    #: A cache may stand on its output.
    may_cache: bool = False
    #: Bytes that a file cache of its output would take on disk, upper end; None if unknown or infinite.
    file_cache_bytes: float | None = None
    #: Its function may leave the pool: `use_unbounded_threadpool`, where the recording's TensorFlow has it.
    may_unbounded: bool = False
    #: It may become parallel, or have its parallelism raised.
    may_parallel: bool = False
    #: A prefetch may be put on its output by the user (always true outside function bodies).
    may_prefetch: bool = True
    #: Core time to read one element of a cache on its output, s: measured where one serves.
    cache_read_s: float = CACHE_READ_S
    #: Bytes that one element of its output reads from storage, b_i.
    read_bytes: float = 0.0

    @property
    def service_s(self) -> float:
        """s_i = c_i + w_i, s/element, for which one element holds a thread; c_i stretched as the host is crowded."""
        return self.cpu_s * self.stretch + self.wait_s

    def read_s(self, choice: Choice) -> float:
        """Core time to read one element of the cache that `choice` puts on its output, s."""
        by_bytes = FILE_READ_S_PER_BYTE * self.element_bytes if choice.file_cache else 0.0
        return self.cache_read_s + by_bytes

    def write_s(self, choice: Choice) -> float:
        """Core time to keep one element in the cache that `choice` puts on its output, s."""
        by_bytes = FILE_WRITE_S_PER_BYTE * self.element_bytes if choice.file_cache else 0.0
        return CACHE_READ_S + by_bytes

    @property
    def lock_unknown(self) -> bool:
        """It computes in Python, and nobody knows whether it holds the interpreter's lock meanwhile."""
        return self.python and self.gil_s is None and self.cpu_s >= self.wait_s


@dataclass(frozen=True)
class Choice:
    """What is decided, or in force, at one operator."""

    #: a_i.
    parallel: bool = False
    #: k_i, at least 1; counts only where `parallel`.
    parallelism: int = 1
    #: AUTOTUNE rules k_i: a plan leaves it so, and predicts with the best k_i at no change to the code.
    autotuned: bool = False
    #: p_i, and its buffer in elements.
    prefetch: bool = False
    prefetch_size: int = 0
    #: y_i. In `Network.current`, a cache of the user's that serves, whatever it keeps its elements in.
    cache: bool = False
    #: f_i; never true in `Network.current`.
    file_cache: bool = False
    #: u_i; in `Network.current` false, for `Operator.unbounded` says what is in force.
    unbounded: bool = False

    @property
    def serves(self) -> bool:
        """A cache of either kind stands on its output."""
        return self.cache or self.file_cache


@dataclass(frozen=True)
class Settings:
    """A full assignment of the decisions: one choice per operator, and the pool."""

    choices: tuple[Choice, ...]
    #: T: slots of the iterator's private thread pool.
    threadpool_size: int


@dataclass(frozen=True)
class StorageCurve:
    """B(k): what storage delivers to k readers at a time, as measured.

    Between the points it is linear, before the first it goes to nothing, behind the last it rises no more.
    """

    #: (readers, bytes per second), by readers; concave and never falling.
    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a storage curve needs at least one point")
        slopes = [(after[1] - before[1], after[0] - before[0]) for before, after in pairwise(self._from_zero)]
        if any(width <= 0 or rise < 0 for rise, width in slopes):
            raise ValueError("a storage curve needs its points by readers, and never falls")
        rising = [rise / width for rise, width in slopes]
        if any(later > earlier * (1 + 1e-9) for earlier, later in pairwise(rising)):
            raise ValueError("a storage curve must be concave")

    @property
    def _from_zero(self) -> tuple[tuple[float, float], ...]:
        return ((0.0, 0.0), *self.points)

    def bytes_per_s(self, readers: float) -> float:
        """B(readers)."""
        return min(slope * readers + intercept for slope, intercept in self.cuts())

    def cuts(self) -> list[tuple[float, float]]:
        """Pairs (slope, intercept), bytes/s per reader and bytes/s: ``B(k) = min(slope k + intercept)``."""
        chords = []
        for (left, low), (right, high) in pairwise(self._from_zero):
            slope = (high - low) / (right - left)
            chords.append((slope, low - slope * left))
        return [*chords, (0.0, self.points[-1][1])]

    def scaled(self, factor: float) -> StorageCurve:
        """The curve of storage that is `factor` times as fast."""
        return StorageCurve(tuple((readers, factor * rate) for readers, rate in self.points))


@dataclass(frozen=True)
class Limits:
    """What the process may use."""

    #: N.
    cores: float
    #: M, bytes.
    memory_bytes: float
    #: What a plan may add to the memory in use, bytes: share x (M - in use now + today's buffers).
    memory_free_bytes: float
    #: The share.
    memory_share: float = 0.5
    #: B(k) of the storage that the pipeline reads from; None: unknown, nothing is bounded by it.
    storage: StorageCurve | None = None
    #: Bytes that a plan may write to disk for a file cache; 0 where nobody knows.
    disk_free_bytes: float = 0.0


@dataclass(frozen=True)
class Consumer:
    """What asks for root elements."""

    #: g, seconds per step; None where it cannot be known.
    step_s: float | None = None
    #: The host's time between two requests, s/step: while it lasts, a root that makes its elements in the
    #: consumer's own thread stands still, whatever a device does meanwhile.
    turn_s: float = 0.0
    #: c_g: core time per step that is not the pipeline's, s/step.
    cpu_s: float = 0.0
    #: N_other: cores used in the process by neither pipeline nor consumer. Other processes show in
    #: `Operator.stretch`: how much they would leave to more threads nobody knows.
    other_cores: float = 0.0


@dataclass(frozen=True)
class Network:
    """A pipeline under measurement. ``operators[0]`` is the root; parents come before children."""

    operators: tuple[Operator, ...]
    #: The settings in force today.
    current: Settings
    limits: Limits
    consumer: Consumer = field(default_factory=Consumer)
    #: The observed rate X_0, steps/s; None if nothing was seen.
    observed_rate: float | None = None
    #: E; None, unknown, counts as many.
    epochs: float | None = None
    #: The pool keeps its size, whatever would be gained.
    pool_fixed: bool = False

    def __post_init__(self) -> None:
        if not self.operators:
            raise ValueError("a network needs at least one operator")
        if len(self.current.choices) != len(self.operators):
            raise ValueError("a network needs one choice per operator")
        for position, operator in enumerate(self.operators):
            if (operator.parent is None) != (position == 0) or (operator.parent or 0) > position:
                raise ValueError(f"operator {operator.id}: parents must come before children, the root first")

    @cached_property
    def inputs(self) -> Mapping[int, Sequence[int]]:
        """Positions of the children of each operator that are plain inputs."""
        return {i: [c for c in self._children[i] if not self.operators[c].in_body] for i in self._children}

    @cached_property
    def bodies(self) -> Mapping[int, Sequence[int]]:
        """Positions of the roots of the function bodies of each operator."""
        return {i: [c for c in self._children[i] if self.operators[c].in_body] for i in self._children}

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        children: dict[int, list[int]] = {i: [] for i in range(len(self.operators))}
        for i, operator in enumerate(self.operators):
            if operator.parent is not None:
                children[operator.parent].append(i)
        return children

    def path(self, position: int) -> list[int]:
        """Positions from `position` up to the root, both included."""
        path = [position]
        while (parent := self.operators[path[-1]].parent) is not None:
            path.append(parent)
        return path

    def below(self, position: int) -> tuple[int, ...]:
        """Positions of all operators whose elements end up in the one at `position`, that one left out."""
        return tuple(j for j in range(position + 1, len(self.operators)) if position in self.path(j))

    def core_s(self, positions: Iterable[int]) -> float:
        """Core time per step of some operators, seconds."""
        return sum(self.operators[i].visits * self.operators[i].cpu_s for i in positions)

    @cached_property
    def enclosing(self) -> tuple[tuple[int, ...], ...]:
        """For each operator the interleaves in whose bodies it lives, innermost first."""
        found: list[tuple[int, ...]] = []
        for operator in self.operators:
            if operator.parent is None:
                found.append(())
            elif operator.in_body:
                found.append((operator.parent, *found[operator.parent]))
            else:
                found.append(found[operator.parent])
        return tuple(found)
