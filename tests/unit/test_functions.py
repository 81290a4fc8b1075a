"""What the bytecode of a Python function shows: writes that outlive the call, and randomness."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tensorboard_plugin_plumber.capture import places
from tensorboard_plugin_plumber.capture.functions import PythonFacts, python_facts

CACHE: dict[int, int] = {}
LOG: list[int] = []
COUNT = 0


def stores_in_a_global_container(x):
    CACHE[x] = x * 2
    return x


def adds_to_a_global_container(x):
    CACHE[x] += 1
    return x


def counts_in_a_global(x):
    global COUNT
    COUNT += 1
    return x


def appends_to_a_global(x):
    LOG.append(x)
    return x


def writes_in_an_inner_function(x):
    def inner(y):
        LOG.append(y)
        return y

    return inner(x)


class Loader:
    def remembers(self, x):
        self.last = x
        return x

    def reads(self, x):
        return self.table[x]


def make_counter():
    total = 0

    def counts(x):
        nonlocal total
        total += x
        return total

    return counts


def keeps_to_its_locals(x):
    found = []
    found.append(x)
    table = {}
    table[1] = 2
    table[1] += 3
    out = np.zeros(3)
    out[0] = x
    out.sort()
    return found, table, np.sort(out)


def reads_globals(x):
    return [CACHE[key] for key in (x,) if key in CACHE]


def draws(x):
    return x + random.random()


def facts(function) -> PythonFacts:
    code = places.code_of(function)
    return python_facts(places.function_name(function), code, places.fixed_names(function, code))


@pytest.mark.parametrize(
    ("function", "written"),
    [
        (stores_in_a_global_container, "CACHE"),
        (adds_to_a_global_container, "CACHE"),
        (counts_in_a_global, "COUNT"),
        (appends_to_a_global, "LOG"),
        (writes_in_an_inner_function, "LOG"),
        (Loader().remembers, "self.last"),
        (make_counter(), "total"),
    ],
)
def test_a_write_that_outlives_the_call_is_seen(function, written):
    (write,) = facts(function).writes

    assert written in write


@pytest.mark.parametrize("function", [keeps_to_its_locals, reads_globals, Loader().reads])
def test_locals_and_reads_are_no_writes(function):
    assert facts(function).writes == ()


def test_randomness_is_seen_by_name():
    assert facts(draws).random
    assert not facts(keeps_to_its_locals).random
