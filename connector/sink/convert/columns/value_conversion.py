"""Columns of changes -> columns of the table's types, and the rows whose values do not fit them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.read.initial_defaults import default_column, field_id_of, parse_write_defaults
from connector.iceberg.types.values.lenient_conversion import coerce, convert_required
from connector.iceberg.types.values.variants import MAX_VARIANT_BYTES, to_json_text
from connector.settings.converters.event_format import TYPE_CHANGES
from connector.sink.convert.columns.base64_decimals import find_base64
from connector.sink.convert.columns.event_shapes import find_excluded
from connector.sink.convert.columns.type_changes import has_other_type
from connector.sink.convert.number_keys import unify_numbers
from connector.sink.model.plan import IS_CURRENT, VALID_FROM, VALID_TO, BatchPlan, TablePlan
from serde.arrays import Mask, children, valid_mask
from serde.events.changes import DELETED_COLUMN, Changes
from serde.events.images.document_patches import PATCH_COLUMN


def convert_columns(
    change: Changes, table: TablePlan, plan: BatchPlan
) -> tuple[dict[str, pa.Array], dict[int, str], int]:
    """Convert each column of the rows to the table's type; the second result tells why rows (by index) do not fit.

    Where tables follow their events a value that does not fit is a fault; where they do not, lenient conversion
    holds (`types.lenient_conversion`), and the third result counts the values that became null by it.
    """
    result: dict[str, pa.Array] = {}
    bad: dict[int, str] = {}
    nulled = 0
    # Of a row that is removed only the key matters.
    removed = change.deleted & (table.upsert and not table.keep_deletes and not table.history)
    left_out = find_excluded(table, plan) | {PATCH_COLUMN}
    named = zip(change.row.type.names, children(change.row), strict=True)
    fields = {name: column for name, column in named if name not in left_out}
    if not plan.evolve:
        bad.update(_find_unmatched_rows(change, fields, table))
    for field in table.layout.columns:
        column = fields.get(field.name)
        if column is None:
            result[field.name] = _fill_absent(field, change, table)
            continue
        if field.name in table.layout.variants:
            column, long = _to_variant_text(column, change)
            bad.update((int(i), f"column {field.name}: a document of more than 16 MiB") for i in np.flatnonzero(long))
        has_schema, is_key = bool(change.optional), field.name in table.layout.key_columns
        result[field.name], faults, lost = _convert_column(
            column,
            field,
            strict=plan.evolve,
            required=is_key or not field.nullable,
            overwritten=table.keyed and field.name in table.layout.keys,
            has_schema=has_schema,
        )
        nulled += lost
        faults = faults if is_key else _forgive(faults, removed)
        if faults is not None:
            reason = f"column {field.name}: a value of type {column.type} does not fit the table's {field.type}"
            if has_schema and has_other_type(pa.field(field.name, column.type), table.layout):
                reason += f"; {TYPE_CHANGES.name}=new-column gives values of that type a column of their own"
            bad.update((int(i), reason) for i in np.flatnonzero(faults))
        unwritable = table.layout.find_unwritable_values(result[field.name])
        if unwritable is not None:
            places = np.flatnonzero(unwritable[0] if is_key else unwritable[0] & ~removed)
            bad.update((int(i), f"column {field.name}: {unwritable[1]}") for i in places)
    unify_numbers(result, change.numbers & set(table.layout.keys) if table.upsert else ())
    return result, bad, nulled


def has_write_default(field: pa.Field, table: TablePlan) -> bool:
    """Tell whether a column of a table has a value of its own in rows of events that lack it (Iceberg's format 3)."""
    ours = (DELETED_COLUMN, *((VALID_FROM, VALID_TO, IS_CURRENT) if table.history else ()))
    if field.name in table.layout.key_columns or field.name in ours:
        return False
    return field_id_of(field) in parse_write_defaults(table.layout.schema_json)


def _fill_absent(field: pa.Field, change: Changes, table: TablePlan) -> pa.Array:
    """Return a column that the events do not have.

    By their schema, that is: without one an event that lacks a field looks as if it had null, beside one that has it.
    An event that tells some columns only, as its patch says, says nothing of the others.
    """
    if not change.optional or not has_write_default(field, table):
        return pa.nulls(len(change.rows), field.type)
    column = default_column(field, len(change.rows), parse_write_defaults(table.layout.schema_json))
    is_whole, patch = valid_mask(change.row), change.row.type.get_field_index(PATCH_COLUMN)
    if patch >= 0:
        is_whole = is_whole & ~valid_mask(children(change.row)[patch])
    return column.take(pa.array(np.arange(len(column)), mask=~is_whole))


def _convert_column(
    column: pa.Array, field: pa.Field, *, strict: bool, required: bool, overwritten: bool, has_schema: bool
) -> tuple[pa.Array, Mask | None, int]:
    """Convert a column; the other results mark the rows that do not fit, and count values that became null instead.

    Only a column that is neither `strict` nor `required` has such nulls. `overwritten`: it gets the value of the
    record's key, whatever its own is.
    """
    suspect = None if has_schema else find_base64(column, field.type)
    if strict or required:
        values, faults = convert_required(column, field.type, lenient=not strict)
        if overwritten:
            # What is a number here may be another one in a key without schema, too.
            faults, suspect = None, None if suspect is None else suspect & valid_mask(values)
        return (*_take_back(values, faults, suspect), 0)
    values, _, lost = coerce(column, field)
    kept, _ = _take_back(values, None, suspect)
    return kept, None, lost + kept.null_count - values.null_count


def _forgive(faults: Mask | None, rows: Mask) -> Mask | None:
    left = None if faults is None else faults & ~rows
    return left if left is not None and left.any() else None


def _to_variant_text(column: pa.Array, change: Changes) -> tuple[pa.Array, Mask]:
    text = to_json_text(column, keep_nulls=bool(change.optional))
    return text, np.asarray(pc.greater(pc.binary_length(text), MAX_VARIANT_BYTES).fill_null(False))


def _take_back(values: pa.Array, faults: Mask | None, suspect: Mask | None) -> tuple[pa.Array, Mask | None]:
    """Return a column without the values that are suspect, and faults for these, too."""
    if suspect is None:
        return values, faults
    kept = values.take(pa.array(np.arange(len(values)), mask=suspect))
    return kept, suspect if faults is None else suspect | faults


def _find_unmatched_rows(change: Changes, fields: Mapping[str, pa.Array], table: TablePlan) -> dict[int, str]:
    """Return the rows that have fields, and none that the table has: each is a dead letter."""
    known = set(table.layout.columns.names)
    matched = np.zeros(len(change.rows), np.bool_)
    for name, column in fields.items():
        if name in known and name != DELETED_COLUMN:
            if not column.null_count:
                return {}
            matched |= np.asarray(column.is_valid())
    image = np.asarray(change.row.is_valid())
    if any(name in known for name in fields) and change.optional:
        return {}
    others = np.zeros(len(change.rows), np.bool_)
    for name, column in fields.items():
        if name not in known:
            others |= np.asarray(column.is_valid())
    return dict.fromkeys(
        np.flatnonzero(image & ~matched & others).tolist(), "no field of the event is a column of the table"
    )
