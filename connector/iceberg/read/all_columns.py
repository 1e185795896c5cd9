"""Rows that a frame has of a table -> all of their columns in the table's types, to be written again. On executors."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.read.frame_columns import FILE_COLUMN, LINEAGE_COLUMNS, POSITION_COLUMN
from connector.iceberg.read.positional_reader import read_rows_at
from connector.iceberg.types.schemas.schema_json import VARIANT_TYPE
from connector.iceberg.types.values.spark_types import from_spark


def readable_schema(schema_json: str) -> SnapshotSchema:
    """Return the part of a schema that Spark can read and hand on to Python: no variants.

    Iceberg's reader of nested columns refuses a file with a time column, asked for or not; the one of primitive columns
    reads it as its number.
    """
    schema = SnapshotSchema(schema_json)
    has_times = not schema.flat and '"time"' in schema_json
    return schema.without(
        field["name"]
        for field in schema.document["fields"]
        if field["type"] == VARIANT_TYPE or (has_times and not isinstance(field["type"], str))
    )


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


def complete_rows(
    layout: TableLayout, written: TableLayout, batch: pa.RecordBatch, names: Mapping[str, str]
) -> pa.RecordBatch:
    """Return rows of a frame as files have them.

    Args:
        layout: the table.
        written: the files: `layout`, or `write.row_lineage.with_lineage` of it where the frame has the rows' lineage.
        batch: rows as `read.table_reader` gives them.
        names: the frame's columns by the table's.
    """
    columns = list(read_all_columns(layout, batch, names, (FILE_COLUMN, POSITION_COLUMN)).values())
    if len(written.columns) > len(layout.columns):
        columns += [from_spark(batch.column(name), pa.int64()) for name in LINEAGE_COLUMNS]
    return pa.RecordBatch.from_arrays(columns, schema=written.columns)
