"""TiDB's changes as TiCDC writes them (PingCAP's page "TiCDC Debezium Protocol", with schemas) -> rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.local_sink import local_sink

SOURCE: dict[str, Any] = {"version": "2.4.0.Final", "connector": "TiCDC", "name": "default", "ts_ms": 1707103832263}
SOURCE |= {"snapshot": "false", "db": "test", "table": "t2", "server_id": 0, "gtid": None, "file": "", "pos": 0}
SOURCE |= {"row": 0, "thread": 0, "query": None, "commit_ts": 447507027004751877, "cluster_id": "default"}
AT = ("t", 0)


def _field(name: str, kind: str = "int64") -> dict[str, Any]:
    return {"type": kind, "optional": True, "field": name}


_SOURCE_FIELDS = [_field(name, "int64" if isinstance(value, int) else "string") for name, value in SOURCE.items()]
_SOURCE = {"type": "struct", "name": "io.debezium.connector.mysql.Source", "field": "source", "fields": _SOURCE_FIELDS}
_TIME = {**_field("d"), "name": "io.debezium.time.MicroTime"}
_IMAGE = {"type": "struct", "optional": True, "name": "default.test.t2.Value"}
_IMAGE |= {"fields": [_field("a", "int32"), _field("b", "int32"), _TIME]}
_ORDER = [_field("id", "string"), _field("total_order"), _field("data_collection_order")]
_BLOCK = {"type": "struct", "optional": True, "name": "event.block", "field": "transaction", "fields": _ORDER}
_AROUND = [_SOURCE, _field("op", "string"), _field("ts_ms"), _BLOCK]
_CHANGES = {"type": "array", "field": "tableChanges", "items": {"type": "struct", "fields": [_field("id", "string")]}}
_DDL = [_SOURCE, _field("ts_ms"), _field("databaseName", "string"), _field("ddl", "string"), _CHANGES]


def _message(name: str, fields: list[dict[str, Any]], payload: dict[str, Any]) -> bytes:
    schema = {"type": "struct", "optional": False, "name": name, "version": 1, "fields": fields}
    return json.dumps({"schema": schema, "payload": payload}).encode()


def _change(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> bytes:
    images = [{**_IMAGE, "field": "before"}, {**_IMAGE, "field": "after"}]
    payload = {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 1, "transaction": None}
    return _message("default.test.t2.Envelope", [*images, *_AROUND], payload)


KEY = _message("default.test.t2.Key", [_field("a", "int32")], {"a": 4})


def test_changes_are_rows_and_ddl_and_watermarks_are_none(tmp_path: Path) -> None:
    """TIME is MySQL's, `commit_ts` costs nothing, and what goes to each partition beside the changes makes no row."""
    sink = local_sink(tmp_path, ["topics=t", "debezium.sink.iceberg.upsert-keep-deletes=false"])
    watermark = {"source": SOURCE, "op": "m", "ts_ms": 1, "transaction": None}
    ddl = {"source": SOURCE, "ts_ms": 1, "databaseName": "test", "ddl": "RENAME TABLE a to b", "tableChanges": []}
    key = _message("io.debezium.connector.mysql.SchemaChangeKey", [_field("databaseName", "string")], {})
    beside = [
        (AT, b"{}", _message("io.debezium.connector.mysql.Envelope", _AROUND, watermark)),
        (AT, key, _message("io.debezium.connector.mysql.SchemaChangeValue", _DDL, ddl)),
    ]
    row = {"a": 4, "b": 2, "d": -3_020_399_000_000}
    assert sink.process((AT, KEY, _change("c", None, row)), *beside).dead_letters == 0
    assert [(each["a"], each["b"], each["d"]) for each in sink.rows("t")] == [(4, 2, "-838:59:59.000000")]
    assert sink.process((AT, KEY, _change("u", row, {**row, "b": 3})), *beside).dead_letters == 0
    assert [each["b"] for each in sink.rows("t")] == [3]
    assert sink.process((AT, KEY, _change("d", {**row, "b": 3}, None)), (AT, KEY, None)).dead_letters == 0
    assert sink.rows("t") == []
