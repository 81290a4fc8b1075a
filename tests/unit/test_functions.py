"""What the bytecode of a Python function shows: writes that outlive the call, randomness, the clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tensorboard_plugin_plumber.capture import places
from tensorboard_plugin_plumber.capture.python_functions import facts_of_code, python_facts
from tests.support import python_functions as functions

ROOT = Path(__file__).resolve().parents[2]
ARRAY = np.zeros(3)


def name_of(value):
    return getattr(value, "__qualname__", type(value).__name__) if callable(value) else value


@pytest.mark.parametrize(("function", "write"), functions.WRITES, ids=name_of)
def test_a_write_that_outlives_the_call_is_seen(function, write):
    assert python_facts(function).writes == (write,)


@pytest.mark.parametrize("function", functions.CLEAN, ids=name_of)
def test_locals_and_reads_are_no_writes(function):
    found = python_facts(function)

    assert (found.writes, found.random, found.clock) == ((), False, False)


@pytest.mark.parametrize("function", functions.RANDOM, ids=name_of)
def test_randomness_is_seen(function):
    assert python_facts(function).random


@pytest.mark.parametrize("function", functions.CLOCKS, ids=name_of)
def test_the_clock_is_seen_and_is_no_randomness(function):
    found = python_facts(function)

    assert (found.clock, found.random) == (True, False)


def test_numpy_is_known():
    def draws(x):
        return x + np.random.rand()

    def draws_from_its_own(x):
        return x + np.random.default_rng(1).normal()

    def seeds(x):
        np.random.seed(x)

    def sorts(x):
        out = np.array(x)
        out.sort()
        return np.sort(out) + np.append(out, 1)[0] + ARRAY[0]

    def saves(x):
        np.save("file.npy", x)

    def fills(x):
        ARRAY[:] = x

    assert python_facts(draws).random
    assert python_facts(draws_from_its_own).random
    assert python_facts(seeds).writes == ("the random state of np.random",)
    assert python_facts(saves).writes == ("a file",)
    assert python_facts(fills).writes == ("the container ARRAY",)
    clean = python_facts(sorts)
    assert (clean.writes, clean.random) == ((), False)


def test_the_place_is_that_of_the_definition():
    found = python_facts(functions.appends_to_a_global)

    assert found.place is not None
    assert found.place[0] == functions.__file__
    assert found.place[2] == "appends_to_a_global"
    line = Path(found.place[0]).read_text().splitlines()[found.place[1] - 1]
    assert line == "def appends_to_a_global(x):"


def test_what_is_left_of_a_function_is_its_code():
    for function, write in (
        (functions.stores_in_a_global_container, "the container CACHE"),
        (functions.appends_to_a_global, "LOG by .append()"),
        (functions.Loader.remembers, "the attribute self.last"),
        (functions.prints, "the console"),
    ):
        code = places.code_of(function)
        fixed = places.fixed_names(function, code)
        assert facts_of_code("f", code, fixed).writes == (write,)
    code = places.code_of(functions.keeps_to_its_locals)
    assert facts_of_code("f", code, frozenset({"defaultdict"})).writes == ()


def test_nothing_of_the_users_is_run():
    class Trap:
        @property
        def cache(self):
            raise AssertionError("a property was run")

        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(name)
            raise AssertionError("__getattr__ was run")

    trap = Trap()

    def touches(x):
        trap.cache.append(x)
        trap.other.append(x)
        return x

    assert python_facts(touches).writes == ("trap.cache by .append()", "trap.other by .append()")


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13"])
def test_other_pythons_see_the_same(version):
    """The bytecode is another in each version; the cases need no TensorFlow."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from tests.support import python_functions as f\n"
        "from tensorboard_plugin_plumber.capture.python_functions import python_facts as facts\n"
        "wrong = [x for x, write in f.WRITES if facts(x).writes != (write,)]\n"
        "wrong += [x for x in f.CLEAN if facts(x).writes or facts(x).random or facts(x).clock]\n"
        "wrong += [x for x in f.RANDOM if not facts(x).random]\n"
        "wrong += [x for x in f.CLOCKS if not facts(x).clock]\n"
        "assert 'tensorflow' not in sys.modules\n"
        "print('.'.join(map(str, sys.version_info[:2])), wrong)\n"
    )
    found = _python(version)
    if found is None:
        pytest.skip(f"no Python {version} here")
    ran = subprocess.run(
        [found, "-W", "ignore", "-c", program, str(ROOT)], capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.strip() == f"{version} []", ran.stderr


def _python(version: str) -> str | None:
    """An interpreter of that version, on the path or where pyenv keeps them."""
    import shutil

    candidates = [shutil.which(f"python{version}")]
    candidates += [str(one) for one in Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    for one in candidates:
        if one and one != sys.executable:
            answer = subprocess.run([one, "--version"], capture_output=True, text=True)
            if answer.returncode == 0 and answer.stdout.startswith(f"Python {version}."):
                return one
    return None
