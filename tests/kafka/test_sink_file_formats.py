"""Tables of Avro and ORC data files: upserted in every mode, and appended to; read by Spark and by Iceberg itself."""

from __future__ import annotations

import base64
import json
from itertools import product
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connector.errors import FatalError
from serde.events.images.unavailable_value import PLACEHOLDER
from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.tiers import tiered
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

MODES = ("equality-delete", "position-delete", "copy-on-write", "append")
FORMAT = "write.format.default"
_DECIMAL = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
_DECIMAL["parameters"]["connect.decimal.precision"] = "12"  # type: ignore[index]
_INNER = {"field": "a", "type": "double", "optional": True}
FIELDS: list[dict[str, Any]] = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "region", "type": "string", "optional": True},
    {"field": "note", "type": "string", "optional": True},
    {"field": "price", "type": "bytes", "optional": True, **_DECIMAL},
    {"field": "day", "type": "int32", "optional": True, "name": "io.debezium.time.Date"},
    {"field": "at", "type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp"},
    {"field": "zoned", "type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp"},
    {"field": "ref", "type": "string", "optional": True, "name": "io.debezium.data.Uuid"},
    {"field": "tags", "type": "array", "optional": True, "items": {"type": "string", "optional": True}},
    {
        "field": "box",
        "type": "struct",
        "optional": True,
        "fields": [{"field": "a", "type": "double", "optional": True}],
    },
]
REF = "6f1c1a3e-0f0f-4c5f-8a2b-0123456789ab"


def _row(key: int, region: str, note: str | None, cents: int | None) -> dict[str, Any]:
    price = None if cents is None else base64.b64encode(cents.to_bytes(4, "big", signed=True)).decode()
    full = {"day": 19_000 + key, "at": key * 1_000_001, "zoned": "2024-01-01T00:00:00.000001Z", "ref": REF}
    nested = {"tags": ["x", None], "box": {"a": 0.5}} if key % 2 else {"tags": None, "box": None}
    return {"id": key, "region": region, "note": note, "price": price, **full, **nested}


def _shown(key: int, region: str, note: str | None, price: str | None) -> tuple[Any, ...]:
    """The same as Spark's text of it."""
    day = f"2022-01-{8 + key:02}"
    at = f"1970-01-01 00:00:0{key}.00000{key}" if key else "1970-01-01 00:00:00"
    nested = ("[x, null]", "{0.5}") if key % 2 else (None, None)
    return (str(key), region, note, price, day, at, "2024-01-01 00:00:00.000001", REF, *nested)


def _records(topic: str, first: int, *rows: dict[str, Any] | int) -> list[Record]:
    """An event for each row, a tombstone for each bare key."""
    schema = {"type": "struct", "fields": FIELDS, "name": "v", "optional": False}
    key = {"type": "struct", "fields": FIELDS[:1], "name": "k", "optional": False}
    made = []
    for place, row in enumerate(rows):
        told = {"id": row} if isinstance(row, int) else {"id": row["id"]}
        value = None if isinstance(row, int) else json.dumps({"schema": schema, "payload": row}).encode()
        made.append(Record(topic, 0, first + place, json.dumps({"schema": key, "payload": told}).encode(), value))
    return made


@pytest.mark.parametrize(("version", "data_format"), tiered(product([2, 3], ["avro", "orc"]), [(2, "orc")]))
def test_rows_end_the_same_in_other_files(
    version: int, data_format: str, topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """In each mode updates, deletes, a moved row and a value that was not sent end as the source has them."""
    names = {mode: f"{data_format}files{version}_{mode.replace('-', '_')}" for mode in MODES}
    first = [_row(key, "north", f"note {key}", 100 * key + 5) for key in range(6)]
    then = [_row(1, "north", PLACEHOLDER, -1), 2, _row(3, "south", None, None), _row(7, "south", "new", 1)]
    space = plain_workspace(
        f"{data_format}files{version}",
        {
            "topics": ",".join(names.values()),
            "debezium.sink.iceberg.format-version": str(version),
            "debezium.sink.iceberg.upsert-keep-deletes": "false",
            "debezium.sink.iceberg.partition-by": "region",
            f"debezium.sink.iceberg.{FORMAT}": data_format,
            "iceberg.tables.auto-create-props.write.avro.compression-codec": "zstd" if version == 3 else "gzip",
            **{f"iceberg.table.{name}.write-mode": mode for mode, name in names.items()},
        },
    )
    inside = InProcessSink(spark, space)
    for name in names.values():
        topics.replay(_records(name, 0, *first))
    assert not sum(report.dead_letters for report in inside.run())
    for name in names.values():
        topics.replay(_records(name, len(first), *then), create=False)
    assert not sum(report.dead_letters for report in inside.run())

    staying = [_shown(key, "north", f"note {key}", f"{key}.05") for key in (0, 4, 5)]
    came = [_shown(3, "south", None, None), _shown(7, "south", "new", "0.01")]
    expected = sorted([*staying, _shown(1, "north", "note 1", "-0.01"), *came], key=str)
    before = [_shown(key, "north", f"note {key}", f"{key}.05") for key in range(6)]
    events = sorted([*before, _shown(1, "north", PLACEHOLDER, "-0.01"), *came], key=str)
    for mode, name in names.items():
        assert _texts(spark, f"{space.name}.default.{name}") == (events if mode == "append" else expected), mode
        files = inside.lake.files(name)
        assert {file["file_format"] for file in files if not file["content"]} == {data_format.upper()}
        deletes = {file["file_format"] for file in files if file["content"]}
        asked = {"equality-delete": {"PARQUET"}, "position-delete": {"PUFFIN"} if version == 3 else {"PARQUET"}}
        assert deletes == asked.get(mode, set())
        assert dict(inside.lake.java(name).properties())["write.delete.format.default"] == "parquet"
        if mode != "append":
            assert sorted(row["id"] for row in inside.lake.rows(name)) == [0, 1, 3, 4, 5, 7]


def test_a_table_that_asks_for_another_format_is_refused(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """A format that is none, set on a table by someone else, stops the sink; a property that wins over it is named.

    Rows of two formats are read together then; a value that ORC does not hold is a dead letter.
    """
    topics.replay(_records("otherfiles.t", 0, _row(1, "north", "a", 5)))
    space = plain_workspace("otherfiles", {"topics": "otherfiles.t"})
    inside = InProcessSink(spark, space)
    inside.run()
    inside.lake.java("otherfiles_t").updateProperties().set(FORMAT, "lance").commit()
    topics.replay(_records("otherfiles.t", 1, _row(2, "north", "b", 5)), create=False)
    with pytest.raises(FatalError, match=r"write\.format\.default is lance"):
        inside.run()
    inside.run({f"iceberg.tables.write-props.{FORMAT}": "avro"})
    early = {**_row(3, "north", "c", 5), "at": -1_500_000}
    topics.replay(_records("otherfiles.t", 2, early, _row(1, "north", "d", 5)), create=False)
    reports = inside.run({f"iceberg.tables.write-props.{FORMAT}": "orc"})
    assert sum(report.dead_letters for report in reports) == 1
    assert _formats(inside.lake, "otherfiles_t") == {"PARQUET", "AVRO", "ORC"}
    assert len(_texts(spark, f"{space.name}.default.otherfiles_t")) == 2


def _formats(lake: Lake, name: str) -> set[str]:
    return {file["file_format"] for file in lake.files(name)}


def _texts(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    names = [field["field"] for field in FIELDS]
    rows = spark.table(table).selectExpr(*(f"cast({name} as string) AS {name}" for name in names)).collect()
    return sorted((tuple(row) for row in rows), key=str)
