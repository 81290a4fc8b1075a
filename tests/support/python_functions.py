"""Python functions with what they visibly do beyond their own locals, for tests on every Python.

Only the standard library: the cases also run without TensorFlow.
"""

from __future__ import annotations

import datetime
import functools
import json
import logging
import os
import random
import time
import warnings
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

CACHE: dict[Any, Any] = {}
LOG: list[Any] = []
COUNT = 0
TABLE = (1, 2, 3)
NAME = "name"
GROUPS: defaultdict[Any, list[Any]] = defaultdict(list)
LATEST: deque[Any] = deque(maxlen=2)
RNG = random.Random(3)
logger = logging.getLogger(__name__)


def stores_in_a_global_container(x):
    CACHE[x] = x * 2
    return x


def adds_to_a_global_container(x):
    CACHE[x] += 1
    return x


def deletes_from_a_global_container(x):
    del CACHE[x]


def stores_a_slice(x):
    LOG[1:3] = [x]


def counts_in_a_global(x):
    global COUNT
    COUNT += 1
    return x


def appends_to_a_global(x):
    LOG.append(x)
    return x


def appends_by_an_alias(x):
    log = LOG
    if x:
        log.append(x)
    return x


def appends_by_a_bound_alias(x):
    append = LOG.append
    append(x)


def appends_to_an_element(x):
    GROUPS[x].append(x)


def appends_after_branches(x):
    for one in range(x):
        if one % 2:
            continue
        try:
            y = 1 / one
        except ZeroDivisionError:
            y = 0
        with open(os.devnull) as file:
            file.read()
        LATEST.append(y)
    return x


def writes_in_an_inner_function(x):
    def inner(y):
        LOG.append(y)
        return y

    return inner(x)


def writes_in_a_comprehension(x):
    return [CACHE.setdefault(y, y) for y in range(x)]


def writes_an_attribute_of_a_function(x):
    keeps_to_its_locals.calls = x


def writes_by_default(x, seen=[]):  # noqa: B006
    seen.append(x)
    return x


def writes_by_a_keyword_default(x, *, seen={}):  # noqa: B006
    seen[x] = 1


def calls_a_writer(x):
    return appends_to_a_global(x)


def calls_a_caller(x):
    return calls_a_writer(x)


def prints(x):
    print(x)
    return x


def warns(x):
    warnings.warn("a warning", stacklevel=1)
    return x


def logs(x):
    logging.info("got %s", x)


def logs_by_a_logger(x):
    logger.warning("got %s", x)


def writes_a_file(x):
    with open(f"/tmp/{x}", "w") as file:
        file.write("x")


def writes_a_file_by_mode(x):
    with open(f"/tmp/{x}", mode="ab") as file:
        file.write(b"x")


def writes_a_file_by_path(x):
    Path(f"/tmp/{x}").write_text("x")


def makes_a_directory(x):
    os.makedirs(f"/tmp/{x}", exist_ok=True)


def dumps(x, file):
    json.dump(x, file)


def seeds(x):
    random.seed(x)


def shuffles_a_global(x):
    random.shuffle(LOG)


class Loader:
    total = 0

    def __init__(self):
        self.seen = []
        self.rng = random.Random(1)

    def remembers(self, x):
        self.last = x
        return x

    def appends(self, x):
        self.seen.append(x)
        return x

    def reads(self, x):
        return self.table[x]

    def calls_its_own(self, x):
        return self.appends(x)

    def counts_in_its_class(self, x):
        Loader.total += 1
        return x

    def draws(self, x):
        return x + self.rng.random()

    def __call__(self, x):
        self.seen.append(x)
        return x

    @staticmethod
    def clean(x):
        return x

    @classmethod
    def counts(cls, x):
        cls.total += 1
        return x


def with_cache(cache, x):
    cache[x] = x
    return x


def make_counter():
    total = 0

    def counts(x):
        nonlocal total
        total += x
        return total

    return counts


def make_collector():
    seen = []

    def collects(x):
        seen.append(x)
        return x

    return collects


def keeps_to_its_locals(x):
    found = []
    found.append(x)
    table = {}
    table[1] = 2
    table[1] += 3
    log = LOG
    log = [*log, 1]
    log.append(2)
    groups = defaultdict(list)
    for one in range(3):
        groups[one].append(one)
    data = {"w": x, "x": 1}
    data.update(a=1)

    def inner(y):
        found.append(y)
        return sorted(found)

    return inner(data["x"]), NAME.upper().split("a")


def reads_globals(x):
    return [CACHE[key] for key in (x,) if key in CACHE] + [TABLE[0]]


def reads_a_file(x):
    with open(f"/tmp/{x}", "rb") as file:
        return file.read(), json.loads("1"), os.path.exists("x"), {"a": "w"}


def writes_its_argument(x):
    x[0] = 1
    x.sort()
    return x


def rebinds_an_argument(x, y=None):
    y = y or []
    y.append(x)
    return y


def calls_clean_ones(x):
    return keeps_to_its_locals(x), reads_globals(x), Loader.clean(x)


def draws(x):
    return x + random.random()


def draws_by_an_import(x):
    from random import randint

    return x + randint(0, 3)


def draws_by_a_generator(x):
    return x + RNG.uniform(0, 1)


def calls_a_drawer(x):
    return draws(x)


def samples_nothing(x):
    sample, choice, normal = x, x, x
    return sample + choice + normal


def tells_the_time(x):
    return x + time.perf_counter()


def tells_the_date(x):
    return datetime.datetime.now().timestamp() + x


def sleeps(x):
    time.sleep(0)
    return x


WRITES: list[tuple[Callable[..., Any], str]] = [
    (stores_in_a_global_container, "the container CACHE"),
    (adds_to_a_global_container, "the container CACHE"),
    (deletes_from_a_global_container, "the container CACHE"),
    (stores_a_slice, "the container LOG"),
    (counts_in_a_global, "the global COUNT"),
    (appends_to_a_global, "LOG by .append()"),
    (appends_by_an_alias, "LOG by .append()"),
    (appends_by_a_bound_alias, "LOG by .append()"),
    (appends_to_an_element, "GROUPS by .append()"),
    (appends_after_branches, "LATEST by .append()"),
    (writes_in_an_inner_function, "LOG by .append()"),
    (writes_in_a_comprehension, "CACHE by .setdefault()"),
    (writes_an_attribute_of_a_function, "the attribute keeps_to_its_locals.calls"),
    (writes_by_default, "seen by .append()"),
    (writes_by_a_keyword_default, "the container seen"),
    (calls_a_writer, "LOG by .append() (in appends_to_a_global)"),
    (calls_a_caller, "LOG by .append() (in appends_to_a_global) (in calls_a_writer)"),
    (prints, "the console"),
    (warns, "the console"),
    (logs, "the log"),
    (logs_by_a_logger, "the log"),
    (writes_a_file, "a file"),
    (writes_a_file_by_mode, "a file"),
    (writes_a_file_by_path, "a file"),
    (makes_a_directory, "a file"),
    (dumps, "a file"),
    (seeds, "the random state of random"),
    (Loader().remembers, "the attribute self.last"),
    (Loader().appends, "self.seen by .append()"),
    (Loader().calls_its_own, "self.seen by .append() (in appends)"),
    (Loader().counts_in_its_class, "the attribute Loader.total"),
    (Loader(), "self.seen by .append()"),
    (Loader.counts, "the attribute cls.total"),
    (functools.partial(with_cache, CACHE), "the container cache"),
    (functools.partial(with_cache, cache=CACHE), "the container cache"),
    (make_counter(), "the outer variable total"),
    (make_collector(), "seen by .append()"),
    (lambda x: LOG.append(x), "LOG by .append()"),
    (LOG.append, "a list by .append()"),
]

CLEAN: list[Callable[..., Any]] = [
    keeps_to_its_locals,
    reads_globals,
    reads_a_file,
    writes_its_argument,
    rebinds_an_argument,
    calls_clean_ones,
    Loader().reads,
    Loader.clean,
    samples_nothing,
    sleeps,
    functools.partial(with_cache, x=3),
    sorted,
    os.path.join,
    lambda x: x + 1,
]

RANDOM: list[Callable[..., Any]] = [
    draws,
    draws_by_an_import,
    draws_by_a_generator,
    calls_a_drawer,
    Loader().draws,
    shuffles_a_global,
    random.random,
]

CLOCKS: list[Callable[..., Any]] = [tells_the_time, tells_the_date, time.time]
