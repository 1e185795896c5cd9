"""changes -> those whose columns one table can have side by side; the others as faults. Pure.

Iceberg names a field within a struct by its path: a column `a.b` and a field `b` of a struct `a` are one name, which no
schema may have twice (Iceberg spec, Schemas: "names").
"""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.types.schemas.full_names import find_ambiguous_columns
from connector.sink.convert.columns.event_shapes import drop_excluded, set_variant_types
from connector.sink.model.plan import BatchPlan, TablePlan
from serde.arrays import child_at, children
from serde.events.changes import Changes, filter_changes
from serde.faults import RecordError

_REASON = (
    "column {name!r} has the name of a field within another column, which a table cannot have: exclude one of both"
)


def refuse_ambiguous_names(
    change: Changes, table: TablePlan | None, plan: BatchPlan
) -> tuple[Changes | None, list[RecordError]]:
    """Return the changes without columns that no table can have beside the others, and faults for values of them.

    A column that the table has stays; of two new ones the first does. Cost: the names of the columns.
    """
    shape = drop_excluded(change.row.type, plan.excluded_columns)
    if plan.variants:
        shape = set_variant_types(shape, change.documents, table)
    lost = find_ambiguous_columns([] if table is None else table.layout.columns, shape)
    if not lost:
        return change, []
    faults: list[RecordError] = []
    keep = np.ones(len(change.rows), np.bool_)
    for name in lost:
        given = np.asarray(child_at(change.row, change.row.type.get_field_index(name)).is_valid()) & keep
        reason = _REASON.format(name=name)
        faults.extend(RecordError(row, "TASK_PUT", reason) for row in change.rows[given].tolist())
        keep &= ~given
    left = filter_changes(change, keep) if keep.any() else None
    return None if left is None else _drop_columns(left, lost), faults


def _drop_columns(change: Changes, lost: frozenset[str]) -> Changes:
    kept = [
        (field, column)
        for field, column in zip(change.row.type, children(change.row), strict=True)
        if field.name not in lost
    ]
    gone = change.row.is_null() if change.row.null_count else None
    row = pa.StructArray.from_arrays([column for _, column in kept], fields=[field for field, _ in kept], mask=gone)
    return attrs.evolve(change, row=row)
