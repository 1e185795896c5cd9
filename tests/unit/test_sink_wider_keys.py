"""Record keys with fields that the table's key has not -> dead letters by name: else their rows would be one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

from connector.sink.convert.decoder import decode
from connector.sink.model.plan import TablePlan
from tests.unit.local_sink import local_sink
from tests.unit.sink_plans import dead, plan, run, upsert

HARD = "debezium.sink.iceberg.upsert-keep-deletes=false"
SOURCE = {"connector": "postgresql", "name": "s", "db": "d", "schema": "public", "table": "t", "ts_ms": 1, "lsn": 5}


def _bytes(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _key(schema: bool, **fields: int | None) -> bytes:
    if not schema:
        return _bytes(fields)
    told = [{"type": "int64", "optional": True, "field": name} for name in fields]
    return _bytes({"schema": {"type": "struct", "optional": False, "fields": told}, "payload": fields})


def _event(op: str, schema: bool = False, **fields: int | None) -> tuple[bytes, bytes]:
    row = {**fields, "n": 1}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return _key(schema, **fields), _bytes({**images, "source": SOURCE, "op": op, "ts_ms": 2})


def _send(sink: Any, *events: tuple[bytes, bytes | None]) -> Any:
    return sink.process(*((("t", 0), *event) for event in events))


@pytest.mark.parametrize("schema", [False, True])
def test_rows_of_a_key_that_got_a_column_are_never_one(schema: bool, tmp_path: Path) -> None:
    """A primary key that gets a column at the source: events with it, deletes and tombstones too, are dead letters."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    _send(sink, _event("c", schema, a=1))
    wide = [_event("c", schema, a=1, b=2), _event("c", schema, a=1, b=3), _event("d", schema, a=1, b=2)]
    assert _send(sink, *wide, (_key(schema, a=1, b=2), None)).dead_letters == 4
    assert [(row["a"], row.get("b")) for row in sink.rows("t")] == [(1, None)]
    assert {letter.reason for letter in sink.letters} == {
        "the record's key has a field b, and d.t tells rows apart without it: create a table with the new key, or name "
        "the key's columns (primary.key.fields)"
    }


def test_a_field_of_the_key_that_the_first_events_leave_null_is_one(tmp_path: Path) -> None:
    """By its schema a key has the field, whatever the first batch brings: rows with it are told apart, those without
    it are dead letters.
    """
    sink = local_sink(tmp_path, ["topics=t", HARD])
    assert _send(sink, _event("c", True, a=1, b=None)).dead_letters == 1
    assert _send(sink, _event("c", True, a=1, b=2), _event("c", True, a=1, b=3)).dead_letters == 0
    assert [(row["a"], row["b"]) for row in sink.rows("t")] == [(1, 2), (1, 3)]


def test_without_schema_such_a_field_is_named_once_it_has_a_value(tmp_path: Path) -> None:
    """Of a field that is null in all keys nothing is known; the first that is not null is a dead letter."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    assert _send(sink, _event("c", a=1, b=None)).dead_letters == 0
    assert _send(sink, _event("c", a=1, b=2), _event("c", a=1, b=3)).dead_letters == 2
    assert [(row["a"], row.get("b")) for row in sink.rows("t")] == [(1, None)]


CUSTOMER = pa.struct([("id", pa.int64()), ("region", pa.string())])
TABLES = {
    "columns": (upsert(0, {"id": pa.int64(), "n": pa.int64()}, ("id",)), {"id": 1}),
    "a struct": (upsert(0, {"customer": CUSTOMER, "n": pa.int64()}, ("customer.id",)), {"customer": {"id": 1}}),
}


def _faults(table: TablePlan, key: Any, **row: Any) -> dict[int, str]:
    return dead(decode(run({**row, "n": 1}, keys=[key]), plan(table)))


@pytest.mark.parametrize("name", TABLES)
def test_fields_anywhere_in_a_key_count(name: str) -> None:
    """One more field at the top or within a struct; not one that is null."""
    table, key = TABLES[name]
    assert not _faults(table, key, **key)
    assert not _faults(table, {**key, "tenant": None}, **key)
    assert "a field tenant" in _faults(table, {**key, "tenant": 7}, **key)[0]
    inner = {**key, "customer": {**key.get("customer", {}), "region": "x"}}
    assert "a field customer.region" in _faults(table, inner, **key)[0]


@pytest.mark.parametrize("name", TABLES)
def test_a_key_that_is_configured_may_leave_fields_out(name: str) -> None:
    """`primary.key.fields` says which fields of the record's key tell rows apart."""
    table, key = TABLES[name]
    assert not _faults(attrs.evolve(table, key_configured=True), {**key, "tenant": 7}, **key)
