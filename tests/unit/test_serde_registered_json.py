"""JSON by registry: schemas as Confluent's and AWS Glue's converters write them, payloads behind their frames."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from serde.frames import GlueFrame
from serde.json.registered import RegisteredJsonDeserializer
from serde.messages import DecodedMessages
from serde.wire_format import UnknownSchema

ID = 7
NULL = {"type": "null"}


def optional(schema: dict[str, Any], index: int) -> dict[str, Any]:
    """As both converters write an optional field."""
    return {"oneOf": [NULL, schema], "connect.index": index}


VALUE = {
    "type": "object",
    "title": "p.t.Value",
    "properties": {
        "name": optional({"type": "string"}, 1),
        "id": {"type": "integer", "connect.type": "int32", "connect.index": 0},
        "at": {
            "type": "integer",
            "title": "io.debezium.time.MicroTimestamp",
            "connect.type": "int64",
            "connect.version": 1,
            "connect.index": 2,
        },
        "price": optional(
            {
                "type": "string",
                "connect.name": "org.apache.kafka.connect.data.Decimal",
                "connect.type": "bytes",
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
            },
            3,
        ),
        "tags": optional({"type": "array", "items": {"type": "string"}}, 4),
        "counts": {
            "type": "object",
            "connect.type": "map",
            "additionalProperties": {"type": "integer", "connect.type": "int16"},
            "connect.index": 5,
        },
        "raw": {"type": "string", "connect.type": "bytes", "connect.index": 6},
        "kind": {"enum": ["a", "b"], "connect.index": 7},
    },
}
ENVELOPE = {
    "type": "object",
    "title": "p.t.Envelope",
    "properties": {
        "op": {"type": "string", "connect.index": 3},
        "before": optional({"$ref": "#/definitions/row"}, 0),
        "after": optional({"$ref": "#/definitions/row"}, 1),
        "source": {"type": "object", "properties": {"ts_ms": {"type": "integer"}, "db": {"type": "string"}}},
    },
    "definitions": {"row": VALUE},
}
ROW = {
    "id": 7,
    "name": None,
    "at": 1_000_001,
    "price": "AeI=",
    "tags": ["x"],
    "counts": {"a": 5},
    "raw": "AAE=",
    "kind": "b",
}
READ = {
    "id": 7,
    "name": None,
    "at": dt.datetime(1970, 1, 1, 0, 0, 1, 1),
    "price": Decimal("4.82"),
    "tags": ["x"],
    "counts": [("a", 5)],
    "raw": b"\0\1",
    "kind": "b",
}


def framed(document: Any, number: int = ID) -> bytes:
    """A document in Confluent's frame; bytes as they are."""
    return (
        b"\0" + number.to_bytes(4, "big") + (document if isinstance(document, bytes) else json.dumps(document).encode())
    )


def fetch(*schemas: Any) -> Any:
    """A registry that has these schemas from ID on."""
    texts = {ID + at: (json.dumps(schema),) for at, schema in enumerate(schemas)}

    def found(number: int) -> tuple[str, ...]:
        if number not in texts:
            raise UnknownSchema("the registry does not have it")
        return texts[number]

    return found


def read(*messages: bytes | None, schema: Any = VALUE, key: pa.StructType | None = None) -> DecodedMessages:
    """Messages decoded by a registry of one schema."""
    stage = "VALUE_CONVERTER" if key is None else "KEY_CONVERTER"
    return RegisteredJsonDeserializer(fetch(schema)).decode(pa.array(messages, pa.binary()), stage, key)


def test_rows_have_the_types_of_connect() -> None:
    """Types, names and parameters that the converters note in the schema make the columns, in Connect's order."""
    outcome = read(framed(ROW), framed({**ROW, "price": None}), None, framed(b"null"))
    assert outcome.faults == () and outcome.tombstones.tolist() == [2, 3]
    (block,) = outcome.blocks
    assert block.fields.to_pylist() == [READ, {**READ, "price": None}]
    assert block.fields.type.names == ["id", "name", "at", "price", "tags", "counts", "raw", "kind"]
    assert block.fields.type.field("id").type == pa.int32()
    assert (block.name, block.optional["name"], block.optional["id"]) == ("p.t.Value", True, False)


def test_envelopes_by_reference() -> None:
    """Definitions within the schema are followed."""
    event = {"op": "c", "before": None, "after": ROW, "source": {"ts_ms": 5, "db": "d"}}
    (block,) = read(framed(event), schema=ENVELOPE).blocks
    (found,) = block.fields.to_pylist()
    assert (found["after"], found["before"], found["source"]["ts_ms"]) == (READ, None, 5)


def test_plain_json_schemas() -> None:
    """Schemas that no converter of Connect wrote: JSON's types, null by type, fields that are not required."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "integer"}, "b": {"type": ["null", "number"]}, "c": {"type": "boolean"}},
    }
    (block,) = read(framed({"a": 1, "b": 1.5}), framed({"a": 2, "c": True}), schema=schema).blocks
    assert block.fields.to_pylist() == [{"a": 1, "b": 1.5, "c": None}, {"a": 2, "b": None, "c": True}]
    assert [block.optional[name] for name in "abc"] == [False, True, True]


def test_a_reference_may_stand_in_an_all_of_of_its_own() -> None:
    """Generators write it so to have a description beside it; of several schemas that have to fit nobody can tell."""
    inner = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    reference: dict[str, Any] = {"allOf": [{"$ref": "#/definitions/B"}], "description": "one of those"}
    schema = {"type": "object", "properties": {"a": reference}, "definitions": {"B": inner}}
    (block,) = read(framed({"a": {"x": 1}}), framed({}), schema=schema).blocks
    assert block.fields.to_pylist() == [{"a": {"x": 1}}, {"a": None}]
    several = {**schema, "properties": {"a": {"allOf": [*reference["allOf"], inner]}}}
    assert "several types" in read(framed({"a": {"x": 1}}), schema=several).faults[0].reason


def test_keys_of_one_value() -> None:
    """A key that is one value is the field of the table's identifier column."""
    (block,) = read(framed(b"5"), schema={"type": "integer"}, key=pa.struct([("id", pa.int64())])).blocks
    assert block.fields.to_pylist() == [{"id": 5}]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{}", "malformed"),
        ({}, "no type that Connect has"),
        ({"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}, "several types"),
        (
            {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}},
            "several types",
        ),
        ({"type": "object", "properties": {"a": {"$ref": "other.json"}}}, "another schema"),
        ({"type": "object", "properties": {"a": {"$ref": "#/lost"}}}, "malformed"),
        ({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}, "have no end"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "another schema"),
        ({"type": "string"}, "not a struct"),
    ],
    ids=str,
)
def test_schemas_that_cannot_be_used(schema: Any, said: str) -> None:
    """A schema that cannot be used costs its records, which say why."""
    (fault,) = read(framed({"a": 1}), schema=schema).faults
    assert said in fault.reason and fault.reason.startswith("schema id 7: ")


def test_broken_messages_cost_nobody_else() -> None:
    """What is no document of its schema is a dead letter of its own."""
    broken = [b"", b"{}", framed(b"{"), framed({**ROW, "id": "x"}), framed(ROW, 8), framed(b"[1]"), framed(ROW)[:3]]
    outcome = read(framed(ROW), *broken, framed(ROW))
    assert [fault.row for fault in outcome.faults] == list(range(1, 8))
    assert outcome.blocks[0].fields.to_pylist() == [READ, READ]
    assert not any("secret" in fault.reason for fault in outcome.faults)


def test_glue_s_frame() -> None:
    """The same behind AWS Glue's frame."""
    version = uuid.uuid5(uuid.NAMESPACE_DNS, "t")
    message = b"\3\0" + version.bytes + json.dumps(ROW).encode()
    deserializer = RegisteredJsonDeserializer({version.int: (json.dumps(VALUE),)}.__getitem__, frame=GlueFrame())
    (block,) = deserializer.decode(pa.array([message]), "VALUE_CONVERTER").blocks
    assert block.fields.to_pylist() == [READ]
