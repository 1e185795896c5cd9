"""`nested-as-variant`: nested values and JSON texts -> variant columns, read by Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from serde.events.images.unavailable_value import PLACEHOLDER
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.model.recordings import Record

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

OPTIONS = {"debezium.sink.iceberg.nested-as-variant": "true", "debezium.sink.iceberg.upsert-keep-deletes": "false"}
_INNER = [{"field": "a", "type": "int64"}, {"field": "d", "type": "double", "optional": True}]
FIELDS: list[dict[str, Any]] = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "doc", "type": "string", "optional": True, "name": "io.debezium.data.Json"},
    {"field": "box", "type": "struct", "optional": True, "fields": _INNER},
    {"field": "tags", "type": "array", "optional": True, "items": {"type": "string"}},
    {"field": "n", "type": "int32", "optional": True},
]


def _described(first: int, *rows: dict[str, Any], more: tuple[dict[str, Any], ...] = ()) -> list[Record]:
    schema = {"type": "struct", "fields": [*FIELDS, *more], "name": "v", "optional": False}
    key = {"type": "struct", "fields": FIELDS[:1], "name": "k", "optional": False}
    return [
        Record(
            "variant.described",
            0,
            first + place,
            json.dumps({"schema": key, "payload": {"id": row["id"]}}).encode(),
            json.dumps({"schema": schema, "payload": row}).encode(),
        )
        for place, row in enumerate(rows)
    ]


def _bare(first: int, *rows: dict[str, Any]) -> list[Record]:
    return [
        Record("variant.bare", 0, first + n, json.dumps({"id": r["id"]}).encode(), json.dumps(r).encode())
        for n, r in enumerate(rows)
    ]


def test_nested_values_and_documents_are_variants(
    topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake, spark: SparkSession
) -> None:
    """Documents arrive whole, through an update that left one out and a column that came later; files say VARIANT."""
    document = {"a": [1, 2.5, None, "ü"], "b": {"c": True}}
    one = {"id": 1, "doc": json.dumps(document), "box": {"a": 5, "d": None}, "tags": ["x"], "n": 1}
    two = {"id": 2, "doc": None, "box": None, "tags": [], "n": 2}
    topics.replay(_described(0, one, two))
    topics.replay(_bare(0, {"id": 1, "o": {"x": 1}, "l": [1]}, {"id": 2, "o": {"y": "z"}}, {"id": 3, "o": "plain"}))
    space = make_workspace("variant", {"topics": "variant.described,variant.bare", **OPTIONS})
    first = space.run()
    assert first.code == 0 and not first.total("dead_letters"), first.text[-6000:]
    extra = {"field": "extra", "type": "map", "optional": True, "keys": {"type": "string"}, "values": {"type": "int64"}}
    later = [{**one, "doc": PLACEHOLDER, "n": 3, "extra": None}, {**two, "id": 3, "extra": {"k": 7}}]
    topics.replay(_described(2, *later, more=(extra,)), create=False)
    topics.replay(_bare(3, {"id": 1, "o": [{"x": None, "y": 2}]}, {"id": 4, "o": 12}), create=False)
    second = space.run()
    assert second.code == 0 and not second.total("dead_letters"), second.text[-6000:]

    tables = lake(space)
    kinds = {"id": "long", "doc": "variant", "box": "variant", "tags": "list<string>", "n": "int", "extra": "variant"}
    found = tables.types("variant_described")
    assert {name: found[name] for name in kinds} == kinds
    assert tables.types("variant_bare")["o"] == "variant"
    assert _texts(spark, f"{space.name}.default.variant_described", "doc", "box", "extra") == {
        1: (document, {"a": 5, "d": None}, None),
        2: (None, None, None),
        3: (None, None, {"k": 7}),
    }
    assert _texts(spark, f"{space.name}.default.variant_bare", "o") == {
        1: ([{"x": None, "y": 2}],),
        2: ({"y": "z"},),
        3: ("plain",),
        4: (12,),
    }
    data = [file["file_path"] for file in tables.files("variant_described") if file["content"] == 0]
    shown = [_parquet(path) for path in data]
    assert all("doc (Variant(1))" in text for text in shown)


def _parquet(path: str) -> str:
    with pq.ParquetFile(path.removeprefix("file:")) as file:
        return str(file.schema)


def _texts(spark: SparkSession, table: str, *names: str) -> dict[int, tuple[Any, ...]]:
    rows = spark.table(table).selectExpr("id", *(f"to_json({name}) AS {name}" for name in names)).collect()
    return {row["id"]: tuple(row[name] and json.loads(row[name]) for name in names) for row in rows}
