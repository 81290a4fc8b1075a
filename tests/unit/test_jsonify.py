"""The encoder's rules, as the head of proto/analysis.proto states them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor
from hypothesis import given
from hypothesis import strategies as st

from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m
from tensorboard_plugin_plumber.schema.jsonify import to_dict, to_json

SCHEMA_TS = Path(__file__).resolve().parents[2] / "frontend" / "src" / "lib" / "schema.ts"


def test_every_key_is_present_in_an_empty_analysis() -> None:
    encoded = to_dict(a.Analysis())
    assert list(encoded) == [field.name for field in a.Analysis.DESCRIPTOR.fields]
    assert encoded["verdict"] is None
    assert encoded["measured"] is None
    assert encoded["operators"] == []
    assert encoded["run"] == ""


def test_unset_optional_fields_are_null_and_set_ones_are_not() -> None:
    assert to_dict(a.Verdict())["input_bound"] is None
    assert to_dict(a.Verdict(input_bound=False, wait_fraction=0.0)) == {
        **to_dict(a.Verdict()),
        "input_bound": False,
        "wait_fraction": 0.0,
    }


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null(value: float) -> None:
    assert to_dict(a.Bound(rate=value))["rate"] is None
    assert to_dict(a.Limits(cores=value))["cores"] is None


def test_enum_values_are_words_without_prefix() -> None:
    assert to_dict(a.Verdict(cause=a.CAUSE_SOFTWARE))["cause"] == "software"
    assert to_dict(a.Change(kind=a.CHANGE_KIND_THREADPOOL))["kind"] == "threadpool"
    assert to_dict(a.Verdict())["cause"] is None
    assert to_dict(a.Bottleneck())["constraint"] is None


def test_an_enum_value_of_a_later_version_is_null() -> None:
    later = a.Verdict.FromString(b"\x38\x63")  # cause = 99
    assert to_dict(later)["cause"] is None


def test_a_setting_is_the_bare_number_or_word() -> None:
    change = a.Change(to=a.Setting(word="memory"), **{"from": a.Setting(number=0)})
    encoded = to_dict(change)
    assert encoded["from"] == 0
    assert encoded["to"] == "memory"
    assert to_dict(a.Change())["from"] is None
    assert to_dict(a.Change(to=a.Setting()))["to"] is None
    with pytest.raises(TypeError, match="bare value"):
        to_dict(a.Setting(number=1))


def test_long_integers_stay_numbers_and_maps_become_objects() -> None:
    host = m.HostSample(rss_bytes=2**62)
    assert json.loads(to_json(host))["rss_bytes"] == 2**62
    sample = m.PipelineSample(cache_states={10: "serving", 2: "filling"})
    assert to_dict(sample)["cache_states"] == {"2": "filling", "10": "serving"}


@given(st.floats(), st.text(), st.lists(st.text(), max_size=3), st.booleans())
def test_json_reads_back_as_the_dict(
    rate: float, sentence: str, operators: list[str], tentative: bool
) -> None:
    analysis = a.Analysis(
        verdict=a.Verdict(observed_rate=rate, sentence=sentence, tentative=tentative),
        bottleneck=a.Bottleneck(operators=operators),
    )
    text = to_json(analysis)
    assert json.loads(text, parse_constant=pytest.fail) == to_dict(analysis)


CONTRACT = {
    "": (
        "schema_version run host pipeline verdict operators bottleneck plan findings measured autotune host_use"
    ),
    "verdict": ("input_bound wait_fraction observed_rate consumer_rate self_check tentative cause sentence"),
    "operators": (
        "id type label source parent visit_ratio cpu_s wait_s max_rate parallelism autotuned cores_used "
        "bytes_per_element fused_with injected facts parameters runs_with dropped buffer_fill"
    ),
    "bottleneck": "operator operators constraint sentence",
    "plan": "predicted_rate low high changes patch memory_bytes",
    "findings": "code severity operator message fix gain",
    "measured": "before after same_elements",
    "autotune": "enabled algorithm cpu_budget ram_budget_bytes buffered_bytes tunable fixed consumer_s sentence",
}


def test_the_keys_that_users_rely_on_are_there_with_their_kinds_of_values() -> None:
    analysis = a.Analysis(schema_version=1, run=".", host="box-0", pipeline="p")
    analysis.verdict.input_bound, analysis.verdict.cause = True, a.CAUSE_SOFTWARE
    row = analysis.operators.add(id="op0", type="ParallelMap", label="decode", parallelism=2, buffer_fill=0.5)
    row.facts.add(kind="random", reason="draws random numbers", operator="op0", source="train.py:5")
    parameter = row.parameters.add(name="parallelism", value=2, min=1, tunable=True)
    parameter.history.add(time_s=1.0, value=2)
    row.runs_with.extend(["op0", "op1"])
    analysis.findings.add(code="sequential-map", severity=a.SEVERITY_HIGH)
    analysis.plan.SetInParent()
    analysis.bottleneck.constraint = a.CONSTRAINT_OPERATOR
    analysis.measured.before = 1.0
    analysis.autotune.sentence = "AUTOTUNE rules 1 of 1 parameters."
    encoded = to_dict(analysis)

    for name, keys in CONTRACT.items():
        part = encoded[name] if name else encoded
        part = part[0] if isinstance(part, list) else part
        assert isinstance(part, dict)
        assert set(keys.split()) <= set(part), name
    (shown,) = encoded["operators"]  # type: ignore[misc]
    assert shown["facts"] == [  # type: ignore[call-overload, index]
        {
            "kind": "random",
            "reason": "draws random numbers",
            "operator": "op0",
            "source": "train.py:5",
            "seeded": False,
            "changes_each_epoch": False,
        }
    ]
    assert shown["parameters"] == [  # type: ignore[call-overload, index]
        {
            "name": "parallelism",
            "value": 2.0,
            "min": 1.0,
            "max": None,
            "tunable": True,
            "history": [{"time_s": 1.0, "value": 2.0}],
            "fixed_by": "",
        }
    ]
    assert shown["runs_with"] == ["op0", "op1"]  # type: ignore[call-overload, index]


def reachable(descriptor: Descriptor) -> dict[str, Descriptor]:
    found = {descriptor.name: descriptor}
    for field in descriptor.fields:
        if field.message_type is not None and field.message_type.name not in found:
            found |= reachable(field.message_type)
    return found


def test_typescript_types_have_the_same_keys_in_the_same_order() -> None:
    source = SCHEMA_TS.read_text(encoding="utf-8")
    interfaces = {
        name: re.findall(r"^  (\w+): ", body, re.M)
        for name, body in re.findall(r"^export interface (\w+) \{\n(.*?)^\}", source, re.M | re.S)
    }
    for name, descriptor in reachable(a.Analysis.DESCRIPTOR).items():
        if name != "Setting":
            assert interfaces[name] == [field.name for field in descriptor.fields]
    assert "export type Setting = number | string;" in source
    assert "  cause: Cause | null;" in source
    assert "  from: Setting | null;" in source
    assert "  operators: OperatorRow[];" in source
