"""JSON messages -> blocks: framing, alignment, faults, discovery of types."""

from __future__ import annotations

import json
import pickle
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connector.iceberg.types.schemas.arrow_types import build_table_schema, to_arrow_schema
from serde.faults import Unfit
from serde.formats import make_deserializer
from serde.json.columns import column_reader
from serde.json.row_reader import parse_message
from tests.unit.json_messages import VALUE, decode, dump, framed, keys, rows

INT_KEY = {"type": "struct", "fields": [{"type": "int32", "optional": False, "field": "id"}], "name": "k.Key"}


NUMBERS = ["0", "7", "-7", "10", "9" * 18, "-" + "9" * 18, "123456789012345678", "1000000000000000"]
ODD_NUMBERS = [
    "9" * 19,
    "1" * 30,
    "007",
    "-0",
    "+1",
    "1.0",
    "1e3",
    "-",
    "",
    "null",
    "true",
    '"1"',
    "1 ",
    " 1",
    "1,2",
    "0x1",
    "\u0661",
    "{}",
    "[1]",
]


@pytest.mark.parametrize("odd", [*ODD_NUMBERS, '1,"id":2', '1}{"id":2', '1}\n{"id":2', '1,"b":3'])
def test_single_numbers_are_what_a_parser_says(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of one number are read without a parser; one that is written otherwise is what it is among few."""
    known = pa.struct([("id", pa.int64())])
    good = [b'{"id":%s}' % word.encode() for word in NUMBERS] * 40
    parsed: list[int] = []
    usual = column_reader._parse
    monkeypatch.setattr(column_reader, "_parse", lambda *given, **more: parsed.append(1) or usual(*given, **more))
    for fmt in ("json", "auto"):
        reader = make_deserializer(fmt)
        parsed.clear()
        decoded = reader.decode(pa.array(good, pa.binary()), "KEY_CONVERTER", known)
        assert rows(decoded) == {place: {"id": int(NUMBERS[place % len(NUMBERS)])} for place in range(len(good))}
        assert not parsed
        one = b'{"id":%s}' % odd.encode()
        few, many = (
            make_deserializer(fmt).decode(pa.array(keys, pa.binary()), "KEY_CONVERTER", known)
            for keys in ([*good[:8], one], [*good, one])
        )
        assert rows(many).get(len(good)) == rows(few).get(8)
        assert [fault.reason for fault in many.faults] == [fault.reason for fault in few.faults]
        assert len(many.tombstones) == len(few.tombstones)


def test_columns_that_no_message_has_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only the table has costs the parser nothing; where it comes after all it has the table's type."""
    read: list[list[str]] = []
    usual = column_reader._parse

    def note(lines: pa.Buffer, kind: pa.StructType, *, strict: bool) -> pa.Table:
        read.append(sorted(kind.names))
        return usual(lines, kind, strict=strict)

    monkeypatch.setattr(column_reader, "_parse", note)
    known = pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    reader = make_deserializer("json")
    few = [b'{"a":1,"c":null}'] * 300
    one = b'{"a":2,"b":"x","c":1}'
    for messages, first in (
        (few, ["a", "c"]),
        (few, ["a", "c"]),
        ([*few, one, *few], ["a", "c"]),
        (few, ["a", "b", "c"]),
    ):
        read.clear()
        decoded = reader.decode(pa.array(messages, pa.binary()), VALUE, known)
        assert read[0] == first
        (block,) = decoded.blocks
        assert len(block.rows) == len(messages)
        assert not decoded.faults
        if one in messages:
            assert block.fields.to_pylist()[300] == {"a": 2, "b": "x", "c": 1.0}


def test_bare_object_gives_wire_types() -> None:
    """Whole numbers are int64, fractions double, and the rest what JSON says."""
    decoded = decode(b'{"i":1,"d":1.5,"s":"x","b":true,"l":[1,2],"o":{"x":null,"y":2}}')
    (block,) = decoded.blocks
    assert block.fields.type == pa.struct(
        [
            ("i", pa.int64()),
            ("d", pa.float64()),
            ("s", pa.string()),
            ("b", pa.bool_()),
            ("l", pa.list_(pa.int64())),
            ("o", pa.struct([("y", pa.int64())])),
        ]
    )


def test_dates_and_long_digits_stay_text_and_int64() -> None:
    """Text that looks like a time stays text, and the largest int64 keeps its last digit."""
    decoded = decode(b'{"t":"2024-01-01T00:00:00Z","n":9223372036854775807}')
    assert rows(decoded) == {0: {"t": "2024-01-01T00:00:00Z", "n": 9223372036854775807}}


def test_every_row_is_in_exactly_one_place() -> None:
    """Rows, tombstones and faults share out the input."""
    block = framed([{"type": "int32", "field": "id"}], {"id": 1})
    decoded = decode(b'{"a":1}', None, b"null", b"", b"\xff", b"[1]", b"7", block, b" {} ", b'{"a":', b'{"a":2}')
    assert sorted(rows(decoded)) == [0, 7, 8, 10]
    assert decoded.tombstones.tolist() == [1, 2]
    assert [fault.row for fault in decoded.faults] == [3, 4, 5, 6, 9]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_slices_of_any_binary_array_are_honoured(kind: pa.DataType) -> None:
    """A slice gives the rows of the slice, whatever the width of its offsets."""
    data = pa.array(['{"a":0}', '{"a":1}', None, '{"a":3}', "junk", '{"a":5}'], kind).slice(1, 4)
    decoded = make_deserializer("auto").decode(data, "VALUE_CONVERTER")
    assert rows(decoded) == {0: {"a": 1}, 2: {"a": 3}}
    assert decoded.tombstones.tolist() == [1]
    assert [fault.row for fault in decoded.faults] == [3]


def test_messages_that_complete_each_other_are_both_refused() -> None:
    """Half messages that make a whole one together do not shift the rows between."""
    broken = [b'{"a":"x}', b'{"a":1}', b'{"b":"y"}', b'{"a":2}{"a":3}', b'{"a":{}', b"{}}", b'{"a":4}']
    decoded = decode(*broken)
    assert {row: value.get("a") for row, value in rows(decoded).items()} == {1: 1, 2: None, 6: 4}


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1e400}',
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b'{"a":"x\ty"}',
        b'{"a":01}',
    ],
)
def test_what_is_no_json_is_a_fault_and_costs_no_neighbour(text: bytes) -> None:
    """The reader's own tolerance (bare NaN, raw bytes) is not ours."""
    decoded = decode(b'{"a":1.5}', text, b'{"a":2.5}')
    assert rows(decoded) == {0: {"a": 1.5}, 2: {"a": 2.5}}
    assert [(fault.row, fault.stage) for fault in decoded.faults] == [(1, VALUE)]


def test_deep_nesting_is_a_fault_not_a_crash() -> None:
    """A message nested far too deep costs itself alone."""
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    decoded = decode(b'{"a":1}', deep, b'{"a":2}')
    assert rows(decoded) == {0: {"a": 1}, 2: {"a": 2}}


@pytest.mark.parametrize("fmt", ["auto", "json"])
@pytest.mark.parametrize("depth", [51, 101, 300, 1000, 1020, 100_000])
@pytest.mark.parametrize(("left", "right"), [(b'{"a":', b"}"), (b'{"a":[', b"]}")])
def test_each_depth_is_read_or_refused(fmt: Any, depth: int, left: bytes, right: bytes) -> None:
    """Whatever its depth, a document without schema never breaks the reading of its neighbours."""
    deep = left * depth + b"1" + right * depth
    decoded = decode(deep, b'{"b":1}', fmt=fmt)
    assert [fault.row for fault in decoded.faults] == [0]
    assert rows(decoded) == {1: {"b": 1}}


def test_a_deep_value_beside_a_schema_that_is_not_read_is_refused() -> None:
    """Where the converter reads no schemas, schema and payload are columns like others."""
    found = decode(b'{"schema":{"type":"x"},"payload":' + b'{"a":' * 60 + b"1" + b"}" * 61, fmt="json")
    assert not found.blocks
    assert [fault.reason for fault in found.faults] == ["nested more than 50 deep"]


def test_a_schema_beside_a_value_may_be_twice_as_deep() -> None:
    """A level of a value is two of its schema, which no column becomes; without schema the frame is no level at all."""
    schema: dict[str, Any] = {"type": "int32"}
    for _ in range(40):
        schema = {"type": "struct", "fields": [{**schema, "field": "a"}]}
    message = json.dumps({"schema": schema, "payload": 1}).encode()
    assert parse_message(message) == json.loads(message)
    with pytest.raises(Unfit, match="nested more than 50 deep"):
        parse_message(message, framed=False)
    bare = b'{"schema":null,"payload":' + b"[" * 50 + b"]" * 50 + b"}"
    assert parse_message(bare) == json.loads(bare)
    with pytest.raises(Unfit, match="nested more than 50 deep"):
        parse_message(bare.replace(b"[]", b"[[]]"))


def test_the_deepest_document_that_is_read_can_be_a_column() -> None:
    """A document just within the limit becomes a type that an Iceberg table can have, and the value in it."""
    (block,) = decode(b'{"a":' * 50 + b"1" + b"}" * 50).blocks
    columns = pa.schema(list(block.fields.type))
    assert pickle.loads(pickle.dumps(columns)) == columns
    schema = build_table_schema(columns, (), frozenset(), nanoseconds=False)
    assert to_arrow_schema(schema).names == ["a"]


def test_integer_beyond_int64_is_a_fault() -> None:
    """A number that only a double could hold, and not exactly, is refused in a column of whole numbers."""
    decoded = decode(b'{"a":1}', b'{"a":9223372036854775808}', b'{"a":123456789012345678901234567890}')
    assert rows(decoded) == {0: {"a": 1}}
    assert {fault.reason for fault in decoded.faults} == {"field a: number beyond the column's range (int64)"}


def test_whole_and_real_numbers_make_a_double() -> None:
    """One fraction among many whole numbers widens the column, wherever it stands."""
    messages = [b'{"a":%d}' % index for index in range(500)]
    messages[333] = b'{"a":0.5}'
    decoded = decode(*messages)
    assert decoded.blocks[0].fields.type.field("a").type == pa.float64()
    assert not decoded.faults and rows(decoded)[333] == {"a": 0.5} and rows(decoded)[499] == {"a": 499.0}


def test_new_field_in_a_late_message_is_noticed() -> None:
    """A column that one message of thousands has is found, and converters that know an older type find it too."""
    json_converter = make_deserializer("json")
    first = pa.array([b'{"a":1}'] * 3000, pa.binary())
    second = pa.array([b'{"a":1}'] * 2999 + [b'{"a":1,"n":{"x":"y"}}'], pa.binary())
    json_converter.decode(first, "VALUE_CONVERTER")
    decoded = json_converter.decode(second, "VALUE_CONVERTER")
    assert rows(decoded)[2999] == {"a": 1, "n": {"x": "y"}} and len(rows(decoded)) == 3000


def test_minority_kind_is_a_fault() -> None:
    """Where text and number exclude each other the more frequent kind wins."""
    decoded = decode(*[b'{"a":1}'] * 5, b'{"a":"x"}')
    assert len(rows(decoded)) == 5
    assert [fault.reason for fault in decoded.faults] == ["field a: not a number (int64)"]


def test_text_column_takes_numbers_as_text() -> None:
    """A column that was text stays text when the source made it a number (evolve.c of the fixtures)."""
    expected = pa.struct([("c", pa.string())])
    decoded = decode(b'{"c":888}', b'{"c":true}', b'{"c":"c1"}', expected=expected)
    assert [value["c"] for value in rows(decoded).values()] == ["888", "true", "c1"]


def test_expected_columns_apply_to_the_images_of_an_envelope() -> None:
    """Known columns decide inside before and after."""
    message = b'{"before":null,"after":{"c":888},"source":{"ts_ms":1},"op":"c"}'
    decoded = decode(message, expected=pa.struct([("c", pa.string())]))
    assert rows(decoded)[0]["after"] == {"c": "888"}


def test_words_for_missing_numbers_are_read_in_number_columns_only() -> None:
    """NaN and the infinities come as words; in a text column they are text."""
    decoded = decode(b'{"d":1.5,"s":"x"}', b'{"d":"NaN","s":"NaN"}', b'{"d":"-Infinity","s":"y"}')
    assert np.isnan(rows(decoded)[1]["d"]) and rows(decoded)[1]["s"] == "NaN" and rows(decoded)[2]["d"] == -np.inf


def test_duplicate_key_takes_the_last_value() -> None:
    """An object that names a field twice is read as Jackson reads it."""
    assert rows(decode(b'{"a":1,"a":2}', b'{"a":3}')) == {0: {"a": 2}, 1: {"a": 3}}


def test_schema_block_is_recognised_in_any_spelling() -> None:
    """Spaces and key order do not matter: the same schema is one block."""
    compact = framed([{"type": "int32", "optional": False, "field": "id"}], {"id": 1})
    document = json.loads(compact)
    spaced = json.dumps(document, indent=1).encode()
    swapped = dump({"payload": {"id": 3}, "schema": document["schema"]})
    decoded = decode(compact, spaced, swapped, b'{"schema":null,"payload":{"id":4}}')
    assert {block.schema_id != "": block.rows.tolist() for block in decoded.blocks} == {True: [0, 1, 2], False: [3]}
    assert decoded.blocks[0].optional == {"id": False} and decoded.blocks[0].name == "t.Value"


@pytest.mark.parametrize("space", [b"\n:{", b" :{", b"\t:\t{", b":  {", b":\r\n{", b":\t{"], ids=repr)
def test_a_schema_block_is_one_however_it_is_spaced(space: bytes) -> None:
    """Wherever there is white space before the block, it is no column of that name."""
    message = framed([{"type": "int32", "optional": False, "field": "id"}], {"id": 1})
    assert rows(decode(message.replace(b'"schema":{', b'"schema"' + space, 1))) == {0: {"id": 1}}


@pytest.mark.parametrize("value", [b'"x"', b"5", b"-1", b"true", b"false", b"[1]"])
def test_a_column_called_schema_is_one(value: bytes) -> None:
    """A row whose first column has that name, and a value that is no schema, is a row."""
    assert set(rows(decode(b'{"schema":' + value + b',"payload":{"a":1}}'))[0]) == {"schema", "payload"}


def test_null_payloads_are_tombstones() -> None:
    """A null value is a tombstone with and without a schema block."""
    decoded = decode(b"null", framed([], None), b'{"schema":null,"payload":null}', b'{"payload":null,"schema":null}')
    assert decoded.tombstones.tolist() == [0, 1, 2, 3] and not decoded.faults


def test_schema_field_named_payload_does_not_cut_the_block() -> None:
    """The end of the block is found by its structure."""
    message = framed([{"type": "string", "field": "a", "doc": ',"payload":'}], {"a": '{"schema":{},"payload":1}'})
    assert rows(decode(message)) == {0: {"a": '{"schema":{},"payload":1}'}}


def test_row_with_columns_schema_and_payload_is_a_row() -> None:
    """A table may have columns of these names."""
    for message in (b'{"schema":"public","payload":1}', b'{"schema":{"a":1},"payload":2,"x":3}'):
        assert rows(decode(message)) == {0: json.loads(message)}


def test_unknown_payload_field_is_ignored_with_a_schema() -> None:
    """The schema block alone says which fields there are."""
    assert rows(decode(framed([{"type": "int32", "field": "id"}], {"id": 1, "other": []}))) == {0: {"id": 1}}


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("int32", 5_000_000_000, "number beyond the column's range (int32)"),
        ("int16", 40_000, "number beyond the column's range (int16)"),
        ("int32", "5", "not a number (int32)"),
        ("int64", 1.5, "not a whole number (int64)"),
        ("string", 5, "not a string (string)"),
        ("boolean", 1, "not a boolean (boolean)"),
        ("double", "x", "not a number (double)"),
    ],
)
def test_value_of_the_wrong_type_is_a_fault_that_names_the_field(kind: str, value: Any, reason: str) -> None:
    """The neighbours of a wrong value stay, and the reason holds no content."""
    good = framed([{"type": kind, "optional": True, "field": "f"}], {"f": None})
    decoded = decode(good, framed([{"type": kind, "optional": True, "field": "f"}], {"f": value}), good)
    assert sorted(rows(decoded)) == [0, 2]
    assert [fault.reason for fault in decoded.faults] == [f"field f: {reason}"]


@pytest.mark.parametrize(
    "block", [{"type": "int32"}, {"type": "wrong"}, {"type": "struct"}, {"type": "struct", "fields": [7]}]
)
def test_schema_that_cannot_be_used_faults_its_rows(block: Any) -> None:
    """A schema that is no struct or malformed costs its own messages."""
    decoded = decode(dump({"schema": block, "payload": {"id": 1}}), b'{"id":1}')
    assert sorted(rows(decoded)) == [1] and [fault.row for fault in decoded.faults] == [0]


def test_format_json_takes_the_whole_message() -> None:
    """With schemas disabled nothing is unframed."""
    assert rows(decode(b'{"schema":{"type":"a"},"payload":{"id":1}}', fmt="json"))[0]["payload"] == {"id": 1}


def test_format_json_schema_refuses_bare_messages() -> None:
    """With schemas enabled a message without a block is a fault."""
    decoded = decode(framed([{"type": "int32", "field": "id"}], {"id": 1}), b'{"id":1}', fmt="json-schema")
    assert sorted(rows(decoded)) == [0] and [fault.row for fault in decoded.faults] == [1]


def test_key_that_is_no_struct_is_a_fault() -> None:
    """Plain text and numbers are no keys of a table."""
    keys = [
        dump({"schema": INT_KEY, "payload": {"id": 1}}),
        b'"text"',
        b"5",
        dump({"schema": INT_KEY, "payload": 5}),
        None,
    ]
    decoded = make_deserializer("auto").decode(pa.array(keys, pa.binary()), "KEY_CONVERTER")
    assert rows(decoded) == {0: {"id": 1}} and decoded.tombstones.tolist() == [4]
    assert {(fault.row, fault.stage, fault.reason) for fault in decoded.faults} == {
        (row, "KEY_CONVERTER", "key is not a struct") for row in (1, 2, 3)
    }


def test_both_shapes_in_one_batch_are_separate_blocks() -> None:
    """Envelopes and flattened events of one topic do not mix."""
    envelope = b'{"before":null,"after":{"id":1},"source":{"ts_ms":1},"op":"c","ts_ms":2}'
    decoded = decode(envelope, b'{"id":2,"__op":"c"}', envelope)
    assert [block.rows.tolist() for block in decoded.blocks] == [[0, 2], [1]]
    assert decoded.blocks[1].fields.type == pa.struct([("id", pa.int64()), ("__op", pa.string())])


def test_nothing_gives_nothing() -> None:
    """An empty batch is no error."""
    decoded = decode()
    assert decoded.blocks == () and decoded.faults == () and len(decoded.tombstones) == 0


def test_a_schema_block_with_spaces_is_one() -> None:
    """`{"schema": {...}, "payload": {...}}`, as Python writes it, is told from a bare row."""
    message = b'{"schema": {"type": "struct", "fields": [{"type": "int32", "field": "id"}]}, "payload": {"id": 7}}'
    (block,) = make_deserializer("auto").decode(pa.array([message], pa.binary()), "VALUE_CONVERTER").blocks
    assert block.fields.to_pylist() == [{"id": 7}]
    assert block.schema_id


def _single(schema: dict[str, Any], payload: Any) -> bytes:
    return dump({"schema": schema, "payload": payload})


def test_a_key_that_is_one_value_is_a_field() -> None:
    """A bare number or text is the only field of its key, with a schema block or without; nulls stay tombstones."""
    number = {"type": "int64", "optional": False}
    decoded = keys(_single(number, 5), None, _single(number, -6), b"null")
    assert rows(decoded) == {0: {"key": 5}, 2: {"key": -6}}
    assert (decoded.tombstones.tolist(), decoded.faults) == ([1, 3], ())
    assert rows(keys(b"5", b" -6 ", fmt="json")) == {0: {"key": 5}, 1: {"key": -6}}
    assert rows(keys(b'"a\\"b"', b'"\xc3\xbc"')) == {0: {"key": 'a"b'}, 1: {"key": "\u00fc"}}


@pytest.mark.parametrize(
    "message",
    [
        b'{"schema": {"type": "int64", "optional": false}, "payload": 5}',
        b'{ "payload":5,"schema":{"type":"int64","optional":false}}',
    ],
)
def test_a_key_of_one_value_may_have_spaces(message: bytes) -> None:
    """A schema block that another program than Connect wrote is read all the same; a row of such columns is none."""
    compact = _single({"type": "int64", "optional": False}, 5)
    assert rows(keys(message, compact)) == {0: {"key": 5}, 1: {"key": 5}}
    row = b'{"schema": {"type": {"a": 1}}, "payload": 5}'
    assert not any("key" in made for made in rows(keys(row, fmt="json")).values())


def test_a_single_key_has_the_name_of_the_tables_identifier() -> None:
    """Where the table has one identifier column the value is that column's."""
    expected = pa.struct([("id", pa.int32())])
    day = {"type": "int32", "optional": False, "name": "io.debezium.time.Date"}
    assert rows(keys(b"5", expected=expected)) == {0: {"id": 5}}
    assert rows(keys(_single(day, 1), fmt="json-schema", expected=expected)) == {0: {"id": date(1970, 1, 2)}}
    two = keys(b"5", expected=pa.struct([("a", pa.int32()), ("b", pa.int32())]))
    assert [fault.reason for fault in two.faults] == ["key is not a struct"]


@pytest.mark.parametrize(
    "message", [b'5,"b":6', b"[1]", b"[]", b"\xff", b"5 6", b'{"a":1', b"", b"NaN", b"\x00\x00\x00\x00\x01\x02"]
)
def test_a_key_that_is_neither_is_a_fault(message: bytes) -> None:
    """A list, half a document or no JSON at all names no row; its neighbours are read."""
    decoded = keys(b"1", message, b"2", expected=pa.struct([("id", pa.int64())]))
    assert [fault.row for fault in decoded.faults] == [1]
    assert rows(decoded) == {0: {"id": 1}, 2: {"id": 2}}


def test_a_key_behind_a_block_is_closed() -> None:
    """What a fuzz found: one value behind a schema block counts only where the message ends with its brace."""
    number = _single({"type": "int64", "optional": False}, 5)
    decoded = keys(number, number[:-1] + b"{", expected=pa.struct([("id", pa.int64())]))
    assert rows(decoded) == {0: {"id": 5}}
    assert [fault.row for fault in decoded.faults] == [1]
    assert [fault.row for fault in keys(number[:-1] + b"{").faults] == [0]
