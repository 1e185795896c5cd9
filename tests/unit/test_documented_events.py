"""Events as Debezium's pages print them -> changes, by page and section: what each connector says, and where it stands.

Pages of the documentation of 3.5 to 3.7, "connectors/<name>"; values and their types are those of the examples.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest

from serde.events.changes import Changes
from serde.events.positions.log_positions import NO_VALUE
from serde.events.unwrapping import UnwrapSettings, extract_changes
from serde.formats import make_deserializer

UNWRAP = UnwrapSettings(("op", "table"))
ANNE = {"id": 1004, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
MARIE = {**ANNE, "first_name": "Anne Marie"}
_DATES = {"ts_ms": 1559729995937, "ts_us": 1559729995937000, "ts_ns": 1559729995937000000}
_SQLSERVER = {"version": "3.5.0.Final", "connector": "sqlserver", "name": "server1", **_DATES, "snapshot": False}
_SQLSERVER |= {"db": "testDB", "schema": "dbo", "table": "customers"}
_ORACLE = {"version": "3.5.0.Final", "name": "server1", **_DATES, "snapshot": "false", "db": "ORCLPDB1"}
_ORACLE |= {"schema": "DEBEZIUM", "table": "CUSTOMERS", "txId": "6.28.807", "lcr_position": None, "rs_id": "1.2.3"}
_DB2 = {**_SQLSERVER, "connector": "db2", "name": "myconnector", "db": "mydatabase", "schema": "MYSCHEMA"}
_INFORMIX = {**_SQLSERVER, "connector": "informix", "name": "myconnector", "db": "mydatabase", "schema": "informix"}
_VITESS = {**_SQLSERVER, "connector": "vitess", "name": "my_sharded_connector", "db": "", "schema": None}
_VITESS |= {"keyspace": "commerce", "shard": "80-", "vgtid": '[{"keyspace":"commerce","shard":"80-","gtid":"x:1-37"}]'}
_SPANNER = {**_SQLSERVER, "connector": "spanner", "name": "spanner_connector", "db": "database", "sequence": "1"}
_SPANNER |= {"server_transaction_id": "transaction_id", "number_records_in_transaction": 2, "mod_number": 0}
_SPANNER |= {"low_watermark": 1670955471635, "table": "Users"}
_CASSANDRA = {"version": "3.5.0.Final", "connector": "cassandra", "cluster": "cassandra-cluster-1", "snapshot": False}
_CASSANDRA |= {"keyspace": "inventory", "table": "customers", "file": "commitlog-6-123456.log", "pos": 54}
_COCKROACH = {**_SQLSERVER, "connector": "cockroachdb", "name": "cockroachdb_connector", "db": "defaultdb"}
_COCKROACH |= {"schema": "public", "table": "orders", "cluster": "x", "resolved_ts": None, "ts_hlc": None}
_YASHAN = {**_ORACLE, "connector": "yashandb", "txId": "1", "batch_row_id": 0, "group_lsn": 1, "group_offset": 2}


def event(op: str, source: dict[str, Any], transaction: Any = None) -> dict[str, Any]:
    """An envelope of the page's customer."""
    before, after = {"c": (None, ANNE), "u": (ANNE, MARIE), "d": (MARIE, None), "r": (None, ANNE)}[op]
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1, "transaction": transaction}


def changes(*events: dict[str, Any]) -> Changes:
    raw = pa.array([json.dumps(value).encode() for value in events], pa.binary())
    decoded = make_deserializer("auto", UNWRAP.wanted).decode(raw, "VALUE_CONVERTER")
    assert not decoded.faults
    (block,) = decoded.blocks
    made, faults, other = extract_changes(block, UNWRAP)
    assert made is not None and not faults and not other
    return made


def _ordered(rank: Any, epoch: int = 0) -> dict[str, Any]:
    return {
        "id": "x",
        "total_order": 1,
        "data_collection_order": 1,
        "transaction_rank": rank,
        "transaction_epoch": epoch,
    }


def _lsns(commit: str | None, change: str | None, serial: str | None = None) -> dict[str, Any]:
    return {"commit_lsn": commit, "change_lsn": change, "event_serial_no": serial}


STREAMED = {
    # "Change data change events", create, update, delete of each page; each next one is later in its log.
    "sqlserver": [
        event("c", {**_SQLSERVER, **_lsns("00000027:00000758:0005", "00000027:00000758:0003", "1")}),
        event("u", {**_SQLSERVER, **_lsns("00000027:00000ac0:0007", "00000027:00000ac0:0002", "2")}),
        event("d", {**_SQLSERVER, **_lsns("00000027:00000db0:0007", "00000027:00000db0:0005", "1")}),
    ],
    "db2": [
        event("c", {**_DB2, **_lsns("00000027:00000758:0005", "00000027:00000758:0003")}),
        event("u", {**_DB2, **_lsns("00000027:00000ac0:0007", "00000027:00000ac0:0002")}),
        event("d", {**_DB2, **_lsns("00000027:00000db0:0005", "00000027:00000db0:0007")}),
    ],
    "oracle": [
        event("c", {**_ORACLE, "scn": "2122184", "commit_scn": "2122185", "ssn": 0}),
        event("u", {**_ORACLE, "scn": "2125544", "commit_scn": "2125544", "ssn": 1}),
        event("d", {**_ORACLE, "scn": "2122182", "commit_scn": "12125544", "ssn": 0}),
    ],
    "informix": [
        event("c", {**_INFORMIX, "commit_lsn": "627404540760620", "change_lsn": "627404540485812", "txId": "157"}),
        event("u", {**_INFORMIX, "commit_lsn": "627404540760620", "change_lsn": "627404540485813", "txId": "157"}),
        event("d", {**_INFORMIX, "commit_lsn": "1627404540760620", "change_lsn": "627404540485812", "txId": "158"}),
    ],
    # "Ordered Transaction Metadata"; the rank is a number or the base64 of one.
    "vitess": [
        event("c", _VITESS, _ordered(68)),
        event("u", _VITESS, _ordered(1000)),
        event("d", _VITESS, _ordered(3, epoch=1)),
    ],
}
UNTOLD = {
    "informix, in a snapshot": event("r", {**_INFORMIX, "commit_lsn": "0", "change_lsn": "0", "begin_lsn": "0"}),
    "spanner": event("u", _SPANNER),
    "cassandra": event("u", {**_CASSANDRA, "ts_ms": 1562202942666382, "ts_us": 1562202942666382000}),
    "cockroachdb": event("c", {**_COCKROACH, "sequence": "[]"}),
    "yashandb": event("u", {**_YASHAN, "position_scn": "702484185997258752"}),
    "vitess without ordered metadata": event("c", _VITESS, {"id": "x", "total_order": 1}),
    "oracle by XStream without commit_scn": event("c", {**_ORACLE, "scn": "2122184", "commit_scn": None}),
}


@pytest.mark.parametrize("connector", STREAMED)
def test_streamed_examples_rise_with_the_log(connector: str) -> None:
    """Create, update and delete are such changes, of one source, each at its place."""
    made = changes(*STREAMED[connector])
    assert made.op.tobytes() == b"cud" and made.deleted.tolist() == [False, False, True]
    places = [tuple(place) for place in made.place[:, 1:].tolist()]
    assert places == sorted(set(places)) and all(place[0] != NO_VALUE for place in places)
    assert len(set(made.place[:, 0].tolist())) == 1
    assert [row["first_name"] for row in made.row.to_pylist()] == ["Anne", "Anne Marie", "Anne Marie"]


@pytest.mark.parametrize("name", UNTOLD)
def test_what_tells_no_comparable_place_proves_nothing(name: str) -> None:
    """Kafka's order decides there; the event is a change like any other."""
    made = changes(UNTOLD[name])
    assert made.place[:, 1].tolist() == [NO_VALUE] and len(made.rows) == 1


def test_cassandras_inserts_are_creates() -> None:
    """Cassandra page, "Change event values": `op` is `i` for an insert, and a delete has its key in `after`."""

    def cell(value: Any) -> dict[str, Any]:
        return {"value": value, "deletion_ts": None, "set": True}

    source = {**_CASSANDRA, "ts_ms": 1562202942666382, "ts_us": 1562202942666382000}
    events = [
        {"op": op, "source": source, "after": {"id": cell(1001), "email": cell(email)}, "ts_ms": 1}
        for op, email in (("i", "a@b"), ("c", "a@b"), ("u", "c@d"), ("d", None))
    ]
    made = changes(*events)
    assert made.op.tobytes() == b"ccud" and made.deleted.tolist() == [False, False, False, True]
    assert [row["id"]["value"] for row in made.row.to_pylist()] == [1001] * 4


def _read(*events: Any) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    """What of each event arrives, by its row, and why others do not."""
    raw = pa.array([json.dumps(value).encode() for value in events], pa.binary())
    decoded = make_deserializer("auto", UNWRAP.wanted).decode(raw, "VALUE_CONVERTER")
    blocks = [zip(block.rows.tolist(), block.fields.to_pylist(), strict=True) for block in decoded.blocks]
    read = {at: fields for block in blocks for at, fields in block}
    return read, {fault.row: fault.reason for fault in decoded.faults}


def test_dates_beyond_64_bits_are_unknown() -> None:
    """Cassandra page, "Change event values": `source.ts_ns` of the three examples has 22 digits, which no date has."""
    cell = {"value": 1001, "deletion_ts": None, "set": True}
    source = {**_CASSANDRA, "ts_ms": 1562202942666382, "ts_us": 1562202942666382000, "ts_ns": 1562202942666382000000}
    made = changes(*({"op": op, "source": source, "after": {"id": cell}, "ts_ms": 1} for op in "cud"))
    assert made.op.tobytes() == b"cud" and made.ts_ns.to_pylist() == [None] * 3
    beside = changes(*({"op": "c", "source": told, "after": {"id": cell}} for told in ({**source, **_DATES}, source)))
    assert beside.ts_ns.to_pylist() == [_DATES["ts_ns"], None]


def test_numbers_as_text_are_numbers() -> None:
    """SQL Server page, "create events": its schema calls `event_serial_no` an int64, its payload has "1"."""
    fields: list[Any] = [{"type": "string", "optional": True, "field": name} for name in ("commit_lsn", "change_lsn")]
    fields += [{"type": "int64", "optional": True, "field": "event_serial_no"}]
    image = {"type": "struct", "optional": True, "fields": [{"type": "int64", "field": "id"}]}
    around: list[Any] = [{**image, "field": "before"}, {**image, "field": "after"}, {"type": "string", "field": "op"}]
    around.append({"type": "struct", "fields": fields, "field": "source"})
    schema = {"type": "struct", "fields": around, "name": "server1.dbo.testDB.customers.Envelope"}
    source = _lsns("00000027:00000758:0005", "00000027:00000758:0003", "1")
    written = {"op": "c", "before": None, "after": {"id": 1}, "source": source}
    told = {**written, "source": {**source, "event_serial_no": 1}}
    made = changes(*({"schema": schema, "payload": payload} for payload in (written, told)))
    assert made.place[0].tolist() == made.place[1].tolist() and made.place[0, 1] != NO_VALUE


BESIDE = {
    "version": 3,
    "snapshot": {"a": 1},
    "connector": ["x"],
    "sequence": 1.5,
    "ts_ms": "yesterday",
    "ts_us": 0.5,
}
ORDERING = {"ts_ns": ("yesterday", 0.5, {"a": 1}), "lsn": ("x", 0.5), "db": ({"a": 1},), "table": ({},), "name": ([],)}


@pytest.mark.parametrize("name", BESIDE)
def test_what_tells_no_order_costs_an_event_nothing_but_itself(name: str) -> None:
    """A value of `source` that is unlike those of other events is unknown; so is a date beside a more precise one."""
    source = {"name": "s", "db": "d", "table": "t", **_DATES, "lsn": 5, "version": "3", "sequence": "[]"}
    good = event("c", {**source, "snapshot": "false", "connector": "x"})
    odd = event("c", {**good["source"], name: BESIDE[name]})
    read, faults = _read(good, odd, good)
    assert not faults and [read[at]["after"] for at in range(3)] == [ANNE] * 3
    told = {key: value for key, value in read[0]["source"].items() if key != name}
    assert {key: value for key, value in read[1]["source"].items() if key != name} == told


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in ORDERING.items() for value in values])
def test_what_tells_the_order_is_never_taken_for_unknown(name: str, value: Any) -> None:
    """An event whose date, place or source cannot be read is a dead letter, whatever stands beside it."""
    good = event("c", {"name": "s", "db": "d", "table": "t", **_DATES, "lsn": 5})
    odd = event("c", {**good["source"], name: value})
    read, faults = _read(good, odd, good)
    assert list(faults) == [1] and f"source.{name}" in faults[1] and sorted(read) == [0, 2]


@pytest.mark.parametrize("value", ["yesterday", 0.5])
def test_a_date_that_is_none_is_none_without_neighbours_too(value: Any) -> None:
    """What becomes of an event does not depend on those beside it."""
    assert list(_read(event("c", {"name": "s", **_DATES, "ts_ns": value}))[1]) == [0]


def test_columns_called_as_parts_of_an_envelope_are_the_rows_own() -> None:
    """A flattened row with a column `source` loses none of its members."""
    rows = [
        {"id": 1, "source": {"ts_ms": 5}},
        {"id": 2, "source": {"ts_ms": "text"}},
        {"id": 3, "source": {"ts_ms": 7}},
    ]
    read, faults = _read(*rows)
    assert list(faults) == [1] and [read[at]["source"]["ts_ms"] for at in (0, 2)] == [5, 7]


def test_vitess_ranks_are_decimals_with_a_schema() -> None:
    """The rank is a Decimal of scale 0 there; shards do not compare."""
    number = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "0"}}
    whole = {"type": "int64", "optional": True}
    order = [
        {**number, "field": "transaction_rank"},
        {**whole, "field": "transaction_epoch"},
        {**whole, "field": "total_order"},
    ]
    row = {"type": "struct", "optional": True, "fields": [{"type": "int64", "field": "id"}]}
    source = [{"type": "string", "field": "name"}, {"type": "string", "field": "shard"}]
    fields: list[Any] = [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}]
    fields += [{"type": "struct", "fields": source, "field": "source"}]
    fields += [{"type": "struct", "optional": True, "fields": order, "field": "transaction"}]
    raw = []
    for rank, shard in ((255, "-80"), (256, "-80"), (256, "80-")):
        text = base64.b64encode(rank.to_bytes(2, "big")).decode()
        told = {"transaction_rank": text, "transaction_epoch": 0, "total_order": 1}
        payload = {"before": None, "after": {"id": 1}, "op": "c", "source": {"name": "v", "shard": shard}}
        schema = {"type": "struct", "fields": fields, "name": "v.Envelope"}
        raw.append(json.dumps({"schema": schema, "payload": {**payload, "transaction": told}}).encode())
    (block,) = make_deserializer("auto", UNWRAP.wanted).decode(pa.array(raw, pa.binary()), "VALUE_CONVERTER").blocks
    made, _, _ = extract_changes(block, UNWRAP)
    assert made is not None
    assert made.place[:, 2].tolist() == [255, 256, 256]
    assert made.place[0, 0] == made.place[1, 0] != made.place[2, 0]
