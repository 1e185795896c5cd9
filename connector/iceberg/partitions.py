"""Rows -> rows by partition: partition values, a column at a time, by Iceberg's transforms (spec, "Partitioning")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import quote_plus

import attrs
import numpy as np
import pyarrow as pa
from pyiceberg.conversions import to_json
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, TimeTransform
from pyiceberg.types import DateType, IcebergType, IntegerType, PrimitiveType

from connector.iceberg.codes import key_codes
from connector.iceberg.nested import column_of


@attrs.frozen
class Partition:
    """One partition: its folder below the data path, and its values as Iceberg's JSON has them."""

    path: str
    json: tuple[Any, ...]


UNPARTITIONED = Partition("", ())


def split(batch: pa.RecordBatch, spec: PartitionSpec, schema: Schema) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Give the rows of each partition, in the order of the partitions' first rows.

    Cost: one transform per partition field, one sort by partition, one gather of the rows.
    """
    if spec.is_unpartitioned():
        yield UNPARTITIONED, batch
        return
    values = [_values(batch, field, schema) for field in spec.fields]
    groups = key_codes(values)
    sequence = np.argsort(groups, kind="stable")
    bounds = np.flatnonzero(np.diff(groups[sequence], prepend=-1))
    for start, stop in zip(bounds, [*bounds[1:], len(sequence)], strict=True):
        rows = sequence[start:stop]
        row = [column[int(rows[0])].as_py() for column in values]
        part = batch if len(bounds) == 1 else batch.take(pa.array(rows))
        yield _partition(row, spec, schema), part


def _values(batch: pa.RecordBatch, field: PartitionField, schema: Schema) -> pa.Array:
    source = schema.find_field(field.source_id)
    column = column_of(batch, str(schema.find_column_name(field.source_id)))
    return field.transform.pyarrow_transform(source.field_type)(column)


def _partition(row: list[Any], spec: PartitionSpec, schema: Schema) -> Partition:
    folders, values = [], []
    for field, value in zip(spec.fields, row, strict=True):
        source = schema.find_field(field.source_id).field_type
        text = field.transform.to_human_string(source, value)
        folders.append(f"{quote_plus(field.name)}={quote_plus(text)}")
        values.append(None if value is None else to_json(_result_type(field, source), value))
    return Partition("/".join(folders), tuple(values))


def _result_type(field: PartitionField, source: IcebergType) -> PrimitiveType:
    """Give the type of a partition value as Iceberg's JSON sees it: a day is a date, other times are numbers."""
    if isinstance(field.transform, DayTransform):
        return DateType()
    if isinstance(field.transform, TimeTransform):
        return IntegerType()
    return cast("PrimitiveType", field.transform.result_type(source))
