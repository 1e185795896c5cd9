"""Tables that others made, as they are: narrower keys, dropped partition fields of version 1, required columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

from tests.conftest import MakeWorkspace
from tests.inside import Inside
from tests.model.recordings import Record
from tests.tiers import tiered
from tests.topics import Topics

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


def _made(sink: Inside) -> None:
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


@pytest.mark.parametrize("mode", tiered(["equality-delete", "copy-on-write"], ["equality-delete"]))
def test_they_are_taken_as_they_are(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, mode: str
) -> None:
    """Rows are replaced batch after batch; a column that the source requires no more is required no more."""
    name = f"found_{mode.replace('-', '_')}"
    extra = {
        "topics": ",".join(f"found.{table}" for table in TABLES),
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
        "debezium.sink.iceberg.write-mode": mode,
        f"iceberg.table.{'default.' if mode == 'copy-on-write' else ''}found_narrow.id-columns": "id",
    }
    sink = Inside(spark, plain_workspace(name, extra))
    assert sink.lake
    _made(sink)
    if mode == "equality-delete":
        for table in TABLES:
            topics.replay(_events(table, [(1, 1, "a"), (2, 2, "b")], required=True))
    first = sink.run()
    later = {
        "narrow": [(1, 1, "c"), (2, 2, "d"), (3, 3, "e")],
        "dropped": [(1, 1, "c"), (2, 2, "d"), (3, 3, "e")],
        "loose": [(1, 1, None), (2, 2, "d"), (3, 3, None)],
    }
    if mode == "equality-delete":
        for table, rows in later.items():
            topics.replay(_events(table, rows, required=False), create=False)
    second = sink.run()
    assert sum(report.dead_letters for report in (*first, *second)) == 0
    for table, rows in later.items():
        expected = [*rows, (9, 9, "stays")] if table == "dropped" else rows
        assert sorted(tuple(r.values()) for r in sink.lake.rows(f"found_{table}")) == expected
    schema = sink.lake.java("found_loose").schema()
    assert [schema.findField(column).isOptional() for column in _TYPES] == [False, False, True]
    assert not sink.lake.java("found_narrow").schema().findField("v").isOptional()
