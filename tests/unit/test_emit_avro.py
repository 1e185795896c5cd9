"""Connect schemas -> Avro schemas, as the converters of a real Debezium registered them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest

from serde.avro.emitted_schema import adjust_name, avro_schema
from serde.emit.envelope import key_schema, value_schema
from serde.emit.row_schema import Primitive, RowField, RowList, RowMap, RowStruct
from serde.emit.type_mapping import HandlingModes
from tests.model.recordings import FIXTURES

PLAINS = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "uuid",
    "variant",
    "date",
    "time",
    "timestamp",
    "fixed",
)


def blocks() -> Iterator[Any]:
    """Every distinct schema block of the recorded JSON events, under the topics of the Avro ones."""
    seen = set()
    for file in sorted((FIXTURES / "json_schema_envelope").glob("*.jsonl")):
        with file.open() as lines:
            texts = [record[side] for record in map(json.loads, lines) for side in ("key_text", "value_text")]
        seen |= {json.dumps(json.loads(text)["schema"]).replace('"js.', '"av.') for text in texts if text}
    yield from map(json.loads, sorted(seen))


def test_schemas_are_the_registered_ones() -> None:
    """For each recorded schema block the Avro schema is one that the converters of that run registered, key by key."""
    registered = json.loads((FIXTURES / "avro_schemas_by_id.json").read_text())
    known = {json.dumps(json.loads(text) if isinstance(text, str) else text) for text in registered.values()}
    made = [json.dumps(avro_schema(block)) for block in blocks()]
    assert len(made) > 25
    assert [schema for schema in made if schema not in known] == []


@pytest.mark.parametrize("times", ["adaptive", "connect", "isostring", "nanoseconds"])
def test_every_type_has_an_avro_schema(times: Any) -> None:
    """Whatever the types and modes, nested ones and odd names too, Avro's own parser takes the schema."""
    members = (
        *(RowField(f"{i} c", Primitive(name)) for i, name in enumerate(PLAINS)),
        RowField("d", Primitive("decimal", 9, 2)),
    )
    inner = RowStruct(members)
    row = RowStruct(
        (
            *members,
            RowField("l", RowList(inner), False),
            RowField("m", RowMap(Primitive("string"), inner)),
            RowField("n", RowMap(Primitive("int"), RowList(inner))),
            RowField("o", RowMap(Primitive("date"), Primitive("fixed"))),
        )
    )
    fastavro.parse_schema(avro_schema(value_schema("p-1.2db.t", row, HandlingModes(times=times))))
    fastavro.parse_schema(avro_schema(key_schema("p-1.2db.t", inner, HandlingModes(times=times))))


def test_names_are_adjusted_as_debezium_does() -> None:
    """What Avro does not allow in a name becomes an underscore, part by part; no part begins with a digit."""
    assert adjust_name("my-prefix.1st.Weird Table.Value") == "my_prefix._1st.Weird_Table.Value"
