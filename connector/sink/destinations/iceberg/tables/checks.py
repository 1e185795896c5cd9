"""An existing or new table + the settings -> what contradicts them, or cannot be written (pure).

Upserts may need Spark to look up rows, so tables that are upserted must not have columns that Spark cannot read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from connector.errors import DataFault, FatalError
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.types.schemas.schema_evolution import evolve
from connector.iceberg.write.formats.format_limits import find_unreadable, find_unwritable
from connector.settings.iceberg.location_schemes import SCHEME
from connector.settings.iceberg.new_tables.file_formats import DEFAULT_FORMAT_PROPERTY
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm

_NANOSECONDS_VERSION = 3
_CUT_OFF = re.compile(f"{SCHEME}:[^#?]*[#?]")
"""Paths without a scheme are of the local file system, and read whole."""
_DELETE_FORMAT = "write.delete.format.default"
_ENCRYPTION_KEY = "encryption.key-id"
_FILES = {"avro": "Avro", "orc": "ORC"}


def check_types(declared: pa.Schema, layout: TableLayout) -> list[str]:
    """Report declared columns that the table has with a type that is neither the declared one nor a widening of it."""
    faults = []
    for field in declared:
        place = layout.columns.get_field_index(field.name)
        if place < 0:
            continue
        column = layout.columns.field(place)
        if not evolve(pa.schema([field]), pa.struct([column]), add=True).field(0).type.equals(column.type):
            kind = layout.schema.find_field(field.name).field_type
            faults.append(f"column {field.name} is {kind}, and schema.columns declares another type")
    return faults


def check_partitions(terms: Sequence[PartitionTerm], layout: TableLayout) -> str | None:
    """Report a partition spec other than the configured one; terms of columns that the table lacks do not count."""
    wanted = [(term.column, _transform_name(term)) for term in terms if term.column in layout.schema.column_names]
    return None if wanted == partition_fields(layout) else _describe(partition_fields(layout))


def partition_fields(layout: TableLayout) -> list[tuple[str, str]]:
    """Return column and transform of each partition field."""
    fields = [field for field in layout.spec.fields if str(field.transform) != "void"]
    return [(str(layout.schema.find_column_name(f.source_id)), str(f.transform)) for f in fields]


def _transform_name(term: PartitionTerm) -> str:
    return term.transform if term.width is None else f"{term.transform}[{term.width}]"


def _describe(fields: list[tuple[str, str]]) -> str:
    return ", ".join(name if kind == "identity" else f"{kind}({name})" for name, kind in fields) or "nothing"


def complete_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a new table's properties; delete files of other writers become Parquet, as positions are read back."""
    more = {} if properties[DEFAULT_FORMAT_PROPERTY].lower() == "parquet" else {_DELETE_FORMAT: "parquet"}
    return {**more, **properties}


def check_location(layout: TableLayout) -> None:
    """Check that clients of stores read a table's places whole: what stands behind # or ? is no part of a URL's path.

    Raises:
        DataFault: all files of the table would be one object, each written over the one before.
    """
    for place in (layout.location, layout.data_path):
        if _CUT_OFF.match(place):
            raise DataFault(
                f"table {layout.name} is at {place}, and a store reads no path after # or ?; give it another name or "
                "location"
            )


def check_encryption(layout: TableLayout) -> None:
    """Check that a table's files are not to be encrypted, which those that Python's writers make are not.

    Raises:
        DataFault: they are: rows would lie open in it.
    """
    if layout.properties.get(_ENCRYPTION_KEY):
        raise DataFault(
            f"table {layout.name} is encrypted ({_ENCRYPTION_KEY}), and files are written here without; write to "
            "another table, in a store that encrypts by itself"
        )


def check_layout(layout: TableLayout, *, upsert: bool) -> None:
    """Check that a table's rows can be written in its file format, and its deletes in theirs.

    Raises:
        FatalError: they cannot; says what to set.
    """
    layout.parquet_compression()
    _ = layout.target_file_size_bytes, layout.target_delete_file_size_bytes
    match layout.data_format:
        case "parquet":
            return
        case "avro":
            layout.avro_compression()
        case "orc":
            layout.orc_options()
    fault = _find_fault(layout.schema_json, layout.data_format, upsert=upsert)
    if fault is not None:
        raise FatalError(
            f"table {layout.name}: {fault}; iceberg.tables.write-props.{DEFAULT_FORMAT_PROPERTY} wins "
            "over the table's own property"
        )


def check_new_table(name: str, columns: pa.Schema, data_format: str, *, version: int, upsert: bool) -> None:
    """Check the same for the columns that a new table of a format version gets.

    Raises:
        DataFault: its rows cannot be written.
    """
    if data_format.lower() == "parquet":
        return
    schema = build_table_schema(columns, (), frozenset(), nanoseconds=version >= _NANOSECONDS_VERSION)
    fault = _find_fault(schema.model_dump_json(), data_format.lower(), upsert=upsert)
    if fault is not None:
        raise DataFault(f"table {name}: {fault}")


def _find_fault(schema_json: str, data_format: str, *, upsert: bool) -> str | None:
    todo, files = f"set {DEFAULT_FORMAT_PROPERTY} to parquet", _FILES.get(data_format, data_format)
    never = find_unwritable(schema_json)
    if never:
        return f"columns of their type are not written to {files} files ({', '.join(never)}): {todo}"
    unread = find_unreadable(schema_json, data_format) if upsert else []
    if unread:
        reason = f"Spark, which looks rows up, does not read {files} files with columns like {', '.join(unread)}"
        return f"{reason}: {todo}, or make them text by debezium.sink.iceberg.temporal-as-text"
    return None
