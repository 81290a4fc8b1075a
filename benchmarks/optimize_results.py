"""What `optimize.py` measured, as rates, ratios and totals with their intervals, and against the goals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.report import Interval, bootstrap, table

#: A rate below this share of another is a loss.
LOSS = 0.97
#: More repeats do not make it clearer.
MOST_REPEATS = 30
PHASE_S = 20.0
BOUND_SHARE = 0.9
#: Goals where everything that is worth caching fits.
FITS_MEAN, FITS_EACH = 4.0, 1.2
#: ... and of the pure wait.
WAIT_NAIVE, WAIT_AUTOTUNE = 47.0, 10.0
FIVE = ("resnet", "rcnn", "ssd", "transformer", "gnmt")
LONG_WAITS = ("latency-20ms", "latency-50ms")
SHORT_WAITS = ("latency-5ms", "latency-http", "latency-files")
NAIVE, AUTOTUNE = "naive", "AUTOTUNE"
FREE, LITTLE, NO_CACHE = "optimize", "optimize-little-memory", "optimize-no-cache"
OPTIMIZED = (FREE, LITTLE, NO_CACHE)

#: Of one way in one repeat: `setup`, `first` (None where there are no epochs) and `turns`, as the worker gives them.
Measured = Mapping[str, Any]
#: Of one repeat, by way.
Repeat = Mapping[str, Measured]


@dataclass(frozen=True)
class Outcome:
    """One pipeline, run in one way; rates in steps/s, intervals over the repeats.

    Attributes:
      rate: in steady state: later epochs, or a stretch of an endless pipeline.
      first: in the first epoch, in which caches fill; None where there are no epochs.
      totals_s: by number of epochs, all included; those that did not run are taken to be as the later ones.
      to_naive, to_autotune: ratios of rates, repeat by repeat.
      bound: what the cores, and the thread that asks, let it reach at its own core time per step.
      changed: in how many of the repeats `optimize` changed something.
    """

    family: str
    way: str
    repeats: int
    rate: Interval
    first: Interval | None
    totals_s: Mapping[int, Interval]
    to_naive: Interval | None
    to_autotune: Interval | None
    bound: float
    changed: int
    limit: str
    changes: tuple[str, ...]
    setup_s: float
    phases_s: Mapping[str, float]
    peak_bytes: float
    foreign_cores: float

    @property
    def share(self) -> float:
        """Of the bound, reached."""
        return self.rate.value / self.bound


def rate_of(measured: Measured) -> float:
    """Steps/s over all turns of one repeat."""
    turns = measured["turns"]
    return float(sum(turn["steps"] for turn in turns) / sum(turn["seconds"] for turn in turns))


def ratios(repeats: Sequence[Repeat], way: str, other: str) -> list[float]:
    """Rate over another's, in each repeat that has both."""
    return [rate_of(one[way]) / rate_of(one[other]) for one in repeats if way in one and other in one]


def total_s(measured: Measured, epochs: int) -> float:
    """From nothing to the end of so many epochs, seconds."""
    later = measured["first"]["steps"] / rate_of(measured)
    return float(measured["setup"]["seconds"] + measured["first"]["seconds"] + (epochs - 1) * later)


def outcome_of(family: str, way: str, repeats: Sequence[Repeat], cores: int) -> Outcome:
    """What all repeats say of one way."""
    own = [one[way] for one in repeats if way in one]
    finite = own[0]["first"] is not None
    setups = [one["setup"] for one in own]
    changed = [setup for setup in setups if setup["changed"]]
    usual = (changed or setups)[-1]

    def against(other: str) -> Interval | None:
        found = ratios(repeats, way, other) if other != way else []
        return bootstrap(found) if found else None

    return Outcome(
        family,
        way,
        len(own),
        bootstrap([rate_of(one) for one in own]),
        bootstrap([one["first"]["steps"] / one["first"]["seconds"] for one in own]) if finite else None,
        {n: bootstrap([total_s(one, n) for one in own]) for n in (3, 10)} if finite else {},
        against(NAIVE),
        against(AUTOTUNE),
        statistics.median(_bound(one, cores) for one in own),
        len(changed),
        usual["limit"],
        tuple(usual["changes"]),
        statistics.median(setup["seconds"] for setup in setups),
        {name: max(setup["phases_s"][name] for setup in setups) for name in usual["phases_s"]},
        max(one["peak_bytes"] for one in own),
        statistics.median(turn["foreign_cores"] for one in own for turn in one["turns"]),
    )


def _bound(measured: Measured, cores: int) -> float:
    turns = measured["turns"]
    steps = sum(turn["steps"] for turn in turns)
    cpu = sum(turn["cpu_s"] + turn["server_cpu_s"] for turn in turns)
    loop = sum(turn["loop_cpu_s"] for turn in turns)
    return float(steps / max(cpu / cores, loop))


def undecided(repeats: Sequence[Repeat], way: str) -> bool:
    """Whether more repeats are needed to tell if `way` loses against what it must not lose to."""
    if not any(one[way]["setup"]["changed"] for one in repeats if way in one):
        return False  # the original itself
    others = (NAIVE, AUTOTUNE) if way == LITTLE else (NAIVE,)
    return any(
        len(found) < MOST_REPEATS and (interval := bootstrap(found)).low < LOSS <= interval.high
        for other in others
        if (found := ratios(repeats, way, other))
    )


@dataclass(frozen=True)
class Goal:
    """One goal; `met` is None where nothing was measured for it."""

    what: str
    met: bool | None
    evidence: str

    def __str__(self) -> str:
        said = {True: "met", False: "NOT met", None: "not measured"}[self.met]
        return f"- {said}: {self.what}{f' ({self.evidence})' if self.evidence else ''}"


def goals(outcomes: Sequence[Outcome]) -> list[Goal]:
    """All goals against what was measured; those of the five families need all five."""
    by = {(one.family, one.way): one for one in outcomes}
    return [
        _fits(by),
        _no_loss(
            "does not fit: no loss against AUTOTUNE",
            [(one, one.to_autotune) for one in outcomes if one.way == LITTLE],
        ),
        *(_waits(by, name) for name in LONG_WAITS),
        _no_loss(
            "no loss against the original anywhere",
            [(one, one.to_naive) for one in outcomes if one.way in OPTIMIZED],
        ),
        _bounds(
            f"latency elsewhere: at least {BOUND_SHARE:g} of the reachable bound",
            [one for one in outcomes if one.way == FREE and one.family in SHORT_WAITS],
            lambda one: False,
        ),
        _bounds(
            f"the five: at least {BOUND_SHARE:g} of the reachable bound, or what binds before it",
            [one for one in outcomes if one.way == FREE and one.family in FIVE],
            _explained,
        ),
        _phases([one for one in outcomes if one.way in OPTIMIZED]),
    ]


def _fits(by: Mapping[tuple[str, str], Outcome]) -> Goal:
    what = (
        f"fits: geometric mean over the five at least {FITS_MEAN:g} × AUTOTUNE, each at least {FITS_EACH:g} ×"
    )
    found = {name: by[name, FREE].to_autotune for name in FIVE if (name, FREE) in by}
    values = {name: ratio.value for name, ratio in found.items() if ratio is not None}
    if not values:
        return Goal(what, None, "")
    mean = math.exp(statistics.fmean(math.log(value) for value in values.values()))
    said = f"mean {mean:.2f}: " + ", ".join(f"{name} {value:.2f}" for name, value in values.items())
    met = mean >= FITS_MEAN and min(values.values()) >= FITS_EACH
    return Goal(what, met if len(values) == len(FIVE) else (None if met else False), said)


def _waits(by: Mapping[tuple[str, str], Outcome], name: str) -> Goal:
    what = f"{name}: at least {WAIT_NAIVE:g} × naive and {WAIT_AUTOTUNE:g} × AUTOTUNE"
    one = by.get((name, FREE))
    if one is None or one.to_naive is None or one.to_autotune is None:
        return Goal(what, None, "")
    met = one.to_naive.value >= WAIT_NAIVE and one.to_autotune.value >= WAIT_AUTOTUNE
    return Goal(what, met, f"{one.to_naive.value:.1f} and {one.to_autotune.value:.1f}")


def _no_loss(what: str, found: Iterable[tuple[Outcome, Interval | None]]) -> Goal:
    pairs = [(one, ratio) for one, ratio in found if ratio is not None]
    lost = [
        f"{one.family}, {one.way}: {_said(ratio)}"
        for one, ratio in pairs
        if ratio.high < LOSS and one.changed
    ]
    unchanged = sum(not one.changed for one, _ in pairs)
    said = f"{len(pairs)} configurations, {unchanged} of them left as they were"
    return Goal(what, not lost if pairs else None, "; ".join([said, *lost]) if pairs else "")


def _bounds(what: str, found: Sequence[Outcome], explained: Callable[[Outcome], bool]) -> Goal:
    """Whether all reach their bound, those apart that are explained."""
    if not found:
        return Goal(what, None, "")
    below = [one for one in found if one.share < BOUND_SHARE]
    said = "; ".join(
        [
            ", ".join(f"{one.family} {one.share:.2f}" for one in found),
            *(f"{one.family}: {one.limit}" for one in below if explained(one)),
        ]
    )
    return Goal(what, all(map(explained, below)), said)


def _explained(one: Outcome) -> bool:
    """Whether what binds is said; that the cores do is no explanation of cores that are idle."""
    return one.changed > 0 and bool(one.limit) and "this process may use" not in one.limit


def _phases(found: Sequence[Outcome]) -> Goal:
    what = f"trace, plan, rewrite and proof within {PHASE_S:g} s each"
    longest: dict[str, float] = {}
    for one in found:
        for name, seconds in one.phases_s.items():
            longest[name] = max(longest.get(name, 0.0), seconds)
    said = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in longest.items())
    return Goal(what, max(longest.values()) <= PHASE_S if longest else None, said)


def describe(outcomes: Sequence[Outcome]) -> str:
    """The tables: rates, totals, phases."""
    head = [
        "pipeline",
        "way",
        "steps/s",
        "× naive",
        "× AUTOTUNE",
        "of the bound",
        "first epoch",
        "3 epochs",
        "10 epochs",
    ]
    rows = [
        [
            one.family,
            one.way + _mark(one),
            f"{one.rate.value:.4g} ({one.rate.low:.4g}–{one.rate.high:.4g})",
            _said(one.to_naive),
            _said(one.to_autotune),
            f"{one.share:.2f}",
            f"{one.first.value:.4g}" if one.first else "",
            *(f"{one.totals_s[n].value:.1f} s" if one.totals_s else "" for n in (3, 10)),
        ]
        for one in outcomes
    ]
    return table(head, rows)


def describe_setups(outcomes: Sequence[Outcome]) -> str:
    """What `optimize` took, phase by phase (the longest of all repeats), and what it changed."""
    found = [one for one in outcomes if one.way in OPTIMIZED]
    phases = list(dict.fromkeys(name for one in found for name in one.phases_s))
    head = ["pipeline", "way", "changed", "seconds", *phases, "peak GB", "changes", "then binds"]
    rows = [
        [
            one.family,
            one.way,
            f"{one.changed} of {one.repeats}",
            f"{one.setup_s:.1f}",
            *(f"{one.phases_s.get(name, 0.0):.2f}" for name in phases),
            f"{one.peak_bytes / 1e9:.1f}",
            "; ".join(one.changes) or "none",
            one.limit,
        ]
        for one in found
    ]
    return table(head, rows)


def describe_kinds(repeats: Mapping[str, Sequence[Repeat]]) -> str:
    """By kind of change: in how many plans it was kept, refused or taken back, and why; and all warnings."""
    counts: dict[tuple[str, str, str], int] = {}
    lines: list[str] = []
    for tried in _all_tried(repeats.values()):
        for kind in sorted(set(tried["kinds"])):
            # A plan that lost says by how much: that is in the numbers.
            key = (kind, tried["verdict"], "" if tried["verdict"] == "slower" else tried["why"])
            counts[key] = counts.get(key, 0) + 1
    rows = [[kind, verdict, str(count), why] for (kind, verdict, why), count in sorted(counts.items())]
    for family, found in repeats.items():
        warned = dict.fromkeys(
            f"- {family}, {way}: {text}"
            for repeat in found
            for way, measured in repeat.items()
            for text in measured["setup"]["warnings"]
        )
        lines += warned
    return "\n".join([table(["kind", "verdict", "plans", "why"], rows), *lines])


def _all_tried(families: Iterable[Sequence[Repeat]]) -> Iterable[Mapping[str, Any]]:
    for repeats in families:
        for repeat in repeats:
            for measured in repeat.values():
                yield from measured["setup"]["tried"]


def _mark(one: Outcome) -> str:
    return " (original kept)" if one.way in OPTIMIZED and not one.changed else ""


def _said(ratio: Interval | None) -> str:
    return f"{ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f})" if ratio else ""
