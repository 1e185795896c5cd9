"""Fields of events <-> columns of a table: by exact name, or whatever their case (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from serde.events.changes import Changes, rename_columns


def find_case_renames(names: Collection[str], columns: Iterable[str]) -> dict[str, str]:
    """Return names that differ from a column in case only, and the column's; an exact match of either wins."""
    exact = set(columns)
    given = set(names)
    free = {column.lower(): column for column in exact if column not in given}
    # Each column is taken once: by the first of several that differ in case only.
    return {n: free.pop(n.lower()) for n in dict.fromkeys(names) if n not in exact and n.lower() in free}


def match_case(change: Changes, columns: Iterable[str]) -> Changes:
    """Return the changes with fields renamed to the columns that differ from them in case only (top level)."""
    wanted = find_case_renames(change.row.type.names, columns)
    return rename_columns(change, wanted) if wanted else change


def merge_case_variants(kind: pa.StructType) -> pa.StructType:
    """Return a shape whose names differ in more than case: of those that do not, the first one's."""
    first: dict[str, pa.Field] = {}
    for field in kind:
        first.setdefault(field.name.lower(), field)
    return pa.struct(list(first.values()))
