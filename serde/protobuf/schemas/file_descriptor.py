"""file descriptor in base64 -> definitions: what Confluent's Python client registers."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.message import DecodeError

from serde.protobuf.schemas.definitions import (
    PROTO3,
    Definitions,
    EnumDefinition,
    FieldDefinition,
    Malformed,
    MessageDefinition,
)

_SCALARS = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}


def parse_descriptor(text: str) -> FileDescriptorProto | None:
    """Return the file of a text that is one in base64, None for any other text."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None


def add_descriptor(file: FileDescriptorProto, into: Definitions) -> None:
    """Add what a file defines. Raises Malformed."""
    builder = _Builder(into, implicit=file.syntax == PROTO3)
    for enum in file.enum_type:
        builder.add_enum(enum, file.package)
    into.roots = tuple(builder.add_message(one, file.package) for one in file.message_type)
    if not into.roots and not file.enum_type and not file.dependency:
        raise Malformed("it defines no message")


class _Builder:
    """One file on its way."""

    def __init__(self, into: Definitions, *, implicit: bool) -> None:
        self._into, self._implicit = into, implicit

    def add_enum(self, one: EnumDescriptorProto, scope: str) -> None:
        """Add an enum."""
        full = f"{scope}.{one.name}" if scope else one.name
        labels: dict[int, str] = {}
        for value in one.value:
            labels.setdefault(value.number, value.name)
        self._into.enums[full] = EnumDefinition(full, labels)

    def add_message(self, one: DescriptorProto, scope: str) -> str:
        """Add a message and what is inside of it; return its name."""
        full = f"{scope}.{one.name}" if scope else one.name
        for enum in one.enum_type:
            self.add_enum(enum, full)
        nested = tuple(self.add_message(inner, full) for inner in one.nested_type)
        fields = tuple(self._fields(one))
        self._into.messages[full] = MessageDefinition(full, fields, nested, is_map=one.options.map_entry)
        return full

    def _fields(self, one: DescriptorProto) -> Iterator[FieldDefinition]:
        for field in one.field:
            if field.type == FieldDescriptorProto.TYPE_GROUP:
                raise Malformed("it has a group, which is not supported")
            oneof = field.HasField("oneof_index") and not field.proto3_optional
            yield FieldDefinition(
                field.name,
                field.number,
                field.type_name or _SCALARS[field.type],
                repeated=field.label == FieldDescriptorProto.LABEL_REPEATED,
                presence=oneof or field.proto3_optional or not self._implicit,
                oneof=one.oneof_decl[field.oneof_index].name if oneof else None,
            )
