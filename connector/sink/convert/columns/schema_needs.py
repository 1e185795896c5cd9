"""changes, table -> what the table lacks for them: itself, columns, wider types, optional fields."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from connector.iceberg.types.dotted_names import Path
from connector.iceberg.types.required_values import find_missing_values
from connector.iceberg.types.schemas.schema_evolution import contains, evolve
from connector.sink.convert.change_order import read_dedup_values
from connector.sink.convert.columns.event_shapes import (
    drop_absent_fields,
    drop_excluded,
    find_excluded,
    narrow_to_table,
    set_variant_types,
)
from connector.sink.convert.columns.value_conversion import has_write_default
from connector.sink.convert.record_keys import RecordKeys
from connector.sink.model.plan import VALID_FROM, BatchPlan, SchemaChange, TablePlan
from serde.arrays import children
from serde.events.changes import DELETED_COLUMN, Changes
from serde.events.images.document_patches import PATCH_COLUMN


def find_schema_change(
    topic: str, change: Changes, keys: RecordKeys | None, table: TablePlan | None, plan: BatchPlan
) -> SchemaChange | None:
    """Return what the table lacks for these changes, None where it has everything."""
    shape = drop_excluded(change.row.type, plan.excluded_columns | {PATCH_COLUMN})
    loose = frozenset[Path]() if table is None else _find_relaxed_fields(change, table, plan)
    if table is not None and not loose and contains(table.layout.columns, shape):
        return None
    if plan.routing is not None:
        shape = drop_absent_fields(shape, change)
    if plan.variants:
        shape = set_variant_types(shape, change.documents, table)
    if table is not None:
        columns = table.layout.columns
        if not change.optional:
            shape = narrow_to_table(change.row, shape, columns)
        if not loose and evolve(columns, shape, add=plan.evolve).equals(columns):
            return None
    key = keys.type_of(change.rows) if keys is not None and len(keys.columns) else None
    dated = read_dedup_values(change, plan.dedup_column).null_count == 0
    return SchemaChange(topic, shape, key, change.optional, dated=dated, relaxed=loose)


def _find_relaxed_fields(change: Changes, table: TablePlan, plan: BatchPlan) -> frozenset[Path]:
    """Return what the table requires and the source, by its schema, does not any more: rows lack it.

    Columns, and fields within structs, lists and maps. Identifier fields stay required, as Iceberg wants it; so do
    keys, the structs around either, and what is in the keys of maps. Without a schema a lacking value proves nothing.
    """
    layout = table.layout
    if not plan.evolve or not change.optional or not (layout.required or layout.nested_required):
        return frozenset()
    written = np.asarray(change.row.is_valid()) & ~change.deleted
    if not written.any():
        return frozenset()
    named = zip(change.row.type.names, children(change.row), strict=True)
    left_out = find_excluded(table, plan)
    columns = {name: column for name, column in named if name not in left_out}
    absent = {
        (name,)
        for name in layout.required
        if name not in columns and name not in (VALID_FROM, DELETED_COLUMN)
        if not has_write_default(layout.columns.field(name), table)
    }
    nulls = {
        (name,)
        for name in layout.required
        if name in columns and change.optional.get(name) and columns[name].null_count
        if (np.asarray(columns[name].is_null()) & written).any()
    }
    nested = {
        missing.path
        for field in layout.nested_required
        if field.name in columns
        for missing in find_missing_values(columns[field.name], field)
        if not missing.in_key and missing.path not in layout.fixed_paths
        if missing.absent or change.optional.get(".".join(missing.path))
        if (missing.rows & written).any()
    }
    return frozenset(absent | nulls | nested)


def find_unknown_fields(change: Changes, table: TablePlan, plan: BatchPlan) -> Iterator[str]:
    """Return the fields of events that the table does not have; what unwrapping added is not theirs."""
    known, prefix = set(table.layout.columns.names), plan.events.add_fields_prefix
    for field in change.row.type if plan.routing is None else drop_absent_fields(change.row.type, change):
        ours = field.name == DELETED_COLUMN or (bool(prefix) and field.name.startswith(prefix))
        if field.name not in known and not ours and field.name not in plan.excluded_columns | {PATCH_COLUMN}:
            yield field.name
