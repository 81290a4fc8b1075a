"""What is random in an operator, and whether it is the same in each epoch (docs/model.md, "Randomness and epochs")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tensorboard_plugin_plumber.capture import graphs
from tensorboard_plugin_plumber.capture.functions import Facts
from tensorboard_plugin_plumber.capture.graphs import Node
from tensorboard_plugin_plumber.capture.reasons import Epochs, Fact, Place, describe_operator, is_enclosed
from tensorboard_plugin_plumber.capture.written import Written
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


def frozen(fact: Fact, cache: Written) -> Fact:
    """A fact as it holds above what hands on the outcome of the first epoch."""
    if fact.kind != m.FACT_RANDOM:
        return fact
    kept = f"{fact.reason}; {describe_operator(cache)} keeps the first epoch's"
    return replace(fact, reason=kept, epochs=Epochs.SAME, uncacheable="")


def as_random_as(fact: Fact, below: tuple[Fact, ...]) -> Fact:
    """Draws whose seed comes with the elements are as random as the draws below."""
    if not fact.fed:
        return fact
    drawn = [one for one in below if one.draws and one.epochs is not Epochs.SAME]
    return fact if not drawn else replace(fact, epochs=drawn[0].epochs)


def shuffle_fact(node: Node, operator: Written, place: Place | None) -> Fact:
    """Of a dataset that shuffles."""
    seeded = _is_seeded(node)
    reshuffles = node.attribute("reshuffle_each_iteration") is not False
    # In a body each call of the function makes a new one.
    another = not seeded if is_enclosed(operator) else reshuffles
    words = "draws a new order each epoch" if another else "draws one order for all epochs"
    return _random_fact(operator, place, words, seeded=seeded, another=another)


def random_dataset_fact(node: Node, operator: Written, place: Place | None) -> Fact:
    """Of a dataset that draws numbers, or the input that is next."""
    seeded = _is_seeded(node)
    # Without a seed it draws one when it is made, and keeps it.
    again = node.op == "SamplingDataset" or bool(node.attribute("rerandomize_each_iteration"))
    another = not seeded if is_enclosed(operator) else again
    words = f"draws random numbers ({node.op})"
    return _random_fact(operator, place, words, seeded=seeded, another=another, draws=True)


def _random_fact(
    operator: Written, place: Place | None, words: str, *, seeded: bool, another: bool, draws: bool = False
) -> Fact:
    """A dataset that draws; `another`: something else in each epoch."""
    return Fact(
        m.FACT_RANDOM,
        words,
        operator,
        place,
        seeded=seeded,
        epochs=Epochs.ANOTHER if another else Epochs.SAME,
        draws=draws,
        uncacheable=words if another else "",
    )


def _is_seeded(node: Node) -> bool:
    """Whether a random dataset has a seed; one that is computed counts as one."""
    for name in ("seed", "seed2"):
        value = node.constant(name)
        if value is None and node.inputs_named(name):
            return True
        if value:
            return True
    return False


def random_facts(operator: Written, found: Facts, place: Place | None) -> Iterator[Fact]:
    """At most one fact about the draws of an operator's functions."""
    seeded = bool(found.seeded)
    if found.random:
        epochs = Epochs.ANOTHER_WITH_REPEAT if found.all_seeded and not found.generators else Epochs.ANOTHER
        ops = _few(found.random)
        words = f"draws random numbers ({ops})"
        kept = f"draws random numbers from a generator's state ({ops})"
        with_seed = f"draws random numbers with a seed ({ops})"
        yield Fact(
            m.FACT_RANDOM,
            kept if found.generators else with_seed if found.all_seeded else words,
            operator,
            place,
            seeded=found.all_seeded,
            epochs=epochs,
            draws=True,
            uncacheable=words,
            sequential=f"{with_seed}: the order of the calls decides the draws" if seeded else "",
        )
        return
    if found.stateless and not any(graphs.base_op(node.op) == "RandomDataset" for node in operator.nodes):
        changes = bool(found.graph_writes or found.clocks)
        words = f"draws random numbers ({_few(found.stateless)})"
        seed = "seeds in the elements" if found.fed else "a fixed seed"
        yield Fact(
            m.FACT_RANDOM,
            words if changes else f"{words} from {seed}",
            operator,
            place,
            seeded=True,
            epochs=Epochs.ANOTHER if changes else Epochs.SAME,
            draws=True,
            fed=found.fed and not changes,
            uncacheable=words if changes else "",
        )
    if found.datasets:
        seeded = all(one.seeded for one in found.datasets)
        words = f"draws random numbers in its function ({_few([one.op for one in found.datasets])})"
        yield Fact(
            m.FACT_RANDOM,
            words,
            operator,
            place,
            seeded=seeded,
            epochs=Epochs.SAME if seeded else Epochs.ANOTHER,
            draws=True,
            uncacheable="" if seeded else words,
        )


def _few(ops: Any) -> str:
    return ", ".join(list(dict.fromkeys(ops))[:3])
