"""Rows -> the same in a table's sort order (spec, "Sorting"), a column at a time. On executors."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder

from connector.iceberg.write.partitioning import transform_column


def is_sortable(order: SortOrder, schema: Schema) -> bool:
    """Tell whether rows can be put in this order here: there is one, and all of its columns are of the top level."""
    top = {field.field_id for field in schema.fields}
    return bool(order.fields) and all(field.source_id in top for field in order.fields)


def sort_rows(rows: pa.Table, order: SortOrder, schema: Schema) -> pa.Table:
    """Sort rows.

    Args:
        rows: columns of the schema, by name.
        order: a sortable one.
        schema: the table's.

    Cost: one sort of the keys, one gather of the rows.
    """
    columns: dict[str, pa.Array] = {}
    keys: list[tuple[str, str]] = []
    for place, field in enumerate(order.fields):
        source = schema.find_field(field.source_id)
        column = transform_column(field.transform, rows.column(source.name).combine_chunks(), source.field_type)
        columns[f"null{place}"] = pc.is_null(column)
        columns[f"value{place}"] = column.storage if isinstance(column, pa.ExtensionArray) else column
        first = field.null_order == NullOrder.NULLS_FIRST
        down = field.direction == SortDirection.DESC
        keys.append((f"null{place}", "descending" if first else "ascending"))
        if pa.types.is_floating(column.type):
            # What is no number is above all others; Arrow has it last, whatever the direction.
            columns[f"nan{place}"] = pc.is_nan(column).fill_null(False)
            keys.append((f"nan{place}", "descending" if down else "ascending"))
        keys.append((f"value{place}", "descending" if down else "ascending"))
    return rows.take(pc.sort_indices(pa.table(columns), sort_keys=keys))
