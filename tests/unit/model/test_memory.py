"""Bytes that settings hold, and the size of a prefetch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorboard_plugin_plumber.model import memory
from tensorboard_plugin_plumber.model.network import Choice, Limits, Network, Operator, Settings

LIMITS = Limits(cores=4, memory_bytes=1e9, memory_free_bytes=1e9)


def one(operator: Operator, choice: Choice, today: Choice | None = None) -> tuple[Network, Settings]:
    return Network((operator,), Settings((today or Choice(),), 4), LIMITS), Settings((choice,), 4)


@pytest.mark.parametrize(
    ("operator", "choice", "expected"),
    [
        (Operator("map", None, element_bytes=10), Choice(parallel=True, parallelism=6), 60),
        (Operator("map", None, element_bytes=10), Choice(parallelism=6), 0),
        (Operator("map", None, element_bytes=10), Choice(prefetch=True, prefetch_size=3), 30),
        # ceil(6 / 4) + 1 batches of 4
        (Operator("fused", None, element_bytes=10, batch_size=4), Choice(parallel=True, parallelism=6), 120),
        # never more than 16
        (Operator("fused", None, element_bytes=1, batch_size=2), Choice(parallel=True, parallelism=99), 32),
        (
            Operator("files", None, element_bytes=10, interleave=True, cycle_length=5),
            Choice(parallel=True, parallelism=2),
            50,
        ),
    ],
)
def test_each_kind_of_buffer(operator: Operator, choice: Choice, expected: float) -> None:
    network, settings = one(operator, choice)
    assert memory.buffer_bytes(network, settings) == expected
    assert memory.added_bytes(network, settings) == expected


def test_a_cache_is_paid_for_once_and_not_if_it_is_there_already() -> None:
    operator = Operator("map", None, cache_bytes=500)
    assert memory.new_cache_bytes(*one(operator, Choice(cache=True))) == 500
    assert memory.new_cache_bytes(*one(operator, Choice(cache=True), today=Choice(cache=True))) == 0


def test_buffers_in_a_body_exist_once_per_live_iterator() -> None:
    operators = (
        Operator("files", None, interleave=True, cycle_length=4),
        Operator("record", 0, in_body=True, element_bytes=10),
    )
    settings = Settings((Choice(), Choice(prefetch=True, prefetch_size=2)), 4)
    assert memory.buffer_bytes(Network(operators, settings, LIMITS), settings) == 80


def tandem(producer: float | None, consumer: float | None, per_step: float = 1) -> int:
    operators = (
        Operator("batch", None, visits=1, cpu_s=1e-3, variation=consumer),
        Operator("map", 0, visits=per_step, cpu_s=1e-3 / per_step, variation=producer),
    )
    return memory.prefetch_size(Network(operators, Settings((Choice(), Choice()), 4), LIMITS), 1)


def test_a_prefetch_grows_with_variation_between_its_limits() -> None:
    assert tandem(0.0, 0.0) == 2
    assert tandem(0.2, 0.2) <= tandem(0.7, 0.7) < tandem(1.0, 1.0) < tandem(1.5, 1.5) <= 64
    assert tandem(9.0, 9.0) == 64


def test_unknown_variation_counts_as_that_of_exponential_times() -> None:
    assert tandem(None, None) == tandem(1.0, 1.0) == 17


def test_a_consumer_that_takes_many_elements_at_a_time_needs_a_larger_buffer() -> None:
    assert tandem(1.0, 0.5, per_step=32) > tandem(1.0, 0.5)


def test_the_variation_of_a_segment_is_that_of_all_it_does() -> None:
    # GIVEN a map with steady times over a reader with uneven ones that take as long
    operators = (
        Operator("batch", None, visits=1, cpu_s=1e-3, variation=0.0),
        Operator("map", 0, visits=1, cpu_s=1e-3, variation=0.0),
        Operator("read", 1, visits=1, wait_s=1e-3, variation=2.0),
    )
    network = Network(operators, Settings((Choice(), Choice(), Choice()), 4), LIMITS)
    behind_prefetch = replace(
        network, current=Settings((Choice(), Choice(), Choice(prefetch=True, prefetch_size=2)), 4)
    )
    # THEN the reader counts where the map's thread reads, and only there
    assert memory.prefetch_size(network, 1) > memory.prefetch_size(behind_prefetch, 1) == 2
