"""Columns of rows -> the rows that lack what their table requires. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from connector.iceberg.types.dotted_names import Path
from connector.iceberg.types.nested_columns import read_path
from connector.iceberg.types.required_values import find_missing_values
from connector.sink.model.plan import TablePlan
from serde.arrays import Mask
from serde.events.changes import Changes
from serde.faults import RecordError


def check_required(columns: dict[str, pa.Array], change: Changes, image: Mask, table: TablePlan) -> list[RecordError]:
    """Return the rows that lack what the table requires; a row that is removed needs its key only."""
    written = image & ~change.deleted if table.upsert and not table.keep_deletes else image
    faults = []
    for field in table.layout.columns:
        key = table.upsert and table.keys_from == "value" and field.name in table.layout.keys
        if (field.nullable and not key) or (table.keyed and field.name in table.layout.keys):
            continue
        if columns[field.name].null_count:
            lacking = np.asarray(columns[field.name].is_null()) & (True if key else written)
            reason = f"column {field.name} is {'a key' if key else 'required'}, and the event has no value for it"
            faults += [RecordError(int(change.rows[i]), "TASK_PUT", reason) for i in np.flatnonzero(lacking)]
    faults += _check_required_nested(columns, change, written, table)
    return faults


def _check_required_nested(
    columns: dict[str, pa.Array], change: Changes, written: Mask, table: TablePlan
) -> Iterator[RecordError]:
    """Return the rows that lack a key within a struct, or what the table requires within values that they have."""
    keys = [path for path in table.layout.key_paths if len(path) > 1] if table.upsert else []
    for path in keys if table.keys_from == "value" else ():
        yield from _report_missing(change, path, "a key", np.asarray(read_path(columns[path[0]], path[1:]).is_null()))
    for field in table.layout.nested_required:
        for missing in find_missing_values(columns[field.name], field):
            if missing.path not in keys:
                yield from _report_missing(change, missing.path, "required", written & missing.rows)


def _report_missing(change: Changes, path: Path, what: str, where: Mask) -> Iterator[RecordError]:
    reason = f"column {'.'.join(path)} is {what}, and the event has no value for it"
    yield from (RecordError(int(change.rows[i]), "TASK_PUT", reason) for i in np.flatnonzero(where))
