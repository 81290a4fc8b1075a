"""A chain written in many ways: its patch changes what it should, keeps all else, and applies."""

from __future__ import annotations

import ast
import io
import shutil
import subprocess
import tempfile
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorboard_plugin_plumber.patch.diff import Patch, patch_of
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

# The chain: method, and the argument by which each call is told from the others.
CHAIN = (("range", "100"), ("interleave", "f1"), ("map", "f2"), ("map", "f3"), ("batch", "32"))
TYPES = ("Range", "Interleave", "Map", "Map", "Batch")


@dataclass
class Recorded:
    """Stands for a dataset: the calls that made it."""

    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def call(*args: Any, **kwargs: Any) -> Recorded:
            return Recorded([*self.calls, (method, args, kwargs)])

        return call


class Options:
    def __init__(self) -> None:
        self.threading = type("Threading", (), {})()


class Data:
    """Stands for tf.data."""

    AUTOTUNE = -1
    Options = Options
    Dataset = Recorded()


@dataclass(frozen=True)
class Way:
    """A way to write the chain."""

    imported: str
    layout: str
    comments: bool
    keywords: bool
    broken_arguments: bool
    around: str
    indent: str
    newline: str

    def source(self) -> str:
        """A module whose function `make` returns the chain."""
        name = self.imported.split()[-1]
        data = name if "import data" in self.imported else f"{name}.data"
        calls = [self._call(i, method, argument) for i, (method, argument) in enumerate(CHAIN)]
        comments = [f"  # about {argument}" if self.comments else "" for _, argument in CHAIN]
        lines = self._body(f"{data}.Dataset", calls, comments)
        body = "\n".join(
            self.indent + line.replace("    ", self.indent) for one in lines for line in one.split("\n")
        )
        head = f'"""Made by hand."""\n{self.imported}\nfrom somewhere import f1, f2, f3, decorate\n\n\n'
        return (head + f"{self.around}def make():\n{body}\n\n\nlast = 1").replace("\n", self.newline)

    def _call(self, i: int, method: str, argument: str) -> str:
        given = f"map_func={argument}" if self.keywords and argument.startswith("f") else argument
        if self.broken_arguments and method == "map":
            note = f"  # why {argument}" if self.comments else ""
            return f".{method}(\n        {given},{note}\n    )"
        return f".{method}({given})"

    def _body(self, dataset: str, calls: Sequence[str], comments: Sequence[str]) -> list[str]:
        if self.layout == "statements":
            first = f"ds = {dataset}{calls[0]}{comments[0]}"
            return [
                first,
                *(f"ds = ds{c}{n}" for c, n in zip(calls[1:], comments[1:], strict=True)),
                "return ds",
            ]
        if self.layout == "parentheses":
            inner = "\n".join(f"    {c}{n}" for c, n in zip(calls, comments, strict=True))
            return [f"return (\n    {dataset}\n{inner}\n)"]
        if self.layout == "backslashes":
            return [f"ds = {dataset}" + "".join(f" \\\n    {c}" for c in calls), "return ds"]
        if self.layout == "one line":
            return [f"return {dataset}{''.join(calls)}{comments[-1]}"]
        if self.layout == "semicolons":
            rest = "".join(calls[1:])
            return [f"ds = {dataset}{calls[0]}; ds = ds{rest}; return ds{comments[-1]}"]
        if self.layout == "comprehension":
            return [f"return [ds{''.join(calls[1:])} for ds in [{dataset}{calls[0]}]][0]{comments[-1]}"]
        assert self.layout == "lambda"
        return [f"make_one = lambda: {dataset}{''.join(calls)}{comments[-1]}", "return make_one()"]

    def make(self, source: str) -> Recorded:
        """Runs the module and its function."""
        tensorflow = type("tensorflow", (), {"data": Data})
        program = "\n".join(
            line
            for line in source.replace("\r\n", "\n").split("\n")
            if not line.startswith(("import", "from"))
        )
        name = self.imported.split()[-1]
        known: dict[str, Any] = {one: one for one in ("f1", "f2", "f3")}
        known[name] = Data if "import data" in self.imported else tensorflow
        known["decorate"] = lambda function: function
        exec(compile(program, "train.py", "exec"), known)
        made = known["make"]()
        assert isinstance(made, Recorded)
        return made


ways = st.builds(
    Way,
    imported=st.sampled_from(
        ["import tensorflow as tf", "import tensorflow as flow", "from tensorflow import data"]
    ),
    layout=st.sampled_from(
        ["statements", "parentheses", "backslashes", "one line", "semicolons", "comprehension", "lambda"]
    ),
    comments=st.booleans(),
    keywords=st.booleans(),
    broken_arguments=st.booleans(),
    around=st.sampled_from(["", "@decorate\n"]),
    indent=st.sampled_from(["    ", "\t", "  "]),
    newline=st.sampled_from(["\n", "\r\n"]),
)
NUMBER, AUTOTUNE = a.Setting(number=7), a.Setting(word="autotune")
# For each kind: where it may be, to what, and what becomes of the call.
CHANGES: Sequence[tuple[a.ChangeKind.ValueType, Sequence[int], a.Setting]] = (
    (a.CHANGE_KIND_PARALLELISM, (1, 2, 3, 4), NUMBER),
    (a.CHANGE_KIND_PARALLELISM, (1, 2, 3, 4), AUTOTUNE),
    (a.CHANGE_KIND_ORDER, (1, 2, 3, 4), a.Setting(word="any")),
    (a.CHANGE_KIND_UNBOUNDED, (2, 3), a.Setting(word="unbounded")),
    (a.CHANGE_KIND_PREFETCH, (0, 1, 2, 3, 4), NUMBER),
    (a.CHANGE_KIND_PREFETCH, (0, 1, 2, 3, 4), AUTOTUNE),
    (a.CHANGE_KIND_CACHE, (0, 1, 2, 3, 4), a.Setting(word="memory")),
    (a.CHANGE_KIND_CACHE, (0, 1, 2, 3, 4), a.Setting(word='/ssd/it\'s "here"/tf.data')),
    (a.CHANGE_KIND_THREADPOOL, (4,), a.Setting(number=16)),
)
plans = st.lists(
    st.sampled_from([(kind, where, to) for kind, places, to in CHANGES for where in places]),
    min_size=1,
    max_size=5,
    unique_by=lambda one: (one[0], one[1]),
)
Plan = Sequence[tuple[a.ChangeKind.ValueType, int, a.Setting]]


def analysis_of(path: Path, source: str, plan: Plan) -> a.Analysis:
    """The analysis of the chain, with each operator at its line as Python counts it."""
    lines = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            first = [*node.args, *(keyword.value for keyword in node.keywords)][0]
            lines[node.func.attr, ast.unparse(first)] = node.func.end_lineno or 0
    analysis = a.Analysis()
    for i in reversed(range(len(CHAIN))):
        row = analysis.operators.add(
            id=f"op{i}", type=TYPES[i], source_path=str(path), source_line=lines[CHAIN[i]]
        )
        row.source = f"train.py:{row.source_line}"
        if i + 1 < len(CHAIN):
            row.parent = f"op{i + 1}"
    for kind, where, to in plan:
        change = analysis.plan.changes.add(kind=kind, to=to, code="…")
        if kind != a.CHANGE_KIND_THREADPOOL:
            change.operator = f"op{where}"
    return analysis


def expected_calls(before: Recorded, plan: Plan) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """What the patched source must call, options apart."""
    found = []
    for i, (method, args, kwargs) in enumerate(before.calls):
        here = {kind: to for kind, where, to in plan if where == i}
        given = dict(kwargs)
        if (to := here.get(a.CHANGE_KIND_PARALLELISM)) is not None:
            given["num_parallel_calls"] = to.number or -1
        if a.CHANGE_KIND_ORDER in here:
            given["deterministic"] = False
        if a.CHANGE_KIND_UNBOUNDED in here:
            given["use_unbounded_threadpool"] = True
        found.append((method, args, given))
        if (to := here.get(a.CHANGE_KIND_CACHE)) is not None:
            found.append(("cache", () if to.word == "memory" else (to.word,), {}))
        if (to := here.get(a.CHANGE_KIND_PREFETCH)) is not None:
            found.append(("prefetch", (to.number or -1,), {}))
    return found


def comments_of(source: str) -> dict[str, str]:
    """Each comment with the code of its line that tells of which call it speaks."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.string: token.line for token in tokens if token.type == tokenize.COMMENT}


def applied(patch: Patch, path: Path, command: Sequence[str]) -> str:
    """The file after a program for patches has applied the diff."""
    before = path.read_bytes()
    done = subprocess.run(
        command, input=patch.diff.encode(), cwd=path.parent, capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    after = path.read_bytes().decode()
    path.write_bytes(before)
    return after


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(way=ways, plan=plans)
def test_a_patch_changes_what_it_should_and_nothing_else(way: Way, plan: Plan) -> None:
    source = way.source()
    before = way.make(source)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.py")
        path.write_bytes(source.encode())
        patch = patch_of(analysis_of(path, source, plan))
        assert patch.instructions == ()
        patched = patch.sources[str(path)]
        # THEN programs for patches make of the file what Plumber says
        assert applied(patch, path, ["git", "apply", "-"]) == patched
        if shutil.which("patch"):
            assert applied(patch, path, ["patch", "-p1", "--binary", "-s"]) == patched
    # THEN it builds the planned chain
    calls = way.make(patched).calls
    options = {kind: to for kind, _, to in plan}.get(a.CHANGE_KIND_THREADPOOL)
    if options is not None:
        method, (given_options,), _ = calls.pop()
        assert method == "with_options"
        assert given_options.threading.private_threadpool_size == options.number
    assert calls == expected_calls(before, plan)
    # THEN every comment stays, beside the code of which it speaks
    kept = comments_of(patched)
    for comment, line in comments_of(source).items():
        assert comment in kept
        argument = comment.split()[-1]
        assert (argument in line.partition("#")[0]) == (argument in kept[comment].partition("#")[0]), patched
    # THEN no more lines are touched than there are calls that change
    removed = [line for line in patch.diff.split("\n") if line.startswith("-") and not line.startswith("---")]
    assert len(removed) <= len({where for _, where, _ in plan}), patch.diff
    assert (way.newline == "\n") == ("\r" not in patched)


def test_the_ways_are_really_different() -> None:
    way: Mapping[str, Any] = {
        "imported": "import tensorflow as tf", "comments": True, "keywords": False, "broken_arguments": True,
        "around": "", "indent": "    ", "newline": "\n",
    }  # fmt: skip
    layouts = [
        "statements",
        "parentheses",
        "backslashes",
        "one line",
        "semicolons",
        "comprehension",
        "lambda",
    ]
    sources = {Way(layout=layout, **way).source() for layout in layouts}
    assert len(sources) == len(layouts)
