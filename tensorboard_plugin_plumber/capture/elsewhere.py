"""Pipelines of which a part runs where this process cannot look: behind a device, or on service workers.

`copy_to_device` and `prefetch_to_device` run what stands below them in an iterator that nobody has
a handle of, and TensorFlow cannot serialise them. `distribute` hands what stands below it to the
workers of a tf.data service. Both parts are described as written: their operators have lines,
functions and settings, but no running operator, and so no counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tensorboard_plugin_plumber.capture import construction, graphs, shrink, written
from tensorboard_plugin_plumber.capture.graphs import Graphs, Node
from tensorboard_plugin_plumber.capture.written import Written

TRANSFER = "CopyToDeviceDataset"
SERVICE = "DataServiceDataset"
# What runs for a transfer: its functions make and read the iterator below.
_RUNS_AS = "GeneratorDataset"
# Stands in the place of tags where nothing that runs here can belong to a node.
_OUT_OF_REACH = (-1,)


def read(dataset: Any) -> Graphs:
    """As `graphs.read`, with what runs elsewhere put below the operator that hands its elements over.

    Raises:
      tf.errors.OpError, ValueError, remake.CannotRemake: the dataset cannot be serialised.
    """
    small = shrink.serialisable(dataset)
    found = _with_transfers(_without_what_is_left_out(graphs.read(small.dataset), small.left_out), dataset)
    library = dict(found.library)
    handing_over = [node for node in _walk(found.written) if _hands_over(node)]
    objects = _handing_over(dataset) if handing_over else iter(())
    for node, one in zip(handing_over, objects, strict=False):
        for below in construction.inputs_of(one) or construction.distributed_by(one):
            root, functions = graphs.written(shrink.serialisable(below).dataset)
            library.update(functions)
            for part in root.walk():
                part.tags = _OUT_OF_REACH
            node.inputs.append(root)
    return replace(found, library=library)


def notes(root: Written) -> list[str]:
    """For people: what is described, but runs where it cannot be counted."""
    found = []
    for one in root.walk():
        bases = {graphs.base_op(node.op) for node in one.nodes}
        if not bases & {TRANSFER, SERVICE}:
            continue
        below = sum(1 for child in one.children for _ in child.walk())
        what = f"What stands below {one.type} ({below} operator{'s' if below != 1 else ''})"
        if TRANSFER in bases and below:
            found.append(
                f"{what} runs in an iterator that TensorFlow hides behind the device: it is shown as written, "
                f"nothing is counted there, and its time is part of {one.type}'s."
            )
        elif SERVICE in bases and below:
            found.append(
                f"{what} runs on the workers of a tf.data service: it is shown as written, "
                "and nothing is counted there."
            )
        elif SERVICE in bases:
            found.append(f"What the tf.data service computes for {one.type} is not known here.")
    return found


def _without_what_is_left_out(found: Graphs, left_out: int) -> Graphs:
    """The trees without the sources that stand for what is left out."""
    tags = {tag for tag, name in found.names.items() if name == shrink.LEFT_OUT}
    for root in (found.written, found.running) if tags else ():
        for node in root.walk():
            node.inputs = [one for one in node.inputs if not tags & set(one.tags)]
    return replace(found, left_out=left_out)


def _with_transfers(found: Graphs, dataset: Any) -> Graphs:
    """The operators that stand for a transfer to a device named as what they stand for."""
    tags = {tag for tag, name in found.names.items() if name == shrink.TRANSFER}
    if not tags:
        return found
    names = {tag: name for tag, name in found.names.items() if tag not in tags}
    for root, op in ((found.written, TRANSFER), (found.running, _RUNS_AS)):
        for node in root.walk():
            if tags & set(node.tags):
                node.op = op
    running = found.running
    if construction.is_transfer(written.unwrap(dataset)[1]):
        # TensorFlow injects no prefetch above a transfer alone: it could not serialise it.
        running = next(node for node in running.walk() if tags & set(node.tags))
    return replace(found, running=running, names=names)


def _hands_over(node: Node) -> bool:
    base = graphs.base_op(node.op)
    return base in (SERVICE, TRANSFER)


def _walk(node: Node) -> Iterator[Node]:
    """A node and its inputs in pre-order, without function bodies."""
    yield node
    for child in node.inputs:
        yield from _walk(child)


def _handing_over(dataset: Any) -> Iterator[Any]:
    """The datasets that hand over what runs elsewhere, in the order of the written tree."""
    dataset = written.unwrap(dataset)[1]
    if construction.is_transfer(dataset) or type(dataset).__name__.startswith("_DataServiceDataset"):
        yield dataset
        return
    for one in construction.inputs_of(dataset):
        yield from _handing_over(one)
