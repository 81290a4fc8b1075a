"""A saved plan: as text and back, and onto pipelines that are the same, or not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorboard_plugin_plumber.rewrite.saved_plan import (
    Damaged,
    Mismatch,
    NotSavable,
    Origin,
    SavedChange,
    SavedOperator,
    SavedPlan,
    from_json,
    load,
    match,
    save,
    saved,
    to_json,
)
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

GB = 10**9


def pipeline() -> m.Pipeline:
    """interleave(open).map(decode).shuffle(100).batch(32), with what TensorFlow adds."""
    made = m.Pipeline(role="train")
    rows = [
        ("op0", "Batch", "", False, ""),
        ("op1", "Shuffle", "op0", False, ""),
        ("op2", "Map", "op1", False, "decode"),
        ("op3", "Interleave", "op2", False, "open"),
        ("op4", "TensorSlice", "op3", False, ""),
        ("op5", "Map", "op3", True, "parse"),
        ("op6", "TFRecord", "op5", True, ""),
    ]
    for number, (name, kind, parent, in_body, function) in enumerate(rows):
        one = made.operators.add(id=name, type=kind, parent=parent, in_body=in_body, label=function or kind)
        one.source.path, one.source.line, one.source.scope = "/home/me/train.py", 10 + number, "make"
        one.cardinality = 1000
        one.cache.allowed = True
        if function:
            one.function.name = function
            one.function.code_digest, one.function.graph_digest = f"3.11:{function}", f"2.21:{function}"
            one.parallel.allowed = True
    made.operators[0].batch_size, made.operators[0].drop_remainder = 32, False
    made.operators[1].buffer_size, made.operators[1].reshuffle = 100, True
    made.operators.add(id="injected0", type="Prefetch", injected=True)
    return made


def analysis() -> a.Analysis:
    made = a.Analysis(run="run1", host="here-0", updated_s=1.8e9)
    made.limits.cores, made.limits.memory_bytes = 8, 16 * GB
    made.verdict.observed_rate = 3.0
    made.plan.predicted_rate, made.plan.low, made.plan.high = 30.0, 25.0, 36.0
    made.plan.memory_bytes = 2 * GB
    made.plan.assumptions.append("Caches are judged in steady state.")
    made.operators.add(id="op2", materialised_bytes=GB, materialised_high_bytes=2 * GB)
    change(made, a.CHANGE_KIND_PARALLELISM, "op2", a.Setting(word="none"), a.Setting(number=8))
    change(made, a.CHANGE_KIND_CACHE, "op2", a.Setting(word="none"), a.Setting(word="memory"))
    change(made, a.CHANGE_KIND_PARALLELISM, "op5", a.Setting(number=2), a.Setting(word="autotune"))
    change(made, a.CHANGE_KIND_THREADPOOL, "", a.Setting(number=8), a.Setting(number=32))
    return made


def change(
    made: a.Analysis, kind: a.ChangeKind.ValueType, operator: str, before: a.Setting, to: a.Setting
) -> None:
    added = made.plan.changes.add(kind=kind, to=to, why="because", code=".map(decode, …)")
    getattr(added, "from").CopyFrom(before)
    if operator:
        added.operator = operator


def plan() -> SavedPlan:
    return saved(analysis(), pipeline())


def matched(
    now: m.Pipeline, *, made: SavedPlan | None = None, cores: float = 8, memory: float = 8 * GB
) -> Any:
    return match(made or plan(), now, cores=cores, memory_bytes=memory)


def test_a_plan_comes_back_as_it_was_saved() -> None:
    made = plan()

    again = from_json(to_json(made))

    assert again == made
    assert to_json(again) == to_json(made)
    assert again.origin == Origin(1.8e9, again.origin.plumber, "run1", "here-0", 8, 16 * GB)
    assert again.changes[1] == SavedChange(
        "op2", "cache", "none", "memory", ".map(decode, …)", "because", 2.0 * GB
    )
    assert again.operators[2] == SavedOperator(
        "op2",
        "Map",
        "decode",
        "op1",
        False,
        "train.py",
        12,
        "make",
        "decode",
        "3.11:decode",
        "2.21:decode",
        "",
        1000,
    )
    assert again.operator("op0").settings == {"batch_size": 32, "drop_remainder": False}


texts = st.text(max_size=20)
plans = st.builds(
    SavedPlan,
    st.builds(Origin, *[st.floats(0, 1e12)], *[texts] * 3, *[st.floats(0, 1e15)] * 2),
    st.integers(1, 6).flatmap(
        lambda count: st.tuples(
            *(
                st.builds(
                    SavedOperator,
                    st.just(f"op{i}"),
                    texts,
                    texts,
                    st.just("") if i == 0 else st.integers(0, i - 1).map("op{}".format),
                    st.booleans(),
                    texts,
                    st.integers(0, 10**6),
                    texts,
                    texts,
                    texts,
                    texts,
                    st.just(""),
                    st.integers(-2, 2**62),
                    st.dictionaries(texts, st.integers() | st.booleans(), max_size=3),
                )
                for i in range(count)
            )
        )
    ),
    st.lists(
        st.builds(
            SavedChange,
            st.just("op0"),
            st.sampled_from(["parallelism", "cache", "rewrite", "order"]),
            st.integers(-1, 2**62) | texts,
            st.integers(-1, 2**62) | texts,
            texts,
            texts,
            st.none() | st.floats(0, 1e15),
        )
    ).map(tuple),
    *[st.none() | st.floats(0, 1e9)] * 4,
    st.floats(0, 1e15),
    st.lists(texts).map(tuple),
)


@given(plans)
@settings(max_examples=100, deadline=None)
def test_any_plan_comes_back(made: SavedPlan) -> None:
    assert from_json(to_json(made)) == made


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.pop(name)


def with_(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def set_it(content: Any) -> None:
        *outer, last = (int(one) if one.isdigit() else one for one in path.split("."))
        for one in outer:
            content = content[one]
        content[last] = value

    return set_it


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (with_("format", "notebook"), '"format" is not "plumber-plan"'),
        (with_("version", 2), "has version 2, and this Plumber reads up to 1"),
        (with_("version", 0), '"version" is 0'),
        (with_("version", True), '"version" is True'),
        (with_("version", "1"), "\"version\" is '1'"),
        (without("version"), '"version" is None'),
        (without("origin"), "origin is missing"),
        (without("operators"), "operators is missing"),
        (with_("operators", {}), "operators is {}, not a list"),
        (with_("operators.0", "Batch"), "operators[0] is no object"),
        (with_("operators.1.line", "11"), "operators[1].line is '11', not a whole number"),
        (with_("operators.1.in_body", 0), "operators[1].in_body is 0, not true or false"),
        (with_("operators.1.parent", "op9"), "the parent of op1 is 'op9'"),
        (with_("operators.0.parent", "op1"), "the parent of op0 is 'op1'"),
        (with_("operators.1.same_as", "op4"), "op1 is the same as 'op4'"),
        (with_("operators.1.type", "Map"), '"structure" does not fit'),
        (with_("operators.1.id", "op7"), "are not numbered"),
        (with_("operators.1.settings", {"batch_size": 1.5}), "no numbers"),
        (with_("operators", []), '"operators" is empty'),
        (with_("changes.0.operator", "op99"), "a change names 'op99'"),
        (with_("changes.0.operator", ""), "a change of parallelism names no operator"),
        (with_("changes.0.kind", "magic"), "changes[0].kind is 'magic'"),
        (with_("changes.0.to", None), "changes[0].to is None"),
        (with_("changes.0.to", 2.5), "changes[0].to is 2.5"),
        (with_("predicted_rate", "fast"), "predicted_rate is 'fast', not a number"),
        (with_("origin.cores", float("nan")), "origin.cores is nan, not a number"),
        (with_("assumptions", [1]), "assumptions holds something else than texts"),
    ],
)
def test_damage_is_named(damage: Callable[[dict[str, Any]], None], said: str) -> None:
    content = json.loads(to_json(plan()))
    damage(content)

    with pytest.raises(Damaged) as caught:
        from_json(json.dumps(content))

    assert said in str(caught.value)


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_a_text_cut_short_is_damaged(place: int) -> None:
    text = to_json(plan())
    with pytest.raises(Damaged, match="cut short"):
        from_json(text[: place % (len(text) - 2)])


@given(st.text(max_size=60))
def test_a_text_that_is_no_plan_is_damaged(text: str) -> None:
    with pytest.raises(Damaged):
        from_json(text)


def test_a_plan_that_rewrites_the_pipeline_is_not_saved() -> None:
    """Its other changes name operators that the pipeline as written does not have."""
    split = analysis()
    change(split, a.CHANGE_KIND_REWRITE, "op2", a.Setting(word="none"), a.Setting(word="split"))

    with pytest.raises(NotSavable, match="cuts a function in two"):
        saved(split, pipeline())
    assert len(saved(split, pipeline(), changes=split.plan.changes[:2]).changes) == 2


def test_a_file_is_written_whole_and_read_by_its_name(tmp_path: Any) -> None:
    made, path = plan(), tmp_path / "plan.json"

    save(made, path)

    assert load(path) == load(str(path)) == load(made) == made
    assert [one.name for one in tmp_path.iterdir()] == ["plan.json"]
    path.write_text("{")
    with pytest.raises(Damaged, match=r"plan\.json is no saved plan that can be used"):
        load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(Damaged, match="no text"):
        load(path)
    with pytest.raises(FileNotFoundError, match="there is no plan at"):
        load(tmp_path / "other.json")
    with pytest.raises(TypeError, match="plan is a int"):
        load(3)  # type: ignore[arg-type]


def test_a_plan_applies_to_the_same_pipeline() -> None:
    made = plan()

    found = matched(pipeline(), made=made)

    assert list(found.changes) == list(analysis().plan.changes)
    assert found.notes == ()
    assert found.plan == made


def test_lines_and_what_hosts_have_otherwise_do_not_count() -> None:
    # GIVEN the same pipeline in a file that has grown, on a host with another home, more data and other calls
    now = pipeline()
    for one in now.operators:
        one.source.path, one.source.line, one.cardinality = "/srv/train.py", one.source.line + 7, 2000
    now.operators[3].num_parallel_calls = 4
    now.operators[3].cycle_length = 4
    now.operators[1].cache_path = "/tmp/else"

    found = matched(now)

    # THEN the plan applies, at the lines of today
    assert len(found.changes) == 4
    assert [one.line for one in found.plan.operators] == list(range(17, 24))


def other(change_it: Callable[[m.Pipeline], None]) -> m.Pipeline:
    made = pipeline()
    change_it(made)
    return made


def renamed(now: m.Pipeline) -> None:
    for one in now.operators[2:3]:
        one.label = one.function.name = "decode_faster"
        one.function.code_digest, one.function.graph_digest = "3.11:new", "2.21:new"


def _set(index: int, name: str, value: Any) -> Callable[[m.Pipeline], None]:
    def set_it(now: m.Pipeline) -> None:
        target: Any = now.operators[index]
        *outer, last = name.split(".")
        for one in outer:
            target = getattr(target, one)
        setattr(target, last, value)

    return set_it


def _both(*changes: Callable[[m.Pipeline], None]) -> Callable[[m.Pipeline], None]:
    def make(now: m.Pipeline) -> None:
        for one in changes:
            one(now)

    return make


def filtered(now: m.Pipeline) -> None:
    """A filter between shuffle and map: all ids behind it move."""
    rows = list(now.operators)
    added = m.Operator(id="op2", type="Filter", label="keep", parent="op1")
    added.source.path, added.source.line = "train.py", 11
    names = {f"op{i}": f"op{i + 1}" for i in range(2, 7)}
    moved = [m.Operator.FromString(one.SerializeToString()) for one in rows]
    for one in moved[2:-1]:
        one.id, one.parent = names[one.id], names.get(one.parent, "op2")
    del now.operators[:]
    now.operators.extend([*moved[:2], added, *moved[2:]])


def unshuffled(now: m.Pipeline) -> None:
    rows = [m.Operator.FromString(one.SerializeToString()) for one in now.operators]
    names = {f"op{i}": f"op{i - 1}" for i in range(2, 7)}
    for one in rows[2:-1]:
        one.id, one.parent = names[one.id], names.get(one.parent, "op0")
    del now.operators[:]
    now.operators.extend([rows[0], *rows[2:]])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (filtered, "Filter keep (train.py:11) was not there when the plan was made."),
        (unshuffled, "Shuffle (train.py:11) of the plan is not there any more."),
        (
            _set(2, "type", "ParallelMap"),
            "Where the plan has Map decode (train.py:12), there is now ParallelMap decode (train.py:12).",
        ),
        (
            _set(0, "batch_size", 64),
            "Batch (train.py:10) has a batch size of 64; when the plan was made, it was 32.",
        ),
        (
            _set(0, "drop_remainder", True),
            "Batch (train.py:10) has drop_remainder=True; when the plan was made, it was False.",
        ),
        (
            _set(1, "buffer_size", 200),
            "Shuffle (train.py:11) has a buffer of 200; when the plan was made, it was 100.",
        ),
        (
            _both(
                _set(2, "function.graph_digest", "2.21:new"),
                _set(2, "function.code_digest", "3.11:new"),
            ),
            "The function of Map decode (train.py:12) has changed since the plan was made.",
        ),
        (renamed, "Map decode_faster (train.py:12) has another function than Map decode (train.py:12) had"),
        (
            _set(2, "function.graph_digest", "2.21:new"),
            "The function of Map decode (train.py:12) is written as it was, but does something else",
        ),
        (
            # WHEN what runs inside changes, the functions around it change too: the innermost is named
            _both(
                _set(5, "function.graph_digest", "2.21:new"),
                _set(5, "function.code_digest", "3.11:new"),
                _set(3, "function.code_digest", "3.11:new"),
                _set(3, "function.graph_digest", "2.21:new"),
            ),
            "The function of Map parse (train.py:15) has changed since the plan was made.",
        ),
        (
            _both(_set(2, "cache.allowed", False), _set(2, "cache.reason", "draws random numbers.")),
            "Map decode (train.py:12) may not be cached here: draws random numbers.",
        ),
        (
            _both(_set(5, "parallel.allowed", False), _set(5, "parallel.reason", "writes a table")),
            "Map parse (train.py:15) may not run in parallel here: writes a table.",
        ),
    ],
)
def test_a_pipeline_that_changed_is_refused_with_a_sentence(
    changed: Callable[[m.Pipeline], None], said: str
) -> None:
    with pytest.raises(Mismatch) as caught:
        matched(other(changed))

    assert said in str(caught.value)


def test_a_function_written_otherwise_that_does_the_same_is_the_same() -> None:
    now = pipeline()
    now.operators[2].function.code_digest = "3.11:refactored"
    now.operators[2].function.name = now.operators[2].label = "decode_image"
    assert matched(now).notes == ()


@pytest.mark.parametrize(
    ("code", "graph", "told"), [("3.12:x", "2.20:x", True), ("3.12:x", "2.21:decode", False)]
)
def test_what_cannot_be_compared_is_told(code: str, graph: str, told: bool) -> None:
    now = pipeline()
    now.operators[2].function.code_digest, now.operators[2].function.graph_digest = code, graph

    notes = matched(now).notes

    assert bool(notes) == told
    if told:
        assert notes[0].startswith("Whether the function of Map decode (train.py:12) is still the same")
    # AND another name is another function where nothing better is known
    now.operators[2].function.name = "other"
    if told:
        with pytest.raises(Mismatch):
            matched(now)


def test_another_number_of_cores_is_told_and_changes_nothing() -> None:
    fewer, more = matched(pipeline(), cores=2), matched(pipeline(), cores=16)

    assert len(fewer.changes) == len(more.changes) == 4
    assert "was made for 8 cores, and this process may use 2 cores: its numbers stay" in fewer.notes[0]
    assert "a plan made here may be better" in more.notes[0]


def test_an_interleave_gets_no_more_calls_than_it_opens_inputs_here() -> None:
    now = pipeline()
    now.operators[3].cycle_length = 4
    made = plan()
    interleaved = dataclasses.replace(made.changes[0], operator="op3", to=8)

    found = matched(now, made=dataclasses.replace(made, changes=(interleaved,)))

    assert found.changes[0].to.number == 4
    assert found.notes == (
        "Interleave open (train.py:13) gets 4 parallel calls instead of 8: it opens no more inputs here.",
    )


def test_memory_caches_are_checked_against_the_memory_of_here() -> None:
    # GIVEN a cache of 2 GB
    assert len(matched(pipeline(), memory=2 * GB).changes) == 4

    small = matched(pipeline(), memory=1.9 * GB)

    assert [one.kind for one in small.changes] == [
        a.CHANGE_KIND_PARALLELISM, a.CHANGE_KIND_PARALLELISM, a.CHANGE_KIND_THREADPOOL,
    ]  # fmt: skip
    assert "memory cache behind Map decode (train.py:12) is left out: it takes 2.00 GB" in small.notes[0]
    # AND with twice the data it takes twice the room
    now = pipeline()
    now.operators[2].cardinality = 2000
    assert len(matched(now, memory=3.9 * GB).changes) == 3
    assert len(matched(now, memory=4 * GB).changes) == 4
    # AND a file cache takes none
    made = plan()
    in_file = dataclasses.replace(made.changes[1], to="plumber-cache/decode", memory_bytes=None)
    made = dataclasses.replace(made, changes=(made.changes[0], in_file))
    assert len(matched(pipeline(), made=made, memory=0).changes) == 2
