"""What may be asked about a recording beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tensorboard_plugin_plumber.schema.quantities import (
    parse_bytes_per_s,
    parse_epochs,
    parse_memory_limit,
    parse_positive,
)


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
    return WhatIf(**{QUESTIONS[name][0]: value for name, value in given.items()})
