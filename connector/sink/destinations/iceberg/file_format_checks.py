"""A table's schema and the format of its data files -> whether the two go together (pure).

Tables that are upserted to look rows up now and then, with Spark: what Spark does not read they must not hold.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from connector.errors import DataFault, FatalError
from connector.iceberg.catalog.table_layout import DEFAULT_FORMAT_PROPERTY, TableLayout
from connector.iceberg.types.arrow_types import build_table_schema
from connector.iceberg.write.formats.avro_limits import find_unreadable, find_unwritable

_NANOSECONDS_VERSION = 3
_DELETE_FORMAT = "write.delete.format.default"


def complete_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Give a new table's properties, by which other writers' delete files are Parquet too: positions are read back."""
    more = {_DELETE_FORMAT: "parquet"} if properties[DEFAULT_FORMAT_PROPERTY].lower() == "avro" else {}
    return {**more, **properties}


def check_layout(layout: TableLayout, *, upsert: bool) -> None:
    """See that a table's rows can be written in its format.

    Raises:
        FatalError: they cannot; says what to set.
    """
    if layout.data_format != "avro":
        return
    layout.avro_compression()
    fault = _find_fault(layout.schema_json, upsert=upsert)
    if fault is not None:
        raise FatalError(
            f"table {layout.name}: {fault}; iceberg.tables.write-props.{DEFAULT_FORMAT_PROPERTY} wins "
            "over the table's own property"
        )


def check_new_table(name: str, columns: pa.Schema, data_format: str, *, version: int, upsert: bool) -> None:
    """See the same of columns that a table of a format version is to get.

    Raises:
        DataFault: its rows cannot be written.
    """
    if data_format.lower() != "avro":
        return
    schema = build_table_schema(columns, (), frozenset(), nanoseconds=version >= _NANOSECONDS_VERSION)
    fault = _find_fault(schema.model_dump_json(), upsert=upsert)
    if fault is not None:
        raise DataFault(f"table {name}: {fault}")


def _find_fault(schema_json: str, *, upsert: bool) -> str | None:
    todo = f"set {DEFAULT_FORMAT_PROPERTY} to parquet"
    never = find_unwritable(schema_json)
    if never:
        return f"columns of their type are not written to Avro files ({', '.join(never)}): {todo}"
    unread = find_unreadable(schema_json) if upsert else []
    if unread:
        told = f"Spark, which looks rows up, reads no Avro file with times or nanoseconds ({', '.join(unread)})"
        return f"{told}: {todo}, or make them text by debezium.sink.iceberg.temporal-as-text"
    return None
