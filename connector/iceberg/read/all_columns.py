"""Rows that a frame has of a table -> all of their columns in the table's types, to be written again. On executors."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
import pyarrow as pa

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.read.positional_reader import read_rows_at
from connector.iceberg.types.schemas.schema_json import VARIANT_TYPE
from connector.iceberg.types.values.spark_types import from_spark


def readable_schema(schema_json: str) -> SnapshotSchema:
    """Return the part of a schema that Spark can read and hand on to Python: no variants.

    Iceberg's reader of nested columns refuses a file with a time column, asked for or not; the one of primitive columns
    reads it as its number.
    """
    schema = SnapshotSchema(schema_json)
    document = schema.document
    kept = [field for field in document["fields"] if field["type"] != VARIANT_TYPE]
    if not schema.flat and '"time"' in schema_json:
        kept = [field for field in kept if isinstance(field["type"], str)]
    if len(kept) == len(document["fields"]):
        return schema
    return SnapshotSchema(orjson.dumps({**document, "fields": kept}).decode())


def read_all_columns(
    layout: TableLayout, batch: pa.RecordBatch, names: Mapping[str, str], place: tuple[str, str]
) -> dict[str, pa.Array]:
    """Return all columns of held rows in the table's types; those that Spark cannot read come from the data files."""
    absent = [field for field in layout.columns if field.name not in names]
    rest = read_rows_at(layout, batch.column(place[0]), batch.column(place[1]), absent) if absent else []
    others = dict(zip((field.name for field in absent), rest, strict=True))
    return {
        field.name: others[field.name]
        if field.name in others
        else from_spark(batch.column(names[field.name]), field.type)
        for field in layout.columns
    }
