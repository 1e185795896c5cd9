"""rows of a table -> faults against PostgreSQL's recorded end state, and what no consumer can know, by name.

Source of the exceptions: tests/fixtures/README.md ("what no consumer can know").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.model import recordings
from tests.model.values import is_state

Row = Mapping[str, Any]
KeyValues = tuple[Any, ...]
KEYS = {
    "customers": ("id",),
    "order_lines": ("order_id", "line_no"),
    "full_pk": ("id",),
    "uuid_key": ("id",),
    "evolve": ("id",),
}
# The variants whose values carry a schema.
TYPED = frozenset(
    {"json_schema_envelope", "json_schema_envelope_truenulls", "json_schema_unwrap_rewrite", "avro_envelope"}
)
# (table, column) -> keys of rows whose true value no event carries.
UNKNOWABLE: Mapping[tuple[str, str], frozenset[int]] = {
    ("evolve", "c"): frozenset({1, 5}),  # dropped, later added again with another type
    ("evolve", "g"): frozenset({1, 2, 4, 5}),  # ADD COLUMN with DEFAULT sends no events for old rows
}
# A NULL in a column with a default arrives as the default, but in the *_truenulls recording.
DEFAULTED: Mapping[tuple[str, str], frozenset[int]] = {("evolve", "e"): frozenset({5})}
TRUE_NULLS = "json_schema_envelope_truenulls"
# RENAME COLUMN b TO bee: rows whose last event is older hold the value under the old name.
RENAMED: Mapping[tuple[str, str], str] = {("evolve", "bee"): "b"}
# Scales a numeric column has had besides its last one (ALTER evolve.d TYPE numeric(12,4)).
OLD_SCALES: Mapping[tuple[str, str], frozenset[int]] = {("evolve", "d"): frozenset({2})}
SCALES = {"balance": 2, "price": 4, "n": 2, "d": 4, "g": 2}
# The transform in json_unwrap_drop swallows deletes, the ones of a key change included: these rows stay.
DROPPED: Mapping[str, frozenset[KeyValues]] = {
    "customers": frozenset({(-1,), (3,), (4,), (5,), (8,)}),
    "order_lines": frozenset({(100, 2), (101, 1)}),
    "full_pk": frozenset({(1,), (2,)}),
    "uuid_key": frozenset({("aaaaaaaa-0000-0000-0000-000000000002",)}),
    "evolve": frozenset({(3,), (6,)}),
}


def faults(variant: str, table: str, rows: Iterable[Row]) -> list[str]:
    """What differs between a hard-delete table of a variant and PostgreSQL; empty when nothing does."""
    rows = list(rows)
    found = {key_of(table, row): row for row in rows}
    name = "state_dups_final" if variant == recordings.DUPLICATES else "state_1_final"
    truth = {key_of(table, row): row for row in recordings.state(table, name)}
    allowed = DROPPED[table] if variant == "json_unwrap_drop" else frozenset()
    out = [] if len(found) == len(rows) else ["a key stands in two rows"]
    out += [f"row {key} is missing" for key in sorted(set(truth) - set(found))]
    out += [f"row {key} must be gone" for key in sorted(set(found) - set(truth) - allowed)]
    out += [f"row {key} is not there" for key in sorted(allowed - set(found))]
    for key in sorted(set(truth) & set(found)):
        out += _row_faults(variant, table, truth[key], found[key])
    return out


def key_of(table: str, row: Row) -> KeyValues:
    """The values of a row's identifier fields."""
    return tuple(row[c] for c in KEYS[table])


def _row_faults(variant: str, table: str, truth: Row, found: Row) -> list[str]:
    types, key = recordings.column_types(table), key_of(table, truth)
    out = []
    for column, value in truth.items():
        if key[0] in _unknowable(variant, table, column):
            continue
        scales = OLD_SCALES.get((table, column), frozenset()) | {SCALES.get(column, 0)}
        read = _read(table, column, found)
        if not is_state(types[column], value, read, typed=variant in TYPED, scales=scales):
            out.append(f"{key} {column}: PostgreSQL has {value!r}, the table {read!r}")
    return out


def _unknowable(variant: str, table: str, column: str) -> frozenset[int]:
    defaulted = DEFAULTED.get((table, column), frozenset()) if variant != TRUE_NULLS else frozenset()
    return UNKNOWABLE.get((table, column), frozenset()) | defaulted


def _read(table: str, column: str, found: Row) -> Any:
    """The value, where it stands; a column that once was text may hold a later number as text (evolve.c)."""
    value = found.get(column)
    if value is None:
        value = found.get(RENAMED.get((table, column), column))
    if (table, column) == ("evolve", "c") and isinstance(value, str) and value.isdigit():
        return int(value)
    return value
