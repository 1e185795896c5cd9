"""Rows -> rows by partition: partition values, a column at a time, by Iceberg's transforms (spec, "Partitioning")."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, cast
from urllib.parse import quote_plus

import attrs
import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    TimeTransform,
    Transform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    IcebergType,
    IntegerType,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connector.iceberg.keys.key_codes import encode_keys
from connector.iceberg.types.nested_columns import read_column
from connector.iceberg.types.values.single_values import encode_json, to_stored_values
from serde.connect.values.iso_text import format_date

_MAX_FOLDER_CHARS = 200
"""Of a folder's name: stores have names of 255 bytes at most."""

_JSON_NAMED_TYPES = (
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
    TimestampNanoType,
    TimestamptzNanoType,
    UUIDType,
)
"""Types whose values are named as Iceberg's JSON has them; Python's have an end."""


_UNITS_PER_SECOND = {"us": 10**6, "ns": 10**9}
_NANOSECONDS = (pa.timestamp("ns"), pa.timestamp("ns", "UTC"))


@attrs.frozen
class Partition:
    """One partition: its folder below the data path, and its values as Iceberg's JSON has them."""

    path: str
    json: tuple[Any, ...]


UNPARTITIONED = Partition("", ())


def void_partition(fields: int) -> Partition:
    """Return the only partition of a spec; fields that were dropped in format version 1 are still there, and null."""
    return Partition("", (None,) * fields)


def split_by_partition(
    batch: pa.RecordBatch, spec: PartitionSpec, schema: Schema
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Return the rows of each partition, in the order of the partitions' first rows.

    Cost: one transform per partition field, one sort by partition, one gather of the rows.
    """
    if spec.is_unpartitioned():
        yield void_partition(len(spec.fields)), batch
        return
    values = [_partition_values(batch, field, schema) for field in spec.fields]
    groups = encode_keys(values)
    sequence = np.argsort(groups, kind="stable")
    bounds = np.flatnonzero(np.diff(groups[sequence], prepend=-1))
    for start, stop in zip(bounds, [*bounds[1:], len(sequence)], strict=True):
        rows = sequence[start:stop]
        row = [to_stored_values(column.slice(rows[0], 1))[0].as_py() for column in values]
        part = batch if len(bounds) == 1 else batch.take(pa.array(rows))
        yield _build_partition(row, spec, schema), part


def _partition_values(batch: pa.RecordBatch, field: PartitionField, schema: Schema) -> pa.Array:
    if isinstance(field.transform, VoidTransform):
        # What it was of may be gone from the schema.
        return pa.nulls(batch.num_rows, pa.int32())
    source = schema.find_field(field.source_id)
    column = read_column(batch, str(schema.find_column_name(field.source_id)))
    return transform_column(field.transform, column, source.field_type)


def transform_column(transform: Transform[Any, Any], column: pa.Array, source: IcebergType) -> pa.Array:
    """Return what a transform makes of a column of this type; any but one to nothing."""
    if isinstance(transform, TimeTransform):
        return count_times(transform, column)
    if isinstance(transform, BucketTransform) and column.type in _NANOSECONDS:
        # By the microseconds that they are in (spec, "Hash Functions"), those before 1970 too.
        column = _divide(column, 1000).cast(pa.timestamp("us", column.type.tz))
        return transform.pyarrow_transform(TimestampType())(column.cast(pa.timestamp("us")))
    return transform.pyarrow_transform(source)(column)


def count_times(transform: TimeTransform[Any], column: pa.Array) -> pa.Int32Array:
    """Return years, months, days or hours since 1970, downwards; of any year, as PostgreSQL's infinities are told.

    Hours have 32 bits in Iceberg, whatever the year.
    """
    seconds = 24 * 3600 if not isinstance(transform, HourTransform) else 3600
    is_date = pa.types.is_date(column.type)
    counted = np.asarray(_divide(column, 1 if is_date else seconds * _UNITS_PER_SECOND[column.type.unit]).fill_null(0))
    if isinstance(transform, YearTransform | MonthTransform):
        unit = "Y" if isinstance(transform, YearTransform) else "M"
        counted = counted.astype("datetime64[D]").astype(f"datetime64[{unit}]")
    return pa.array(counted.astype(np.int64).astype(np.int32), mask=np.asarray(column.is_null()))


def _divide(column: pa.Array, by: int) -> pa.Int64Array:
    """Divide what a column of times stores, downwards."""
    stored = np.asarray(to_stored_values(column).fill_null(0), np.int64)
    return pa.array(np.floor_divide(stored, by), mask=np.asarray(column.is_null()))


def _build_partition(row: list[Any], spec: PartitionSpec, schema: Schema) -> Partition:
    folders, values = list[str](), list[Any]()
    for field, value in zip(spec.fields, row, strict=True):
        if isinstance(field.transform, VoidTransform):
            values.append(None)
            continue
        source = schema.find_field(field.source_id).field_type
        encoded = None if value is None else encode_json(result_type(field, source), value)
        folders.append(_folder_name(field, source, value, encoded))
        values.append(encoded)
    return Partition("/".join(folders), tuple(values))


def _folder_name(field: PartitionField, source: IcebergType, value: Any, encoded: Any) -> str:
    """Name a partition's folder; nothing reads it."""
    if value is not None and isinstance(field.transform, HourTransform):
        text = f"{format_date(value // 24)}-{value % 24:02d}"
    elif isinstance(source, _JSON_NAMED_TYPES) and isinstance(encoded, str):
        text = encoded
    else:
        text = field.transform.to_human_string(source, value)
    name = f"{quote_plus(field.name)}={quote_plus(text)}"
    return (
        name
        if len(name) <= _MAX_FOLDER_CHARS
        else f"{name[:_MAX_FOLDER_CHARS]}-{sha256(name.encode()).hexdigest()[:16]}"
    )


def result_type(field: PartitionField, source: IcebergType) -> PrimitiveType:
    """Return the type of a partition value as Iceberg's JSON sees it: a day is a date, other times are numbers."""
    if isinstance(field.transform, DayTransform):
        return DateType()
    if isinstance(field.transform, TimeTransform):
        return IntegerType()
    return cast("PrimitiveType", field.transform.result_type(source))
