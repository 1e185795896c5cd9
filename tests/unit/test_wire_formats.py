"""Conformance of the wire formats: what every format of the registry promises, whatever its bytes look like."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from connector.settings.converters.converter_classes import FORMATS_BY_CLASS, WRITING_CONVERTERS
from serde.emit.envelope import key_schema, value_schema
from serde.emit.row_schema import Primitive, RowField, RowList, RowStruct
from serde.emit.side_topics import SideMessage, heartbeat, heartbeat_key, transaction_end, transaction_key
from serde.emit.type_mapping import HandlingModes
from serde.faults import Stage
from serde.formats import FORMATS, make_deserializer
from serde.wire_format import AFTER, TOMBSTONE, Deserializer, UnknownSchema

SCHEMA_ID = 7
WRITERS = [name for name, wire_format in FORMATS.items() if wire_format.serializer]
COLUMN_WRITERS = [name for name in WRITERS if FORMATS[name].needs_registry]
"""Those whose columns workers write; Spark itself writes JSON, see tests/spark/test_round_trip.py."""
STRUCTURED = [name for name in FORMATS if name not in ("string", "bytes")]
STAGES: tuple[Stage, ...] = ("KEY_CONVERTER", "VALUE_CONVERTER")
MESSAGES = {
    "heartbeat_key": heartbeat_key("p"),
    "heartbeat": heartbeat(1_700_000_000_000),
    "transaction_key": transaction_key("1:2"),
    "transaction_end": transaction_end("1:2", 5, {"db.t": 3, "db.u": 0}),
}
ROW = RowStruct(
    (
        RowField("id", Primitive("long"), False),
        RowField("name", Primitive("string")),
        RowField("tags", RowList(Primitive("int"))),
    )
)
IMAGES = [{"id": 1, "name": "ä", "tags": [1, None]}, {"id": -(2**63), "name": None, "tags": None}]


class Registry:
    """Ids of schemas, as a registry gives them."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}

    def serializer(self, name: str, document: dict[str, Any], constant: dict[str, Any]) -> Any:
        factory = FORMATS[name].serializer
        assert factory is not None
        schema = factory.subject_schema(document)
        assert (schema is not None) == FORMATS[name].needs_registry
        if schema is not None:
            self.texts[SCHEMA_ID] = schema.text
        return factory.build(document, None if schema is None else SCHEMA_ID, constant)

    def fetch(self, number: int) -> tuple[str, ...]:
        if number not in self.texts:
            raise UnknownSchema("the registry does not have it")
        return (self.texts[number],)

    def deserializer(self, name: str) -> Deserializer:
        return make_deserializer(name, fetch=self.fetch)


def rows(deserializer: Deserializer, messages: list[bytes | None], stage: Stage = "VALUE_CONVERTER") -> list[Any]:
    """Messages decoded, in their order; none may be a fault."""
    outcome = deserializer.decode(pa.array(messages, pa.binary()), stage)
    assert outcome.faults == ()
    found: dict[int, Any] = dict.fromkeys(outcome.tombstones.tolist())
    for block in outcome.blocks:
        found |= dict(zip(block.rows.tolist(), block.fields.to_pylist(), strict=True))
    return [found[row] for row in range(len(messages))]


def filled(value: Any, like: Any) -> Any:
    """The value without fields that are null and that `like` has not: without a schema nobody knows of them."""
    if isinstance(value, dict) and isinstance(like, dict):
        return {name: filled(inner, like[name]) for name, inner in value.items() if inner is not None or name in like}
    return value


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_read_back(name: str, message: SideMessage) -> None:
    """Every format that writes reads its own single messages back."""
    registry = Registry()
    data = registry.serializer(name, message.schema, {}).message(message.payload)
    (found,) = rows(registry.deserializer(name), [data])
    assert filled(dict(message.payload), found) == found


@pytest.mark.parametrize("name", COLUMN_WRITERS)
def test_columns_are_read_back(name: str) -> None:
    """Every format whose columns workers write reads back keys, envelopes and tombstones."""
    registry = Registry()
    key = registry.serializer(name, key_schema("p.t", ROW.only(frozenset({"id"})), HandlingModes()), {})
    keys = key.columns.messages([pa.array([image["id"] for image in IMAGES], pa.int64())], len(IMAGES))
    assert rows(registry.deserializer(name), keys.to_pylist(), "KEY_CONVERTER") == [{"id": i["id"]} for i in IMAGES]
    document = value_schema("p.t", ROW, HandlingModes())
    constant = {field["field"]: _constant(field) for field in document["fields"] if field["field"] not in _VARYING}
    value = registry.serializer(name, document, constant)
    columns = [pa.array([*(image[m.name] for image in IMAGES), None], _ARROW[m.name]) for m in ROW.members]
    kinds = pa.array([AFTER, AFTER, TOMBSTONE], pa.int64()).to_numpy()
    messages = value.columns.envelopes(reads=True, transaction="1:2").messages(columns, kinds, None).to_pylist()
    *found, tombstone = rows(registry.deserializer(name), messages)
    assert [(event["op"], event["before"], event["after"]) for event in found] == [("r", None, i) for i in IMAGES]
    assert (messages[-1], tombstone) == (None, None)


_VARYING = frozenset({"before", "after", "op"})
_ARROW = {"id": pa.int64(), "name": pa.string(), "tags": pa.list_(pa.int32())}


def _constant(field: dict[str, Any]) -> Any:
    """A value of a field that is the same in all events."""
    if field["optional"]:
        return None
    if field["type"] == "struct":
        return {inner["field"]: _constant(inner) for inner in field["fields"]}
    return {"string": "x", "boolean": False}.get(field["type"], 5)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("stage", STAGES)
def test_nulls_are_tombstones(name: str, stage: Stage) -> None:
    """A null is a tombstone in every format, and no fault."""
    outcome = Registry().deserializer(name).decode(pa.nulls(3, pa.binary()), stage)
    assert (outcome.blocks, outcome.tombstones.tolist(), outcome.faults) == ((), [0, 1, 2], ())
    assert not len(Registry().deserializer(name).decode(pa.array([], pa.binary()), stage).tombstones)


@pytest.mark.parametrize("name", STRUCTURED)
@pytest.mark.parametrize("stage", STAGES)
def test_garbage_is_a_record_error(name: str, stage: Stage) -> None:
    """What is no message of the format is a record error of its stage, names no content, and costs no other record."""
    registry = Registry()
    garbage = [b"\xff\xfe secret", b"{secret", b"", b"\0", b"\0\0\0\0\x09secret"]
    outcome = registry.deserializer(name).decode(pa.array([*garbage, None], pa.binary()), stage)
    assert [(fault.row, fault.stage) for fault in outcome.faults] == [(row, stage) for row in range(len(garbage))]
    assert not any("secret" in fault.reason for fault in outcome.faults)
    assert (outcome.blocks, outcome.tombstones.tolist()) == ((), [len(garbage)])


@pytest.mark.parametrize("name", WRITERS)
def test_garbage_among_messages_leaves_them_alone(name: str) -> None:
    """Good messages around one that is broken are read as without it."""
    registry = Registry()
    message = MESSAGES["heartbeat"]
    good = registry.serializer(name, message.schema, {}).message(message.payload)
    data = pa.array([good, good[:-1], None, good], pa.binary())
    outcome = registry.deserializer(name).decode(data, "VALUE_CONVERTER")
    (block,) = outcome.blocks
    assert block.rows.tolist() == [0, 3]
    assert block.fields.to_pylist() == [dict(message.payload)] * 2
    assert [fault.row for fault in outcome.faults] == [1]
    assert outcome.tombstones.tolist() == [2]


def test_settings_know_every_format() -> None:
    """Converter classes are those of the registry, each of one format; JSON comes first as the default."""
    classes = [name for wire_format in FORMATS.values() for name in wire_format.converter_classes]
    assert sorted(classes) == sorted(FORMATS_BY_CLASS)
    assert {FORMATS_BY_CLASS[name].name for name in WRITING_CONVERTERS} <= set(WRITERS)
    assert all(FORMATS[f.without_schemas].name != f.name for f in FORMATS.values() if f.without_schemas)


@pytest.mark.parametrize("name", [name for name, wire_format in FORMATS.items() if wire_format.needs_registry])
def test_a_registry_is_asked_for(name: str) -> None:
    """A format that needs a registry is not made without one."""
    with pytest.raises(ValueError, match="needs a registry"):
        make_deserializer(name)
