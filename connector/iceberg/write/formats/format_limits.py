"""A table's schema -> the columns for which Avro or ORC data files will not do. Pure.

Sources: Iceberg 1.12, `SparkPlannedAvroReader`, which refuses a whole file for the logical types of `time` and of
nanoseconds, whether such a column is asked for or not; `ORCSchemaUtil`, which reads no ORC timestamp as a number, the
form in which Spark is given nanoseconds. Parquet's vectorised reader gives them as numbers.
"""

from __future__ import annotations

import orjson

from connector.iceberg.types.schemas.schema_json import VARIANT_TYPE, iter_fields

_UNWRITABLE_TYPES = (VARIANT_TYPE, "unknown", "geometry", "geography")
_NANOSECOND_TYPES = ("timestamp_ns", "timestamptz_ns")
_UNREADABLE_TYPES = {"avro": ("time", *_NANOSECOND_TYPES), "orc": _NANOSECOND_TYPES}


def find_unwritable(schema_json: str) -> list[str]:
    """Name the columns that are written to Parquet files only, at any depth."""
    return [
        name
        for name, field in iter_fields(orjson.loads(schema_json))
        if isinstance(field["type"], str) and field["type"].startswith(_UNWRITABLE_TYPES)
    ]


def find_unreadable(schema_json: str, data_format: str) -> list[str]:
    """Name the columns on whose account Spark reads no file of the table in this format, at any depth."""
    types = _UNREADABLE_TYPES.get(data_format, ())
    return [name for name, field in iter_fields(orjson.loads(schema_json)) if field["type"] in types]
