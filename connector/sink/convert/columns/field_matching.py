"""Fields of events <-> columns of a table: by exact name, or whatever their case (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.values.conversion import convert
from connector.sink.model.plan import SchemaChange
from serde.arrays import children
from serde.events.changes import Changes, filter_changes, rename_columns
from serde.faults import RecordError

_REASON = "fields {first} and {other} differ in case only, and their values in type: one column cannot have both"


def find_case_renames(names: Collection[str], columns: Iterable[str]) -> dict[str, str]:
    """Return names that differ from a column in case only, and the column's; an exact match of either wins.

    Of several columns that differ in case only it is the first: the same one in every process.
    """
    exact = dict.fromkeys(columns)
    given = set(names)
    free = {column.lower(): column for column in reversed(exact) if column not in given}
    # Each column is taken once: by the first of several that differ in case only.
    return {n: free.pop(n.lower()) for n in dict.fromkeys(names) if n not in exact and n.lower() in free}


def match_names(names: Iterable[str], columns: Iterable[str]) -> tuple[str, ...]:
    """Return names that settings give (`a`, or `a.b` within a column) as the columns have them, whatever their case."""
    parts = [name.partition(".") for name in names]
    found = find_case_renames([first for first, *_ in parts], columns)
    return tuple(f"{found.get(first, first)}{dot}{rest}" for first, dot, rest in parts)


def match_case(change: Changes, columns: Iterable[str]) -> tuple[Changes | None, list[RecordError]]:
    """Return the changes with fields renamed to the columns that differ from them in case only (top level).

    Events of one block may write a name in several ways: those become one column. Where a row gives several, it has the
    value under the column's own name, or the first one. A value that does not fit those of other rows is a fault.
    """
    columns = set(columns)
    wanted = find_case_renames(change.row.type.names, columns)
    change = rename_columns(change, wanted) if wanted else change
    names = change.row.type.names
    groups: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: name not in columns):
        groups.setdefault(name.lower(), []).append(name)
    # Columns that a table has already stay what they are, however alike.
    merged = {some[0]: [n for n in some[1:] if n not in columns] for some in groups.values() if len(some) > 1}
    merged = {first: others for first, others in merged.items() if others}
    return _merge_columns(change, merged) if merged else (change, [])


def split_spellings(change: Changes, columns: Iterable[str]) -> list[Changes]:
    """Return changes without schema in parts of which each writes a table's column in one way.

    Only where values under several spellings are of different types: what each of them becomes in the column, it
    becomes beside others too. Other changes stay as they are.
    """
    columns = set(columns)
    folded = {name.lower() for name in columns}
    groups: dict[str, list[str]] = {}
    for name in sorted(change.row.type.names, key=lambda name: name not in columns):
        if name.lower() in folded:
            groups.setdefault(name.lower(), []).append(name)
    fields = dict(zip(change.row.type.names, children(change.row), strict=True))
    unlike = [names for names in groups.values() if len(names) > 1 and _differ([fields[name] for name in names])]
    if change.optional or not unlike:
        return [change]
    codes = np.zeros(len(change.rows), np.int64)
    for names in unlike:
        given = np.array([np.asarray(fields[name].is_valid()) for name in names])
        codes = codes * len(names) + np.argmax(given, axis=0)
    spelled = {name for names in unlike for name in names}
    return [_drop_nulls(filter_changes(change, codes == code), spelled) for code in np.unique(codes)]


def _differ(columns: Iterable[pa.Array]) -> bool:
    """Tell whether columns are of several types that one of them may not become."""
    return len({column.type for column in columns if not _is_hollow(column)}) > 1


def _drop_nulls(change: Changes, names: Collection[str]) -> Changes:
    kept = [
        (field, column)
        for field, column in zip(change.row.type, children(change.row), strict=True)
        if field.name not in names or column.null_count < len(column)
    ]
    gone = change.row.is_null() if change.row.null_count else None
    fields = [field for field, _ in kept]
    if not fields:
        return change
    return attrs.evolve(
        change, row=pa.StructArray.from_arrays([column for _, column in kept], fields=fields, mask=gone)
    )


def _merge_columns(change: Changes, merged: dict[str, list[str]]) -> tuple[Changes | None, list[RecordError]]:
    columns = dict(zip(change.row.type.names, children(change.row), strict=True))
    faults, keep = list[RecordError](), np.ones(len(change.rows), np.bool_)
    for first, others in merged.items():
        for other in others:
            column, given = _fill_hollow(columns[first], columns.pop(other))
            if pa.types.is_null(column.type) or column.type.equals(given.type):
                columns[first] = given if pa.types.is_null(column.type) else pc.coalesce(column, given)
                continue
            unfit = np.asarray(pc.and_(column.is_null(), given.is_valid())) & keep
            reason = _REASON.format(first=first, other=other)
            faults.extend(RecordError(row, "TASK_PUT", reason) for row in change.rows[unfit].tolist())
            keep &= ~unfit
    gone = change.row.is_null() if change.row.null_count else None
    row = pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=gone)
    change = attrs.evolve(change, row=row)
    return (change if keep.all() else filter_changes(change, keep) if keep.any() else None), faults


def _fill_hollow(one: pa.Array, other: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return both; one that has nothing but empty lists and objects, whose type is a guess, by the other's type."""
    if pa.types.is_null(one.type) or one.type.equals(other.type):
        return one, other
    if _is_hollow(other):
        made, bad = convert(other, one.type)
        return (one, made) if bad is None else (one, other)
    made, bad = convert(one, other.type) if _is_hollow(one) else (one, None)
    return (made, other) if bad is None else (one, other)


def _is_hollow(column: pa.Array) -> bool:
    """Tell whether a column of lists or objects has none but empty ones."""
    if column.null_count == len(column):
        return True
    if pa.types.is_list(column.type):
        return _is_hollow(column.flatten())
    return pa.types.is_struct(column.type) and all(map(_is_hollow, children(column)))


def match_key_shapes(needs: Iterable[SchemaChange], columns: Iterable[str]) -> list[SchemaChange]:
    """Return what a new table needs, with the fields of record keys named as columns are, whatever their case."""
    names = list(columns)
    return [need if need.key is None else attrs.evolve(need, key=match_shape(need.key, names)) for need in needs]


def match_shape(kind: Iterable[pa.Field], columns: Iterable[str]) -> pa.StructType:
    """Return a shape with the names that columns have, whatever their case; of fields that share one, the first one."""
    fields = merge_case_variants(kind)
    wanted = find_case_renames([field.name for field in fields], columns)
    return pa.struct([field.with_name(wanted.get(field.name, field.name)) for field in fields])


def merge_case_variants(kind: Iterable[pa.Field]) -> pa.StructType:
    """Return a shape whose names differ in more than case: of those that do not, the first one's."""
    first: dict[str, pa.Field] = {}
    for field in kind:
        first.setdefault(field.name.lower(), field)
    return pa.struct(list(first.values()))
