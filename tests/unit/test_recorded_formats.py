"""Recorded events as other converters would have written them -> the same columns: JSON by registry, Protobuf."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from serde.faults import Stage
from serde.formats import make_deserializer
from serde.json.registered import RegisteredJsonDeserializer
from serde.messages import DecodedMessages
from serde.protobuf.deserializer import ProtobufDeserializer
from tests.model import protobuf, recordings
from tests.model.protobuf import Field, File

VARIANT = "json_schema_envelope_truenulls"
TABLES = ("customers", "exotic", "evolve", "events_nopk", "toasty", "Weird_Table", "defaults_t")
Document = dict[str, Any]
Parts = tuple[Stage, Document, list[Document]]


def _parts(table: str) -> list[Parts]:
    """Keys and values of a recording: each schema with its payloads."""
    found: dict[tuple[Stage, str], list[Document]] = {}
    for record in recordings.load(VARIANT, table):
        sides: tuple[tuple[Stage, bytes | None], ...] = (
            ("KEY_CONVERTER", record.key),
            ("VALUE_CONVERTER", record.value),
        )
        for stage, data in sides:
            message = None if data is None else json.loads(data)
            if message is not None and message["schema"] is not None:
                found.setdefault((stage, json.dumps(message["schema"])), []).append(message["payload"])
    return [(stage, json.loads(schema), payloads) for (stage, schema), payloads in found.items()]


def _rows(outcome: DecodedMessages) -> tuple[dict[int, Any], dict[int, str]]:
    rows = {
        int(row): value
        for block in outcome.blocks
        for row, value in zip(block.rows, block.fields.to_pylist(), strict=True)
    }
    return rows, {fault.row: fault.reason.split(":")[0] for fault in outcome.faults}


def _by_block(stage: Stage, schema: Document, payloads: list[Document]) -> DecodedMessages:
    messages = [json.dumps({"schema": schema, "payload": payload}).encode() for payload in payloads]
    return make_deserializer("json-schema").decode(pa.array(messages, pa.binary()), stage)


def _json_schema(schema: Document, index: int | None = None) -> Document:
    """As Confluent's converter registers a Connect schema."""
    kind, made = schema["type"], dict[str, Any]()
    if kind == "struct":
        properties = {field["field"]: _json_schema(field, at) for at, field in enumerate(schema["fields"])}
        made = {"type": "object", "properties": properties}
    elif kind == "array":
        made = {"type": "array", "items": _json_schema(schema["items"])}
    elif kind == "map":
        made = {"type": "object", "connect.type": "map", "additionalProperties": _json_schema(schema["values"])}
    elif kind in ("string", "boolean"):
        made = {"type": kind}
    elif kind == "bytes":
        made = {"type": "string", "connect.type": "bytes"}
    else:
        told = {"float": "float32", "double": "float64"}.get(kind, kind)
        made = {"type": "number" if "float" in told else "integer", "connect.type": told}
    if schema.get("name"):
        made["title"] = schema["name"]
    if schema.get("parameters"):
        made["connect.parameters"] = schema["parameters"]
    if schema.get("optional"):
        made = {"oneOf": [{"type": "null"}, made]}
    return made if index is None else {**made, "connect.index": index}


@pytest.mark.parametrize("table", TABLES)
def test_json_by_registry_is_json_with_schemas(table: str) -> None:
    """The JSON Schema that Connect registers says what the schema block said; faults are of the same fields."""
    for stage, schema, payloads in _parts(table):
        frames = [b"\0\0\0\0\7" + json.dumps(payload).encode() for payload in payloads]
        registry = {7: (json.dumps(_json_schema(schema)),)}.__getitem__
        outcome = RegisteredJsonDeserializer(registry).decode(pa.array(frames, pa.binary()), stage)
        expected = _by_block(stage, schema, payloads)
        # Text, as NaN is not equal to itself.
        assert repr(_rows(outcome)) == repr(_rows(expected))
        assert [block.fields.type for block in outcome.blocks] == [block.fields.type for block in expected.blocks]


_SCALARS = {
    "int8": Field.TYPE_INT32,
    "int16": Field.TYPE_INT32,
    "int32": Field.TYPE_INT32,
    "int64": Field.TYPE_INT64,
    "float": Field.TYPE_FLOAT,
    "double": Field.TYPE_DOUBLE,
    "boolean": Field.TYPE_BOOL,
    "string": Field.TYPE_STRING,
    "bytes": Field.TYPE_BYTES,
}
_PACKAGE = "rec"


def _plain(schema: Document) -> Document:
    """The schema without what Connect's ProtobufConverter drops: names, but those of structs that are told by them."""
    made = {key: value for key, value in schema.items() if key not in ("name", "parameters", "default", "doc")}
    if str(schema.get("name", "")).endswith("VariableScaleDecimal"):
        made["name"] = schema["name"]
    for part in ("items", "keys", "values"):
        if part in made:
            made[part] = _plain(made[part])
    if "fields" in made:
        # Protobuf has names of letters, digits and underscores only.
        made["fields"] = [{**_plain(field), "optional": True} for field in made["fields"]]
    return made


def _add_message(holder: Any, name: str, schema: Document, full: str) -> None:
    message = holder.add(name=name)
    for number, field in enumerate(schema["fields"], 1):
        kind, one = field, message.field.add(name=f"f{number}", number=number, label=Field.LABEL_OPTIONAL)
        if kind["type"] == "array":
            one.label, kind = Field.LABEL_REPEATED, kind["items"]
        if kind["type"] == "struct":
            inner = "VariableScaleDecimal" if kind.get("name") else f"M{number}"
            target = inner if inner not in [each.name for each in message.nested_type] else f"M{number}"
            _add_message(message.nested_type, target, kind, f"{full}.{target}")
            one.type, one.type_name = Field.TYPE_MESSAGE, f"{full}.{target}"
            if kind.get("name"):
                for each, wanted in zip(message.nested_type[-1].field, ("scale", "value"), strict=True):
                    each.name = wanted
        else:
            one.type = _SCALARS[kind["type"]]
            one.proto3_optional = one.label == Field.LABEL_OPTIONAL
    for one in message.field:
        if one.proto3_optional:
            one.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{one.name}")


def _file(schema: Document) -> descriptor_pb2.FileDescriptorProto:
    file = File(name="rec.proto", package=_PACKAGE, syntax="proto3")
    _add_message(file.message_type, "Root", schema, f".{_PACKAGE}.Root")
    return file


def _value(schema: Document, value: Any) -> Any:
    if schema["type"] == "struct":
        names = ("scale", "value") if schema.get("name") else [f"f{n}" for n in range(1, len(schema["fields"]) + 1)]
        pairs = zip(names, schema["fields"], strict=True)
        made = {name: (field, value.get(field["field"])) for name, field in pairs}
        return {name: _value(field, inner) for name, (field, inner) in made.items() if inner is not None}
    if schema["type"] == "array":
        return [_value(schema["items"], item) for item in value]
    if schema["type"] in ("float", "double"):
        return float(value)
    return base64.b64decode(value) if schema["type"] == "bytes" else value


def _numbered(schema: Document, value: Any) -> Any:
    """A decoded row by the numbers of its fields, lists that are null as empty ones: Protobuf has no other."""
    if value is None:
        return [] if schema["type"] == "array" else None
    if schema["type"] == "struct" and not schema.get("name"):
        fields = enumerate(schema["fields"], 1)
        return {f"f{number}": _numbered(field, value[field["field"]]) for number, field in fields}
    return [_numbered(schema["items"], item) for item in value] if schema["type"] == "array" else value


def _has_null_items(schema: Document, value: Any) -> bool:
    """Protobuf has no null in a list: the converter cannot write such a row."""
    if value is None or schema["type"] not in ("struct", "array"):
        return False
    if schema["type"] == "array":
        return any(item is None for item in value)
    return any(_has_null_items(field, value.get(field["field"])) for field in schema["fields"])


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("plain", [True, False], ids=["text", "descriptor"])
def test_protobuf_is_json_without_debezium_s_names(table: str, plain: bool) -> None:
    """What Google's library writes of the recorded values is read as the same values, whatever the table."""
    for stage, schema, payloads in _parts(table):
        bare = _plain(schema)
        usable = [payload for payload in payloads if not _has_null_items(bare, payload)]
        file = _file(bare)
        make = protobuf.classes(file)(f"{_PACKAGE}.Root")
        frames = [protobuf.framed(protobuf.written(make, _value(bare, payload))) for payload in usable]
        text = protobuf.text_of(file) if plain else protobuf.encoded(file)
        outcome = ProtobufDeserializer(protobuf.fetch(text)).decode(pa.array(frames, pa.binary()), stage)
        expected, faults = _rows(_by_block(stage, bare, usable))
        assert outcome.faults == () and not faults
        assert repr(_rows(outcome)[0]) == repr({row: _numbered(bare, value) for row, value in expected.items()})
