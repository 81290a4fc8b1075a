"""Patches keep the user's formatting and comments, and say what they cannot do."""

from __future__ import annotations

import ast
import subprocess
import textwrap
from pathlib import Path

import pytest

from tensorboard_plugin_plumber.patch.diff import patch_of
from tensorboard_plugin_plumber.patch.edits import CannotEdit, Edit, Place, edited
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

ONE_LINE = """\
import tensorflow as tf

def make():
    ds = tf.data.TFRecordDataset(paths)   # the shards
    ds = ds.map(decode)
    return ds.batch(32)
"""
CHAIN = """\
import tensorflow as tf

def make():
    return (
        tf.data.TFRecordDataset(paths)  # the shards
        .map(
            decode,
            deterministic=True,  # for the paper
        )
        .batch(32)
    )
"""


def at(source: str, text: str) -> int:
    """The line, from 1, that holds `text`."""
    (line,) = (i for i, one in enumerate(source.split("\n"), 1) if text in one)
    return line


@pytest.mark.parametrize(
    ("written", "patched"),
    [
        ("ds.map(f)", "ds.map(f, num_parallel_calls=4)"),
        ("ds.map(f,)", "ds.map(f, num_parallel_calls=4,)"),
        ("ds.map(f, num_parallel_calls=2)", "ds.map(f, num_parallel_calls=4)"),
        ("ds.map(f, num_parallel_calls = 2)", "ds.map(f, num_parallel_calls = 4)"),
        ("ds.map(f, 2)", "ds.map(f, 4)"),
        ("ds.map(lambda x: g(x, 1))", "ds.map(lambda x: g(x, 1), num_parallel_calls=4)"),
        ("ds.map(map_func=f)", "ds.map(map_func=f, num_parallel_calls=4)"),
        ("ds.map( f )", "ds.map( f, num_parallel_calls=4 )"),
        ("ds.map(\n    f,\n    name='a',\n)", "ds.map(\n    f,\n    name='a',\n    num_parallel_calls=4,\n)"),
        (
            "ds.map(\n    f,  # why\n    # more\n)",
            "ds.map(\n    f,  # why\n    # more\n    num_parallel_calls=4,\n)",
        ),
        ("ds.map(\n    f  # why\n)", "ds.map(\n    f,  # why\n    num_parallel_calls=4\n)"),
        ("ds.map(\n    f\n)", "ds.map(\n    f,\n    num_parallel_calls=4\n)"),
    ],
)
def test_an_argument_is_set_where_it_stands_or_in_the_style_of_the_call(written, patched):
    line = 1
    changed = edited(f"x = {written}\n", [Edit(Place(line, "map"), {"num_parallel_calls": "4"})])
    assert changed == f"x = {patched}\n"


def test_calls_are_appended_in_the_layout_of_the_chain():
    edit = Edit(Place(at(CHAIN, ".map("), "map"), {"num_parallel_calls": "4"}, (".cache()", ".prefetch(2)"))
    patched = edited(CHAIN, [edit])
    # THEN comments stay where they were, and are not copied
    assert (
        patched
        == """\
import tensorflow as tf

def make():
    return (
        tf.data.TFRecordDataset(paths)  # the shards
        .map(
            decode,
            deterministic=True,  # for the paper
            num_parallel_calls=4,
        )
        .cache()
        .prefetch(2)
        .batch(32)
    )
"""
    )


def test_a_backslash_at_the_end_of_a_line_is_a_layout_too():
    source = "ds = data \\\n    .map(f) \\\n    .batch(2)\n"
    edit = Edit(Place(2, "map"), {"num_parallel_calls": "4"}, (".cache()",))
    assert edited(source, [edit]) == (
        "ds = data \\\n    .map(f, num_parallel_calls=4) \\\n    .cache() \\\n    .batch(2)\n"
    )


def test_calls_are_appended_on_the_line_of_a_short_one():
    edit = Edit(Place(at(ONE_LINE, ".batch"), "batch"), {}, (".prefetch(2)",))
    assert edited(ONE_LINE, [edit]) == ONE_LINE.replace(".batch(32)", ".batch(32).prefetch(2)")
    edit = Edit(Place(at(ONE_LINE, "TFRecord"), "TFRecordDataset"), {}, (".cache()",))
    assert edited(ONE_LINE, [edit]) == ONE_LINE.replace("(paths)", "(paths).cache()")


def test_parentheses_around_a_chain_stay_around_it():
    edit = Edit(Place(at(CHAIN, ".batch"), "batch"), {}, (".prefetch(2)",))
    assert edited(CHAIN, [edit]) == CHAIN.replace(
        ".batch(32)\n    )", ".batch(32)\n        .prefetch(2)\n    )"
    )


def test_options_are_made_before_the_statement_that_uses_them():
    edit = Edit(Place(at(ONE_LINE, ".batch"), "batch"), options=("threading.private_threadpool_size = 16",))
    assert edited(ONE_LINE, [edit]) == ONE_LINE.replace(
        "    return ds.batch(32)",
        "    options = tf.data.Options()\n"
        "    options.threading.private_threadpool_size = 16\n"
        "    return ds.batch(32).with_options(options)",
    )
    # GIVEN that the name is taken, THEN another
    taken = ONE_LINE.replace("paths", "options")
    assert "data_options = tf.data.Options()" in edited(taken, [edit])


def test_the_second_of_two_calls_on_a_line_is_the_outer_one():
    source = "x = ds.map(f).map(g)\n"
    assert edited(source, [Edit(Place(1, "map", 0, 2), {"num_parallel_calls": "4"})]) == (
        "x = ds.map(f, num_parallel_calls=4).map(g)\n"
    )
    assert edited(source, [Edit(Place(1, "map", 1, 2), {"num_parallel_calls": "4"})]) == (
        "x = ds.map(f).map(g, num_parallel_calls=4)\n"
    )


@pytest.mark.parametrize(
    ("source", "edit", "reason"),
    [
        ("x = ds.map(*args)\n", Edit(Place(1, "map"), {"num_parallel_calls": "4"}), "from a variable"),
        ("x = ds.batch(2)\n", Edit(Place(1, "map"), {"num_parallel_calls": "4"}), "no call of map"),
        ("x = ds.map(f).map(g)\n", Edit(Place(1, "map"), {"num_parallel_calls": "4"}), "2 times"),
        ("x = ds.filter(f)\n", Edit(Place(1, "filter"), {"num_parallel_calls": "4"}), "takes no"),
        ("x = ds.map(f)\n", Edit(Place(1, "map"), options=("a.b = 1",)), "does not import tensorflow"),
        (
            "import tensorflow as tf\nfor x in ds.map(f):\n    pass\n",
            Edit(Place(2, "map"), options=("a.b = 1",)),
            "compound statement",
        ),
    ],
)
def test_what_cannot_be_edited_is_refused_with_the_reason(source, edit, reason):
    with pytest.raises(CannotEdit, match=reason):
        edited(source, [edit])


def change(kind: a.ChangeKind.ValueType, operator: str | None, to: a.Setting, code: str) -> a.Change:
    made = a.Change(kind=kind, to=to, code=code)
    if operator is not None:
        made.operator = operator
    return made


def analysis(path: Path, *changes: a.Change) -> a.Analysis:
    """ONE_LINE's pipeline with a plan."""
    source = path.read_text()
    rows = [("op0", "Batch", ".batch(32)", ""), ("op1", "Map", ".map(decode)", "op0")]
    rows.append(("op2", "TFRecord", "TFRecordDataset", "op1"))
    made = a.Analysis(plan=a.Plan(changes=changes))
    for id_, type_, text, parent in rows:
        row = made.operators.add(id=id_, type=type_, label=type_, source_path=str(path))
        row.source_line = at(source, text)
        row.source = f"{path.name}:{row.source_line}"
        if parent:
            row.parent = parent
    return made


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(ONE_LINE)
    return path


PARALLEL = change(a.CHANGE_KIND_PARALLELISM, "op1", a.Setting(number=4), ".map(decode, num_parallel_calls=4)")


def test_a_plan_becomes_a_diff_that_git_would_apply(train):
    cache = change(a.CHANGE_KIND_CACHE, "op2", a.Setting(word="memory"), ".cache()")
    prefetch = change(a.CHANGE_KIND_PREFETCH, "op0", a.Setting(number=2), ".prefetch(2)")
    pool = change(a.CHANGE_KIND_THREADPOOL, None, a.Setting(number=16), "options.…")
    made = patch_of(analysis(train, PARALLEL, cache, prefetch, pool))
    assert made.instructions == ()
    assert made.diff.startswith("--- a/train.py\n+++ b/train.py\n@@ ")
    assert "+    ds = tf.data.TFRecordDataset(paths).cache()   # the shards\n" in made.diff
    assert "+    ds = ds.map(decode, num_parallel_calls=4)\n" in made.diff
    assert "+    return ds.batch(32).prefetch(2).with_options(options)\n" in made.diff
    ast.parse(made.sources[str(train)])


def test_what_the_patch_cannot_hold_is_an_instruction_and_the_rest_is_patched(train):
    unknown = change(a.CHANGE_KIND_PREFETCH, "op9", a.Setting(number=2), ".prefetch(2)")
    made = patch_of(analysis(train, PARALLEL, unknown))
    assert "num_parallel_calls=4" in made.diff
    assert made.instructions == ("At the pipeline's end: .prefetch(2) (by hand: its line is not known).",)


def test_a_file_that_was_changed_or_is_not_there_is_not_patched(train):
    made = patch_of(analysis(train, PARALLEL), since_s=1.0)
    assert made.diff == ""
    assert (
        "At train.py:5: .map(decode, num_parallel_calls=4) (by hand: train.py was changed"
        in (made.instructions[0])
    )
    found = analysis(train, PARALLEL)
    train.unlink()
    assert "cannot be read here" in patch_of(found).instructions[0]


def test_only_python_source_is_ever_read(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text(ONE_LINE)
    assert "no file of Python source" in patch_of(analysis(secret, PARALLEL)).instructions[0]


def test_a_line_that_makes_several_operators_is_left_to_the_user(train):
    source = textwrap.dedent("""\
        import tensorflow as tf
        def part(path):
            return tf.data.TFRecordDataset(path).map(decode)
        ds = tf.data.Dataset.zip(part("a"), part("b")).batch(32)
        """)
    train.write_text(source)
    made = a.Analysis(plan=a.Plan(changes=[PARALLEL]))
    for id_, parent in (("op0", ""), ("op1", "op0"), ("op2", "op0")):
        type_ = "Map" if parent else "Zip"
        row = made.operators.add(id=id_, type=type_, source_path=str(train), source_line=3 if parent else 4)
        row.source = f"train.py:{row.source_line}"
        if parent:
            row.parent = parent
    found = patch_of(made)
    assert found.diff == ""
    assert "2 operators come from this line" in found.instructions[0]


def test_a_diff_names_files_from_the_top_of_their_repository(tmp_path):
    path = tmp_path / "input" / "train.py"
    path.parent.mkdir()
    path.write_text(ONE_LINE)
    assert patch_of(analysis(path, PARALLEL)).diff.startswith("--- a/train.py\n")
    (tmp_path / ".git").mkdir()
    assert patch_of(analysis(path, PARALLEL)).diff.startswith("--- a/input/train.py\n")


def test_a_form_feed_between_functions_is_no_line_of_a_diff(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(ONE_LINE.replace("def make", "\f\ndef make"))
    made = patch_of(analysis(path, PARALLEL))
    subprocess.run(["git", "apply", "-"], input=made.diff.encode(), cwd=tmp_path, check=True)
    assert path.read_text() == made.sources[str(path)]


def test_a_call_within_a_lambda_is_told_from_the_one_around_it(train):
    body = "ds = tf.data.Dataset.range(3).interleave(lambda x: part(x).map(one)).map(two)"
    train.write_text(f"import tensorflow as tf\n{body}\n")
    rows = [("op0", "Map", "", False), ("op1", "Interleave", "op0", False), ("op2", "Map", "op1", True)]
    for operator, patched in (
        ("op0", ".map(two, num_parallel_calls=4)"),
        ("op2", ".map(one, num_parallel_calls=4)"),
    ):
        made = a.Analysis()
        for id_, type_, parent, in_body in rows:
            row = made.operators.add(
                id=id_, type=type_, source_path=str(train), source_line=2, in_body=in_body
            )
            if parent:
                row.parent = parent
        made.plan.changes.append(change(a.CHANGE_KIND_PARALLELISM, operator, a.Setting(number=4), "…"))
        (source,) = patch_of(made).sources.values()
        assert patched in source
        assert source.count("num_parallel_calls") == 1


def test_what_is_no_setting_of_a_call_is_an_instruction(train):
    service = change(a.CHANGE_KIND_SERVICE, "op1", a.Setting(number=2), ".apply(…)")
    made = patch_of(analysis(train, service))
    assert made.diff == ""
    assert made.instructions == ("At train.py:5: .apply(…) (by hand: it takes more than a setting).",)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("import tensorflow as t", "t.data"),
        ("import tensorflow.compat.v2 as tf", "tf.data"),
        ("from tensorflow import data as d", "d"),
        ("from tensorflow.compat import v2", "v2.data"),
    ],
)
def test_options_are_named_as_the_file_names_tensorflow(head, name):
    source = f"{head}\ndef make(ds):\n    return ds.batch(2)\n"
    patched = edited(source, [Edit(Place(3, "batch"), options=("threading.private_threadpool_size = 16",))])
    assert f"    options = {name}.Options()\n" in patched


def test_what_one_function_imports_no_other_knows():
    source = "def one():\n    import tensorflow as tf\ndef two(ds):\n    return ds.batch(2)\n"
    with pytest.raises(CannotEdit, match="does not import"):
        edited(source, [Edit(Place(4, "batch"), options=("a.b = 1",))])
