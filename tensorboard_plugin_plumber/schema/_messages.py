"""Makes the message classes from the descriptors that the build put beside this file.

A generated `_pb2.py` runs only on its own protobuf and later ones, and the TensorFlows that
are supported pin protobufs from 4.25 to 7 that exclude each other; descriptors are data and
run on all. The pool is private, so that no other package's files can clash with these.
"""

from __future__ import annotations

import pkgutil
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper

_PACKAGE = "tensorboard_plugin_plumber.schema"
_FILE = "descriptors.binpb"
_pool: descriptor_pool.DescriptorPool | None = None


def define(file_name: str, namespace: dict[str, Any]) -> None:
    """Puts the contents of one .proto file into a module's namespace, as protoc's modules have them.

    Args:
      file_name: name of the file in `proto/`, e.g. "analysis.proto".
      namespace: the module's `globals()`. It gets DESCRIPTOR, each message class, and each enum
        with its values as constants.

    Raises:
      ImportError: the generated descriptors are missing.
    """
    file = _get_pool().FindFileByName(file_name)
    namespace["DESCRIPTOR"] = file
    for name, descriptor in file.message_types_by_name.items():
        message_class = message_factory.GetMessageClass(descriptor)
        # Without it classes claim to live in "analysis_pb2", and pickle cannot find them.
        message_class.__module__ = namespace["__name__"]
        namespace[name] = message_class
    for name, enum in file.enum_types_by_name.items():
        namespace[name] = enum_type_wrapper.EnumTypeWrapper(enum)
        namespace.update({value.name: value.number for value in enum.values})


def _get_pool() -> descriptor_pool.DescriptorPool:
    global _pool
    if _pool is None:
        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(_read_descriptors()).file:
            pool.AddSerializedFile(file.SerializeToString())
        _pool = pool
    return _pool


def _read_descriptors() -> bytes:
    try:
        content = pkgutil.get_data(_PACKAGE, _FILE)
    except OSError:
        content = None
    if content is None:
        raise ImportError(
            f"{_PACKAGE}: {_FILE} is missing. It is made from proto/ when the package is built: "
            "run `pip install -e .` in the source tree."
        )
    return content
