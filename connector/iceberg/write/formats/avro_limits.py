"""A table's schema -> the columns for which Avro data files will not do. Pure.

Sources: Iceberg 1.12, `SparkPlannedAvroReader`, which refuses a whole file for the logical types of `time` and of
nanoseconds, whether such a column is asked for or not. Parquet's vectorised reader gives them as numbers.
"""

from __future__ import annotations

import orjson

from connector.iceberg.types.schema_json import VARIANT_TYPE, iter_fields

_UNWRITABLE_TYPES = (VARIANT_TYPE, "unknown", "geometry", "geography")
_UNREADABLE_TYPES = ("time", "timestamp_ns", "timestamptz_ns")


def find_unwritable(schema_json: str) -> list[str]:
    """Name the columns that are not written to Avro files, at any depth."""
    return [
        name
        for name, field in iter_fields(orjson.loads(schema_json))
        if isinstance(field["type"], str) and field["type"].startswith(_UNWRITABLE_TYPES)
    ]


def find_unreadable(schema_json: str) -> list[str]:
    """Name the columns on whose account Spark reads no Avro file of the table, at any depth."""
    return [name for name, field in iter_fields(orjson.loads(schema_json)) if field["type"] in _UNREADABLE_TYPES]
