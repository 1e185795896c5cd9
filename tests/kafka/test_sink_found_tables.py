"""Tables that others made, as they are: narrower keys, dropped partition fields of version 1, required columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.tiers import tiered
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

TABLES = ("narrow", "dropped", "loose")
_TYPES = {"id": "int64", "part": "int64", "v": "string"}


def _event(topic: str, offset: int, key: Mapping[str, Any], row: Mapping[str, Any], *, required: bool) -> Record:
    """A flattened event with its schema; `required` columns are never null by it."""

    def told(values: Mapping[str, Any], *, optional: bool) -> bytes:
        fields = [{"field": name, "type": _TYPES[name], "optional": optional} for name in values]
        return orjson.dumps({"schema": {"type": "struct", "optional": False, "fields": fields}, "payload": values})

    return Record(topic, 0, offset, told(key, optional=False), told(row, optional=not required))


def _events(name: str, rows: list[tuple[int, int, str | None]], *, required: bool) -> list[Record]:
    key = ("id", "part") if name == "narrow" else ("id",)
    made = [dict(zip(_TYPES, row, strict=True)) for row in rows]
    return [_event(f"found.{name}", n, {k: row[k] for k in key}, row, required=required) for n, row in enumerate(made)]


def _nested_event(number: int, *, lacking: bool) -> Record:
    """An event of table `nested`; where it lacks something, its schema does not require it any more."""

    def struct(x: str) -> dict[str, Any]:
        return {"type": "struct", "fields": [{"field": "x", "type": x, "optional": lacking}, _field("y", "int64")]}

    fields = [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "s", "optional": False, **struct("int64")},
        {"field": "l", "type": "array", "optional": True, "items": struct("string")},
        {"field": "m", "type": "map", "optional": True, "keys": {"type": "string"}, "values": struct("int64")},
        {"field": "e", "type": "array", "optional": True, "items": {"type": "int64", "optional": lacking}},
    ]
    row = {"id": number, "s": {"x": 1, "y": 2}, "l": [{"x": "a", "y": 1}], "m": {"k": {"x": 1, "y": 2}}, "e": [1]}
    if lacking:
        row |= {"s": {"x": None, "y": 2}, "l": [{"x": "a", "y": 1}, {"x": None, "y": 2}]}
        row |= {"m": {"k": {"x": None, "y": 2}}, "e": [1, None]}
    told = {"schema": {"type": "struct", "optional": False, "fields": fields}, "payload": row}
    key = {"schema": {"type": "struct", "optional": False, "fields": fields[:1]}, "payload": {"id": number}}
    return Record("found.nested", 0, number, orjson.dumps(key), orjson.dumps(told))


def _field(name: str, kind: str) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": True}


def _made_nested(sink: InProcessSink) -> None:
    """Make a table that requires fields within structs, lists and maps, and the items of a list."""
    struct = "STRUCT<x: {} NOT NULL, y: BIGINT>"
    whole, text = struct.format("BIGINT"), struct.format("STRING")
    columns = f"id BIGINT NOT NULL, s {whole} NOT NULL, l ARRAY<{text}>, m MAP<STRING, {whole}>, e ARRAY<BIGINT>"
    sink.spark.sql(
        f"CREATE TABLE {sink.space.name}.`default`.found_nested ({columns}) "
        "USING iceberg TBLPROPERTIES ('format-version'='2')"
    )
    assert sink.lake
    update = sink.lake.java("found_nested").updateSchema()
    update.allowIncompatibleChanges().requireColumn("e.element").setIdentifierFields(["id"]).commit()


def _made(sink: InProcessSink) -> None:
    """Make the tables: identifier fields `id` and `part`, or a partition field that is dropped, or required columns."""
    catalog = sink.space.name
    sink.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.`default`")
    for name in TABLES:
        table, version = f"{catalog}.`default`.found_{name}", 1 if name == "dropped" else 2
        columns = "id BIGINT NOT NULL, part BIGINT NOT NULL, v STRING NOT NULL"
        by = "PARTITIONED BY (part)" if name == "dropped" else ""
        sink.spark.sql(
            f"CREATE TABLE {table} ({columns}) USING iceberg {by} TBLPROPERTIES ('format-version'='{version}')"
        )
        java = sink.lake.java(f"found_{name}")
        java.updateSchema().setIdentifierFields(["id", "part"] if name == "narrow" else ["id"]).commit()
        if name == "dropped":
            sink.spark.sql(f"INSERT INTO {table} VALUES (1, 1, 'old'), (9, 9, 'stays')")
            java.refresh()
            java.updateSpec().removeField("part").commit()
            java.updateProperties().set("format-version", "2").commit()
    _made_nested(sink)


@pytest.mark.parametrize("mode", tiered(["equality-delete", "copy-on-write", "position-delete"], ["equality-delete"]))
def test_they_are_taken_as_they_are(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, mode: str
) -> None:
    """Rows are replaced batch after batch; what the source requires no more, nested or not, the table does not."""
    name = f"found_{mode.replace('-', '_')}"
    extra = {
        "topics": ",".join(f"found.{table}" for table in (*TABLES, "nested")),
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
        "debezium.sink.iceberg.write-mode": mode,
        f"iceberg.table.{'default.' if mode == 'copy-on-write' else ''}found_narrow.id-columns": "id",
    }
    sink = InProcessSink(spark, plain_workspace(name, extra))
    assert sink.lake
    _made(sink)
    fresh = not topics.read(f"found.{TABLES[0]}")  # Both modes read the same topics, whichever comes first.
    if fresh:
        for table in TABLES:
            topics.replay(_events(table, [(1, 1, "a"), (2, 2, "b")], required=True))
        topics.replay([_nested_event(0, lacking=False), _nested_event(1, lacking=False)])
    first = sink.run()
    later = {
        "narrow": [(1, 1, "c"), (2, 2, "d"), (3, 3, "e")],
        "dropped": [(1, 1, "c"), (2, 2, "d"), (3, 3, "e")],
        "loose": [(1, 1, None), (2, 2, "d"), (3, 3, None)],
    }
    if fresh:
        for table, rows in later.items():
            topics.replay(_events(table, rows, required=False), create=False)
        topics.replay([_nested_event(1, lacking=True), _nested_event(2, lacking=True)], create=False)
    second = sink.run()
    assert sum(report.dead_letters for report in (*first, *second)) == 0
    for table, rows in later.items():
        expected = [*rows, (9, 9, "stays")] if table == "dropped" else rows
        assert sorted(tuple(r.values()) for r in sink.lake.rows(f"found_{table}")) == expected
    schema = sink.lake.java("found_loose").schema()
    assert [schema.findField(column).isOptional() for column in _TYPES] == [False, False, True]
    assert not sink.lake.java("found_narrow").schema().findField("v").isOptional()
    nested = sink.lake.java("found_nested").schema()
    loosened = ("s.x", "l.element.x", "m.value.x", "e.element")
    assert [nested.findField(path).isOptional() for path in (*loosened, "s", "id")] == [True] * 4 + [False] * 2
    rows_by_id = {row["id"]: row for row in sink.lake.rows("found_nested")}
    assert {number: (row["s"]["x"], row["e"]) for number, row in rows_by_id.items()} == {
        0: (1, [1]),
        1: (None, [1, None]),
        2: (None, [1, None]),
    }
    assert [item["x"] for item in rows_by_id[2]["l"]] == ["a", None]
    values = spark.sql(f"SELECT m['k'].x, m['k'].y FROM {sink.space.name}.`default`.found_nested ORDER BY id").collect()
    assert [tuple(value) for value in values] == [(1, 2), (None, 2), (None, 2)]
