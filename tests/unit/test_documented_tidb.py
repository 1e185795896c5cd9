"""TiDB's changes as TiCDC writes them (PingCAP's page "TiCDC Debezium Protocol") -> rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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


def _bare(payload: dict[str, Any], indent: int | None = None) -> bytes:
    """As `debezium-disable-schema=true` has it: the frame stays, without the schema."""
    return json.dumps({"payload": payload}, indent=indent, separators=None if indent else (",", ":")).encode()


def _bare_change(op: str, row: dict[str, Any], **more: Any) -> dict[str, Any]:
    images = {"before": row, "after": None} if op == "d" else {"after": row}
    return {"source": SOURCE, "ts_ms": 1, "transaction": None, "op": op, **images, **more}


WATERMARK = {"source": SOURCE, "op": "m", "ts_ms": 1, "transaction": None}
DDL = {"source": SOURCE, "ts_ms": 1, "databaseName": "test", "schemaName": None, "ddl": "CREATE TABLE test.t2"}
DDL |= {"tableChanges": [{"type": "CREATE", "id": '"test"."t2"', "table": {"columns": [{"name": "a"}]}}]}
FORMS = ("told by each message", "schemas.enable=false")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("indent", [None, 2])
def test_without_schemas_the_payload_is_the_event(tmp_path: Path, form: str, indent: int | None) -> None:
    """Keys and values are in the frame alone; DDL and watermarks make no rows; a column may have the frame's name."""
    lines = ["topics=t", "debezium.sink.iceberg.upsert-keep-deletes=false"]
    if form != FORMS[0]:
        converter = "converter=org.apache.kafka.connect.json.JsonConverter"
        lines += [f"{side}.{converter}" for side in ("key", "value")]
        lines += [f"{side}.converter.schemas.enable=false" for side in ("key", "value")]
    sink = local_sink(tmp_path, lines)
    row = {"a": 4, "payload": "x"}
    key, beside = (
        _bare({"a": 4}, indent),
        [(AT, _bare({}), _bare(WATERMARK)), (AT, _bare({"databaseName": "t"}), _bare(DDL))],
    )
    for op, wanted in (("c", [(4, "x")]), ("u", [(4, "y")]), ("d", [])):
        row |= {"payload": "x" if op == "c" else "y"}
        report = sink.process((AT, key, _bare(_bare_change(op, row), indent)), *beside)
        assert report.dead_letters == 0, sink.letters
        assert [(each["a"], each["payload"]) for each in sink.rows("t")] == wanted


def test_rows_with_a_column_of_the_frames_name_are_left_alone(tmp_path: Path) -> None:
    """What is no change and no DDL is a row, whatever it is called."""
    sink = local_sink(tmp_path, ["topics=t", "debezium.sink.iceberg.upsert=false"])
    rows = [{"payload": {"source": {"a": 1}}}, {"payload": {"source": {"a": 2}}, "n": {"b": 2}}]
    values = [json.dumps(row, separators=(",", ":")).encode() for row in rows]
    assert sink.process(*((AT, None, value) for value in values)).dead_letters == 0
    assert [row["payload"] for row in sink.rows("t")] == [{"source": {"a": 1}}, {"source": {"a": 2}}]
