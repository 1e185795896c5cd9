"""Protobuf schemas and messages for tests: written by Google's library, framed as Confluent does."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import strategies as st

ID = 7
File = descriptor_pb2.FileDescriptorProto
Field = descriptor_pb2.FieldDescriptorProto
Message = descriptor_pb2.DescriptorProto
_LABELS = {Field.LABEL_OPTIONAL: "", Field.LABEL_REPEATED: "repeated ", Field.LABEL_REQUIRED: "required "}
_TYPES = {number: name.removeprefix("TYPE_").lower() for name, number in Field.Type.items()}
_NUMBERS = {name: number for number, name in _TYPES.items()}
_INTS = {
    "int32": (-(2**31), 2**31 - 1),
    "sint32": (-(2**31), 2**31 - 1),
    "sfixed32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "fixed32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "sint64": (-(2**63), 2**63 - 1),
    "sfixed64": (-(2**63), 2**63 - 1),
    # Connect has no unsigned longs; greater ones are dead letters.
    "uint64": (0, 2**63 - 1),
    "fixed64": (0, 2**63 - 1),
}
_SCALARS = (*_INTS, "bool", "float", "double", "string", "bytes")


def text_of(file: Any) -> str:
    """The .proto text of a file, as a registry keeps it."""
    lines = [f'syntax = "{file.syntax or "proto2"}";', f"package {file.package};"]
    lines += [f'import "{name}";' for name in file.dependency]
    for enum in file.enum_type:
        lines += _enum_lines(enum, "")
    for message in file.message_type:
        lines += _message_lines(message, "")
    return "\n".join(lines)


def _enum_lines(enum: Any, pad: str) -> list[str]:
    return [f"{pad}enum {enum.name} {{", *(f"{pad}  {one.name} = {one.number};" for one in enum.value), f"{pad}}}"]


def _message_lines(message: Any, pad: str) -> list[str]:
    lines = [f"{pad}message {message.name} {{ // a message"]
    for enum in message.enum_type:
        lines += _enum_lines(enum, pad + "  ")
    for nested in message.nested_type:
        if not nested.options.map_entry:
            lines += _message_lines(nested, pad + "  ")
    unions: dict[int, list[str]] = {}
    for one in message.field:
        kind = one.type_name or _TYPES[one.type]
        entry = next((each for each in message.nested_type if one.type_name.endswith(f".{each.name}")), None)
        if entry is not None and entry.options.map_entry:
            key, value = entry.field
            line = f"map<{_TYPES[key.type]}, {value.type_name or _TYPES[value.type]}> {one.name} = {one.number};"
        elif one.HasField("oneof_index") and not one.proto3_optional:
            unions.setdefault(one.oneof_index, []).append(f"    {kind} {one.name} = {one.number};")
            continue
        else:
            label = "optional " if one.proto3_optional else _LABELS[one.label]
            line = f"{label}{kind} {one.name} = {one.number};"
        lines.append(f"{pad}  {line}")
    for index, inside in unions.items():
        lines += [f"{pad}  oneof {message.oneof_decl[index].name} {{", *inside, f"{pad}  }}"]
    return [*lines, f"{pad}}}"]


def encoded(file: Any) -> str:
    """The file as Confluent's Python client registers it."""
    return base64.b64encode(file.SerializeToString()).decode()


def classes(*files: Any) -> Callable[[str], Any]:
    """Full name -> class of Google's messages."""
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def framed(message: bytes, number: int = ID, indexes: bytes = b"\0") -> bytes:
    """A message behind magic byte, schema id and indexes."""
    return b"\x00" + struct.pack(">I", number) + indexes + message


def fetch(*texts: str) -> Any:
    """A registry that has this schema, its imports first, under ID."""
    return {ID: texts}.__getitem__


@st.composite
def files(draw: st.DrawFn) -> Any:
    """A file with a message `p.q.M` of any fields."""
    file = File(name="t.proto", package="p.q", syntax="proto3")
    enum = file.enum_type.add(name="Colour")
    for number, name in ((0, "RED"), (1, "GREEN"), (-5, "BLUE")):
        enum.value.add(name=name, number=number)
    file.message_type.append(_message(draw, "M", 0))
    return file


def _message(draw: st.DrawFn, name: str, depth: int) -> Any:
    message = Message(name=name)
    numbers = draw(st.lists(st.integers(1, 40), max_size=6, unique=True))
    for place, number in enumerate(numbers):
        _field(draw, message, f"f{place}", number, depth)
    # Messages of proto3 fields that are optional have unions of their own, after all others.
    for one in message.field:
        if one.proto3_optional:
            one.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{one.name}")
    return message


def _field(draw: st.DrawFn, message: Any, name: str, number: int, depth: int) -> None:
    kind = draw(st.sampled_from((*_SCALARS, "enum", "message", "map")))
    one = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
    if kind == "message" and depth < 2:
        message.nested_type.append(_message(draw, f"N{name}", depth + 1))
        one.type, one.type_name = Field.TYPE_MESSAGE, f"{_scope(depth, message)}.N{name}"
    elif kind == "map":
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        key = draw(st.sampled_from((*_INTS, "string", "bool")))
        for at, (part, scalar) in enumerate((("key", key), ("value", draw(st.sampled_from(_SCALARS)))), 1):
            entry.field.add(name=part, number=at, label=Field.LABEL_OPTIONAL, type=_NUMBERS[scalar])
        one.type, one.type_name = Field.TYPE_MESSAGE, f"{_scope(depth, message)}.{entry.name}"
        one.label = Field.LABEL_REPEATED
        return
    elif kind in ("enum", "message"):
        one.type, one.type_name = Field.TYPE_ENUM, ".p.q.Colour"
    else:
        one.type = _NUMBERS[kind]
    how = draw(st.sampled_from(("plain", "optional", "repeated", "union")))
    if how == "repeated":
        one.label = Field.LABEL_REPEATED
    elif how == "optional" and one.type != Field.TYPE_MESSAGE:
        one.proto3_optional = True
    elif how == "union":
        if not message.oneof_decl:
            message.oneof_decl.add(name="u")
        one.oneof_index = 0


def _scope(depth: int, message: Any) -> str:
    """Names of nested messages are made unique by their outer one; resolved by the relative name."""
    return message.name


def absolute(file: Any) -> Any:
    """Give relative names of nested messages their full ones, which descriptors have."""

    def walk(message: Any, full: str) -> None:
        for one in message.field:
            if one.type_name and not one.type_name.startswith("."):
                one.type_name = f".{full}.{one.type_name.rpartition('.')[2]}"
        for nested in message.nested_type:
            walk(nested, f"{full}.{nested.name}")

    for message in file.message_type:
        walk(message, f"{file.package}.{message.name}")
    return file


def values(descriptor: Any) -> st.SearchStrategy[dict[str, Any]]:
    """What a message may hold; a field that is missing is not set."""

    @st.composite
    def one(draw: st.DrawFn) -> dict[str, Any]:
        made: dict[str, Any] = {}
        chosen = {union.name: draw(st.sampled_from([*union.fields, None])) for union in descriptor.oneofs}
        for field in descriptor.fields:
            union = field.containing_oneof
            if union is not None and chosen[union.name] is not field:
                continue
            if union is None and not draw(st.booleans()):
                continue
            made[field.name] = draw(_value(field))
        return made

    return one()


def _value(field: Any) -> st.SearchStrategy[Any]:
    if _is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return st.dictionaries(_scalar(key), _scalar(value), max_size=3)
    item = values(field.message_type) if field.message_type is not None else _scalar(field)
    return st.lists(item, max_size=5) if field.is_repeated else item


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _scalar(field: Any) -> st.SearchStrategy[Any]:
    kind = _TYPES[field.type]
    if kind in _INTS:
        return st.integers(*_INTS[kind]) | st.integers(0, 3)
    return {
        "bool": st.booleans(),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "string": st.text(max_size=8),
        "bytes": st.binary(max_size=8),
        "enum": st.sampled_from((0, 1, -5, 77)),
    }[kind]


def written(make: Any, value: dict[str, Any]) -> bytes:
    """A message of these values."""
    return bytes(_filled(make(), value).SerializeToString())


def _filled(message: Any, value: dict[str, Any]) -> Any:
    for field in message.DESCRIPTOR.fields:
        if field.name not in value:
            continue
        given = value[field.name]
        if _is_map(field):
            getattr(message, field.name).update(given)
        elif field.message_type is not None and field.is_repeated:
            for item in given:
                _filled(getattr(message, field.name).add(), item)
        elif field.message_type is not None:
            _filled(getattr(message, field.name), given)
            getattr(message, field.name).SetInParent()
        elif field.is_repeated:
            getattr(message, field.name).extend(given)
        else:
            setattr(message, field.name, given)
    return message


def expected(descriptor: Any, value: dict[str, Any]) -> dict[str, Any]:
    """The row that a message becomes: unions first, then the fields, as Connect has them."""
    made: dict[str, Any] = {}
    unions = [one for one in descriptor.oneofs if not one.name.startswith("_")]
    for at, union in enumerate(unions):
        there = any(field.name in value for field in union.fields)
        made[f"{union.name}_{at}"] = (
            {field.name: _expected(field, value.get(field.name)) for field in union.fields} if there else None
        )
    real = {field.name for union in unions for field in union.fields}
    for field in descriptor.fields:
        if field.name not in real:
            made[field.name] = _expected_field(field, value)
    return made


def _expected_field(field: Any, value: dict[str, Any]) -> Any:
    if field.name in value:
        return _expected(field, value[field.name])
    if field.is_repeated:
        return []
    if field.has_presence:
        return None
    zero = {"string": "", "bytes": b"", "bool": False, "enum": 0}.get(_TYPES[field.type], 0)
    return _expected(field, zero)


def _expected(field: Any, value: Any) -> Any:
    if value is None:
        return None
    if _is_map(field):
        key, inner = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return {(_label(key, name), _label(inner, one)) for name, one in value.items()}
    if field.is_repeated:
        return [_expected_item(field, item) for item in value]
    return _expected_item(field, value)


def _expected_item(field: Any, value: Any) -> Any:
    return expected(field.message_type, value) if field.message_type is not None else _label(field, value)


def _label(field: Any, value: Any) -> Any:
    if _TYPES[field.type] == "enum":
        return {0: "RED", 1: "GREEN", -5: "BLUE"}.get(value, str(value))
    if _TYPES[field.type] == "float":
        return struct.unpack("<f", struct.pack("<f", value))[0] if math.isfinite(value) else value
    return value


def with_sets(row: Any) -> Any:
    """A row whose maps, which Arrow gives as pairs in any order, are sets."""
    if isinstance(row, dict):
        return {name: with_sets(value) for name, value in row.items()}
    if isinstance(row, list) and row and all(isinstance(item, tuple) for item in row):
        return set(row)
    return [with_sets(item) for item in row] if isinstance(row, list) else row
