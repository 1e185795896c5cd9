"""blocks -> changes: what an envelope or a flattened event does to its row."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde.events.changes import Changes
from serde.events.positions.log_positions import NO_VALUE
from serde.events.unwrapping import UnwrapSettings, extract_changes
from serde.faults import RecordError
from serde.formats import make_deserializer
from tests.unit.json_messages import decode, dump, framed

FIXTURES = Path(__file__).parents[1] / "fixtures"
UNWRAP = UnwrapSettings(("op", "table", "source.ts_ns", "db", "ts_ms"))
SOURCE = {"ts_ms": 5, "ts_us": 5001, "ts_ns": 5001002, "db": "d", "schema": "s", "table": "t", "lsn": 77}


def envelope(op: Any, before: Any = None, after: Any = None, **more: Any) -> bytes:
    """An envelope without schema block."""
    document = {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 9, "transaction": None}
    return dump({**document, **more})


def one(*messages: bytes, unwrap: UnwrapSettings = UNWRAP) -> tuple[Changes, tuple[RecordError, ...], int]:
    """The changes of messages that make one block."""
    (block,) = decode(*messages).blocks
    made, faults, other = extract_changes(block, unwrap)
    assert made is not None
    return made, faults, other


def test_create_gives_after_and_the_added_fields() -> None:
    """The row has the columns of after, then __deleted and add.fields, as the unwrap transform would make it."""
    made, faults, other = one(envelope("c", after={"id": 1, "v": "x"}))
    assert made.row.to_pylist() == [
        {
            "id": 1,
            "v": "x",
            "__deleted": "false",
            "__op": "c",
            "__table": "t",
            "__source_ts_ns": 5001002,
            "__db": "d",
            "__ts_ms": 9,
        }
    ]
    assert (bytes(made.op), made.deleted.tolist(), made.ts_ns.to_pylist(), made.place[:, 1].tolist()) == (
        b"c",
        [False],
        [5001002],
        [77],
    )
    assert made.total_order.to_pylist() == [None] and not faults and not other


def test_delete_gives_before_and_is_deleted() -> None:
    """The image of a delete is before; rows of other events keep after."""
    transaction = {"id": "1:2", "total_order": 3, "data_collection_order": 1}
    made, _, _ = one(envelope("c", after={"id": 1}), envelope("d", before={"id": 2}, transaction=transaction))
    assert made.row.field("id").to_pylist() == [1, 2] and made.row.field("__deleted").to_pylist() == ["false", "true"]
    assert made.deleted.tolist() == [False, True] and made.total_order.to_pylist() == [None, 3]


def test_images_that_differ_are_brought_together() -> None:
    """Without schema the before of a delete may lack columns and hold other numbers."""
    made, _, _ = one(envelope("u", after={"id": 1, "n": 1.5}), envelope("d", before={"id": 2, "n": 2, "x": "y"}))
    assert [(row["id"], row["n"], row["x"]) for row in made.row.to_pylist()] == [(1, 1.5, None), (2, 2.0, "y")]


def test_without_keep_before_a_delete_has_no_row() -> None:
    """Where only the key counts the image is not made."""
    made, _, _ = one(
        envelope("c", after={"id": 1}), envelope("d", before={"id": 2}), unwrap=UnwrapSettings((), keep_before=False)
    )
    assert made.row.is_null().to_pylist() == [False, True] and made.deleted.tolist() == [False, True]


def test_truncate_is_a_change_without_row() -> None:
    """op t has neither image nor key."""
    made, faults, _ = one(envelope("t"))
    assert bytes(made.op) == b"t" and made.row.is_null().to_pylist() == [True] and not faults


@pytest.mark.parametrize(
    ("op", "reason"), [(None, "envelope without op"), ("z", "unknown op"), ("c", "envelope without after image")]
)
def test_event_that_cannot_be_a_change_is_a_fault(op: Any, reason: str) -> None:
    """An envelope of unknown meaning goes to the dead letters, the others stay."""
    fields = [
        {"type": "struct", "optional": True, "field": "after", "fields": [{"type": "int32", "field": "id"}]},
        {"type": "struct", "field": "source", "fields": [{"type": "int64", "field": "ts_ms"}]},
        {"type": "string", "optional": True, "field": "op"},
    ]
    good = framed(fields, {"after": {"id": 1}, "source": {"ts_ms": 1}, "op": "c"}, "t.Envelope")
    made, faults, _ = one(good, framed(fields, {"after": None, "source": {"ts_ms": 1}, "op": op}, "t.Envelope"), good)
    assert made.rows.tolist() == [0, 2] and made.ts_ns.to_pylist() == [1_000_000, 1_000_000]
    assert [(fault.row, fault.reason) for fault in faults] == [(1, reason)]


def _outcomes(*messages: bytes) -> tuple[list[int], list[tuple[int, str]]]:
    """Which messages are rows, or changes, and what is wrong with the others."""
    told = [extract_changes(block, UNWRAP) for block in decode(*messages).blocks]
    rows = [row for made, _, _ in told if made is not None for row in made.rows.tolist()]
    return sorted(rows), sorted((fault.row, fault.reason) for _, faults, _ in told for fault in faults)


DEBEZIUMS = {**SOURCE, "connector": "mysql"}
LOST = {"before": None, "after": {"id": 2}, "source": DEBEZIUMS, "ts_ms": 9}


@pytest.mark.parametrize("lost", [LOST, {**LOST, "op": None}, {**LOST, "before": {"id": 2}, "after": None}])
def test_an_envelope_without_op_is_a_fault_and_no_row_of_the_table(lost: dict[str, Any]) -> None:
    """Null or left out, alone or among others: it would be a row with columns `after` and `source`."""
    assert _outcomes(dump(lost)) == ([], [(0, "envelope without op")])
    good = envelope("c", after={"id": 1}, source=DEBEZIUMS)
    assert _outcomes(good, dump(lost), good) == ([0, 2], [(1, "envelope without op")])
    row = {"id": 1, "name": "a"}
    assert _outcomes(dump(row), dump(lost), dump(row)) == ([0, 2], [(1, "envelope without op")])


@pytest.mark.parametrize(
    "row",
    [
        {key: value for key, value in LOST.items() if key != "source"},
        {**LOST, "source": None, "op": None},
        {**LOST, "source": {"system": "crm", "ts_ms": 5}},
        {**LOST, "source": {"connector": "pipe"}},
        {**LOST, "id": 7},
        {**LOST, "op": 7},
        {"source": DEBEZIUMS, "ts_ms": 9},
    ],
)
def test_rows_with_columns_as_envelopes_have_stay_rows(row: dict[str, Any]) -> None:
    """Where the source is none of Debezium's, or another column has a value, or no image is there."""
    assert _outcomes(dump(row)) == ([0], [])
    lost, fault = dump(LOST), "envelope without op"
    assert _outcomes(lost, dump(row), lost) == ([1], [(0, fault), (2, fault)])


@pytest.mark.parametrize("row", [{**LOST, "source": "mysql"}, {**LOST, "after": 7, "before": None}])
def test_rows_with_other_values_where_envelopes_have_structs_stay_rows(row: dict[str, Any]) -> None:
    """Alone; beside envelopes their types contradict those."""
    assert _outcomes(dump(row)) == ([0], [])


@pytest.mark.parametrize(("name", "is_fault"), [("t.Envelope", True), ("t.Value", False)])
def test_a_schema_tells_an_envelope_without_op(name: str, is_fault: bool) -> None:
    """By its name, as ReplaceField leaves it; a row may have a schema with such fields."""
    fields = [{"type": "struct", "optional": True, "field": "after", "fields": [{"type": "int32", "field": "id"}]}]
    rows, faults = _outcomes(framed(fields, {"after": {"id": 1}}, name))
    assert (rows, faults) == (([], [(0, "envelope without op")]) if is_fault else ([0], []))


@pytest.mark.parametrize(
    ("term", "name", "value"),
    [
        ("total_order", "__total_order", 3),
        ("data_collection_order", "__data_collection_order", 1),
        ("id", "__id", "1:2"),
        ("id:tx", "__tx", "1:2"),
        ("transaction.id", "__transaction_id", "1:2"),
        ("transaction.total_order:n", "__n", 3),
        ("lsn", "__lsn", 77),
    ],
)
def test_a_field_of_add_fields_is_found_where_the_transform_finds_it(term: str, name: str, value: Any) -> None:
    """Fields of the transaction and of the source need no struct before them."""
    transaction = {"id": "1:2", "total_order": 3, "data_collection_order": 1}
    event = envelope("c", after={"id": 1}, transaction=transaction)
    assert one(event, unwrap=UnwrapSettings((term,)))[0].row.to_pylist() == [
        {"id": 1, "__deleted": "false", name: value}
    ]
    assert "transaction" in {path.partition(".")[0] for path in UnwrapSettings((term,)).wanted}


@pytest.mark.parametrize("op", ["c", "t", "sell"])
@pytest.mark.parametrize("told", [{"__op": "c"}, {"__deleted": "false"}, {"__op": "u", "before": {"a": 1}}, {}])
def test_a_flattened_row_may_have_columns_called_op_and_source(op: str, told: dict[str, Any]) -> None:
    """Documents have such fields: the row stays a row, and no letter in it truncates a table."""
    row = {"id": 1, "op": op, "source": {"shop": "x"}, **told}
    made, faults, other = one(dump(row))
    assert made.row.to_pylist() == [row] and not faults and not other
    assert bytes(made.op) == (told["__op"].encode() if "__op" in told else b"\0")


def test_column_of_the_source_named_like_an_added_field_survives() -> None:
    """A table with a column __op keeps its own value."""
    made, _, _ = one(envelope("c", after={"id": 1, "__op": "mine"}))
    assert made.row.field("__op").to_pylist() == ["mine"] and bytes(made.op) == b"c"


def test_flattened_event_is_read_by_its_added_columns() -> None:
    """Op, deletion and position come from what the transform added."""
    made, _, _ = one(
        b'{"id":1,"__op":"d","__deleted":"true","__source_ts_ns":7,"__source_lsn":8}',
        b'{"id":2,"__op":"u","__deleted":"false","__source_ts_ns":9,"__source_lsn":10}',
        b'{"id":3}',
    )
    assert made.op.tolist() == [ord("d"), ord("u"), 0] and made.deleted.tolist() == [True, False, False]
    assert made.ts_ns.to_pylist() == [7, 9, None] and made.place[:, 1].tolist() == [8, 10, NO_VALUE]


@pytest.mark.parametrize(
    "message",
    [
        b'{"status":"BEGIN","id":"1:2","event_count":null,"data_collections":null,"ts_ms":3}',
        b'{"ts_ms":3}',
        b'{"op":"m","ts_ms":1,"source":{"ts_ms":1},"transaction":null,"message":{"prefix":"p","content":"eA=="}}',
        b'{"source":{"ts_ms":1},"ts_ms":2,"databaseName":"d","ddl":"CREATE","tableChanges":[{"type":"CREATE"}]}',
        framed([{"type": "int64", "field": "ts_ms"}], {"ts_ms": 1}, "io.debezium.connector.common.Heartbeat"),
    ],
)
def test_other_kinds_of_events_never_become_rows(message: bytes) -> None:
    """Transactions, heartbeats, logical messages and schema changes are counted, not written."""
    (block,) = decode(message).blocks
    assert extract_changes(block, UNWRAP) == (None, (), 1)


@pytest.mark.parametrize("known", [None, pa.struct([("id", pa.int64()), ("status", pa.string()), ("v", pa.int64())])])
def test_transaction_metadata_beside_rows(known: pa.StructType | None) -> None:
    """Each message is metadata or not by itself, and tells no type of the others' fields."""
    begin = {"status": "BEGIN", "id": "1:2", "event_count": None, "data_collections": None, "ts_ms": 3}
    end = {
        **begin,
        "status": "END",
        "event_count": 2,
        "data_collections": [{"data_collection": "a.b", "event_count": 2}],
    }
    rows = [{"id": n, "status": "BEGIN", "v": n} for n in range(3)]
    compact = [
        json.dumps(one, separators=(",", ":")).encode() for one in (begin, rows[0], end, rows[1], begin, rows[2])
    ]
    decoded = make_deserializer("auto").decode(pa.array(compact, pa.binary()), "VALUE_CONVERTER", known)
    assert not decoded.faults
    made = [extract_changes(block, UNWRAP) for block in decoded.blocks]
    assert sum(other for _, _, other in made) == 3
    (found,) = [changes for changes, _, _ in made if changes is not None]
    assert (found.rows.tolist(), found.row.to_pylist()) == ([1, 3, 5], rows)


def test_rows_that_look_like_transaction_metadata() -> None:
    """A row with an id, a time and a status of these names is a row: metadata has its counts, if only as nulls."""
    made, _, other = one(b'{"id":"7","status":"BEGIN","ts_ms":3}', b'{"id":"8","status":"END","ts_ms":4}')
    assert (len(made.rows), other) == (2, 0)
    spaced = {"ts_ms": 3, "data_collections": None, "id": "1", "event_count": None, "status": "END"}
    (block,) = decode(json.dumps(spaced).encode()).blocks
    assert extract_changes(block, UNWRAP) == (None, (), 1)


def test_optional_flags_are_those_of_the_image() -> None:
    """A schema block tells which columns may be null; added columns may."""
    record = _records("json_schema_envelope/js.public.order_lines.jsonl", "value")
    (block,) = make_deserializer("auto").decode(record, "VALUE_CONVERTER").blocks
    made, _, _ = extract_changes(block, UNWRAP)
    assert made is not None and {name: made.optional[name] for name in ("order_id", "price", "__op")} == {
        "order_id": False,
        "price": True,
        "__op": True,
    }


def _records(path: str, part: str) -> pa.Array:
    lines = [json.loads(line) for line in (FIXTURES / path).read_text().splitlines()]
    return pa.array([line[part] and base64.b64decode(line[part]) for line in lines], pa.binary())


_PATHS = sorted(str(path.relative_to(FIXTURES)) for path in FIXTURES.glob("json*/*.jsonl"))
# PostgreSQL's 24:00:00 and its infinities (timestamp, date) have no exact value in Iceberg.
_REMEDY = "a text column holds it (debezium.sink.iceberg.temporal-as-text)"
_EXOTIC = {
    f"field {path}: value cannot be represented (io.debezium.time.{name}); {_REMEDY}"
    for column, name in (("ts", "MicroTimestamp"), ("tm", "MicroTime"))
    for path in (column, f"after.{column}")
}


@pytest.mark.parametrize("path", _PATHS)
def test_recorded_events_decode(path: str) -> None:
    """Every recorded key and value decodes, no type is unknown; side topics become no table."""
    for part, stage in (("key", "KEY_CONVERTER"), ("value", "VALUE_CONVERTER")):
        decoded = make_deserializer("auto").decode(_records(path, part), stage)  # type: ignore[arg-type]
        reasons = {fault.reason for fault in decoded.faults}
        assert reasons <= (_EXOTIC if "exotic" in path and "schema" in path else set())
        assert not any(block.unknown for block in decoded.blocks)
        if part == "value":
            made = [extract_changes(block, UNWRAP) for block in decoded.blocks]
            assert not any(faults for _, faults, _ in made)
            side = "transaction" in path or ".message." in path
            assert all((change is None) is side for change, _, _ in made)


@pytest.mark.parametrize("path", [path for path in _PATHS if path.startswith("json_schema") and "public" in path])
def test_reading_only_what_is_wanted_changes_nothing(path: str) -> None:
    """The changes are the same when the rest of the envelope is not read."""
    records = _records(path, "value")
    whole = make_deserializer("auto").decode(records, "VALUE_CONVERTER")
    narrow = make_deserializer("auto", UNWRAP.wanted).decode(records, "VALUE_CONVERTER")
    for one, other in zip(whole.blocks, narrow.blocks, strict=True):
        mine, yours = extract_changes(one, UNWRAP)[0], extract_changes(other, UNWRAP)[0]
        assert mine is not None and yours is not None
        assert repr(mine.row.to_pylist()) == repr(yours.row.to_pylist())  # NaN equals NaN there
        assert mine.ts_ns.equals(yours.ts_ns) and mine.total_order.equals(yours.total_order)
        assert mine.place.tolist() == yours.place.tolist()
    assert whole.faults == narrow.faults


def cloud(number: int, op: str = "c", **images: Any) -> dict[str, Any]:
    """A CloudEvent as Debezium's converter writes it."""
    return {
        "id": f"name:s;lsn:{number};txId:5",
        "source": "/debezium/postgresql/s",
        "specversion": "1.0",
        "type": "io.debezium.connector.postgresql.DataChangeEvent",
        "time": "2020-01-13T13:55:39.738Z",
        "datacontenttype": "application/json",
        "iodebeziumop": op,
        "iodebeziumtsms": "1578923739738",
        "iodebeziumdb": "d",
        "iodebeziumtable": "t",
        "iodebeziumlsn": str(number),
        "iodebeziumtxtotalorder": "3",
        "data": {"before": None, "after": None, **images},
    }


def test_cloud_events_are_envelopes() -> None:
    """An event in CloudEvents' form is the change that its images and attributes tell."""
    messages = [dump(cloud(7, after={"id": 1, "v": "x"})), dump(cloud(8, "d", before={"id": 1, "v": None}))]
    made, faults, other = one(*messages)
    assert [(row["id"], row["v"], row["__op"], row["__table"]) for row in made.row.to_pylist()] == [
        (1, "x", "c", "t"),
        (1, None, "d", "t"),
    ]
    assert (made.place[:, 1:].tolist(), made.total_order.to_pylist()) == ([[7, 3, 0], [8, 3, 0]], [3, 3])
    assert made.ts_ns.to_pylist() == [1578923739738 * 10**6] * 2
    assert made.deleted.tolist() == [False, True] and not faults and not other


def test_a_number_beyond_64_bits_takes_no_date_from_other_cloud_events() -> None:
    """Attributes are read one by one, though nanoseconds have as many digits."""
    dates = ["1578923739738000000", "9999999999999999999", "9223372036854775807", None]
    events = [{**cloud(n, after={"id": n}), "iodebeziumtsns": date} for n, date in enumerate(dates)]
    made, _, _ = one(*map(dump, events))
    assert made.ts_ns.to_pylist() == [1578923739738000000, 1578923739738 * 10**6, 2**63 - 1, 1578923739738 * 10**6]


def test_cloud_events_tell_their_transactions_number() -> None:
    """A MariaDB's number of the transaction is a text among the attributes."""
    event = {name: value for name, value in cloud(7, after={"id": 1}).items() if name != "iodebeziumlsn"}
    numbers = {"iodebeziumgtid": "0-1-77", "iodebeziumfile": "bin.000001", "iodebeziumpos": "4"}
    made, _, _ = one(dump({**event, **numbers}))
    assert made.place[:, 1:].tolist() == [[77, 0, 0]]
    assert made.origin.to_pylist() == [".d.t @0-1"]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"ts_ms": 5}, (5_000_000, 5_000, 5)),
        ({"ts_ms": 5, "ts_us": 5_001}, (5_001_000, 5_001, 5)),
        ({"ts_ms": 5, "ts_us": 5_001, "ts_ns": 5_001_002}, (5_001_002, 5_001, 5)),
        ({"ts_ms": 2**62}, (None, None, 2**62)),
    ],
)
def test_rows_have_the_finest_date_there_is(told: dict[str, int], expected: tuple[int | None, ...]) -> None:
    """Events from before Debezium 2.6 tell milliseconds only: rows without a date would go with any truncate."""
    unwrap = UnwrapSettings(("source.ts_ns", "source.ts_us", "source.ts_ms"))
    event = {"op": "c", "after": {"id": 1}, "source": {"name": "s", **told}}
    (block,) = decode(dump(event)).blocks
    made, _, _ = extract_changes(block, unwrap)
    assert made is not None
    (row,) = made.row.to_pylist()
    assert tuple(row.get(f"__source_{unit}") for unit in ("ts_ns", "ts_us", "ts_ms")) == expected


def test_cloud_events_with_schema() -> None:
    """With a schema block the images have its types, and what is required stays so."""
    image = {"type": "struct", "optional": True, "fields": [{"type": "int32", "optional": False, "field": "id"}]}
    data = {"type": "struct", "field": "data", "fields": [{**image, "field": "before"}, {**image, "field": "after"}]}
    names = ["id", "source", "specversion", "iodebeziumop", "iodebeziumtsms"]
    fields = [*({"type": "string", "optional": True, "field": name} for name in names), data]
    (block,) = decode(framed(fields, cloud(1, after={"id": 5}))).blocks
    made, _, _ = extract_changes(block, UNWRAP)
    assert made is not None
    assert (made.row.type.field("id").type, made.optional["id"]) == (pa.int32(), False)


def test_expected_columns_are_those_of_the_images() -> None:
    """The table's columns are expected of the images, not of the attributes that have the same names."""
    expected = pa.struct([("id", pa.int64()), ("source", pa.int64())])
    (block,) = decode(dump(cloud(1, after={"id": 5, "source": None})), expected=expected).blocks
    made, faults, _ = extract_changes(block, UNWRAP)
    assert made is not None
    assert made.row.to_pylist()[0]["id"] == 5 and not faults
