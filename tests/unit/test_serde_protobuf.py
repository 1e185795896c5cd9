"""Protobuf by registry: Confluent's frame with message indexes, Connect's schemas, imports, known messages."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import timestamp_pb2, wrappers_pb2

from serde.messages import DecodedMessages
from serde.protobuf.deserializer import ProtobufDeserializer
from tests.model import protobuf
from tests.model.protobuf import Field, File

CONNECT_SCHEMA = """
syntax = "proto3";
package p.public.items;

import "google/type/date.proto";
import "google/type/timeofday.proto";
import "google/protobuf/timestamp.proto";
import "confluent/type/decimal.proto";
import "confluent/meta.proto";

option java_package = "p"; /* what a generator adds */

message Envelope {
  option (confluent.message_meta) = { doc: "not looked at" };
  Value before = 1;
  Value after = 2;
  Source source = 3;
  string op = 5;
  optional int64 ts_ms = 6;

  message Value {
    int32 id = 1;
    optional string name = 2;
    confluent.type.Decimal price = 3 [(confluent.field_meta) = {
      params: [
        { value: "10", key: "precision" },
        { value: "2", key: "scale" }
      ]
    }];
    google.type.Date day = 4;
    google.type.TimeOfDay clock = 5;
    google.protobuf.Timestamp at = 6;
    int32 small = 7 [(confluent.field_meta) = { params: { key: "connect.type", value: "int16" } }];
    VariableScaleDecimal any = 8;
    repeated string tags = 9;
    map<string, int32> counts = 10;

    message VariableScaleDecimal {
      int32 scale = 1;
      bytes value = 2;
    }
  }
  message Source {
    string connector = 1;
    string db = 2;
    string table = 3;
    int64 ts_ms = 4;
  }
}
"""
"""As Connect's converter registers an envelope, with optional.for.nullables=true."""


def sized(number: int, data: bytes) -> bytes:
    """A field of bytes, a message or text."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(field: int, value: int) -> bytes:
    """A field of a varint."""
    return varint(field << 3) + varint(value & (1 << 64) - 1)


def varint(value: int) -> bytes:
    """Seven bits a byte, least first."""
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


VALUE = (
    number(1, 7)
    + sized(2, "ä".encode())
    + sized(3, sized(1, (-1234).to_bytes(2, "big", signed=True)) + number(2, 4) + number(3, 2))
    + sized(4, number(1, 2024) + number(2, 2) + number(3, 29))
    + sized(5, number(1, 23) + number(2, 59) + number(3, 58) + number(4, 999_000_000))
    + sized(6, number(1, -1) + number(2, 999_999_000))
    + number(7, -300)
    + sized(8, number(1, 3) + sized(2, b"\x04\xd2"))
    + sized(9, b"a")
    + sized(9, b"b")
    + sized(10, sized(1, b"x") + number(2, 5))
)
SOURCE = sized(1, b"postgresql") + sized(2, b"db") + sized(3, b"items") + number(4, 1000)
ENVELOPE = sized(2, VALUE) + sized(3, SOURCE) + sized(5, b"c") + number(6, 2000)
ROW = {
    "id": 7,
    "name": "ä",
    "price": Decimal("-12.34"),
    "day": dt.date(2024, 2, 29),
    "clock": dt.time(23, 59, 58, 999_000),
    "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    "small": -300,
    "any": "1.234",
    "tags": ["a", "b"],
    "counts": [("x", 5)],
}


def read(
    *messages: bytes | None, text: str = CONNECT_SCHEMA, imports: tuple[str, ...] = (), **more: Any
) -> DecodedMessages:
    """Framed messages decoded by a registry that has one schema."""
    deserializer = ProtobufDeserializer(protobuf.fetch(*imports, text), **more)
    return deserializer.decode(pa.array(messages, pa.binary()), "VALUE_CONVERTER")


def only(outcome: DecodedMessages) -> list[Any]:
    """Rows of the only block, where nothing is a fault."""
    assert outcome.faults == ()
    return outcome.blocks[0].fields.to_pylist()


def test_an_envelope_as_connect_writes_it() -> None:
    """Connect's own types are those of Google and Confluent; absent messages and optional fields are null."""
    (found,) = only(read(protobuf.framed(ENVELOPE)))
    assert (found["after"], found["before"], found["op"], found["ts_ms"]) == (ROW, None, "c", 2000)
    assert found["source"] == {"connector": "postgresql", "db": "db", "table": "items", "ts_ms": 1000}


def test_what_is_absent_is_null_or_zero() -> None:
    """A field without presence has its type's zero, another is null; lists and maps are empty."""
    (found,) = only(read(protobuf.framed(sized(2, b"") + sized(3, b""))))
    assert found["after"] == {**dict.fromkeys(ROW), "id": 0, "small": 0, "tags": [], "counts": []}


def test_only_wanted_fields_are_read() -> None:
    """Of an envelope the images and the wanted paths are read, as in other formats."""
    (found,) = only(read(protobuf.framed(ENVELOPE), wanted=frozenset({"op", "source.ts_ms"})))
    assert found == {"before": None, "after": ROW, "source": {"ts_ms": 1000}, "op": "c"}


NESTED = """
syntax = "proto2"; package n;
message A {
  required int32 x = 1;
  message B { optional int32 y = 1 [default = 3]; }
  message C { message D { optional string z = 1; } }
}
message E { repeated A.B bs = 1; }
"""


@pytest.mark.parametrize(
    ("indexes", "message", "row"),
    [
        (b"\0", number(1, 1), {"x": 1}),
        (b"\x02\0", number(1, 2), {"x": 2}),
        (b"\x04\0\0", b"", {"y": None}),
        (b"\x06\0\x02\0", sized(1, b"z"), {"z": "z"}),
        (b"\x02\x02", sized(1, number(1, 5)) + sized(1, b""), {"bs": [{"y": 5}, {"y": None}]}),
    ],
    ids=["first", "first in full", "nested", "nested twice", "second"],
)
def test_indexes_name_the_message(indexes: bytes, message: bytes, row: dict[str, Any]) -> None:
    """The indexes behind the id are a path to the message; one zero stands for the first."""
    assert only(read(protobuf.framed(message, indexes=indexes), text=NESTED)) == [row]


def test_messages_of_several_paths_are_told_apart() -> None:
    """Records of one schema id with other indexes become blocks of their own; wrong indexes are dead letters."""
    outcome = read(
        protobuf.framed(number(1, 1)),
        protobuf.framed(b"", indexes=b"\x04\0\0"),
        protobuf.framed(b"", indexes=b"\x02\x06"),
        protobuf.framed(b"", indexes=b"\x03"),
        protobuf.framed(b"", indexes=b"\x80"),
        protobuf.framed(b"", indexes=b""),
        protobuf.framed(b"", indexes=b"\x04\0\x03"),
        None,
        text=NESTED,
    )
    assert [(block.rows.tolist(), block.name) for block in outcome.blocks] == [([0], "n.A"), ([1], "n.A.B")]
    assert [fault.row for fault in outcome.faults] == [2, 3, 4, 5, 6]
    assert outcome.tombstones.tolist() == [7]


def test_imports_and_names() -> None:
    """Names are found from the inside out, in what the registry says the schema refers to."""
    other = 'syntax = "proto3"; package o.types; message Money { int64 units = 1; } enum Side { BUY = 0; SELL = 1; }'
    text = (
        'syntax = "proto3"; package o; import "other.proto";'
        "message M { types.Money a = 1; .o.types.Side b = 2; Money c = 3; message Money { string d = 1; } }"
    )
    message = sized(1, number(1, 5)) + number(2, 1) + sized(3, sized(1, b"x"))
    found = only(read(protobuf.framed(message), protobuf.framed(number(2, 9)), text=text, imports=(other,)))
    assert found[0] == {"a": {"units": 5}, "b": "SELL", "c": {"d": "x"}}
    assert found[1]["b"] == "9"
    (fault,) = read(protobuf.framed(message), text=text).faults
    assert fault.reason == (
        "schema id 7: writer schema cannot be read: it has a field of a type that is not defined: types.Money"
    )


def test_wrappers_are_values_that_may_be_null() -> None:
    """Google's wrappers are their value (wrapper.for.nullables); as a key of its own one is the key's field."""
    text = 'syntax = "proto3"; message M { google.protobuf.Int64Value a = 1; google.protobuf.StringValue b = 2; }'
    message = sized(1, wrappers_pb2.Int64Value(value=-5).SerializeToString()) + sized(2, b"")
    assert only(read(protobuf.framed(message), protobuf.framed(b""), text=text)) == [
        {"a": -5, "b": ""},
        {"a": None, "b": None},
    ]
    wrapper = 'syntax = "proto3"; package google.protobuf; message Int64Value { int64 value = 1; }'
    key = wrappers_pb2.Int64Value(value=9).SerializeToString()
    deserializer = ProtobufDeserializer(protobuf.fetch(wrapper))
    expected = pa.struct([("id", pa.int64())])
    found = deserializer.decode(pa.array([protobuf.framed(key)]), "KEY_CONVERTER", expected)
    assert only(found) == [{"id": 9}]


@pytest.mark.parametrize(
    ("kind", "message", "value"),
    [
        ("google.protobuf.Timestamp", timestamp_pb2.Timestamp(seconds=-62135596800), dt.datetime(1, 1, 1)),
        ("google.protobuf.Timestamp", timestamp_pb2.Timestamp(seconds=253402300800), None),
        ("google.protobuf.Timestamp", timestamp_pb2.Timestamp(nanos=1), None),
        ("google.type.Date", number(1, 2023) + number(2, 2) + number(3, 28), dt.date(2023, 2, 28)),
        ("google.type.Date", number(1, 2023) + number(2, 2) + number(3, 29), None),
        ("google.type.Date", number(1, 2023) + number(2, 12) + number(3, 31), dt.date(2023, 12, 31)),
        ("google.type.Date", number(1, 2023), None),
        ("google.type.TimeOfDay", b"", dt.time(0)),
        ("google.type.TimeOfDay", number(1, 24), None),
        ("google.type.TimeOfDay", number(2, 60), None),
        ("google.type.TimeOfDay", number(4, 1500), None),
        ("confluent.type.Decimal", sized(1, b"\xff") + number(3, 20), "-0.00000000000000000001"),
        ("confluent.type.Decimal", b"", None),
    ],
    ids=str,
)
def test_known_messages(kind: str, message: Any, value: Any) -> None:
    """Each known message is its value; what is none, or finer than a column holds, is a dead letter that names it."""
    data = message if isinstance(message, bytes) else message.SerializeToString()
    text = f'syntax = "proto3"; message M {{ {kind} a = 1; }}'
    outcome = read(protobuf.framed(sized(1, data)), protobuf.framed(b""), text=text)
    assert [row["a"] for row in outcome.blocks[0].fields.to_pylist()] == [*([] if value is None else [value]), None]
    assert [fault.reason.split(":")[0] for fault in outcome.faults] == (["field a"] if value is None else [])


def test_dates_and_times_may_be_text() -> None:
    """Columns that are text by option hold ISO text here too; decimals all their digits."""
    words = frozenset({"at", "day", "clock"})
    (found,) = only(read(protobuf.framed(ENVELOPE), words=words, numbers=frozenset({"price"})))
    row = found["after"]
    assert (row["at"], row["day"], row["clock"]) == ("1969-12-31T23:59:59.999999", "2024-02-29", "23:59:58.999000")
    assert row["price"] == "-12.34"


@pytest.mark.parametrize(
    ("kind", "message", "text"),
    [
        ("google.protobuf.Timestamp", timestamp_pb2.Timestamp(nanos=5), "1970-01-01T00:00:00.000000005"),
        ("google.protobuf.Timestamp", timestamp_pb2.Timestamp(seconds=-1, nanos=1001), "1969-12-31T23:59:59.000001001"),
        ("google.protobuf.Timestamp", timestamp_pb2.Timestamp(nanos=5000), "1970-01-01T00:00:00.000005"),
        ("google.protobuf.Timestamp", timestamp_pb2.Timestamp(nanos=1_000_000_000), None),
        ("google.protobuf.Timestamp", timestamp_pb2.Timestamp(seconds=1 << 60), None),
        ("google.type.TimeOfDay", number(1, 24), "24:00:00"),
        ("google.type.TimeOfDay", number(4, 1500), "00:00:00.000001500"),
        ("google.type.Date", number(1, 2023), None),
    ],
    ids=str,
)
def test_text_columns_hold_what_is_finer_than_a_microsecond(kind: str, message: Any, text: str | None) -> None:
    """Text columns have all nine digits of a time, and its fault elsewhere names them; no time is a dead letter."""
    data = message if isinstance(message, bytes) else message.SerializeToString()
    schema = f'syntax = "proto3"; message M {{ {kind} a = 1; }}'
    record = protobuf.framed(sized(1, data))
    outcome = read(record, protobuf.framed(b""), text=schema, words=frozenset({"a"}))
    assert [row["a"] for row in outcome.blocks[0].fields.to_pylist()] == [*([] if text is None else [text]), None]
    assert all("temporal-as-text" in fault.reason for fault in read(record, text=schema).faults if text is not None)


_DECIMAL = "precision", "scale"


@pytest.mark.parametrize("pair", [("0", "0"), ("ten", "2"), ("10", "two")])
def test_a_decimal_whose_schema_says_nonsense_is_a_dead_letter(pair: tuple[str, str]) -> None:
    """A schema with a precision or scale that no decimal has costs its own messages, and stops nothing."""
    precision, scale = (f'{{ key: "{key}", value: "{value}" }}' for key, value in zip(_DECIMAL, pair, strict=True))
    option = f"[(confluent.field_meta) = {{ params: [ {precision}, {scale} ] }}]"
    schema = f'syntax = "proto3"; message M {{ confluent.type.Decimal a = 1 {option}; }}'
    (fault,) = read(protobuf.framed(sized(1, b"")), text=schema).faults
    assert "writer schema cannot be read" in fault.reason


def test_a_decimal_of_another_scale_is_a_fault() -> None:
    """A value whose scale is not its schema's is a dead letter: its digits mean something else."""
    value = sized(3, sized(1, b"\x05") + number(3, 4))
    (fault,) = read(protobuf.framed(sized(2, value))).faults
    assert "after.price" in fault.reason


def test_messages_inside_of_themselves_are_bytes() -> None:
    """A type that contains itself has no columns: what is inside is kept as bytes."""
    text = 'syntax = "proto3"; message M { string a = 1; M next = 2; google.protobuf.Struct s = 3; }'
    (found,) = only(read(protobuf.framed(sized(1, b"x") + sized(2, sized(1, b"y"))), text=text))
    assert found == {"a": "x", "next": sized(1, b"y"), "s": None}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it defines no message"),
        ("{}", "line 1 is no Protobuf"),
        ('syntax = "proto3"; message M { int32 a = 1', "is no Protobuf"),
        ('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "a field number occurs twice"),
        ('syntax = "proto3"; message M { int32 a = 1; string a = 2; }', "a field name occurs twice"),
        ('syntax = "proto2"; message M { optional group G = 1 { optional int32 a = 1; } }', "group"),
        ('syntax = "proto3"; message M { Lost a = 1; }', "not defined: Lost"),
        ('syntax = "proto3"; enum E { A = 0; }', "no message of the index"),
    ],
    ids=["empty", "JSON", "cut", "number twice", "name twice", "group", "undefined", "enum only"],
)
def test_schemas_that_cannot_be_used(text: str, said: str) -> None:
    """A schema that cannot be used costs its records, which say why."""
    (fault,) = read(protobuf.framed(b""), text=text).faults
    assert said in fault.reason and fault.reason.startswith("schema id 7: ")


def test_many_items_and_fields_that_come_again() -> None:
    """Very many items are read one by one; of fields that come again the last counts, messages are merged."""
    inner = "message B { int32 x = 1; int32 y = 2; }"
    text = f'syntax = "proto3"; message M {{ repeated string a = 1; B b = 2; int32 c = 3; {inner} }}'
    many = b"".join(sized(1, str(index).encode()) for index in range(300))
    again = sized(2, number(1, 1)) + number(3, 1) + sized(2, number(2, 2)) + number(3, 2)
    found = only(read(protobuf.framed(many), protobuf.framed(again), text=text))
    assert found[0]["a"] == [str(index) for index in range(300)]
    assert found[1] == {"a": [], "b": {"x": 1, "y": 2}, "c": 2}


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_keys_of_maps(syntax: str) -> None:
    """A key that is absent is its type's zero; one that is no UTF-8 costs its own message, not those beside it."""
    pair = "optional string key = 1; optional int32 value = 2;" if syntax == "proto2" else ""
    kind = "repeated MEntry" if syntax == "proto2" else "map<string, int32>"
    text = f'syntax = "{syntax}"; message M {{ {kind} m = 1; message MEntry {{ {pair} }} }}'
    absent, wrong, right = (sized(1, key + number(2, 5)) for key in (b"", sized(1, b"\xff"), sized(1, b"k")))
    outcome = read(*(protobuf.framed(m) for m in (right + wrong, absent, right)), text=text)
    assert outcome.blocks[0].fields.to_pylist() == [{"m": [("", 5)]}, {"m": [("k", 5)]}]
    (fault,) = outcome.faults
    assert fault.row == 0 and "no UTF-8" in fault.reason


def test_packed_or_not() -> None:
    """Repeated numbers lie packed or one by one, whatever the schema says; a mixture is read too."""
    text = 'syntax = "proto3"; message M { repeated sint32 a = 1; repeated double b = 2 [packed = false]; }'
    one_by_one = number(1, 1) + number(1, 4)
    packed = sized(1, b"\x01\x04" + varint(2**32 - 1))
    found = only(
        read(*(protobuf.framed(m) for m in (one_by_one, packed, one_by_one + packed, packed + packed)), text=text)
    )
    assert [row["a"] for row in found] == [[-1, 2], [-1, 2, -(2**31)], [-1, 2, -1, 2, -(2**31)], [-1, 2, -(2**31)] * 2]
    (fault,) = read(protobuf.framed(sized(1, b"\x80")), text=text).faults
    assert "ends before" in fault.reason


@pytest.mark.parametrize(
    "message",
    [
        b"\x07",
        b"\x00\x00",
        b"\x0b\x0c",
        b"\x08",
        b"\x0a\x05x",
        b"\x0a\x01x",
        b"\x08" + b"\xff" * 10 + b"\x01",
        b"\x0d\0\0",
    ],
    ids=[
        "wire type 7",
        "field 0",
        "group",
        "no value",
        "too short",
        "text for a number",
        "endless",
        "four bytes of two",
    ],
)
def test_garbage_is_a_dead_letter(message: bytes) -> None:
    """What is no message of its schema is a fault without content; its neighbours are read."""
    text = 'syntax = "proto3"; message M { int32 a = 1; string b = 2; }'
    good = number(1, 5) + sized(2, b"x")
    outcome = read(protobuf.framed(good), protobuf.framed(message), protobuf.framed(good), text=text)
    assert [fault.row for fault in outcome.faults] == [1]
    assert outcome.blocks[0].fields.to_pylist() == [{"a": 5, "b": "x"}] * 2


def test_fields_that_the_schema_does_not_know_are_passed_over() -> None:
    """A writer may keep fields of a newer schema: as everywhere in Protobuf they are passed over."""
    message = number(1, 5) + sized(90, b"new") + number(91, 3)
    assert only(read(protobuf.framed(message), text='syntax = "proto3"; message M { int32 a = 1; }')) == [{"a": 5}]


def test_a_descriptor_is_read_like_its_text() -> None:
    """A file descriptor in base64 is the same schema as its text; unsigned longs beyond 2^63 are dead letters."""
    file = File(name="t", package="t", syntax="proto3")
    made = file.message_type.add(name="M")
    made.field.add(name="a", number=1, type=Field.TYPE_UINT64, label=Field.LABEL_OPTIONAL)
    for text in (protobuf.text_of(file), protobuf.encoded(file)):
        outcome = read(protobuf.framed(number(1, 2**63 - 1)), protobuf.framed(number(1, 2**63)), text=text)
        assert outcome.blocks[0].fields.to_pylist() == [{"a": 2**63 - 1}]
        assert [fault.row for fault in outcome.faults] == [1]
