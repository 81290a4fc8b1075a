"""The message classes made at import behave as protoc's own modules would."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from tensorboard_plugin_plumber.schema import _messages
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m

PROTO = Path(__file__).resolve().parents[2] / "proto"


def test_messages_survive_serialization_with_enums_maps_and_presence() -> None:
    sample = m.PipelineSample(cache_states={3: "filling"}, steps=12.0)
    sample.operators.add(elements=5.0).parallelism = 2.0
    record = m.SampleRecord(sequence=7, pipelines=[sample])

    copy = m.SampleRecord.FromString(record.SerializeToString())

    assert copy == record
    assert dict(copy.pipelines[0].cache_states) == {3: "filling"}
    assert copy.pipelines[0].operators[0].HasField("parallelism")
    assert not copy.pipelines[0].operators[0].HasField("buffer_size")


def test_enum_values_are_constants_of_the_module() -> None:
    assert m.CONSUMER_SYNCHRONOUS == m.Consumer.Value("CONSUMER_SYNCHRONOUS") == 2
    assert a.Cause.Name(a.CAUSE_HARDWARE) == "CAUSE_HARDWARE"
    assert m.Pipeline(consumer=m.CONSUMER_NONE).consumer == m.CONSUMER_NONE


def test_messages_can_be_pickled() -> None:
    """They may cross process borders in a user's own tools."""
    graph = m.GraphRecord(host=m.Host(name="here", cores=1.5))
    assert pickle.loads(pickle.dumps(graph)) == graph
    assert m.GraphRecord.__module__ == m.__name__


def test_the_pool_is_private() -> None:
    """Another package may have a file of the same name."""
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindFileByName("measurement.proto")


def test_a_newer_writers_fields_are_kept() -> None:
    """GIVEN a field of a later version WHEN read and written again THEN it is still there."""
    unknown = m.Host(name="here").SerializeToString() + b"\xba\x3e\x03abc"  # field 999, a string
    assert m.Host.FromString(unknown).name == "here"
    assert m.Host.FromString(unknown).SerializeToString() == unknown


def test_the_descriptors_are_those_of_the_sources() -> None:
    """The generated files are stale if not: run `pip install -e .`."""
    files = descriptor_pb2.FileDescriptorSet.FromString(_messages._read_descriptors()).file
    assert [file.name for file in files] == ["measurement.proto", "analysis.proto"]
    for file in files:
        source = (PROTO / file.name).read_text(encoding="utf-8")
        for message in file.message_type:
            assert f"message {message.name} {{" in source
            for field in message.field:
                assert f" {field.name} = {field.number};" in source
        assert source.count("\nmessage ") == len(file.message_type)
        assert source.count("\nenum ") == len(file.enum_type)


def test_missing_descriptors_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_messages, "_FILE", "absent.binpb")
    with pytest.raises(ImportError, match=r"pip install -e \."):
        _messages._read_descriptors()


def test_stubs_lie_beside_the_modules() -> None:
    for module in (m, a):
        assert module.__file__ is not None
        assert Path(module.__file__).with_suffix(".pyi").exists()
    assert sys.modules[m.__name__] is m
