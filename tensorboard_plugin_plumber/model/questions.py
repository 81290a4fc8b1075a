"""What may be asked about a recording beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tensorboard_plugin_plumber.schema.quantities import (
    parse_bytes_per_s,
    parse_epochs,
    parse_memory_limit,
    parse_positive,
)


@dataclass(frozen=True)
class Barred:
    """What no plan may do, for those who apply plans and know what cannot be done, or did not pay."""

    #: Operator ids whose calls stay as they are, in number and in pool.
    calls: frozenset[str] = frozenset()
    #: Operator ids whose output is not cached.
    cached: frozenset[str] = frozenset()
    memory_caches: bool = False
    file_caches: bool = False
    #: The iterator's pool keeps its size.
    threadpool: bool = False
    #: No function leaves the iterator's pool.
    unbounded: bool = False
    prefetch: bool = False


#: Any plan will do.
NOTHING_BARRED = Barred()


@dataclass(frozen=True)
class WhatIf:
    """Limits to put in place of the measured ones; None keeps what was measured."""

    #: N.
    cores: float | None = None
    #: M, bytes; the share of it that a plan may use still applies.
    memory_bytes: float | None = None
    #: 1/g, steps/s.
    consumer_rate: float | None = None
    #: What storage delivers to any number of readers, bytes/s; all that sources read comes from there.
    storage_bytes_per_s: float | None = None
    #: E: passes that training makes over its data.
    epochs: float | None = None
    #: The rate to size cores and memory for, steps/s.
    wanted_rate: float | None = None
    #: Share of the free memory that a plan may use, 0 to 1.
    memory_share: float | None = None
    #: Bytes that a plan may add, whatever the share; never more than is free.
    added_bytes: float | None = None
    barred: Barred = NOTHING_BARRED


#: Everything as it was measured.
AS_MEASURED = WhatIf()

#: By the names that users write, on the command line, in a URL and in Python: the field of `WhatIf`, and what reads
#: its value (raises ValueError with a message in words).
QUESTIONS: Mapping[str, tuple[str, Callable[[str], float]]] = {
    "cores": ("cores", parse_positive),
    "memory": ("memory_bytes", parse_memory_limit),
    "storage": ("storage_bytes_per_s", parse_bytes_per_s),
    "rate": ("wanted_rate", parse_positive),
    "epochs": ("epochs", parse_epochs),
    "consumer_rate": ("consumer_rate", parse_positive),
}


def what_if(given: Mapping[str, float | None]) -> WhatIf:
    """The question of values by their names in `QUESTIONS`; None asks nothing."""
    limits: dict[str, Any] = {QUESTIONS[name][0]: value for name, value in given.items()}
    return WhatIf(**limits)
