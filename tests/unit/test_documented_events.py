"""Events as Debezium's pages print them -> changes, by page and section: what each connector says, and where it stands.

Pages of the documentation of 3.5 to 3.7, "connectors/<name>"; values and their types are those of the examples.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest

from serde.events.changes import Changes, UnwrapSettings, extract_changes
from serde.events.source_positions import NO_VALUE
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
