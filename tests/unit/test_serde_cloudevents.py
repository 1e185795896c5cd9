"""CloudEvents -> changes: each serializer of attributes and data, as Debezium's page and converter have them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pytest

from serde.events.changes import Changes
from serde.events.unwrapping import UnwrapSettings, extract_changes
from serde.formats import FORMATS, make_deserializer
from serde.messages import DecodedMessages
from serde.wire_format import Deserializer
from tests.model import avro

UNWRAP = UnwrapSettings(("op", "table", "source.ts_ms"))
# "Example event format" of the page: the event of test_server's table s1.a.
EVENT: Mapping[str, Any] = {
    "id": "name:test_server;lsn:29274832;txId:565",
    "source": "/debezium/postgresql/test_server",
    "specversion": "1.0",
    "type": "io.debezium.connector.postgresql.DataChangeEvent",
    "time": "2020-01-13T13:55:39.738Z",
    "datacontenttype": "application/json",
    "iodebeziumop": "r",
    "iodebeziumversion": "3.5.0.Final",
    "iodebeziumconnector": "postgresql",
    "iodebeziumname": "test_server",
    "iodebeziumtsms": "1578923739738",
    "iodebeziumsnapshot": "true",
    "iodebeziumdb": "postgres",
    "iodebeziumschema": "s1",
    "iodebeziumtable": "a",
    "iodebeziumlsn": "29274832",
    "iodebeziumxmin": None,
    "iodebeziumtxid": "565",
    "iodebeziumtxtotalorder": "1",
    "iodebeziumtxdatacollectionorder": "1",
}
COLUMNS = (
    {"type": "int32", "optional": False, "field": "pk"},
    {"type": "string", "optional": True, "field": "name"},
    {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "field": "since"},
    {"type": "bytes", "optional": True, "field": "raw"},
)
ROW = {"pk": 1, "name": "Bob", "since": 18274, "raw": base64.b64encode(b"\0x").decode()}
READ = {"pk": 1, "name": "Bob", "since": "2020-01-13", "raw": b"\0x"}
IMAGE = {"type": "struct", "fields": list(COLUMNS), "optional": True}
NAME = "io.debezium.connector.postgresql.Data"
DATA = {"type": "struct", "name": NAME, "fields": [{**IMAGE, "field": "before"}, {**IMAGE, "field": "after"}]}


def _event(data: Any, **attributes: Any) -> dict[str, Any]:
    return {**EVENT, **attributes, "data": data}


def _framed(schema: Mapping[str, Any] = DATA, **payload: Any) -> dict[str, Any]:
    return {"schema": dict(schema), "payload": payload}


def _read(*messages: bytes, converter: Deserializer | None = None) -> tuple[Changes, DecodedMessages]:
    found = (converter or make_deserializer("auto")).decode(pa.array(messages, pa.binary()), "VALUE_CONVERTER")
    (block,) = found.blocks
    made, faults, other = extract_changes(block, UNWRAP)
    assert made is not None and not faults and not other
    return made, found


def _rows(made: Changes) -> list[dict[str, Any]]:
    columns = [field for field in made.row.type.names if not field.startswith("__")]
    rows = [{name: row[name] for name in columns} for row in made.row.to_pylist()]
    return [{name: str(cell) if name == "since" else cell for name, cell in row.items()} for row in rows]


def _spaced(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event, indent=2).encode() + b"\n"


def _data_first(event: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"data": event["data"], **event})


@pytest.mark.parametrize("write", [orjson.dumps, _spaced, _data_first], ids=["as written", "spaced", "data first"])
def test_data_with_its_schema_is_read_by_it(write: Any) -> None:
    """`json.schemas.enable`, the default: `data` is schema and payload, and what is around it has no schema."""
    made, found = _read(write(_event(_framed(before=None, after=ROW))))
    assert made.row.type.field("since").type == pa.date32()
    assert made.row.type.field("pk").type == pa.int32()
    assert _rows(made) == [READ]
    assert (made.optional["pk"], made.optional["name"]) == (False, True)
    assert made.place[:, 1:].tolist() == [[29274832, 1, 0]]
    assert made.ts_ns.to_pylist() == [1578923739738 * 10**6]
    assert not found.faults and not len(found.tombstones)


def test_others_beside_such_data_are_what_they_are() -> None:
    """Tombstones, events without schema and rows that cannot be read are told apart in one batch."""
    good, bad = _framed(before=None, after=ROW), _framed(before=None, after={**ROW, "pk": "one"})
    events = [_event(good), _event(bad), _event({"before": None, "after": {"pk": 5}}), _event(good, iodebeziumop="u")]
    records = pa.array([*map(orjson.dumps, events), None, b"{"], pa.binary())
    found = make_deserializer("auto").decode(records, "VALUE_CONVERTER")
    assert [block.rows.tolist() for block in found.blocks] == [[0, 3], [2]]
    assert (found.tombstones.tolist(), [fault.row for fault in found.faults]) == ([4], [1, 5])


def test_a_change_of_schema_makes_blocks_of_their_own() -> None:
    """Each schema of `data` is a block, with the attributes of its own events."""
    image = {**IMAGE, "fields": [COLUMNS[0]]}
    narrow = {**DATA, "fields": [{**image, "field": "before"}, {**image, "field": "after"}]}
    wide = orjson.dumps(_event(_framed(before=None, after=ROW)))
    small = orjson.dumps(_event(_framed(narrow, before={"pk": 7}, after=None), iodebeziumop="d", iodebeziumlsn="3"))
    found = make_deserializer("auto").decode(pa.array([wide, small, wide], pa.binary()), "VALUE_CONVERTER")
    assert sorted(block.rows.tolist() for block in found.blocks) == [[0, 2], [1]]
    (made, *_), *_ = [extract_changes(block, UNWRAP) for block in found.blocks if block.rows.tolist() == [1]]
    assert made is not None
    assert (_rows(made), made.deleted.tolist(), made.place[:, 1].tolist()) == ([{"pk": 7}], [True], [3])


def test_without_extension_attributes_the_images_tell_the_operation() -> None:
    """`extension.attributes.enable=false` leaves no operation: a delete has an image before alone."""
    bare = {name: value for name, value in EVENT.items() if not name.startswith("iodebezium")}
    images: Sequence[tuple[Any, Any]] = [(None, {"pk": 1}), ({"pk": 1}, {"pk": 1}), ({"pk": 1}, None)]
    for framed in (False, True):
        told = [dict(zip(("before", "after"), pair, strict=True)) for pair in images]
        schema = {**IMAGE, "fields": [COLUMNS[0]]}
        both = {**DATA, "fields": [{**schema, "field": "before"}, {**schema, "field": "after"}]}
        events = [{**bare, "data": _framed(both, **data) if framed else data} for data in told]
        made, _ = _read(*map(orjson.dumps, events))
        assert bytes(made.op) == b"cud" and made.deleted.tolist() == [False, False, True]
        assert _rows(made) == [{"pk": 1}] * 3


@pytest.mark.parametrize("framed", [False, True], ids=["bare", "with schema"])
def test_data_may_be_a_flattened_row(framed: bool) -> None:
    """`metadata.source=header`: the converter has the whole value as data, here what another transform flattened."""
    row = {"type": "struct", "fields": list(COLUMNS[:2]), "optional": False}
    data = {"pk": 1, "name": "Bob"}
    events = [_event(_framed(row, **data) if framed else data, iodebeziumop=op) for op in "cd"]
    made, _ = _read(*map(orjson.dumps, events))
    assert _rows(made) == [data, data]
    assert made.deleted.tolist() == [False, True]


def test_columns_of_such_names_are_the_rows_own() -> None:
    """A row may have `specversion` and `data`: without images in it, and without operation, it is no change event."""
    row = {"id": 1, "specversion": "1.0", "data": {"x": 1}}
    made, _ = _read(orjson.dumps(row))
    assert made.row.to_pylist() == [row]


SOURCE = {"name": "s", "db": "d", "table": "t", "connector": "postgresql", "ts_ns": 5}
STORED = {"specversion": "1.0", "source": "/debezium/x", "schema": "s", "payload": "p", "type": "t"}
# Members that a schema and its payload have, and those of a change; in documents they may be anywhere.
NESTED = {"schema": {"type": "struct", "fields": []}, "payload": {"b": 1}}
IMAGES_INSIDE = {"before": {"x": 1}, "after": {"x": 2}}
ORDINARY = {
    "an envelope of such columns": {"op": "c", "after": {"id": 1, "data": "x", **STORED}, "source": SOURCE},
    "an envelope of such documents": {"op": "c", "after": {"id": 1, "data": NESTED, **STORED}, "source": SOURCE},
    "a row of documents": {"id": "1", "source": "me", "type": "t", "specversion": "1.0", "data": NESTED, "z": 3},
    "a row of images": {"id": "1", "source": "me", "type": "t", "specversion": "1.0", "data": IMAGES_INSIDE},
    "a row with a source of its own": {"id": "1", "source": {"a": 1}, "type": "t", "specversion": "1", "data": NESTED},
    "a row without source": {"id": 1, "specversion": "1.0", "data": IMAGES_INSIDE},
    "a row of numbers": {"id": 1, "source": 5, "type": 7, "specversion": 1.0, "data": IMAGES_INSIDE, "op": "c"},
}


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a CloudEvent"])
@pytest.mark.parametrize("kind", ORDINARY)
@pytest.mark.parametrize("converter", ["auto", "json"])
def test_what_is_no_cloud_event_is_read_as_ever(converter: str, kind: str, beside: bool) -> None:
    """Rows and envelopes with columns that are called as attributes, or as what data is made of, are what they are."""
    ordinary = orjson.dumps(ORDINARY[kind])
    event = orjson.dumps(_event(_framed(before=None, after=ROW)))
    messages = [ordinary, event, ordinary] if beside else [ordinary, ordinary]
    found = make_deserializer(converter).decode(pa.array(messages, pa.binary()), "VALUE_CONVERTER")
    assert not found.faults
    rows: dict[int, Any] = {}
    for block in found.blocks:
        made, faults, _ = extract_changes(block, UnwrapSettings(()))
        assert made is not None and not faults
        rows |= zip(made.rows.tolist(), made.row.to_pylist(), strict=True)
    told = ORDINARY[kind].get("after") or ORDINARY[kind]
    expected = orjson.loads(orjson.dumps(told).replace(b',"fields":[]', b""))
    for row in (0, len(messages) - 1):
        assert {name: value for name, value in rows[row].items() if name != "__deleted"} == expected


@pytest.mark.parametrize("data", ["framed", "bare", "encoded"])
@pytest.mark.parametrize("place", [0, 3, 60])
def test_few_cloud_events_among_others_are_found(data: str, place: int) -> None:
    """Wherever it stands between envelopes that were written before the converter was changed, in their first batch."""
    whole = {"op": "c", "before": None, "after": {"pk": 5, "name": "Eve"}, "source": SOURCE}
    reader = make_deserializer("cloudevents-avro", fetch=_fetch)
    images = {"before": None, "after": {"pk": 1, "name": "Bob"}}
    small = {**IMAGE, "fields": [COLUMNS[0], COLUMNS[1]]}
    schema = {**DATA, "fields": [{**small, "field": "before"}, {**small, "field": "after"}]}
    events = {
        "framed": _event({"schema": schema, "payload": images}),
        "bare": _event(images),
        "encoded": _event(base64.b64encode(_avro_data()).decode(), **TOLD),
    }
    messages = [orjson.dumps(whole)] * 64
    messages[place] = orjson.dumps(events[data])
    for _ in range(2):
        found = reader.decode(pa.array([*messages, None], pa.binary()), "VALUE_CONVERTER")
        assert (found.faults, found.tombstones.tolist()) == ((), [64])
        rows: dict[int, Any] = {}
        for block in found.blocks:
            made, faults, _ = extract_changes(block, UnwrapSettings(()))
            assert made is not None and not faults
            rows |= zip(made.rows.tolist(), _rows(made), strict=True)
        assert rows.pop(place) == {"pk": 1, "name": "Bob"}
        assert list(rows.values()) == [{"pk": 5, "name": "Eve"}] * 63


def test_events_of_each_kind_stand_side_by_side() -> None:
    """A converter's settings may change within a batch: dates are dates where a schema tells of them."""
    framed, bare = _event(_framed(before=None, after=ROW)), _event({"before": None, "after": ROW})
    messages = [orjson.dumps(bare)] * 50
    messages[7] = orjson.dumps(framed)
    found = make_deserializer("auto").decode(pa.array(messages, pa.binary()), "VALUE_CONVERTER")
    made = {}
    for block in found.blocks:
        change, _, _ = extract_changes(block, UNWRAP)
        assert change is not None
        made |= zip(change.rows.tolist(), _rows(change), strict=True)
    assert made[7] == READ and made[8] == {**ROW, "since": "18274"} and len(made) == 50


@pytest.mark.parametrize("text", [b'[{"specversion":1,"source":"/debezium/a","data":{"schema":{"a":1}}}]', b'{"x":'])
def test_what_only_looks_like_one_ends_no_batch(text: bytes) -> None:
    """A list, or half an event: a dead letter."""
    half = orjson.dumps(_event(_framed(before=None, after=ROW)))[:-3]
    found = make_deserializer("auto").decode(pa.array([text, half], pa.binary()), "VALUE_CONVERTER")
    assert not found.blocks and [fault.row for fault in found.faults] == [0, 1]


IMAGES = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "pk", "type": "int"}, {"name": "name", "type": ["null", "string"], "default": None}],
}
AVRO_DATA = {
    "type": "record",
    "name": "Data",
    "fields": [
        {"name": "before", "type": ["null", IMAGES], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
    ],
}
AVRO_EVENT = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        *({"name": name, "type": ["null", "string"], "default": None} for name in (*EVENT, "dataschema")),
        {"name": "data", "type": "bytes"},
    ],
}


def _avro_data() -> bytes:
    """The data of the page's second example, whole: `AAAAAAEAAgIGQm9i`."""
    return b"\0\0\0\0\x01" + avro.written(AVRO_DATA, {"before": None, "after": {"pk": 1, "name": "Bob"}})


def _fetch(number: int) -> tuple[str, ...]:
    return (json.dumps({1: AVRO_DATA, 2: AVRO_EVENT}[number]),)


TOLD = {"datacontenttype": "application/avro", "dataschema": "http://my-registry/schemas/ids/1"}


def test_avro_data_is_text_in_json_and_bytes_in_avro() -> None:
    """`data.serializer.type=avro`: base64 within JSON; with `serializer.type=avro` the attributes are Avro too."""
    data = _avro_data()
    assert base64.b64encode(data).startswith(b"AAAAAAEAAgI")
    in_json = orjson.dumps(_event(base64.b64encode(data).decode(), **TOLD))
    in_avro = b"\0\0\0\0\x02" + avro.written(AVRO_EVENT, _event(data, **TOLD))
    for name, message in (("cloudevents-avro", in_json), ("avro", in_avro)):
        made, found = _read(message, message, converter=make_deserializer(name, fetch=_fetch))
        assert _rows(made) == [{"pk": 1, "name": "Bob"}] * 2
        assert (made.row.type.field("pk").type, made.optional["pk"]) == (pa.int32(), False)
        assert made.place[:, 1:].tolist() == [[29274832, 1, 0]] * 2
        assert not found.faults
    assert FORMATS["cloudevents-avro"].needs_registry


def test_avro_data_without_registry_is_a_dead_letter_that_says_so() -> None:
    """It is no row of the attributes."""
    message = orjson.dumps(_event("AAAAAAEAAgIGQm9i", **TOLD))
    found = make_deserializer("auto").decode(pa.array([message], pa.binary()), "VALUE_CONVERTER")
    assert not found.blocks
    assert [fault.reason for fault in found.faults] == [
        "CloudEvent whose data is Avro: set value.converter.data.serializer.type and the URL of its registry"
    ]


def test_broken_avro_data_costs_its_event() -> None:
    """Text that is no base64, bytes that are no datum, nothing."""
    good = base64.b64encode(_avro_data()).decode()
    events = [_event(data, **TOLD) for data in (good, "%%%", "AAAAAAE=", "")]
    reader = make_deserializer("cloudevents-avro", fetch=_fetch)
    found = reader.decode(pa.array([*map(orjson.dumps, events)], pa.binary()), "VALUE_CONVERTER")
    assert [block.rows.tolist() for block in found.blocks] == [[0]]
    assert [fault.row for fault in found.faults] == [1, 2, 3]


@pytest.mark.parametrize("told", ["iodebeziumwallTime", "iodebeziumwalltime"])
def test_attributes_keep_the_capital_letters_of_their_fields(told: str) -> None:
    """MongoDB's time of a node is `iodebeziumwallTime`, and dates beside it prove nothing."""
    made, _ = _read(orjson.dumps(_event(_framed(before=None, after=ROW), **{told: "1578923739738"})))
    other, _ = _read(orjson.dumps(_event(_framed(before=None, after=ROW))))
    assert (made.clock_dated.tolist(), other.clock_dated.tolist()) == ([True], [False])


def test_the_number_of_a_transaction_is_not_its_id() -> None:
    """`iodebeziumtxId` is the source's, `iodebeziumtxid` the transaction's, and `add.fields` finds each."""
    event = _event(_framed(before=None, after=ROW), iodebeziumtxId="565", iodebeziumtxid="565:29274832")
    (block,) = make_deserializer("auto").decode(pa.array([orjson.dumps(event)]), "VALUE_CONVERTER").blocks
    terms = ("source.txId", "transaction.id", "transaction.data_collection_order")
    made, _, _ = extract_changes(block, UnwrapSettings(terms))
    assert made is not None
    added = [
        column[0].as_py() for name, column in zip(made.row.type.names, made.row.flatten(), strict=True) if "__" in name
    ]
    assert added == ["false", 565, "565:29274832", 1]
