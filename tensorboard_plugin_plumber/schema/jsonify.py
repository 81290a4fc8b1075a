"""Our own JSON encoder: the one form in which the analysis leaves Python.

protobuf's own encoder will not do: it writes 64-bit integers as strings, infinity as
"Infinity", and omits what is not set. The rules here are those at the head of
`proto/analysis.proto`; `proto/generate.py` makes the TypeScript types by the same rules.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_Encode: TypeAlias = Callable[[Any], "Json"]


@dataclasses.dataclass(frozen=True)
class _Field:
    """How one field of a message becomes JSON."""

    name: str
    # From the field's value, or from one element of it where it is repeated or a map.
    encode: _Encode
    # Unset is told apart from the default, and is null.
    has_presence: bool = False
    repeated: bool = False
    is_map: bool = False


def to_dict(message: Message) -> dict[str, Json]:
    """Returns a message as the object that its JSON holds.

    Every field is a key, in the order of the schema. Unset fields that know it (optional ones
    and messages), *_UNSPECIFIED enum values, NaN and infinities are None.

    Raises:
      TypeError: the message is a bare value (Setting): there is no object to return.
    """
    if _bare_value(message.DESCRIPTOR) is not None:
        raise TypeError(f"{message.DESCRIPTOR.name} is written as a bare value, not as an object")
    return {field.name: _encode_field(message, field) for field in _fields(message.DESCRIPTOR)}


def to_json(message: Message, *, indent: int | None = None) -> str:
    """Returns `to_dict(message)` as JSON text, without NaN or infinity in it."""
    return json.dumps(to_dict(message), allow_nan=False, ensure_ascii=False, indent=indent)


def _encode_field(message: Message, field: _Field) -> Json:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.is_map:
        entries: Mapping[Any, Any] = value
        return {str(key): field.encode(entries[key]) for key in sorted(entries)}
    if field.repeated:
        return [field.encode(element) for element in value]
    return field.encode(value)


def _encode_message(message: Message) -> Json:
    oneof = _bare_value(message.DESCRIPTOR)
    if oneof is None:
        return to_dict(message)
    name = message.WhichOneof(oneof)
    return None if name is None else _encode_field(message, _field(message.DESCRIPTOR.fields_by_name[name]))


@functools.cache
def _fields(descriptor: Descriptor) -> tuple[_Field, ...]:
    return tuple(_field(field) for field in descriptor.fields)


@functools.cache
def _bare_value(descriptor: Descriptor) -> str | None:
    """The name of the `oneof` that is all that the message has, if so."""
    if len(descriptor.oneofs) != 1 or len(descriptor.oneofs[0].fields) != len(descriptor.fields):
        return None
    oneof = descriptor.oneofs[0]
    # `optional` is a oneof of one field to protobuf, named after the field.
    synthetic = oneof.name == f"_{oneof.fields[0].name}"
    return None if synthetic else oneof.name


@functools.cache
def _field(field: FieldDescriptor) -> _Field:
    if _is_repeated(field):
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            return _Field(field.name, _encoder(entry.fields_by_name["value"]), is_map=True)
        return _Field(field.name, _encoder(field), repeated=True)
    return _Field(field.name, _encoder(field), has_presence=field.has_presence)


def _is_repeated(field: FieldDescriptor) -> bool:
    # Before 6.31 there is only `label`, which later ones deprecate.
    repeated: bool | None = getattr(field, "is_repeated", None)
    if repeated is None:
        label: int = getattr(field, "label")  # noqa: B009  (absent from the stubs)
        return label == FieldDescriptor.LABEL_REPEATED
    return repeated


def _encoder(field: FieldDescriptor) -> _Encode:
    if field.message_type is not None:
        return _encode_message
    if field.enum_type is not None:
        return _enum_names(field.enum_type).get
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return _encode_float
    if field.type == FieldDescriptor.TYPE_BYTES:
        raise TypeError(f"{field.full_name}: bytes have no JSON form here")
    return _encode_plain


def _enum_names(enum: EnumDescriptor) -> dict[int, Json]:
    prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper() + "_"
    return {
        value.number: value.name.removeprefix(prefix).lower() for value in enum.values if value.number != 0
    }


def _encode_float(value: float) -> Json:
    return value if math.isfinite(value) else None


def _encode_plain(value: Any) -> Json:
    plain: bool | int | str = value
    return plain
