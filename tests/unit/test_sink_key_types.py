"""Record keys and values that tell the types of one column differently -> rows: the record's key decides it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.json_messages import framed
from tests.unit.local_sink import LocalSink, local_sink

TIME, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
ID = {"type": "int64", "field": "id"}
AT = ("t", 0)


def _sink(folder: Path) -> LocalSink:
    return local_sink(folder, ["topics=t", "debezium.sink.iceberg.upsert-keep-deletes=false"])


def _found(sink: LocalSink, *names: str) -> list[tuple[Any, ...]]:
    assert [letter.reason for letter in sink.letters] == []
    return [tuple(row[name] for name in names) for row in sink.rows("t")]


@pytest.mark.parametrize(
    ("kind", "sent", "stored"),
    [
        ({"type": "int32", "name": f"{TIME}Date"}, 19_000, date(2022, 1, 8)),
        ({"type": "int64", "name": f"{TIME}MicroTimestamp"}, 1_700_000_000_000_000, datetime(2023, 11, 14, 22, 13, 20)),
        ({"type": "string", "name": f"{TIME}ZonedTimestamp"}, "2024-01-01T00:00:00Z", datetime(2024, 1, 1, tzinfo=UTC)),
        (
            {
                "type": "bytes",
                "name": f"{CONNECT}Decimal",
                "parameters": {"scale": "2", "connect.decimal.precision": "9"},
            },
            "AeI=",
            Decimal("4.82"),
        ),
        ({"type": "bytes"}, "AeI=", b"\x01\xe2"),
    ],
    ids=lambda value: value.get("name", value["type"]).rpartition(".")[2] if isinstance(value, dict) else "",
)
def test_a_key_with_schema_beside_values_without(kind: dict[str, Any], sent: Any, stored: Any, tmp_path: Path) -> None:
    """`value.converter.schemas.enable=false` alone: what the value has under the key's name is not looked at."""
    sink, key = _sink(tmp_path), [ID, {**kind, "field": "k"}]
    source = {"connector": "postgresql", "name": "s", "db": "d", "table": "t", "ts_ms": 1}

    def event(op: str, row: dict[str, Any]) -> tuple[Any, ...]:
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        value = json.dumps({**images, "source": source, "op": op}, separators=(",", ":")).encode()
        return AT, framed(key, {"id": row["id"], "k": row["k"]}, "t.Key"), value

    sink.process(event("c", {"id": 1, "k": sent, "v": "a"}), event("c", {"id": 2, "k": sent, "v": "b"}))
    sink.process(event("u", {"id": 1, "k": sent, "v": "c"}), event("d", {"id": 2, "k": sent, "v": "b"}))
    assert _found(sink, "id", "k", "v") == [(1, stored, "c")]


def _envelope(connector: str, columns: list[dict[str, Any]], op: str, row: dict[str, Any]) -> bytes:
    """An event whose record has no header: only the schema of its source tells the connector."""
    images = [{"type": "struct", "fields": columns, "optional": True, "field": name} for name in ("before", "after")]
    texts = [{"type": "string", "field": name} for name in ("connector", "name", "db", "table")]
    name = f"io.debezium.connector.{connector}.Source"
    source = {"type": "struct", "name": name, "fields": [*texts, {"type": "int64", "field": "ts_ms"}]}
    payload = {"before": row if op == "d" else None, "after": None if op == "d" else row, "op": op}
    told = {"connector": connector, "name": "s", "db": "d", "table": "t", "ts_ms": 1}
    fields = [*images, {**source, "field": "source"}, {"type": "string", "field": "op"}]
    return framed(fields, {**payload, "source": told}, "t.Envelope")


@pytest.mark.parametrize(
    ("connector", "kind", "name", "sent", "stored"),
    [
        ("mysql", "int64", "MicroTime", -1_000_000, "-00:00:01.000000"),
        ("mariadb", "int64", "MicroTime", 36_000_000_000, "10:00:00.000000"),
        ("sqlserver", "int64", "NanoTimestamp", 1_700_000_000_123_456_700, "2023-11-14T22:13:20.123456700"),
        ("sqlserver", "int64", "NanoTimestamp", 1_700_000_000_000_000_000, "2023-11-14T22:13:20.000000000"),
        ("sqlserver", "string", "ZonedTimestamp", *["2024-02-29T10:00:00.1234567+02:00"] * 2),
        ("sqlserver", "int64", "NanoTime", 36_000_123_456_700, "10:00:00.123456700"),
        ("oracle", "int64", "NanoTimestamp", 1_700_000_000_123_456_789, "2023-11-14T22:13:20.123456789"),
    ],
)
def test_a_key_that_is_text_in_the_rows_is_text(
    connector: str, kind: str, name: str, sent: Any, stored: str, tmp_path: Path
) -> None:
    """The schema of a key does not tell the connector, that of an envelope does: both are one column (types.md)."""
    sink, key = _sink(tmp_path), {"type": kind, "name": TIME + name, "field": "k"}
    columns = [key, {"type": "string", "optional": True, "field": "v"}]
    record = framed([key], {"k": sent}, "t.Key")
    sink.process((AT, record, _envelope(connector, columns, "c", {"k": sent, "v": "a"})))
    assert sink.destination.rows["t"] and _found(sink, "k", "v") == [(stored, "a")]
    sink.process((AT, record, _envelope(connector, columns, "u", {"k": sent, "v": "b"})))
    assert _found(sink, "k", "v") == [(stored, "b")]
    sink.process((AT, record, _envelope(connector, columns, "d", {"k": sent, "v": "b"})), (AT, record, None))
    assert _found(sink, "k", "v") == []


def test_keys_of_other_connectors_keep_their_types(tmp_path: Path) -> None:
    """PostgreSQL's are moments, as its values are."""
    sink, key = _sink(tmp_path), {"type": "int64", "name": f"{TIME}MicroTimestamp", "field": "k"}
    event = _envelope("postgresql", [key, {"type": "string", "field": "v"}], "c", {"k": 1, "v": "a"})
    sink.process((AT, framed([key], {"k": 1}, "t.Key"), event))
    assert _found(sink, "k") == [(datetime(1970, 1, 1, 0, 0, 0, 1),)]
    assert sink.job.plans[-1].tables[0].layout.columns.field("k").type == pa.timestamp("us")
