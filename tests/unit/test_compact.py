"""What samples leave out, and what readers make of it."""

from __future__ import annotations

import random

import pytest

from tensorboard_plugin_plumber.events.compact import Restorer, compact
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

NAMES = ("parallelism", "buffer_size", "cycle_length", "deterministic")


def parameter(name: str, value: float, *, most: float = 16.0, tunable: bool = True) -> m.Parameter:
    return m.Parameter(name=name, value=value, min=1.0, max=most, tunable=tunable)


def counters(*parameters: m.Parameter, elements: float = 10.0, seen: float = 10.0) -> m.OperatorCounters:
    """As the hook makes them: what follows from the parameters is said, too."""
    made = m.OperatorCounters(elements=elements, elements_seen=seen, parameters=parameters)
    for one in parameters:
        if one.name == "parallelism":
            made.parallelism, made.parallelism_tunable = one.value, one.tunable
        elif one.name == "buffer_size":
            made.buffer_size, made.buffer_size_tunable = one.value, one.tunable
    return made


def sample(*operators: m.OperatorCounters) -> m.SampleRecord:
    return m.SampleRecord(session_id="s", pipelines=[m.PipelineSample(operators=operators)])


def graph(*first: tuple[m.Parameter, ...]) -> m.GraphRecord:
    running = [m.RunningOperator(type="Map", parameters=parameters) for parameters in first]
    return m.GraphRecord(pipelines=[m.Pipeline(running=running)])


def restore(sample: m.SampleRecord, graph: m.GraphRecord) -> m.SampleRecord:
    return Restorer(graph).restore(sample)


def test_what_the_graph_says_is_left_out_and_found_again() -> None:
    said = graph((parameter("parallelism", 2), parameter("cycle_length", 4, tunable=False)))
    whole = sample(counters(parameter("parallelism", 2), parameter("cycle_length", 4, tunable=False)))

    written = compact(whole, said)

    (operator,) = written.pipelines[0].operators
    assert not operator.parameters
    assert not operator.HasField("parallelism")
    assert operator.all_seen
    assert restore(written, said) == whole


def test_of_what_was_tuned_only_the_value_is_written() -> None:
    said = graph((parameter("buffer_size", 1),))
    whole = sample(counters(parameter("buffer_size", 8)))

    written = compact(whole, said)

    assert list(written.pipelines[0].operators[0].parameters) == [m.Parameter(name="buffer_size", value=8)]
    assert restore(written, said) == whole


@pytest.mark.parametrize(
    ("said", "now"),
    [
        ((), (parameter("parallelism", 2),)),
        ((parameter("parallelism", 2),), (parameter("parallelism", 2, most=8),)),
        ((parameter("parallelism", 2),), (parameter("parallelism", 2, tunable=False),)),
        ((parameter("parallelism", 2),), (parameter("parallelism", 0),)),
        ((parameter("parallelism", 2),), (parameter("parallelism", 2), parameter("buffer_size", 3))),
    ],
)
def test_what_differs_from_the_graph_is_kept(
    said: tuple[m.Parameter, ...], now: tuple[m.Parameter, ...]
) -> None:
    whole = sample(counters(*now))
    assert restore(compact(whole, graph(said)), graph(said)) == whole


def test_samples_of_before_the_graph_knew_are_whole() -> None:
    whole = sample(counters(parameter("parallelism", 2), elements=0, seen=0))
    for written_with in (None, m.GraphRecord(), graph(())):
        written = compact(whole, written_with)
        assert restore(written, graph((parameter("parallelism", 5),))) == whole


def test_a_sample_is_made_whole_whatever_others_are_lost() -> None:
    # GIVEN random histories of parameters, each sample written when some graph record was the last
    random_ = random.Random(7)
    for _ in range(50):
        names = random_.sample(NAMES, random_.randint(1, len(NAMES)))
        first = tuple(parameter(name, random_.randint(1, 4)) for name in names)
        known = random_.randint(0, len(names))
        for _ in range(5):
            now = tuple(parameter(name, random_.randint(1, 4)) for name in names)
            elements = random_.choice([0.0, 7.0])
            whole = sample(counters(*now, elements=elements, seen=random_.choice([elements, 0.0])))
            written = compact(
                whole, random_.choice([None, graph(first[:known] if known == len(names) else ())])
            )
            # THEN it needs nothing but itself and the last graph record
            content = m.SampleRecord.FromString(written.SerializeToString())
            assert restore(content, graph(first)) == whole


def test_a_whole_sample_stays_as_it_is() -> None:
    whole = sample(counters(parameter("parallelism", 2)))
    kept = m.SampleRecord()
    kept.CopyFrom(whole)
    assert restore(whole, graph((parameter("parallelism", 2),))) == kept
    assert restore(whole, m.GraphRecord()) == kept
