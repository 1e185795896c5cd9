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
    "Weird_Table": ("Id",),
    "defaults_t": ("id",),
    "trunc_me": ("id",),
    "toasty": ("id",),
    "exotic": ("id",),
    "debezium_signal": ("id",),
}
# The columns of exotic whose values Iceberg's types have no room for: 24:00:00, infinity, years before Christ.
AS_TEXT = ("ts", "tz", "dt", "tm")
# The variants whose values carry a schema.
TYPED = frozenset(
    {"json_schema_envelope", "json_schema_envelope_truenulls", "json_schema_unwrap_rewrite", "avro_envelope"}
)
# (table, column) -> keys of rows whose true value no event carries.
UNKNOWABLE: Mapping[tuple[str, str], frozenset[int]] = {
    ("evolve", "c"): frozenset({1, 5}),  # dropped, later added again with another type
    ("evolve", "g"): frozenset({1, 2, 4, 5}),  # ADD COLUMN with DEFAULT sends no events for old rows
    # A generated column is in snapshots and in no later event: that looks just as if it had been dropped.
    ("defaults_t", "gen"): frozenset({1}),
    # Debezium writes an array of arrays as the addresses of its Java objects.
    ("exotic", "ta2"): frozenset({1}),
}
# A NULL in a column with a default arrives as the default, but in the *_truenulls recording.
DEFAULTED: Mapping[tuple[str, str], frozenset[int]] = {
    ("evolve", "e"): frozenset({5}),
    ("defaults_t", "d"): frozenset({1}),
}
TRUE_NULLS = "json_schema_envelope_truenulls"
# RENAME COLUMN b TO bee: rows whose last event is older hold the value under the old name.
RENAMED: Mapping[tuple[str, str], str] = {
    ("evolve", "bee"): "b",
    # Names that Avro does not allow.
    ("Weird_Table", "a.b"): "a_b",
    ("Weird_Table", "with space"): "with_space",
    ("Weird_Table", "1st"): "_1st",
    ("Weird_Table", "\u00dcn\u00efcode col"): "_n_code_col",
}
# Scales a numeric column has had besides its last one (ALTER evolve.d TYPE numeric(12,4)).
OLD_SCALES: Mapping[tuple[str, str], frozenset[int]] = {("evolve", "d"): frozenset({2})}
SCALES = {"balance": 2, "price": 4, "n": 2, "d": 4, "g": 2, "num38": 10, "na": 2, "m": 2, "with space": 1}
# Scales of columns whose name another table has too.
OWN_SCALES = {("defaults_t", "price"): 2}
# The transform in json_unwrap_drop swallows deletes, the ones of a key change included: these rows stay.
DROPPED: Mapping[str, frozenset[KeyValues]] = {
    "customers": frozenset({(-1,), (3,), (4,), (5,), (8,)}),
    "order_lines": frozenset({(100, 2), (101, 1)}),
    "full_pk": frozenset({(1,), (2,)}),
    "uuid_key": frozenset({("aaaaaaaa-0000-0000-0000-000000000002",)}),
    "evolve": frozenset({(3,), (6,)}),
    "Weird_Table": frozenset({(1,)}),
    "defaults_t": frozenset({(2,)}),
    "toasty": frozenset({(1,), (3,)}),
}
# The transform drops truncates in every mode: what they removed stays.
TRUNCATED: Mapping[str, frozenset[KeyValues]] = {"trunc_me": frozenset({(2,), (3,)})}


def faults(variant: str, table: str, rows: Iterable[Row]) -> list[str]:
    """What differs between a hard-delete table of a variant and PostgreSQL; empty when nothing does."""
    rows = list(rows)
    found = {key_of(table, row): row for row in rows}
    name = "state_dups_final" if variant == recordings.DUPLICATES else "state_1_final"
    truth = {key_of(table, row): row for row in recordings.state(table, name)}
    allowed = DROPPED.get(table, frozenset()) if variant == "json_unwrap_drop" else frozenset()
    allowed |= TRUNCATED.get(table, frozenset()) if "unwrap" in variant else frozenset()
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
        scale = OWN_SCALES.get((table, column), SCALES.get(column, 0))
        scales = OLD_SCALES.get((table, column), frozenset()) | {scale}
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
