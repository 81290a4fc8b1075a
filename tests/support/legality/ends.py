"""Constructs that never end, or end what never does."""

from __future__ import annotations

from tests.support.legality.case import Dataset, Expected, case, source


@case(Expected("INFINITE", "Repeat", "never ends"), parallel=True)
def endless_repeat():
    return source().repeat().map(lambda x: x + 1)  # reason


@case(cache=True)
def repeat_a_few_times():
    return source().repeat(3)


@case(cache=True)
def take_of_what_never_ends():
    return source().repeat().take(5)


@case(Expected("INFINITE", "Counter", "never ends"))
def counter():
    return Dataset.counter()  # reason


@case(Expected("INFINITE", "Repeat", "never ends"))
def filter_of_what_never_ends():
    return source().repeat().filter(lambda x: x > 3)  # reason


@case(cache=True)
def zip_with_what_ends():
    return Dataset.zip((source(), Dataset.counter()))


@case(
    Expected("INFINITE", "Counter", "never ends"),
    Expected("INFINITE", "Repeat", "never ends", line="# too"),
    parallel=True,
)
def zip_of_what_never_ends():
    numbers = Dataset.counter()  # reason
    again = source().repeat()  # too
    return Dataset.zip((numbers, again)).map(lambda x, y: x)


@case(cache=True)
def take_while_of_what_never_ends():
    return source().repeat().take_while(lambda x: x < 3)


@case(Expected("INFINITE", "Repeat", "never ends"))
def endless_body():
    return Dataset.range(2).interleave(lambda x: source().repeat())  # reason
