"""Makes everything that is generated from the schema in `proto/`.

Run as `python proto/generate.py`. The build does it (setup.py); by hand it needs
grpcio-tools (for protoc) and mypy-protobuf. It writes, into the source tree:

- tensorboard_plugin_plumber/schema/descriptors.binpb: the FileDescriptorSet that the
  message classes are made from at import. Generated `_pb2.py` modules would not do: none
  of them runs on every protobuf from 4.25 to 7;
- tensorboard_plugin_plumber/schema/*_pb2.pyi: stubs for type checkers;
- frontend/src/lib/schema.ts: TypeScript types of the JSON that `schema/jsonify.py` makes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.compiler import plugin_pb2

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("measurement.proto", "analysis.proto")
# The only file of which JSON is made.
JSON_SOURCE = "analysis.proto"
SCHEMA_DIR = Path("tensorboard_plugin_plumber/schema")
DESCRIPTORS = SCHEMA_DIR / "descriptors.binpb"
STUBS = tuple(SCHEMA_DIR / source.replace(".proto", "_pb2.pyi") for source in SOURCES)
TYPESCRIPT = Path("frontend/src/lib/schema.ts")

_Field = descriptor_pb2.FieldDescriptorProto
_INTEGERS = {
    _Field.TYPE_INT32,
    _Field.TYPE_INT64,
    _Field.TYPE_UINT32,
    _Field.TYPE_UINT64,
    _Field.TYPE_SINT32,
    _Field.TYPE_SINT64,
    _Field.TYPE_FIXED32,
    _Field.TYPE_FIXED64,
    _Field.TYPE_SFIXED32,
    _Field.TYPE_SFIXED64,
}
_NUMBERS = _INTEGERS | {_Field.TYPE_DOUBLE, _Field.TYPE_FLOAT}
# Field numbers of the descriptor messages: the alphabet of SourceCodeInfo paths.
_FILE_MESSAGE, _FILE_ENUM, _MESSAGE_FIELD, _ENUM_VALUE = 4, 5, 2, 2


def compile_protos() -> descriptor_pb2.FileDescriptorSet:
    """Returns the descriptors of all sources, comments included."""
    from grpc_tools import protoc  # type: ignore[import-untyped]  # only the build has it

    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "descriptors.binpb"
        status = protoc.main(
            [
                "protoc",
                f"--proto_path={ROOT / 'proto'}",
                "--include_source_info",
                f"--descriptor_set_out={output}",
                *SOURCES,
            ]
        )
        if status != 0:
            raise SystemExit("protoc failed: see its message above")
        return descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes())


def without_comments(files: descriptor_pb2.FileDescriptorSet) -> bytes:
    """Returns the descriptors serialized as the package ships them."""
    stripped = descriptor_pb2.FileDescriptorSet()
    stripped.CopyFrom(files)
    for file in stripped.file:
        file.ClearField("source_code_info")
    return stripped.SerializeToString(deterministic=True)


def python_stubs(files: descriptor_pb2.FileDescriptorSet) -> dict[Path, str]:
    """Returns the stubs that mypy-protobuf makes, by path."""
    request = plugin_pb2.CodeGeneratorRequest(file_to_generate=SOURCES, proto_file=files.file)
    # The way protoc itself calls a plugin, without looking for the plugin's executable.
    completed = subprocess.run(
        [sys.executable, "-c", "from mypy_protobuf.main import main; main()"],
        input=request.SerializeToString(),
        stdout=subprocess.PIPE,
        check=True,
    )
    response = plugin_pb2.CodeGeneratorResponse.FromString(completed.stdout)
    if response.error:
        raise SystemExit(f"mypy-protobuf failed: {response.error}")
    return {SCHEMA_DIR / file.name: file.content for file in response.file}


def typescript(file: descriptor_pb2.FileDescriptorProto) -> str:
    """Returns TypeScript types of the JSON made of the messages of `file`."""
    comments = {
        tuple(location.path): location.leading_comments.strip("\n")
        for location in file.source_code_info.location
        if location.leading_comments.strip()
    }
    lines = [f"// Generated from proto/{file.name} by proto/generate.py. Do not edit."]
    for index, enum in enumerate(file.enum_type):
        lines += ["", *_doc(comments, (_FILE_ENUM, index)), *_enum(enum, index, comments)]
    for index, message in enumerate(file.message_type):
        lines += ["", *_doc(comments, (_FILE_MESSAGE, index)), *_message(message, index, comments)]
    return "\n".join(lines) + "\n"


def _enum(
    enum: descriptor_pb2.EnumDescriptorProto, index: int, comments: dict[tuple[int, ...], str]
) -> Iterator[str]:
    prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper() + "_"
    yield f"export type {enum.name} ="
    names = [value.name.removeprefix(prefix).lower() for value in enum.value if value.number != 0]
    for position, value in enumerate(enum.value):
        if value.number == 0:
            continue  # *_UNSPECIFIED is null
        yield from _doc(comments, (_FILE_ENUM, index, _ENUM_VALUE, position), "  ")
        name = value.name.removeprefix(prefix).lower()
        yield f"  | {json.dumps(name)}" + (";" if name == names[-1] else "")


def _message(
    message: descriptor_pb2.DescriptorProto, index: int, comments: dict[tuple[int, ...], str]
) -> Iterator[str]:
    if _is_bare_value(message):
        yield f"export type {message.name} = {' | '.join(_scalar(field) for field in message.field)};"
        return
    yield f"export interface {message.name} {{"
    for position, field in enumerate(message.field):
        yield from _doc(comments, (_FILE_MESSAGE, index, _MESSAGE_FIELD, position), "  ")
        yield f"  {field.name}: {_field_type(message, field)};"
    yield "}"


def _is_bare_value(message: descriptor_pb2.DescriptorProto) -> bool:
    """Whether all that the message has is one `oneof`: then its JSON is the value that is set."""
    return len(message.oneof_decl) == 1 and all(
        field.HasField("oneof_index") and not field.proto3_optional for field in message.field
    )


def _field_type(message: descriptor_pb2.DescriptorProto, field: _Field) -> str:
    if field.label == _Field.LABEL_REPEATED:
        for nested in message.nested_type:
            if nested.options.map_entry and field.type_name.endswith(f".{message.name}.{nested.name}"):
                return f"Record<string, {_scalar(nested.field[1])}>"
        return f"{_scalar(field)}[]"
    nullable = field.proto3_optional or field.type in (_Field.TYPE_MESSAGE, _Field.TYPE_ENUM)
    return _scalar(field) + (" | null" if nullable else "")


def _scalar(field: _Field) -> str:
    if field.type in _NUMBERS:
        return "number"
    if field.type == _Field.TYPE_BOOL:
        return "boolean"
    if field.type == _Field.TYPE_STRING:
        return "string"
    if field.type in (_Field.TYPE_MESSAGE, _Field.TYPE_ENUM):
        return field.type_name.rpartition(".")[2]
    raise SystemExit(f"{field.name}: no JSON form is defined for its type; see schema/jsonify.py")


def _doc(comments: dict[tuple[int, ...], str], path: tuple[int, ...], indent: str = "") -> Sequence[str]:
    comment = comments.get(path)
    if comment is None:
        return ()
    text = [line.strip() for line in comment.splitlines()]
    if len(text) == 1:
        return (f"{indent}/** {text[0]} */",)
    return (f"{indent}/**", *(f"{indent} * {line}".rstrip() for line in text), f"{indent} */")


def main() -> None:
    files = compile_protos()
    contents: dict[Path, bytes] = {DESCRIPTORS: without_comments(files)}
    contents |= {path: stub.encode() for path, stub in python_stubs(files).items()}
    json_file = next(file for file in files.file if file.name == JSON_SOURCE)
    contents[TYPESCRIPT] = typescript(json_file).encode()
    for path, content in contents.items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # An unchanged file keeps its time, so that the frontend is not bundled anew for it.
        if not target.exists() or target.read_bytes() != content:
            target.write_bytes(content)


if __name__ == "__main__":
    main()
