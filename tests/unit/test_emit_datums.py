"""Columns of envelopes and keys -> Avro in Confluent's frame: fastavro and our own decoder read what was there."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import orjson
import pyarrow as pa
import pytest

from serde.avro.deserializer import AvroDeserializer
from serde.avro.emitted_schema import avro_schema
from serde.avro.encoder import encode_datums
from serde.avro.serializer import AvroEnvelopeSerializer, AvroSerializer
from serde.avro.writer_schema import parse_writer_schema
from serde.emit.connect_schema import schema
from serde.emit.envelope import SourceInfo, value_schema
from serde.emit.name_adjustment import adjust_field_name, adjust_schema_name
from serde.emit.row_schema import Primitive, RowField, RowList, RowMap, RowStruct
from serde.emit.side_topics import heartbeat, transaction_end
from serde.emit.type_mapping import HandlingModes
from serde.faults import Unfit
from serde.wire_format import AFTER, BEFORE, FIRST_OF_TWO, SECOND_OF_TWO, TOMBSTONE

ROW = RowStruct(
    (
        RowField("id", Primitive("long"), False),
        RowField("name", Primitive("string")),
        RowField("amount", Primitive("decimal", 9, 2)),
        RowField("tags", RowList(Primitive("string"))),
        RowField("days", RowMap(Primitive("date"), Primitive("double"))),
        RowField("inner", RowStruct((RowField("x", Primitive("int")), RowField("on", Primitive("boolean"), False)))),
    )
)
IMAGES: list[Any] = [
    {"id": 1, "name": "ä", "amount": b"\x01\x00", "tags": ["", None, "x" * 200], "days": [(-1, 0.5)], "inner": None},
    {"id": -(2**63), "name": None, "amount": None, "tags": [], "days": None, "inner": {"x": None, "on": True}},
    {"id": 2**63 - 1, "name": "", "amount": b"\xff", "tags": None, "days": [], "inner": {"x": -(2**31), "on": False}},
]
ORIGIN = SourceInfo("0.1", "p", "c", "db", "t", 1_700_000_000_000_000_000, "false", 5, None, 2)


def text(document: Any) -> str:
    return orjson.dumps(avro_schema(document)).decode()


def read(avro: AvroSerializer, message: bytes) -> Any:
    """The value of a message by fastavro, which reads it to its end."""
    assert message[:5] == avro.head
    source = io.BytesIO(message[5:])
    value = fastavro.schemaless_reader(source, fastavro.parse_schema(json.loads(avro.text)), None)
    assert not source.read()
    return value


def as_read(image: Any) -> Any:
    """An image as fastavro gives it: maps whose keys are no texts are lists of entries, decimals are numbers."""
    if image is None:
        return None
    days, amount = image["days"], image["amount"]
    made = {"days": None if days is None else [{"key": key, "value": value} for key, value in days]}
    made["amount"] = None if amount is None else Decimal(int.from_bytes(amount, "big", signed=True)).scaleb(-2)
    return {**image, **made}


def test_envelopes_are_read_back_by_fastavro_and_by_our_decoder() -> None:
    """Rows of every nesting, nulls at every level, constant blocks and tombstones come back as they were."""
    document = value_schema("p.db.t", ROW, HandlingModes())
    constant = {"source": ORIGIN.document(), **ORIGIN.times()}
    made = AvroSerializer(text(document), 77, constant)
    image = parse_writer_schema((made.text,)).schema.node.wire.field("after").type
    one, two, three = IMAGES
    # Kind of row, image, total_order; the rows of a batch begin and end with updates.
    rows: list[tuple[int, Any, int]] = [
        (FIRST_OF_TWO, one, 1),
        (SECOND_OF_TWO, two, 1),
        (BEFORE, three, 2),
        (TOMBSTONE, three, 2),
        (AFTER, one, 300),
        (FIRST_OF_TWO, two, 4),
        (SECOND_OF_TWO, three, 4),
    ]
    kinds = np.array([kind for kind, _, _ in rows])
    orders = pa.array([order for _, _, order in rows], pa.int64())
    columns = pa.array([row for _, row, _ in rows], image).flatten()
    messages = AvroEnvelopeSerializer(made, False, "5:2").messages(columns, kinds, orders)
    expected: list[Any] = [("u", one, two, 1), ("d", three, None, 2), None, ("c", None, one, 300), ("u", two, three, 4)]
    for row, message in zip(expected, messages.to_pylist(), strict=True):
        if row is None:
            assert message is None
            continue
        value = read(made, message)
        block = {"id": "5:2", "total_order": row[3], "data_collection_order": row[3]}
        assert (value["op"], value["before"], value["after"]) == (row[0], as_read(row[1]), as_read(row[2]))
        assert {name: value[name] for name in constant} == constant
        assert value["transaction"] == block
    decoded = AvroDeserializer({77: (made.text,)}.__getitem__).decode(messages, "VALUE_CONVERTER")
    assert not decoded.faults
    assert decoded.tombstones.tolist() == [2]
    (block,) = decoded.blocks
    assert block.name == "p.db.t.Envelope"
    afters = block.fields.field("after").to_pylist()
    assert [after and after["id"] for after in afters] == [two["id"], None, one["id"], three["id"]]


@pytest.mark.parametrize("kind", [AFTER, BEFORE, TOMBSTONE])
def test_batches_of_one_kind(kind: int) -> None:
    """A batch of reads, of deletes or of tombstones alone is written too, with nothing that is the same in all rows."""
    made = AvroSerializer(
        text(value_schema("t", ROW, HandlingModes())),
        1,
        {"source": ORIGIN.document(), "transaction": None, **ORIGIN.times()},
    )
    image = parse_writer_schema((made.text,)).schema.node.wire.field("after").type
    messages = AvroEnvelopeSerializer(made, True, "").messages(
        pa.array(IMAGES, image).flatten(), np.full(3, kind), None
    )
    if kind == TOMBSTONE:
        assert messages.to_pylist() == [None] * 3
        return
    found = [read(made, message) for message in messages.to_pylist()]
    assert [value["op"] for value in found] == ["r" if kind == AFTER else "d"] * 3
    assert [value["after" if kind == AFTER else "before"] for value in found] == [as_read(row) for row in IMAGES]
    assert [value["before" if kind == AFTER else "after"] for value in found] == [None] * 3


def test_keys_are_the_columns_of_their_schema() -> None:
    """A key message is the frame and its fields in order."""
    document = schema(
        RowStruct((RowField("a", Primitive("long"), False), RowField("b", Primitive("string")))),
        HandlingModes(),
        "k",
        optional=False,
    )
    made = AvroSerializer(text(document), 258)
    messages = made.messages([pa.array([1, 2]), pa.array(["x", None])], 2).to_pylist()
    assert [message[:5] for message in messages] == [b"\x00\x00\x00\x01\x02"] * 2
    assert [read(made, message) for message in messages] == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_single_messages_are_written_too() -> None:
    """Payloads of side topics, with lists and nulls in them, are Avro as fastavro reads it."""
    for message in (heartbeat(5), transaction_end("1:2", 7, {"db.t": 3})):
        made = AvroSerializer(text(message.schema), 3)
        assert read(made, made.message(message.payload)) == message.payload


@pytest.mark.parametrize(
    ("kind", "array", "said"),
    [
        ("long", pa.array([1, None]), "a null where the schema has none"),
        ({"type": "fixed", "name": "f", "size": 2}, pa.array([b"ab", b"c"]), "bytes of another size than 2"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.array(["A", "B"]), "a null where the schema has none"),
        (["long", "string"], pa.array([{"l": None, "s": None}]), "a null where the schema has none"),
    ],
)
def test_what_the_schema_has_not_is_refused_by_name(kind: Any, array: pa.Array, said: str) -> None:
    """A value that its schema cannot hold is an error that names the field and not the value."""
    codec = parse_writer_schema(
        (json.dumps({"type": "record", "name": "r", "fields": [{"name": "f", "type": kind}]}),)
    ).codec
    with pytest.raises(Unfit, match=rf"field f: {said}"):
        encode_datums(codec, pa.StructArray.from_arrays([array], names=["f"]))


def test_what_is_null_below_a_null_is_not_written() -> None:
    """Values that Arrow keeps under a null struct or list are no part of a datum."""
    row = RowStruct((RowField("s", RowStruct((RowField("x", Primitive("int"), False),))),))
    document = schema(row, HandlingModes(), "r", optional=False)
    codec = parse_writer_schema((text(document),)).codec
    hidden = pa.StructArray.from_arrays(
        [pa.array([1, 2, 3], pa.int32())], names=["x"], mask=pa.array([False, True, False])
    )
    made = encode_datums(codec, pa.StructArray.from_arrays([hidden], names=["s"]))
    assert made.to_pylist() == [b"\x02\x02", b"\x00", b"\x02\x06"]


@pytest.mark.parametrize(
    ("name", "mode", "as_schema", "as_field"),
    [
        ("a-b.1st_c", "none", "a-b.1st_c", "a-b.1st_c"),
        ("a-b.1st_c", "avro", "a_b.1st_c", "a_b_1st_c"),
        ("1st", "avro", "_1st", "_1st"),
        ("ü😀", "avro", "___", "___"),
        ("a-b.1st_c", "avro_unicode", "a_u002db.1st_u005fc", "a_u002db_u002e1st_u005fc"),
        ("1ü", "avro_unicode", "_u0031_u00fc", "_u0031_u00fc"),
        ("_ł€😀", "avro_unicode", "_u005f_u142_u20ac_ud83d_ude00", "_u005f_u142_u20ac_ud83d_ude00"),
    ],
)
def test_names_are_adjusted_as_debeziums_modes_do(name: str, mode: Any, as_schema: str, as_field: str) -> None:
    """Each mode makes of a name what Debezium 3.7 makes of it; dots stay in names of schemas only."""
    assert (adjust_schema_name(name, mode), adjust_field_name(name, mode)) == (as_schema, as_field)


def test_adjusted_names_are_in_the_schema() -> None:
    """Names of schemas and of columns follow their own modes; two columns of one name in Avro are refused."""
    row = RowStruct((RowField("a b", Primitive("int")),))
    made = value_schema("p-1.t", row, HandlingModes(names="avro_unicode", fields="avro"))
    assert made["name"] == "p_u002d1.t.Envelope"
    assert made["fields"][0]["name"] == "p_u002d1.t.Value"
    assert made["fields"][0]["fields"][0]["field"] == "a_b"
    with pytest.raises(ValueError, match="fields a b, a_b have one name in Avro"):
        avro_schema(
            value_schema(
                "t", RowStruct((RowField("a b", Primitive("int")), RowField("a_b", Primitive("int")))), HandlingModes()
            )
        )
